"""What ``results/`` stores, for tests that recompute the pages: values, curves, tables."""

import importlib.util
import json
import math
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from scipy.stats import binom

from recomputed import column_of

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
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
    entries = yaml.safe_load((ROOT / f"configs/studies/{study}.yaml").read_text())["published"][
        "values"
    ]
    return [{"value": e["value"], "key": (e["metric"], e["at"]), **e["where"]} for e in entries]


def theirs(study: str, metric: str, at: Any, **where: Any) -> Numbers:
    """The published value; nothing where the paper has none."""
    wanted = {
        "key": (metric, at),
        **{key.replace("__", "."): value for key, value in where.items()},
    }
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
    """The narrowest order statistics, symmetric in rank, that cover the median with 95 %."""
    ordered = np.sort(np.asarray(sample))
    n = len(ordered)
    k = max(k for k in range(1, n // 2 + 1) if 1 - 2 * binom.cdf(k - 1, n, 0.5) >= 0.95)
    return [ordered[k - 1], ordered[n - k]]


def with_range(sample: Any) -> Numbers:
    return [np.median(sample), min(sample), max(sample)]


def median_and_interval(sample: Any) -> Numbers:
    return [np.median(sample), *interval(sample)]


def number_in(label: str) -> float:
    return float(re.findall(r"\d*\.?\d+(?:e-\d+)?", label)[0])


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
    return median_and_interval(found)


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


def program(name: str) -> Any:
    """A program of ``results/`` as a module."""
    spec = importlib.util.spec_from_file_location(name, RESULTS / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


IN_PAGES = re.compile(r"(?<![\w.])−?\d+(?:\.\d+)?(?:e[−-]\d+)?(?![\w.])")


def assert_same_page(path: Path, written: str, remedy: str, atol: float = 0.0) -> None:
    """A page is what its program writes; numbers agree to 2 %, as processors round differently."""
    texts = path.read_text(encoding="utf-8"), written
    kept, made = (IN_PAGES.sub("#", text) for text in texts)
    assert kept == made, remedy
    first, second = (
        [float(word.replace("−", "-")) for word in IN_PAGES.findall(text)] for text in texts
    )
    np.testing.assert_allclose(first, second, rtol=0.02, atol=atol)


PAPER = ("GELU", "ReLU", "ELU")
FIG6 = ("gelu_tanh", "relu", "elu")


def short(value: float, digits: int) -> str:
    return f"{value:.{digits}f}"


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
