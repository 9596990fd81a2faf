"""The numbers of the READMEs that report results, recomputed in a few lines from the data beside them.

Every table of ``results/*/README.md`` needs an entry in `TABLES`: a function that is given the labels of a row
and the head of a column, and returns the numbers of that cell. Numbers agree to the last printed digit.
"""

import hashlib
import itertools
import json
import math
import re
import tarfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy.stats import binom

from actlab.analysis.power import detectable, power
from actlab.config.identity import counted, identity_of
from actlab.storage.files import read_json
from actlab.studies.folders import COSTS
from actlab.studies.formats import Cost
from recomputed import below, column_of, within

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
READMES = sorted(RESULTS.glob("*/README.md"))
UNITS = {
    **{"GELU": "gelu_tanh", "ReLU": "relu", "ELU": "elu", "leaky ReLU": "leaky_relu"},
    **{"SReLU": "srelu", "shifted ReLU": "srelu"},
}
UNIT, DROPOUT, LR = "model.activation", "model.network.dropout", "model.optimizer.lr"
MOMENTUM = "model.optimizer.momentum"
NUMBER = re.compile(r"[−-]?(?:\d[\d,]*)?\.?\d+")
Numbers = list[float]


@cache
def values(study: str, stage: str = "") -> pd.DataFrame:
    return pd.read_csv(RESULTS / study / stage / "values.csv")


@cache
def curves(study: str) -> pd.DataFrame:
    return pd.read_csv(RESULTS / study / "curves.csv", dtype={"panel": str})


@cache
def published(study: str) -> list[dict[str, Any]]:
    entries = yaml.safe_load((ROOT / f"configs/studies/{study}.yaml").read_text())["published"]["values"]
    return [{"value": e["value"], "key": (e["metric"], e["at"]), **e["where"]} for e in entries]


def theirs(study: str, metric: str, at: Any, **where: Any) -> Numbers:
    """The published value; nothing where the paper has none."""
    wanted = {"key": (metric, at), **{key.replace("__", "."): value for key, value in where.items()}}
    return [e["value"] for e in published(study) if all(e.get(k) == v for k, v in wanted.items())]


def rows(study: str, n: int, stage: str = "", **where: Any) -> pd.DataFrame:
    """The runs of one setting, ``n`` of them; ``a__b`` stands for the key ``a.b``."""
    found = values(study, stage)
    for key, value in where.items():
        found = found[found[key.replace("__", ".")] == value]
    assert len(found) == n, where
    return found


def curve(study: str, metric: str, line: str, x: float, panel: str = "") -> pd.Series:
    """One place of a drawn line: median, low and high."""
    found = curves(study)
    found = found[(found["metric"] == metric) & (found["line"] == line) & np.isclose(found["x"], x)]
    return found[(found["panel"] == panel) | (panel == "")].iloc[0]


def interval(sample: Any) -> Numbers:
    """The narrowest order statistics, symmetric in rank, that hold the median with 95 % confidence."""
    ordered = np.sort(np.asarray(sample))
    n = len(ordered)
    k = max(k for k in range(1, n // 2 + 1) if 1 - 2 * binom.cdf(k - 1, n, 0.5) >= 0.95)
    return [ordered[k - 1], ordered[n - k]]


def with_range(sample: Any) -> Numbers:
    return [np.median(sample), min(sample), max(sample)]


def number_in(label: str) -> float:
    return float(re.findall(r"\d*\.?\d+(?:e-\d+)?", label)[0])


def gelu_cifar10(row: list[str], column: str) -> Numbers:
    log = pd.read_csv(RESULTS / "gelu_cifar10/metrics.csv")
    of_epoch = log[log["epoch"] == number_in(row[0]) - 1]
    return [100 * of_epoch["train/error" if "training" in column else "test/error"].dropna().item()]


def gelu_mnist_classifier(row: list[str], column: str) -> Numbers:
    where: dict[str, Any] = {
        "model__activation": UNITS[column],
        "model__network__dropout": 0.5 * ("0.5" in row[0]),
    }
    runs = rows("gelu_mnist_classifier", 15, **where)
    paper = theirs("gelu_mnist_classifier", "train/clean_loss", "last", **where)
    return [runs["train/clean_loss@last"].median(), *paper]


def gelu_mnist_noise(row: list[str], column: str) -> Numbers:
    runs = rows("gelu_mnist_noise", 15, model__activation=UNITS[row[0].partition(",")[0]])
    return [100 * runs[f"noise/test/error[noise={column}]@last"].median()]


def gelu_mnist_autoencoder(row: list[str], column: str) -> Numbers:
    where: dict[str, Any] = {"model__activation": UNITS[column], "model__optimizer__lr": number_in(row[0])}
    runs = rows("gelu_mnist_autoencoder", 3, **where)
    return [runs["test/loss@25"].median(), *theirs("gelu_mnist_autoencoder", "test/loss", 25, **where)]


def with_interval(runs: pd.DataFrame, label: str) -> Numbers:
    """The median of what the label names, and its interval; errors in percent."""
    name = {
        "lowest validation loss": "val/loss@best",
        "mean training loss of epochs 5 to 50": "train/clean_loss@mean 5-50",
        "training loss after 20 epochs": "train/clean_loss@last",
        "test error % after 20 epochs": "test/error@last",
        "test error % after 50 epochs": "test/error@last",
    }[label]
    found = runs[name] * (100 if "%" in label else 1)
    return [found.median(), *interval(found)]


def gelu_mnist_silu(row: list[str], column: str) -> Numbers:
    return with_interval(rows("gelu_mnist_silu", 15, model__activation=column.strip("`").lower()), row[0])


def gelu_twitter_pos(row: list[str], column: str) -> Numbers:
    errors = 100 * rows("gelu_twitter_pos", 15, model__activation=UNITS[column])["test/error@last"]
    paper = theirs("gelu_twitter_pos", "test/error", "last", model__activation=UNITS[column])
    said = {"here": [errors.median()], "interval": interval(errors), "published": [100 * v for v in paper]}
    return said[re.split(r"\W", row[0])[0]]


def soi_mnist(row: list[str], column: str) -> Numbers:
    blocks = {"ReLU": "ReLU, tuned dropout", "linear layers, dropout .25": "linear layers, tuned dropout"}
    name = row[0].partition(" (")[0]
    runs = rows("soi_mnist", 15, block=blocks.get(name, name))
    errors = 100 * runs["test/error@last"]
    return {
        "test error % after 50 epochs": [errors.median()],
        "interval": interval(errors),
        "published": [100 * v for v in theirs("soi_mnist", "test/error", "last", block=blocks.get(name, name))],
        "lowest validation loss": [runs["val/loss@best"].median()],
        "its epoch": [runs["val/loss@best_epoch"].median()],
    }[column]


def soi_twitter_pos(row: list[str], column: str) -> Numbers:
    runs = rows("soi_twitter_pos", 15, block=row[0])
    return {
        "test error % after 30 epochs": [100 * runs["test/error@last"].median()],
        "where dev error was lowest": [100 * runs["test/error@best val/error"].median()],
        "lowest dev error %": [100 * runs["val/error@best"].median()],
        "its epoch": [runs["val/error@best_epoch"].median()],
    }[column]


def elu_mnist_units(row: list[str], column: str) -> Numbers:
    unit, label = UNITS[column], row[0]
    runs = rows("elu_mnist_units", 15, model__activation=unit)
    if "below" in label:
        return [runs[f"train/clean_loss@below {number_in(label):g}"].median()]
    if label == "training loss after 300 epochs":
        return [curve("elu_mnist_units", "train/clean_loss", unit, 300)["median"]]
    if label == "the same after the first epoch":
        return [curve("elu_mnist_units", "units/median_of_means", unit, 1)["median"]]
    name = {
        "distance of the median unit": "units/distance_of_means@mean",
        "the same after the last": "units/median_of_means@last",
        "lowest validation loss": "val/loss@best",
    }[label.partition("'")[0]]
    return [runs[name].median(), *interval(runs[name])]


def elu_mnist_autoencoder(row: list[str], column: str) -> Numbers:
    where: dict[str, Any] = {"model__activation": UNITS[column]}
    if row[0] != "before training":
        where["model__optimizer__lr"] = number_in(row[0])
        return with_range(rows("elu_mnist_autoencoder", 3, **where)["test/loss@25"])
    untrained = rows("elu_mnist_autoencoder", 12, **where)["untrained/test/loss@0"]
    assert untrained.nunique() == 3, "the initial weights are those of a seed, whatever the learning rate"
    return with_range(untrained.unique())


def elu_bias_shift(row: list[str], column: str) -> Numbers:
    layer, epoch = re.findall(r"\d+", row[0])
    place = curve("elu_bias_shift", "shift/k_distance", UNITS[column], int(epoch), f"layer {layer}")
    return [place["median"], place["low"], place["high"]]


READINGS = {
    "of a unit's median": "of medians",
    "of a unit's mean": "of means",
    "of the change of a unit's median": "of changes of medians",
    "of the change of a unit's mean": "of changes of means",
}


@cache
def first_epochs() -> dict[tuple[str, int], pd.DataFrame]:
    """Median and mean of every unit after each of the first ten epochs, by activation and layer."""
    found = pd.read_parquet(RESULTS / "elu_mnist_median_variance/first_epochs.parquet")
    found = found.sort_values(["seed", "epoch", "unit"])
    return dict(iter(found.groupby(["activation", "layer"])))  # type: ignore[arg-type]


def first_values(unit: str, layer: int, what: str) -> Any:
    """The values of one kind, ``(runs, epochs, units)``."""
    return first_epochs()[unit, layer][what].to_numpy(dtype=np.float64).reshape(5, 10, 256)


def over_units(unit: str, layer: int, what: str) -> float:
    """Variance over the units of a layer, mean over epochs, median over runs."""
    return float(np.median(first_values(unit, layer, what).var(axis=2, ddof=1).mean(axis=1)))


def over_first_epochs(unit: str, layer: int, what: str, changes: bool) -> float:
    """Variance of each unit over epochs, mean over units, median over runs."""
    series = first_values(unit, layer, what)
    series = np.diff(series, axis=1) if changes else series
    return float(np.median(series.var(axis=1, ddof=1).mean(axis=1)))


def elu_mnist_median_variance(row: list[str], column: str) -> Numbers:
    layer, label = int(number_in(column)), row[0]
    what = "median" if "median" in label else "mean"
    reading = label.partition(", ")[0]
    if label.startswith("over the units"):
        return [over_units(unit, layer, what) for unit in ("relu", "elu")]
    if "first" in label:
        return [over_first_epochs(unit, layer, what, "change" in label) for unit in ("relu", "elu")]
    panel = READINGS[reading]
    name = f"units/variance_{panel.replace(' ', '_')}"
    places = [curve("elu_mnist_median_variance", name, unit, layer, panel) for unit in ("relu", "elu")]
    return [place["median"] for place in places]


def gelu_mnist_momentum(row: list[str], column: str) -> Numbers:
    unit, _, momentum = column.partition(", momentum ")
    where: dict[str, Any] = {
        "model__activation": UNITS[unit],
        "model__optimizer__momentum": float(momentum or 0),
    }
    runs = rows("gelu_mnist_momentum", 15, **where)
    if row[0] == "learning rate":
        return runs[LR].unique().tolist()
    return with_interval(runs, row[0])


def gelu_mnist_sigmoid(row: list[str], column: str) -> Numbers:
    label, runs = row[0], rows("gelu_mnist_sigmoid", 15, model__activation=column.lower())
    if "below" in label:
        return [runs[f"train/clean_loss@below {number_in(label):g}"].median()]
    return with_interval(runs, label)


def claim_gradients(row: list[str], column: str) -> Numbers:
    unit = UNITS.get(column, column)
    slopes = rows("claim_gradients", 15, model__activation=unit)[
        "gradients/slope@0" if row[0] == "before training" else "gradients/slope@last"
    ]
    return [slopes.median(), *interval(slopes)]


def claim_functions(row: list[str], column: str) -> Numbers:
    runs = rows("claim_functions", 15, model__activation=column.lower())
    if row[0] == "learning rate":
        return runs[LR].unique().tolist()
    return [runs["test/loss"].median(), *interval(runs["test/loss"])]


OF_LAYERS = {
    "distance of k from 1": "shift/k_distance[layer={},quantile=0.5]",
    "cosine with the natural gradient": "shift/cosine[layer={}]",
    "share of noise passed on": "noise/passed[layer={}]",
    "share of positive components": "gradients/positive_components[layer={}]",
    "correlation of incoming units": "gradients/correlation[layer={}]",
    "bias shift": "gradients/shift[layer={}]",
}


def claim_layers(row: list[str], column: str) -> Numbers:
    runs = rows("claim_layers", 15, model__activation=UNITS[column])
    label, _, epoch = row[0].partition(", epoch ")
    if label.startswith("test error"):
        return [100 * runs[f"noisy/test/error[noise={a}]@last"].median() for a in ("0.5", "1")]
    at = {"1": "1", "2": "last"}[epoch]
    return [runs[f"{OF_LAYERS[label].format(layer)}@{at}"].median() for layer in (2, 5, 8)]


def claim_net_inputs(row: list[str], column: str) -> Numbers:
    runs = rows("claim_net_inputs", 15, model__network__batch_norm=row[0].startswith("with batch norm"))
    at = {"0": "0", "1": "1", "2": "last"}[row[0][-1]]
    return with_range(runs[f"inputs/distance_of_units[layer={column[-1]}]@{at}"])


def claim_residual_gradients(row: list[str], column: str) -> Numbers:
    block = "paper" if row[0] == "with batch norm" else "paper_without_norm"
    at = "0" if column == "before training" else "last"
    return with_range(rows("claim_residual_gradients", 6, model__network__block=block)[f"blocks/ratio@{at}"])


def claim_sparse_inputs(row: list[str], column: str) -> Numbers:
    runs = rows("claim_sparse_inputs", 15, model__activation=column.strip("`"))
    if row[0] == "learning rate":
        return runs[LR].unique().tolist()
    found = runs["val/loss@best"] if row[0] == "lowest validation loss" else 100 * runs["test/error@last"]
    return [found.median(), *interval(found)]


TABLES: dict[str, list[Callable[[list[str], str], Numbers]]] = {
    "claim_functions": [claim_functions],
    "claim_gradients": [claim_gradients],
    "claim_layers": [claim_layers],
    "claim_net_inputs": [claim_net_inputs],
    "claim_residual_gradients": [claim_residual_gradients],
    "claim_sparse_inputs": [claim_sparse_inputs],
    "elu_bias_shift": [elu_bias_shift],
    "elu_mnist_autoencoder": [elu_mnist_autoencoder],
    "elu_mnist_median_variance": [elu_mnist_median_variance],
    "elu_mnist_units": [elu_mnist_units],
    "gelu_cifar10": [gelu_cifar10],
    "gelu_mnist_autoencoder": [gelu_mnist_autoencoder],
    "gelu_mnist_classifier": [gelu_mnist_classifier],
    "gelu_mnist_momentum": [gelu_mnist_momentum],
    "gelu_mnist_noise": [gelu_mnist_noise],
    "gelu_mnist_sigmoid": [gelu_mnist_sigmoid],
    "gelu_mnist_silu": [gelu_mnist_silu],
    "gelu_twitter_pos": [gelu_twitter_pos],
    "soi_mnist": [soi_mnist],
    "soi_twitter_pos": [soi_twitter_pos],
}


def tables_of(text: str) -> list[list[list[str]]]:
    """The cells of each Markdown table, without the rule below its head."""
    found: list[list[list[str]]] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("|"):
            found += [] if inside else [[]]
            cells = re.split(r"(?<!\\)\|", line)[1:-1]
            found[-1].append([cell.strip().replace("**", "").replace("\\|", "|") for cell in cells])
        inside = line.startswith("|")
    return [[row for row in table if set("".join(row)) - set("-: ")] for table in found]


def printed(cell: str) -> list[tuple[float, float]]:
    """Each number of a cell with half a unit of its last digit."""
    words = [word.replace(",", "").replace("−", "-") for word in NUMBER.findall(cell)]
    return [(float(word), 0.5 * 10.0 ** -len(word.partition(".")[2])) for word in words]


def assert_same(cell: str, expected: Numbers, where: str) -> None:
    found = printed(cell)
    assert len(found) == len(expected), f"{where}: {cell} has {len(found)} numbers, not {expected}"
    for (number, half), value in zip(found, expected, strict=True):
        assert abs(number - value) <= half * (1 + 1e-4), f"{where}: {cell}, recomputed {expected}"


@pytest.mark.parametrize("readme", READMES, ids=[path.parent.name for path in READMES])
def test_every_table_agrees_with_the_data_beside_it(readme: Path) -> None:
    tables = tables_of(readme.read_text(encoding="utf-8"))
    recomputed = TABLES[readme.parent.name]
    assert len(tables) == len(recomputed), "a table without a recomputation: add one to TABLES"
    for (head, *body), recompute in zip(tables, recomputed, strict=True):
        assert body
        for row in body:
            for column, cell in zip(head[1:], row[1:], strict=True):
                assert_same(cell, recompute(row[:1], column) if cell else [], f"{row[0]}, {column}")


def test_a_number_that_is_off_by_a_digit_is_found() -> None:
    assert_same("**2.03** [1.99, 2.13]", [2.034, 1.9851, 2.1349], "")
    assert_same("1,120; no curve", [1119.6], "")
    for wrong in ([2.036, 1.99, 2.13], [2.03, 1.99], [2.03, 1.99, 2.136]):
        with pytest.raises(AssertionError):
            assert_same("2.03 [1.99, 2.13]", wrong, "")


# Number of tables of rows in ``runs.tar.xz``, and the digest of what they hold, whatever the runs are named.
ROWS = {
    "claim_residual_gradients": (24, "52325fc356a2a57b"),
    "claim_layers": (225, "7fc09b0fa91b14b4"),
    "claim_net_inputs": (60, "daac3887b318ef75"),
    "claim_gradients": (150, "6ef1317429f9a872"),
    "elu_bias_shift": (40, "afb4dfc2ba771919"),
    "elu_mnist_autoencoder": (96, "19dff7dcdaa72170"),
    "elu_mnist_median_variance": (10, "e8da9fbfb631ed63"),
    "elu_mnist_units": (45, "142acde3e24fa52c"),
    "gelu_mnist_autoencoder": (36, "a6ad65794897c605"),
    "gelu_mnist_classifier": (90, "837df8d24e03386c"),
    "gelu_mnist_momentum": (180, "61139cb924393182"),
    "gelu_mnist_noise": (90, "9004864628fff7e1"),
    "gelu_mnist_sigmoid": (70, "5fb56c585a5fea93"),
    "gelu_mnist_silu": (180, "947a80e7f02dcc1f"),
    "gelu_twitter_pos": (90, "6be6b7644ce9415f"),
    "soi_mnist": (195, "ad611febe51f9994"),
    "soi_twitter_pos": (150, "1896b3efbaa5fd5c"),
}


def test_every_archive_is_compared() -> None:
    assert {path.parent.name for path in RESULTS.glob("*/runs.tar.xz")} == ROWS.keys()


@pytest.mark.parametrize("study", ROWS)
def test_archives_hold_the_rows_that_were_recorded_under_the_names_of_today(study: str, tmp_path: Path) -> None:
    with tarfile.open(RESULTS / study / "runs.tar.xz") as archive:
        parts = {part.name: archive.extractfile(part) for part in archive if part.isfile()}
        files = {Path(name): content.read() for name, content in parts.items() if content}
    rows = []
    for place in (path.parent for path in files if path.name == "result.json"):
        result = json.loads(files[place / "result.json"])
        # Older archives have the point in a file of its own.
        point = json.loads(files.get(place / "point.json", files[place / "result.json"]))
        config, sources = yaml.safe_load(files[place / "config.yaml"]), result["sources"]
        whole = identity_of(counted(config, sources), sources)
        assert place.name == point["id"] == result["id"]
        assert place.name.endswith(f"-{whole[:16]}")
        assert result["identity"] == whole
        tables = [path for path in files if path.is_relative_to(place) and path.suffix == ".parquet"]
        for path in tables:
            name, digest = str(path.relative_to(place)), hashlib.sha256(files[path]).hexdigest()
            rows.append(json.dumps([point["point"], point["seed"], f"/{name}", digest], sort_keys=True))
    digest = hashlib.sha256("\n".join(sorted(rows)).encode()).hexdigest()
    assert (len(rows), digest[:16]) == ROWS[study]
    if costs := files.get(Path(study) / COSTS):  # studies without a grid of activations have none
        (tmp_path / COSTS).write_bytes(costs)
        assert read_json(tmp_path / COSTS, list[Cost], "")


def test_what_was_chosen_has_the_lowest_median_on_validation_data() -> None:
    """In each first stage that is kept; the second was run there."""
    stages = sorted(RESULTS.glob("*/choose/values.csv"))
    assert len(stages) == 7
    for stage in stages:
        study = stage.parent.parent.name
        first, second = values(study, "choose"), values(study)
        compared = ["block"] if "block" in first else [k for k in (UNIT, DROPOUT, MOMENTUM) if k in first]
        tuned = [key for key in (LR, DROPOUT) if key in first and key not in compared]
        medians = first.groupby([*compared, *tuned])["val/loss@best"].median().reset_index()
        best = medians.loc[medians.groupby(compared)["val/loss@best"].idxmin(), [*compared, *tuned]]
        key = [*compared, *tuned]
        for kept in (first[first["chosen"] == 1], second):
            assert set(map(tuple, kept[key].values)) == set(map(tuple, best.values)), study
        assert "val/loss@best" in second
        chosen = json.loads((RESULTS / study / "selection.json").read_text())
        (of_second,) = (entries for entries in chosen.values() if isinstance(entries, dict))
        assert len(of_second) == len(best)


def readme_row(row: list[str], column: str) -> Numbers:
    """A cell of the table in README.md, by the label of its row or the study that it links to."""
    study = re.findall(r"results/(\w+)/", row[0])
    label = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", row[0])
    return OVERVIEW[label if label in OVERVIEW else study[0]](column)


def of_fig2(column: str, name: str = "train/clean_loss@last", dropout: float = 0.5) -> Numbers:
    where: dict[str, Any] = {"model__network__dropout": dropout}
    if column in UNITS:
        return [rows("gelu_mnist_classifier", 15, model__activation=UNITS[column], **where)[name].median()]
    if name.endswith("5-50"):
        paper = pd.read_csv(ROOT / "data/published/gelu_curves.csv")
        paper = paper.query("panel == 'MNIST no-dropout' and curve == 'train' and 5 <= epoch <= 50")
        return [paper.loc[paper["act"] == unit, "value"].mean() for unit in ("GELU", "ReLU", "ELU")]
    study, at = "gelu_mnist_classifier", name.split("@")
    found = [theirs(study, *at, model__activation=UNITS[unit], **where) for unit in PAPER]
    return [value for values in found for value in values]


PAPER = ("GELU", "ReLU", "ELU")


def by_unit(study: str, name: str, n: int, scale: float = 1.0, **where: Any) -> Callable[[str], Numbers]:
    """The median of each unit, and what the paper has."""

    def cell(column: str) -> Numbers:
        if column in UNITS:
            return [scale * rows(study, n, model__activation=UNITS[column], **where)[name].median()]
        metric, _, at = name.partition("@")
        place = int(at) if at.isdigit() else at
        found = [theirs(study, metric, place, model__activation=UNITS[unit], **where) for unit in PAPER]
        return [scale * value for values in found for value in values]

    return cell


def only_units(cell: Callable[[str], Numbers]) -> Callable[[str], Numbers]:
    """Of a study without published numbers."""
    return lambda column: cell(column) if column in UNITS else []


def of_autoencoder(column: str) -> Numbers:
    return [
        rows("elu_mnist_autoencoder", 3, model__activation=UNITS[column], model__optimizer__lr=lr)[
            "test/loss@25"
        ].median()
        for lr in (1e-2, 1e-3, 1e-4)
    ]


def of_bias_shift(column: str) -> Numbers:
    places = [
        curve("elu_bias_shift", "shift/k_distance", UNITS[column], 1, f"layer {layer}") for layer in (2, 5, 8)
    ]
    return [place["median"] for place in places]


def of_medians(column: str) -> Numbers:
    name = "units/variance_of_medians"
    places = [curve("elu_mnist_median_variance", name, UNITS[column], n, "of medians") for n in (1, 3, 5)]
    return [place["median"] for place in places]


def of_cifar10(column: str) -> Numbers:
    if column == "GELU":
        return gelu_cifar10(["3"], "test error %")
    study = (ROOT / "configs/studies/gelu_cifar10.yaml").read_text(encoding="utf-8")
    (said,) = re.findall("published test error (.*), medians", study)  # the paper's text; its figure differs
    return [200, *map(float, re.findall(r"[\d.]+(?= %)", said))]


FIG6 = ("gelu_tanh", "relu", "elu")
MNIST = "MNIST, test error % without dropout: no significant difference"
OVERVIEW: dict[str, Callable[[str], Numbers]] = {
    MNIST: only_units(
        by_unit("gelu_mnist_classifier", "test/error@last", 15, 100, model__network__dropout=0.0)
    ),
    "gelu_mnist_classifier": of_fig2,
    "the same without dropout, mean of epochs 5 to 50": lambda column: of_fig2(
        column, "train/clean_loss@mean 5-50", 0.0
    ),
    "gelu_mnist_noise": only_units(
        by_unit("gelu_mnist_noise", "noise/test/error[noise=1]@last", 15, scale=100)
    ),
    "gelu_mnist_autoencoder": by_unit("gelu_mnist_autoencoder", "test/loss@25", 3, model__optimizer__lr=1e-3),
    "gelu_twitter_pos": by_unit("gelu_twitter_pos", "test/error@last", 15, scale=100),
    "elu_bias_shift": only_units(of_bias_shift),
    "elu_mnist_units": only_units(by_unit("elu_mnist_units", "units/distance_of_means@mean", 15)),
    "elu_mnist_autoencoder": only_units(of_autoencoder),
    "elu_mnist_median_variance": only_units(of_medians),
    "its change from epoch to epoch, first 10 epochs": only_units(
        lambda column: [over_first_epochs(UNITS[column], layer, "median", True) for layer in (1, 3, 5)]
    ),
    "variance of medians over the units of a layer, first 10 epochs": only_units(
        lambda column: [over_units(UNITS[column], layer, "median") for layer in (1, 3, 5)]
    ),
    "gelu_cifar10": of_cifar10,
}


def test_the_overview_agrees_with_the_data() -> None:
    text = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    ((head, *body),) = (table for table in tables_of(text) if table[0][0] == "study")
    assert head == ["study", "seeds", *PAPER, "published: GELU, ReLU, ELU"]
    assert len(body) == len(OVERVIEW)
    for row in body:
        for column, cell in zip(head[2:], row[2:], strict=True):
            if cell:
                assert_same(cell, readme_row(row, column), f"{row[0]}, {column}")


def test_the_readme_has_rows_of_the_overview() -> None:
    whole = (ROOT / "docs/results.md").read_text(encoding="utf-8").splitlines()
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    rows = [
        line.replace("](results/", "](../results/") for line in lines if "](results/" in line and line[0] == "|"
    ]
    assert len(rows) > 4
    assert set(rows) <= set(whole)
    assert MNIST.partition(", ")[2] in rows[0]
    outcomes = {one["name"]: one["outcome"] for one in table("gelu_mnist_classifier")["verdicts"]}
    assert {outcomes[f"{unit} (dropout 0)"] for unit in ("gelu_tanh", "elu")} == {"undecided"}


def differences(study: str, key: str, left: str, right: str, name: str) -> Any:
    found = values(study)
    found = found[found[DROPOUT] == 0] if DROPOUT in found and key == UNIT else found
    of = [found[found[key] == side].set_index("seed")[name] for side in (left, right)]
    return (of[0] - of[1]).to_numpy()


def short(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".removeprefix("0")


@cache
def table(study: str) -> dict[str, Any]:
    return dict(json.loads((RESULTS / study / "table.json").read_text(encoding="utf-8")))


def cell(study: str, name: str, *values: Any) -> dict[str, Any]:
    """The cell of ``table.json`` in the column of a name, of the group with these values."""
    (row,) = (row for row in table(study)["rows"] if list(row["point"].values()) == list(values))
    return dict({column_of(one): one for one in row["columns"]}[name])


def two_digits(p: float) -> str:
    """A p-value with two digits that count: ``.00073``, ``.41``."""
    return short(p, 1 - math.floor(math.log10(p)))


def of_soi_mnist() -> list[str]:
    d = differences("soi_mnist", "block", "SOI map", "ReLU, tuned dropout", "test/error@last")
    assert set(values("soi_mnist").query("block == 'ReLU, tuned dropout'")[DROPOUT]) == {0.0}
    assert within(d, 0.0015) > 0.05
    return [
        f"two one-sided tests: p {short(within(d, 0.0015), 3)}",
        f"by 0.15 points (p {short(below(d - 0.0015), 3)})",
    ]


def of_gelu_mnist_classifier() -> list[str]:
    ps = [
        within(differences("gelu_mnist_classifier", UNIT, unit, "relu", "test/error@last"), 0.0015)
        for unit in ("gelu_tanh", "elu")
    ]
    plain = values("gelu_mnist_classifier").query(f"`{DROPOUT}` == 0").groupby(UNIT)["val/loss@best"].median()
    paper = theirs("gelu_mnist_classifier", "val/loss", "best")
    return [
        f"p {short(ps[0], 3)} for GELU, {short(ps[1], 2)} for ELU",
        f"{short(plain.min(), 4)} to {short(plain.max(), 4)} here",
        f"{short(min(paper), 4)} to {short(max(paper), 4)} published",
    ]


def of_gelu_mnist_autoencoder() -> list[str]:
    study, off = "gelu_mnist_autoencoder", {}
    for lr, unit in itertools.product((1e-3, 1e-4, 1e-5), FIG6):
        where: dict[str, Any] = {"model__activation": unit, "model__optimizer__lr": lr}
        for paper in theirs(study, "test/loss", 25, **where):
            off[lr, unit] = 100 * (rows(study, 3, **where)["test/loss@25"].median() / paper - 1)
    below = [-value for (lr, _), value in off.items() if lr > 1e-5]
    return [
        f"{min(below):.1f} to {max(below):.1f} % below",
        f"GELU lies {off[1e-5, 'gelu_tanh']:.1f} % above and ELU {-off[1e-5, 'elu']:.1f} % below",
    ]


def of_gelu_twitter_pos() -> list[str]:
    dev = curves("gelu_twitter_pos").query("metric == 'val/loss'")
    lowest = dev.loc[dev.groupby("line")["median"].idxmin()].set_index("line")["x"]
    gelu, relu, elu = (f"{lowest[unit]:.1f}" for unit in FIG6)
    return [f"epochs {gelu} (GELU), {relu} (ReLU) and {elu} (ELU)"]


def of_elu_mnist_units() -> list[str]:
    losses = curves("elu_mnist_units").query("metric == 'train/clean_loss'")
    ahead = losses.pivot_table(index="x", columns="line", values="median").idxmin(axis=1)
    return [f"from epoch {ahead.index[ahead != 'relu'].max() + 1:.0f} on ReLU"]


def of_stacks() -> list[str]:
    key = [DROPOUT, LR, "seed"]
    gelu = values("gelu_mnist_classifier", "choose").query(f"`{UNIT}` == 'relu'")
    both = gelu.merge(values("soi_mnist", "choose").query("block == 'ReLU, tuned dropout'"), on=key)
    both = both[both[DROPOUT] == 0.5]
    both = both.set_index(key)
    loss, error = ((both[f"{name}_x"], both[f"{name}_y"]) for name in ("val/loss@best", "test/error@last"))
    same = (loss[0] == loss[1]) & (error[0] == error[1])
    apart = 100 * (loss[1] / loss[0] - 1).abs(), 100 * (error[1] - error[0]).abs()
    (a, b, c), (d, e, f) = (sorted(values[~same]) for values in apart)
    was, became, missed, misses = (values.groupby(LR).median() for values in (*loss, *error))
    moved, points = 100 * (became / was - 1).abs().max(), 100 * (misses - missed).abs().max()
    return [
        f"Of {len(both)} runs of ReLU with dropout 0.5",
        f"{same.sum()} are equal to the last digit",
        f"{a:.2f}, {b:.1f} and {c:.1f} % and test errors {d:.2f}, {e:.2f} and {f:.2f} points apart",
        f"by up to {moved:.1f} % and {points:.2f} points",
    ]


def of_epochs_4_and_5() -> list[str]:
    paper = pd.read_csv(ROOT / "data/published/gelu_curves.csv")
    paper = paper.query("panel == 'MNIST no-dropout' and curve == 'heldout' and epoch in (4, 5)")
    above = [
        100 * (value / curve("gelu_mnist_classifier", "val/loss", UNITS[unit], epoch)["median"] - 1)
        for unit, epoch, value in paper[["act", "epoch", "value"]].to_numpy()
    ]
    assert len(above) == 6
    return [f"{min(above):.0f} to {max(above):.0f} % above ours"]


def of_power_on_tweets() -> list[str]:
    cells = [cell("gelu_twitter_pos", "test/error@last", unit) for unit in ("gelu_tanh", "elu")]
    spreads = [one["paired"]["sd"] for one in cells]
    assert [round(1 / power(15, 0.002 / spread, 2)) for spread in spreads] == [3, 3]
    return [
        "show a difference of 0.2 points about one time in three",
        f"{100 * (detectable(15, 2) or 0) * max(spreads):.2f} points four times in five",
    ]


def of_machines() -> list[str]:
    """How long an update with GELU's tanh form takes, in ReLUs, on each of the two machines."""
    ratios: dict[str, list[float]] = {}
    of = {}
    for study in sorted(
        path.parent.name for path in RESULTS.glob("*_*/table.json") if "claim" not in path.parent.name
    ):
        costs = {tuple(row["point"].items()): row["cost"] for row in table(study)["rows"] if row["cost"]}
        (of[study],) = {cost["hardware"].partition(" ")[0].partition("(")[0] for cost in costs.values()}
        for point, cost in costs.items():
            other = tuple((key, "relu" if value == "gelu_tanh" else value) for key, value in point)
            if other != point:
                ratios.setdefault(of[study], []).append(
                    cost["seconds_per_update"] / costs[other]["seconds_per_update"]
                )
    xeon = [f"`{study}`" for study, machine in of.items() if machine == "Intel"]
    slow, fast = (f"{min(ratios[m]):.2f} to {max(ratios[m]):.2f}" for m in ("Intel", "AMD"))
    return [
        f"Those of {', '.join(xeon[:-1])} and {xeon[-1]} were measured with their runs",
        f"takes {slow} times as long as with ReLU",
        f"it takes {fast} times as long, 1.08",
    ]


def of_speed() -> list[str]:
    text = " ".join((RESULTS / "elu_bias_shift/README.md").read_text(encoding="utf-8").split())
    (said,) = re.findall(r"(\d+) minutes of processor time for training, about (\d+) for the probes", text)
    return [
        "the bias shift took {} minutes of processor time to train and about {} for its probes".format(*said)
    ]


def of_quoted_verdict() -> list[str]:
    (said,) = (v["text"] for v in table("gelu_mnist_classifier")["verdicts"] if v["name"] == "elu (dropout 0)")
    return [str(said).removeprefix("elu (dropout 0): ").partition(" An update")[0]]


def of_overview(both: str) -> list[str]:
    """What the front page and the page of results say of the SOI map, and of errors on tweets."""
    mnist = {
        name: 100 * v for name, v in values("soi_mnist").groupby("block")["test/error@last"].median().items()
    }
    tweets = values("soi_twitter_pos").groupby("block")["test/error@last"].median() * 100
    above = [
        tweets[name] - 100 * theirs("soi_twitter_pos", "test/error", "last", block=name)[0]
        for name in ("SOI map", "ReLU")
    ]
    for unit in FIG6:
        ours = values("gelu_twitter_pos").query(f"`{UNIT}` == @unit")["test/error@last"].median()
        above.append(100 * (ours - theirs("gelu_twitter_pos", "test/error", "last", model__activation=unit)[0]))
    said = [f"{min(above):.1f} to {max(above):.1f} points higher than published"]
    numbers = [mnist["SOI map"], mnist["ReLU, tuned dropout"], mnist["linear layers"]]
    fine = [f"{value:.2f}" for value in numbers]
    coarse = [f"{tweets[name]:.1f}" for name in ("SOI map", "linear layers", "ReLU", "ReLU, dropout 0.5")]
    return [*said, *(sentence.format(*fine, *coarse) for sentence in both.split("|"))]


FRONT = (
    "has {0} % error on MNIST, ReLU with tuned dropout {1} %|linear layers {2} %; on"
    "|it has {3} %, linear layers {4} %, ReLU {6} % with dropout"
)
WHOLE = (
    "error of {0} % on MNIST, ReLU of {1} %|linear layers of {2} %"
    "|error is {3} %, that of linear layers {4} %, and that of ReLU {5} % without dropout and {6} %"
)


def of_demo() -> list[str]:
    kept = (RESULTS / "demo/table.md").read_text(encoding="utf-8")
    found = {
        unit: re.findall(rf"^\| {unit} \| 3 \| ([\d.]+) ", kept, re.M)[0]
        for unit in ("gelu", "elu", "relu", "soi")
    }
    return ["{gelu} % (GELU), {elu} % (ELU), {relu} % (ReLU) and {soi} % (SOI)".format(**found)]


SENTENCES = {
    "README.md": [of_epochs_4_and_5, of_quoted_verdict, lambda: of_overview(FRONT)],
    "docs/guide/compare.md": [of_quoted_verdict, of_demo],
    "docs/about.md": [of_stacks],
    "docs/guide/speed.md": [of_speed],
    "docs/results.md": [lambda: of_soi_mnist()[:1], of_epochs_4_and_5, lambda: of_overview(WHOLE)],
    "results/README.md": [of_machines],
    "results/soi_mnist/README.md": [of_soi_mnist],
    "results/gelu_mnist_classifier/README.md": [of_gelu_mnist_classifier, of_epochs_4_and_5],
    "results/gelu_mnist_autoencoder/README.md": [of_gelu_mnist_autoencoder],
    "results/gelu_twitter_pos/README.md": [of_gelu_twitter_pos, of_power_on_tweets],
    "results/elu_mnist_units/README.md": [of_elu_mnist_units],
}


@pytest.mark.parametrize("path", SENTENCES)
def test_sentences_have_the_numbers_that_the_data_give(path: str) -> None:
    text = " ".join((ROOT / path).read_text(encoding="utf-8").split())
    for recomputed in SENTENCES[path]:
        for words in recomputed():
            assert words in text


FIG2, NOISE, TWEETS, SOI = "gelu_mnist_classifier", "gelu_mnist_noise", "gelu_twitter_pos", "soi_mnist"
ON_TWEETS, UNIT_MEANS, SGD, SILU = (
    "soi_twitter_pos",
    "elu_mnist_units",
    "gelu_mnist_momentum",
    "gelu_mnist_silu",
)
# What a README says of one comparison: p alone and after Holm, of equivalence, and the interval.
COMPARED: list[tuple[str, str, tuple[Any, ...], str]] = [
    (
        FIG2,
        "train/clean_loss@mean 5-50",
        ("gelu_tanh", 0.0),
        "interval −{0:.4f} to −{1:.4f}, p {holm} after Holm",
    ),
    (FIG2, "train/clean_loss@last", ("gelu_tanh", 0.0), "without dropout (p {p} alone and after Holm)"),
    (FIG2, "test/error@last", ("gelu_tanh", 0.0), "p {p} alone for GELU and"),
    (
        FIG2,
        "test/error@last",
        ("elu", 0.0),
        "and {p} for ELU, {holm} after Holm's correction for 4 comparisons",
    ),
    (NOISE, "noise/test/error[noise=1]@last", ("gelu_tanh",), "p {p} alone and after Holm's correction for 2"),
    (NOISE, "noise/test/error[noise=2]@last", ("gelu_tanh",), "p {holm} after Holm"),
    (NOISE, "noise/test/error[noise=1]@last", ("elu",), "points at 1, p {holm} after Holm"),
    (TWEETS, "test/error@last", ("gelu_tanh",), "p {p} alone, {holm} after Holm) and ELU"),
    (TWEETS, "test/error@last", ("elu",), "p {p} alone, {holm} after Holm). Fifteen"),
    (TWEETS, "test/error@last", ("gelu_tanh",), "two one-sided tests, p {equivalent} and"),
    (TWEETS, "test/error@last", ("elu",), "and {equivalent} after Holm), a margin"),
    (TWEETS, "val/error@best_epoch", ("elu",), "(ELU − ReLU: p {holm} after Holm)"),
    (SOI, "test/error@last", ("SOI map",), "p {p} alone and after Holm"),
    (SOI, "val/loss@best", ("SOI map",), "({1:.4f} to {0:.4f}, p {holm} after Holm)"),
    (SOI, "val/loss@best_epoch", ("SOI map",), "(interval {0:.0f} to {1:.0f}, p {holm} after Holm)"),
    (ON_TWEETS, "test/error@last", ("ReLU, dropout 0.25",), "all p {holm} after Holm"),
    (ON_TWEETS, "val/loss@best_epoch", ("ReLU",), "(p {holm} each after Holm)"),
    (ON_TWEETS, "val/error@best_epoch", ("ReLU, dropout 0.25",), "open against 0.25 (p {holm})"),
    (UNIT_MEANS, "units/distance_of_means@mean", ("relu",), "p {p} each before correction"),
    (UNIT_MEANS, "train/clean_loss@below 0.01", ("relu",), "p at most {holm} after Holm in this table"),
    (SGD, "train/clean_loss@last", ("gelu_tanh", 0.9), "p {p} before correction"),
    (SGD, "val/loss@best", ("gelu_tanh", 0.9), "({1:.4f} to {0:.4f}, p {holm} after Holm)"),
    (SILU, "val/loss@best", ("relu",), "({0:.4f} to {1:.4f}, p {p} alone, {holm} after Holm)"),
    (SILU, "train/clean_loss@mean 5-50", ("gelu",), "(each p {holm} after Holm)"),
    (FIG2, "train/clean_loss@mean 5-50", ("gelu_tanh", 0.0), "(difference −{mean:.4f}, 95 % interval"),
    (
        NOISE,
        "noise/test/error[noise=1]@last",
        ("gelu_tanh",),
        "by {points[0]:.2f} points at 1 (95 % interval {points[2]:.2f} to",
    ),
    (
        NOISE,
        "noise/test/error[noise=2]@last",
        ("gelu_tanh",),
        "by {points[0]:.2f} at 2 ({points[2]:.2f} to {points[1]:.2f},",
    ),
    (NOISE, "noise/test/error[noise=1]@last", ("elu",), "({points[0]:.1f} points at 1,"),
    (
        TWEETS,
        "test/error@last",
        ("gelu_tanh",),
        "is +{points[0]:.2f} points (95 % interval −{points[1]:.2f} to +{points[2]:.2f},",
    ),
    (TWEETS, "test/error@last", ("elu",), "ELU − ReLU +{points[0]:.2f} (−{points[1]:.2f} to +{points[2]:.2f},"),
    (
        SOI,
        "test/error@last",
        ("SOI map",),
        "{points[0]:.2f} points lower in the mean (95 % interval −{points[1]:.2f} to +{points[2]:.2f},",
    ),
    (SOI, "val/loss@best", ("SOI map",), "loss is lower, by {mean:.4f}"),
    (SOI, "val/loss@best_epoch", ("SOI map",), "at its best {mean:.0f} epochs later"),
    (
        ON_TWEETS,
        "test/error@last",
        ("ReLU",),
        "{points[0]:.1f} points less than ReLU without dropout"
        " (95 % interval {points[1]:.1f} to {points[2]:.1f})",
    ),
    (UNIT_MEANS, "units/distance_of_means@mean", ("relu",), "than ReLU's by {mean:.3f} [{0:.3f}, {1:.3f}]"),
    (UNIT_MEANS, "val/loss@best", ("relu",), "lower by {mean:.3f} [{0:.3f}, {1:.3f}] than ReLU's"),
    (
        SGD,
        "train/clean_loss@last",
        ("gelu_tanh", 0.9),
        "higher by {mean:.4f} (95 % interval −{0:.4f} to +{1:.4f},",
    ),
    (SGD, "val/loss@best", ("gelu_tanh", 0.9), "with momentum, by {mean:.4f}"),
    (SILU, "val/loss@best", ("relu",), "lower than ReLU's by {mean:.4f}"),
    ("gelu_mnist_sigmoid", "val/loss@best", ("sigmoid",), "lower by {mean:.3f} [{0:.3f}, {1:.3f}]"),
]


@pytest.mark.parametrize(("study", "name", "point", "words"), COMPARED)
def test_comparisons_in_sentences_are_those_of_the_table(
    study: str, name: str, point: tuple[Any, ...], words: str
) -> None:
    found = cell(study, name, *point)
    ps = {"p": found["p"], "holm": found["p_holm"], "equivalent": found["p_equivalent_holm"]}
    mean, *ends = (abs(found["paired"][key]) for key in ("mean", "low", "high"))
    numbers = {"mean": mean, "points": [100 * value for value in (mean, *ends)]}
    said = words.format(*ends, **numbers, **{key: two_digits(p) for key, p in ps.items() if p})
    text = " ".join((RESULTS / study / "README.md").read_text(encoding="utf-8").split())
    assert re.sub(r"\b0\.(?=\d{3})", ".", said) in text


# The rows of the table in docs/guide/which_activation.md: study, column, and the values after the activation.
ANSWERS: list[tuple[str, str, tuple[Any, ...]]] = [
    (FIG2, "test/error@last", (0.0,)),
    (FIG2, "test/error@last", (0.5,)),
    (NOISE, "noise/test/error[noise=1]@last", ()),
    (NOISE, "noise/test/error[noise=2]@last", ()),
    (TWEETS, "test/error@last", ()),
]


def outcome_of(study: str, name: str, unit: str, *rest: Any) -> str:
    """The outcome of a verdict of ``table.json``."""
    named = f"{unit} (dropout {rest[0]:g})" if rest else unit
    (found,) = (v for v in table(study)["verdicts"] if (v["name"], v["column"]) == (named, name))
    return str(found["outcome"])


def answers() -> list[str]:
    """What the sentences of the page have from the tables."""
    error = "test/error@last"
    relu, sigmoid = cell(SILU, error, "relu"), cell("gelu_mnist_sigmoid", error, "sigmoid")
    tweets = cell(ON_TWEETS, error, "ReLU, dropout 0.5")
    assert outcome_of(SOI, error, "SOI map") == "undecided"
    assert {v["outcome"] for v in table(SILU)["verdicts"]} == {"undecided"}
    assert sigmoid["paired"]["mean"] > 0 > tweets["paired"]["mean"]
    silu, soi, tuned = (
        f"{100 * cell(study, error, name)['median']:.2f} %"
        for study, name in ((SILU, "silu"), (SOI, "SOI map"), (SOI, "ReLU, tuned dropout"))
    )
    spread = max(cell(FIG2, error, unit, 0.0)["paired"]["sd"] for unit in ("gelu_tanh", "elu"))
    rates = values(FIG2, "choose").query(f"`{UNIT}` == 'relu' and `{DROPOUT}` == 0").groupby(LR)[error].median()
    loss = [short(cell(FIG2, "train/clean_loss@mean 5-50", unit, 0.0)["median"], 4) for unit in FIG6]
    (low, mean, high), (least, middle, most) = (
        sorted(abs(100 * one["paired"][key]) for key in ("mean", "low", "high")) for one in (sigmoid, tweets)
    )
    return [
        f"a difference of {100 * (detectable(15, 4) or 0) * spread:.2f} points four times in five",
        f"{silu} on MNIST against {100 * relu['median']:.2f} % for ReLU",
        f"(p = {relu['p']:.2g} alone, {relu['p_holm']:.2g} after correction)",
        f"by {mean:.2f} points ({low:.2f} to {high:.2f})",
        f"{soi} against {tuned} for ReLU",
        f"an error {middle:.2f} points lower ({least:.2f} to {most:.2f})",
        f"{loss[0]} against {loss[1]} over epochs 5 to 50, and ELU's higher, {loss[2]}",
        f"is {100 * rates[1e-3]:.2f} % at 1e-3 and {100 * rates[1e-5]:.2f} % at 1e-5",
        f"tanh form takes {taking(FIG2, 'gelu_tanh', 0.0)} as long as with ReLU",
        f"with ELU {taking(FIG2, 'elu', 0.0)}",
        f"with the SOI map {taking(SOI, 'SOI map')}",
    ]


def taking(study: str, *point: Any) -> str:
    """The relative time of an update with its range over fifths of the rounds."""
    (cost,) = (row["cost"] for row in table(study)["rows"] if list(row["point"].values()) == list(point))
    parts = cost["relative_in_parts"]
    return f"{cost['relative_to_reference']:.2f} times ({min(parts):.2f} to {max(parts):.2f})"


def test_which_activation_is_answered_by_the_tables() -> None:
    text = (ROOT / "docs/guide/which_activation.md").read_text(encoding="utf-8")
    ((head, *body),) = tables_of(text)
    units = [UNITS[name] for name in head[1:4]]
    for row, (study, name, rest) in zip(body, ANSWERS, strict=True):
        for unit, said in zip(units, row[1:4], strict=True):
            assert_same(said, [100 * cell(study, name, unit, *rest)["median"]], f"{row[0]}, {unit}")
        assert row[4].split(", ") == [outcome_of(study, name, unit, *rest) for unit in (units[0], units[2])]
    prose = " ".join(text.split())
    assert [words for words in answers() if words not in prose] == []
