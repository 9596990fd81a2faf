"""The numbers of READMEs on results, recomputed in a few lines from the data beside them.

Every table of ``results/*/README.md`` needs an entry in `TABLES`: a function that is given the
labels of a row and the head of a column, and returns the numbers of that cell. Numbers agree to the
last printed digit. Tables that begin with "measured" have machines and times instead.
"""

import hashlib
import json
import re
import tarfile
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from actlab.config.identity import counted, identity_of
from actlab.storage.json_files import read_json
from actlab.studies.formats import Cost
from actlab.studies.study_folder import COSTS
from kept_results import (
    LR,
    PAPER,
    RESULTS,
    ROOT,
    UNITS,
    Numbers,
    assert_same,
    curve,
    interval,
    median_and_interval,
    number_in,
    rows,
    table,
    tables_of,
    theirs,
    values,
    with_interval,
    with_range,
)

READMES = sorted(RESULTS.glob("*/README.md"))


def gelu_cifar10(row: list[str], column: str) -> Numbers:
    log = pd.read_csv(RESULTS / "gelu_cifar10/metrics.csv")
    of_epoch = log[log["epoch"] == number_in(row[0]) - 1]
    return [100 * of_epoch["train/error" if "training" in column else "test/error"].dropna().item()]


def gelu_cifar10_on_a_gpu(row: list[str], column: str) -> Numbers:
    if "published" in row[0]:
        study = (ROOT / "configs/studies/gelu_cifar10.yaml").read_text(encoding="utf-8")
        return [float(value) for value in re.findall(rf"([\d.]+) % \({column}\)", study)]
    log = pd.read_csv(RESULTS / "gelu_cifar10/epochs.csv")
    runs = log[log["model.activation"] == UNITS[column]].set_index("epoch")
    errors = 100 * runs["train/error" if "training" in row[0] else "test/error"]
    return [errors[epoch] for epoch in ((50, 100) if "50" in row[0] else (200,))]


def gelu_mnist_classifier(row: list[str], column: str) -> Numbers:
    dropout = 0.5 * ("0.5" in row[0])
    where: dict[str, Any] = {"model__activation": UNITS[column], "model__network__dropout": dropout}
    runs = rows("gelu_mnist_classifier", 15, **where)
    paper = theirs("gelu_mnist_classifier", "train/clean_loss", "last", **where)
    return [runs["train/clean_loss@last"].median(), *paper]


def gelu_mnist_noise(row: list[str], column: str) -> Numbers:
    runs = rows("gelu_mnist_noise", 15, model__activation=UNITS[row[0].partition(",")[0]])
    return [100 * runs[f"noise/test/error[noise={column}]@last"].median()]


def gelu_mnist_autoencoder(row: list[str], column: str) -> Numbers:
    where: dict[str, Any] = {
        "model__activation": UNITS[column],
        "model__optimizer__lr": number_in(row[0]),
    }
    runs = rows("gelu_mnist_autoencoder", 3, **where)
    return [
        runs["test/loss@25"].median(),
        *theirs("gelu_mnist_autoencoder", "test/loss", 25, **where),
    ]


def gelu_mnist_silu(row: list[str], column: str) -> Numbers:
    return with_interval(
        rows("gelu_mnist_silu", 15, model__activation=column.strip("`").lower()), row[0]
    )


def gelu_twitter_pos(row: list[str], column: str) -> Numbers:
    errors = 100 * rows("gelu_twitter_pos", 15, model__activation=UNITS[column])["test/error@last"]
    paper = theirs("gelu_twitter_pos", "test/error", "last", model__activation=UNITS[column])
    said = {
        "here": [errors.median()],
        "interval": interval(errors),
        "published": [100 * v for v in paper],
    }
    return said[re.split(r"\W", row[0])[0]]


def soi_mnist(row: list[str], column: str) -> Numbers:
    blocks = {
        "ReLU": "ReLU, tuned dropout",
        "linear layers, dropout 0.25": "linear layers, tuned dropout",
    }
    name = row[0].partition(" (")[0]
    runs = rows("soi_mnist", 15, block=blocks.get(name, name))
    errors = 100 * runs["test/error@last"]
    return {
        "test error % after 50 epochs": [errors.median()],
        "interval": interval(errors),
        "published": [
            100 * v for v in theirs("soi_mnist", "test/error", "last", block=blocks.get(name, name))
        ],
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
    return median_and_interval(runs[name])


def elu_mnist_autoencoder(row: list[str], column: str) -> Numbers:
    where: dict[str, Any] = {"model__activation": UNITS[column]}
    if row[0] != "before training":
        where["model__optimizer__lr"] = number_in(row[0])
        return with_range(rows("elu_mnist_autoencoder", 3, **where)["test/loss@25"])
    untrained = rows("elu_mnist_autoencoder", 12, **where)["untrained/test/loss@0"]
    assert untrained.nunique() == 3, (
        "the initial weights are those of a seed, whatever the learning rate"
    )
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
    places = [
        curve("elu_mnist_median_variance", name, unit, layer, panel) for unit in ("relu", "elu")
    ]
    return [place["median"] for place in places]


def gelu_mnist_momentum(row: list[str], column: str) -> Numbers:
    unit, _, momentum = column.partition(", momentum ")
    chosen: dict[str, Any] = {"model__optimizer__momentum": float(momentum or 0)}
    runs = rows("gelu_mnist_momentum", 15, model__activation=UNITS[unit], **chosen)
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
    return median_and_interval(slopes)


def claim_functions(row: list[str], column: str) -> Numbers:
    runs = rows("claim_functions", 40, model__activation=column.lower())
    if row[0] == "learning rate":
        return runs[LR].unique().tolist()
    return median_and_interval(runs["test/loss"])


def claim_depth(row: list[str], column: str) -> Numbers:
    depth = "depth 16" if "diverged" in row[0] else f"depth {row[0].split()[0]}"
    runs = rows("claim_depth", 15, block=depth, model__activation=UNITS[column])
    diverged = runs["status"] == "diverged"
    return [diverged.sum()] if "diverged" in row[0] else [100 * runs["test/error@last"].median()]


def claim_unit_norm_rows(row: list[str], column: str) -> Numbers:
    rule = {"rows of unit norm": "unit_norm_rows", "He": "he", "Glorot": "glorot"}[row[0]]
    where = {"model__network__init": rule, "model__activation": UNITS[column]}
    losses = rows("claim_unit_norm_rows", 15, **where)["val/loss@best"]
    return median_and_interval(losses)


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
    runs = rows(
        "claim_net_inputs", 15, model__network__batch_norm=row[0].startswith("with batch norm")
    )
    at = {"0": "0", "1": "1", "2": "last"}[row[0][-1]]
    return with_range(runs[f"inputs/distance_of_units[layer={column[-1]}]@{at}"])


def claim_residual_gradients(row: list[str], column: str) -> Numbers:
    block = "paper" if row[0] == "with batch norm" else "paper_without_norm"
    at = "0" if column == "before training" else "last"
    return with_range(
        rows("claim_residual_gradients", 6, model__network__block=block)[f"blocks/ratio@{at}"]
    )


def claim_sparse_inputs(row: list[str], column: str) -> Numbers:
    runs = rows("claim_sparse_inputs", 15, model__activation=column.strip("`"))
    if row[0] == "learning rate":
        return runs[LR].unique().tolist()
    found = (
        runs["val/loss@best"]
        if row[0] == "lowest validation loss"
        else 100 * runs["test/error@last"]
    )
    return median_and_interval(found)


TODAY = {
    **{
        "GELU": "gelu",
        "ReLU": "relu",
        "SiLU": "silu",
        "ReLU²": "relu_squared",
        "Mish": "mish",
        "tanh": "tanh",
    },
    **{
        "ELU": "elu",
        "leaky ReLU": "leaky_relu",
        "sine": "sine",
        "Gaussian": "gauss",
        "identity": "identity",
    },
}


def of_today(study: str, metric: str, *tuned: str) -> Callable[[list[str], str], Numbers]:
    """The table of activations with the selected settings, and the median with its interval."""

    def cell(row: list[str], column: str) -> Numbers:
        runs = rows(study, 15, model__activation=TODAY[row[0]])
        if column.startswith("rate"):
            return [runs[key].unique().item() for key in (LR, *tuned)]
        return median_and_interval(runs[metric])

    return cell


def gpt_gates(row: list[str], column: str) -> Numbers:
    form, _, what = column.partition(": ")
    runs = rows("gpt_gates", 15, block=form, model__activation=TODAY[row[0]])
    losses = runs["test/loss@last"]
    return runs[LR].unique().tolist() if what == "rate" else median_and_interval(losses)


def gpt_plain_init(row: list[str], column: str) -> Numbers:
    if column.endswith("fan_in"):
        return gpt_gates(row, f"plain: {column.partition(' ')[0]}")
    return of_today("gpt_plain_init", "test/loss@last")(row, column)


TABLES: dict[str, list[Callable[[list[str], str], Numbers]]] = {
    "claim_depth": [claim_depth],
    "claim_functions": [claim_functions],
    "claim_gradients": [claim_gradients],
    "claim_layers": [claim_layers],
    "claim_net_inputs": [claim_net_inputs],
    "claim_residual_gradients": [claim_residual_gradients],
    "claim_sparse_inputs": [claim_sparse_inputs],
    "claim_unit_norm_rows": [claim_unit_norm_rows],
    "elu_bias_shift": [elu_bias_shift],
    "elu_mnist_autoencoder": [elu_mnist_autoencoder],
    "elu_mnist_median_variance": [elu_mnist_median_variance],
    "elu_mnist_units": [elu_mnist_units],
    "gelu_cifar10": [gelu_cifar10_on_a_gpu, gelu_cifar10],
    "gelu_mnist_autoencoder": [gelu_mnist_autoencoder],
    "gelu_mnist_classifier": [gelu_mnist_classifier],
    "gelu_mnist_momentum": [gelu_mnist_momentum],
    "gelu_mnist_noise": [gelu_mnist_noise],
    "gelu_mnist_sigmoid": [gelu_mnist_sigmoid],
    "gelu_mnist_silu": [gelu_mnist_silu],
    "gelu_twitter_pos": [gelu_twitter_pos],
    "gpt_gates": [gpt_gates],
    "gpt_plain_init": [gpt_plain_init],
    "inr_image": [of_today("inr_image", "test/psnr@last", "model.network.omega")],
    "pinn_helmholtz": [
        of_today("pinn_helmholtz", "test/relative_error@last", "model.network.gain")
    ],
    "scoreboard": [],
    "soi_mnist": [soi_mnist],
    "soi_twitter_pos": [soi_twitter_pos],
}


@pytest.mark.parametrize("readme", READMES, ids=[path.parent.name for path in READMES])
def test_every_table_agrees_with_the_data_beside_it(readme):
    tables = tables_of(readme.read_text(encoding="utf-8"))
    # Machines and times of the runs cannot be recomputed
    tables = [table for table in tables if table[0][0] != "measured"]
    recomputed = TABLES[readme.parent.name]
    assert len(tables) == len(recomputed), "a table without a recomputation: add one to TABLES"
    for (head, *body), recompute in zip(tables, recomputed, strict=True):
        assert body
        for row in body:
            for column, cell in zip(head[1:], row[1:], strict=True):
                assert_same(cell, recompute(row[:1], column) if cell else [], f"{row[0]}, {column}")


def test_a_number_that_is_off_by_a_digit_is_found():
    assert_same("**2.03** [1.99, 2.13]", [2.034, 1.9851, 2.1349], "")
    assert_same("1,120; no curve", [1119.6], "")
    for wrong in ([2.036, 1.99, 2.13], [2.03, 1.99], [2.03, 1.99, 2.136]):
        with pytest.raises(AssertionError):
            assert_same("2.03 [1.99, 2.13]", wrong, "")


# Number of tables of rows in ``runs.tar.xz``, and the digest of what they hold, whatever the runs
# are named.
ROWS = {
    "pinn_helmholtz": (1150, "5fb5aac8d04773b3"),
    "inr_image": (1540, "e73fe0351e6df42c"),
    "gpt_plain_init": (140, "1ae9e58709d01c30"),
    "gpt_gates": (700, "b0403a7f24a92ecc"),
    "claim_depth": (288, "9a3a9201ebc58d39"),
    "claim_unit_norm_rows": (135, "7bc0ad650573f164"),
    "claim_sparse_inputs": (48, "8fd58261cabab96b"),
    "claim_residual_gradients": (24, "52325fc356a2a57b"),
    "claim_layers": (225, "7fc09b0fa91b14b4"),
    "claim_net_inputs": (60, "daac3887b318ef75"),
    "claim_gradients": (150, "6ef1317429f9a872"),
    "elu_bias_shift": (40, "710696830d94d02c"),
    "elu_mnist_autoencoder": (96, "b0d880218b867770"),
    "elu_mnist_median_variance": (10, "e8da9fbfb631ed63"),
    "elu_mnist_units": (45, "142acde3e24fa52c"),
    "gelu_mnist_autoencoder": (36, "a6ad65794897c605"),
    "gelu_mnist_classifier": (90, "837df8d24e03386c"),
    "gelu_mnist_momentum": (180, "61139cb924393182"),
    "gelu_mnist_noise": (90, "e605033bfb38c780"),
    "gelu_mnist_sigmoid": (70, "5fb56c585a5fea93"),
    "gelu_mnist_silu": (180, "947a80e7f02dcc1f"),
    "gelu_twitter_pos": (90, "6be6b7644ce9415f"),
    "soi_mnist": (195, "ad611febe51f9994"),
    "soi_twitter_pos": (150, "1896b3efbaa5fd5c"),
}


def test_every_archive_is_compared():
    assert {path.parent.name for path in RESULTS.glob("*/runs.tar.xz")} == ROWS.keys()


@pytest.mark.parametrize(  # seconds for each archive of hundreds of runs
    "study",
    [
        pytest.param(name, marks=pytest.mark.slow if n >= 100 else ())
        for name, (n, _) in ROWS.items()
    ],
)
def test_archives_hold_the_rows_that_were_recorded_under_the_names_of_today(study, tmp_path):
    with tarfile.open(RESULTS / study / "runs.tar.xz") as archive:
        parts = {part.name: archive.extractfile(part) for part in archive if part.isfile()}
        files = {Path(name): content.read() for name, content in parts.items() if content}
    rows, tables = [], defaultdict(list)
    for path in files:
        if path.suffix == ".parquet":
            for place in path.parents:
                tables[place].append(path)
    for place in (path.parent for path in files if path.name == "result.json"):
        result = json.loads(files[place / "result.json"])
        # Older archives have the point in a file of its own.
        point = json.loads(files.get(place / "point.json", files[place / "result.json"]))
        config, sources = (
            yaml.load(files[place / "config.yaml"], yaml.CSafeLoader),
            result["sources"],
        )
        whole = identity_of(counted(config, sources), sources)
        assert place.name == point["id"] == result["id"]
        assert place.name.endswith(f"-{whole[:16]}")
        assert result["identity"] == whole
        for path in tables[place]:
            name, digest = str(path.relative_to(place)), hashlib.sha256(files[path]).hexdigest()
            rows.append(
                json.dumps([point["point"], point["seed"], f"/{name}", digest], sort_keys=True)
            )
    digest = hashlib.sha256("\n".join(sorted(rows)).encode()).hexdigest()
    assert (len(rows), digest[:16]) == ROWS[study]
    if costs := files.get(Path(study) / COSTS):  # studies without a grid of activations have none
        (tmp_path / COSTS).write_bytes(costs)
        assert read_json(tmp_path / COSTS, list[Cost], "")


def test_what_was_chosen_has_the_best_median_on_validation_data():
    """In each first stage that is kept; the second was run there."""
    stages = sorted(RESULTS.glob("*/choose/values.csv"))
    assert len(stages) == 12
    for stage in stages:
        study = stage.parent.parent.name
        first, second = values(study, "choose"), values(study)
        chosen = json.loads((RESULTS / study / "selection.json").read_text())
        (of_second,) = (entries for entries in chosen.values() if isinstance(entries, dict))
        entry = next(iter(of_second.values()))
        compared, tuned = [*entry["point"]], [*entry["chosen"]]
        metric = f"{entry.get('metric', 'val/loss')}@{entry.get('at', 'best')}"
        medians = first.groupby([*compared, *tuned])[metric].median().reset_index()
        of_point = medians.groupby(compared)[metric]
        best = medians.loc[
            of_point.idxmin() if entry.get("mode", "min") == "min" else of_point.idxmax()
        ]
        key = [*compared, *tuned]
        for kept in (first[first["chosen"] == 1], second):
            assert set(map(tuple, kept[key].values)) == set(map(tuple, best[key].values)), study
        assert metric in second
        assert len(of_second) == len(best)


def readme_row(row: list[str], column: str) -> Numbers:
    """A cell of the table in README.md, by the label of its row or the study that it links to."""
    study = re.findall(r"results/(\w+)/", row[0])
    label = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", row[0])
    return OVERVIEW[label if label in OVERVIEW else study[0]](column)


def of_fig2(column: str, name: str = "train/clean_loss@last", dropout: float = 0.5) -> Numbers:
    where: dict[str, Any] = {"model__network__dropout": dropout}
    if column in UNITS:
        return [
            rows("gelu_mnist_classifier", 15, model__activation=UNITS[column], **where)[
                name
            ].median()
        ]
    if name.endswith("5-50"):
        paper = pd.read_csv(ROOT / "data/published/gelu_curves.csv")
        paper = paper.query("panel == 'MNIST no-dropout' and curve == 'train' and 5 <= epoch <= 50")
        return [paper.loc[paper["act"] == unit, "value"].mean() for unit in ("GELU", "ReLU", "ELU")]
    study, at = "gelu_mnist_classifier", name.split("@")
    found = [theirs(study, *at, model__activation=UNITS[unit], **where) for unit in PAPER]
    return [value for values in found for value in values]


def by_unit(
    study: str, name: str, n: int, scale: float = 1.0, **where: Any
) -> Callable[[str], Numbers]:
    """The median of each unit, and what the paper has."""

    def cell(column: str) -> Numbers:
        if column in UNITS:
            return [scale * rows(study, n, model__activation=UNITS[column], **where)[name].median()]
        metric, _, at = name.partition("@")
        place = int(at) if at.isdigit() else at
        found = [
            theirs(study, metric, place, model__activation=UNITS[unit], **where) for unit in PAPER
        ]
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
        curve("elu_bias_shift", "shift/k_distance", UNITS[column], 1, f"layer {layer}")
        for layer in (2, 5, 8)
    ]
    return [place["median"] for place in places]


def of_medians(column: str) -> Numbers:
    name = "units/variance_of_medians"
    places = [
        curve("elu_mnist_median_variance", name, UNITS[column], n, "of medians") for n in (1, 3, 5)
    ]
    return [place["median"] for place in places]


def of_cifar10(column: str) -> Numbers:
    if column in UNITS:
        return gelu_cifar10_on_a_gpu(["test error % after 200 epochs"], column)
    return [value for unit in PAPER for value in gelu_cifar10_on_a_gpu(["published"], unit)]


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
    "gelu_mnist_autoencoder": by_unit(
        "gelu_mnist_autoencoder", "test/loss@25", 3, model__optimizer__lr=1e-3
    ),
    "gelu_twitter_pos": by_unit("gelu_twitter_pos", "test/error@last", 15, scale=100),
    "elu_bias_shift": only_units(of_bias_shift),
    "elu_mnist_units": only_units(by_unit("elu_mnist_units", "units/distance_of_means@mean", 15)),
    "elu_mnist_autoencoder": only_units(of_autoencoder),
    "elu_mnist_median_variance": only_units(of_medians),
    "its change from epoch to epoch, first 10 epochs": only_units(
        lambda column: [
            over_first_epochs(UNITS[column], layer, "median", True) for layer in (1, 3, 5)
        ]
    ),
    "variance of medians over the units of a layer, first 10 epochs": only_units(
        lambda column: [over_units(UNITS[column], layer, "median") for layer in (1, 3, 5)]
    ),
    "gelu_cifar10": of_cifar10,
}


def test_the_overview_agrees_with_the_data():
    text = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    ((head, *body),) = (table for table in tables_of(text) if table[0][0] == "study")
    assert head == ["study", "seeds", *PAPER, "published: GELU, ReLU, ELU"]
    assert len(body) == len(OVERVIEW)
    for row in body:
        for column, cell in zip(head[2:], row[2:], strict=True):
            if cell:
                assert_same(cell, readme_row(row, column), f"{row[0]}, {column}")


def test_the_readme_has_rows_of_the_overview():
    whole = (ROOT / "docs/results.md").read_text(encoding="utf-8").splitlines()
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    rows = [
        line.replace("](results/", "](../results/")
        for line in lines
        if "](results/" in line and line[0] == "|"
    ]
    assert len(rows) > 4
    assert set(rows) <= set(whole)
    assert MNIST.partition(", ")[2] in rows[0]
    outcomes = {one["name"]: one["outcome"] for one in table("gelu_mnist_classifier")["verdicts"]}
    assert {outcomes[f"{unit} (dropout 0)"] for unit in ("gelu_tanh", "elu")} == {"undecided"}
