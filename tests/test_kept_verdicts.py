"""Every verdict of ``results/``, recomputed from stored values: outcome, raw and corrected p."""

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import permutation_test

from recomputed import column_of, holm, two_sided, within

RESULTS = Path(__file__).parent.parent / "results"
FILES = [*RESULTS.glob("*/table.json"), *RESULTS.glob("scoreboard/*/table.json")]
STUDIES = sorted(str(path.parent.relative_to(RESULTS)) for path in FILES)
LEVEL, FEWEST = 0.05, 6


@cache
class Table:
    """A kept table, with each tested cell as it follows from ``values.csv``."""

    def __init__(self, study: str) -> None:
        self.kept = json.loads((RESULTS / study / "table.json").read_text(encoding="utf-8"))
        self.values = pd.read_csv(RESULTS / study / "values.csv").query("chosen == 1")
        self.compare = self.kept["compare"]
        self.tested = [
            (row["point"], cell)
            for row in self.kept["rows"]
            for cell in row["columns"]
            if cell["family"]
        ]

    def factor(self) -> int:
        """What earlier looks multiply p-values by."""
        looks = self.kept["looks"]
        return (looks + 1) * (looks + 2) if looks else 1

    def of(self, point: dict[str, Any], cell: dict[str, Any]) -> pd.Series:
        """The values of one cell by seed; a share is one of whole samples."""
        runs = self.values
        for key, value in point.items():
            if pd.api.types.is_numeric_dtype(runs[key]) and runs[key].dtype != bool:
                runs = runs[runs[key] == float(value)]
            else:
                runs = runs[runs[key].astype(str) == str(value)]
        values = runs.set_index("seed")[column_of(cell)].dropna()
        return (values * cell["samples"]).round() / cell["samples"] if cell["samples"] else values

    def pairs(self, point: dict[str, Any], cell: dict[str, Any]) -> tuple[Any, Any]:
        """The paired values of a cell and of its reference."""
        both = [
            self.of(at, cell) for at in (point, {**point, self.compare: self.kept["reference"]})
        ]
        a, b = (values.to_numpy() for values in both[0].align(both[1], join="inner"))
        worst = -np.inf if cell["mode"] == "max" else np.inf
        sides = np.where(failed(a, cell), worst, a), np.where(failed(b, cell), worst, b)
        return tuple(np.log(sides)) if cell.get("scale") == "log" else sides

    def family(self, name: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        return [(point, cell) for point, cell in self.tested if cell["family"] == name]


def failed(values: Any, cell: dict[str, Any]) -> Any:
    """Which runs diverged, or are not better than chance by two standard errors of the test set."""
    if cell["chance"] is None:
        return ~np.isfinite(values)
    chance, samples = cell["chance"], cell["samples"]
    apart = 2 * (chance * (1 - chance) / samples) ** 0.5 if samples else 0.0
    sign = -1 if cell["mode"] == "max" else 1
    return ~np.isfinite(values) | (np.float32(sign * values) + apart >= np.float32(sign * chance))


def wins(a: Any, b: Any, mode: str) -> float:
    """The share of pairs of runs in which the first wins; ties are half a win."""
    good = -1 if mode == "max" else 1
    return float(np.mean([0.5 * (x == y) + (x < y) for x in good * a for y in good * b]))


def studentised(a: Any, b: Any, axis: int = -1) -> Any:
    """The statistic of Brunner and Munzel, whose error is at least 1/(2nm)."""
    # Compare each run of the first side with each of the second
    first = a[..., :, None]
    second = b[..., None, :]
    won = (first < second) + 0.5 * (first == second)
    n, m = won.shape[-2:]

    # Estimate the error of the share of wins
    variance_first = won.mean(-1).var(-1, ddof=1)
    variance_second = won.mean(-2).var(-1, ddof=1)
    error = np.sqrt(variance_first / n + variance_second / m)

    distance = abs(won.mean((-1, -2)) - 0.5)
    return distance / np.maximum(error, 1 / (2 * n * m))


def decides(a: Any, b: Any, hypotheses: int) -> str:
    """The mean where no run failed and its smallest p survives the correction."""
    can = len(a) >= FEWEST and 2 * hypotheses * 0.5 ** len(a) < LEVEL
    return "mean" if can and np.isfinite([a, b]).all() else "probability"


def p_of(a: Any, b: Any, by: str) -> float | None:
    """The raw p of the quantity that decides."""
    if len(a) < FEWEST:
        return None
    if by == "mean":
        return two_sided(a - b)
    found = permutation_test(
        (a, b), studentised, vectorized=True, n_resamples=20_000, alternative="greater", rng=1
    )
    return float(found.pvalue)


@pytest.mark.parametrize("study", STUDIES)
def test_p_values_follow_from_the_runs(study):
    table = Table(study)
    assert table.tested
    for name in ("primary", "secondary"):
        family = table.family(name)
        raw: list[float | None] = []
        matching: list[float | None] = []
        for point, cell in family:
            a, b = table.pairs(point, cell)
            finite = bool(np.isfinite([a, b]).all())
            assert cell["pairs"] == len(a)
            by = decides(a, b, len(family) * table.factor())
            assert len(a) < FEWEST or cell["decides"] == by
            if len(a):
                assert cell["better"]["probability"] == pytest.approx(wins(a, b, cell["mode"]))
                assert not finite or cell["paired"]["mean"] == pytest.approx((a - b).mean())
            raw.append(p_of(a, b, by))
            # Two samples of 20,000 random splits of the runs agree to a few of their standard
            # errors.
            assert cell["p"] == (raw[-1] if by == "mean" else pytest.approx(raw[-1], abs=0.01))
            if finite and len(a) >= FEWEST:
                low, high = cell["paired"]["low"], cell["paired"]["high"]
                p_of_mean = two_sided(a - b)
                assert (low <= 0 <= high) == (p_of_mean >= LEVEL)
                assert cell["paired"].get("p", p_of_mean) == p_of_mean
            if cell["margin"]:
                matching.append(
                    within(a - b, cell["margin"]) if finite and len(a) >= FEWEST else None
                )
        tested = [cell for _, cell in family if cell["margin"]]
        assert [cell["p_equivalent"] for cell in tested] == pytest.approx(matching)
        of_all = [cell for _, cell in family]
        for cells, key, ps in (
            (of_all, "p_holm", [cell["p"] for cell in of_all]),
            (tested, "p_equivalent_holm", matching),
        ):
            expected = [p and min(1.0, p * table.factor()) for p in holm(ps)]
            assert [cell[key] for cell in cells] == pytest.approx(expected)


def outcome(cell: dict[str, Any], hypotheses: int) -> str:
    """The verdict that the p-values of a cell give."""
    # Of complete separation, by the probability of being better
    least = 2 * hypotheses / math.comb(2 * cell["pairs"], cell["pairs"])
    if cell["p"] is None or cell["pairs"] < FEWEST or least >= LEVEL:
        return "too few pairs"
    if cell["p_holm"] < LEVEL:
        mean, won = cell["paired"]["mean"], cell["better"]["probability"] > 0.5
        good = won if cell["decides"] == "probability" else (mean < 0) == (cell["mode"] == "min")
        return "better" if good else "worse"
    matching = cell["p_equivalent_holm"]
    is_inside = cell["p_equivalent"] is not None and cell["p_equivalent"] <= 0.0125
    return "equivalent" if is_inside and matching < LEVEL else "undecided"


@pytest.mark.parametrize("study", STUDIES)
def test_outcomes_follow_from_the_p_values(study):
    table = Table(study)
    expected = []
    for name in ("primary", "secondary"):
        family = [cell for _, cell in table.family(name)]
        judged = [cell for cell in family if cell["ranked"] and "test" in cell["metric"].split("/")]
        expected += [(name, outcome(cell, len(family) * table.factor())) for cell in judged]
    assert [(one["family"], one["outcome"]) for one in table.kept["verdicts"]] == expected


def test_kept_verdicts_are_of_several_kinds():
    found = [one["outcome"] for study in STUDIES for one in Table(study).kept["verdicts"]]
    assert {"better", "worse", "equivalent", "undecided", "too few pairs"} <= set(found)
    assert len(STUDIES) > 10
    assert not any(
        math.isnan(cell["p"] or 0) for study in STUDIES for _, cell in Table(study).tested
    )


@pytest.mark.parametrize("study", STUDIES)
def test_every_error_has_its_number_of_samples(study):
    """As the runs recorded it, or as the study file states it for runs that did not."""
    cells = [cell for row in Table(study).kept["rows"] for cell in row["columns"]]
    errors = [
        cell
        for cell in cells
        if cell["percent"] and cell["metric"].endswith("/error") and cell["n"]
    ]
    assert [cell["name"] for cell in errors if not cell["samples"]] == []
