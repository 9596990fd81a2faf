"""Curves over epochs and over conditions, against medians worked out by hand."""

import math
from pathlib import Path

import pytest

from actlab.analysis import results
from actlab.analysis.columns import Column
from actlab.analysis.curves import Curve, over_conditions, over_epochs
from actlab.errors import ActlabError
from actlab.studies.plan import Selection
from actlab.studies.states import DIVERGED, FINISHED
from actlab.studies.study_folder import StudyFolder
from written_runs import ACT, LR, finished, one_unit, probe, study, write

LOSS = Column("val/loss")


def test_a_curve_is_the_median_and_range_over_seeds(full):
    curve = over_epochs(full, full.groups[0], LOSS)
    assert curve.x.tolist() == [1, 2, 3]
    assert curve.band.median.tolist() == pytest.approx([1, 0.205, 0.5])
    assert (curve.band.low[1], curve.band.high[1], curve.n) == pytest.approx((0.2, 0.21, 2))
    fixed = over_epochs(full, full.groups[0], LOSS, {LR: 0.01})
    assert fixed.band.median[1] == pytest.approx(0.405)
    assert over_epochs(full, full.groups[0], LOSS, {LR: 7}) is None


INF = math.inf


@pytest.mark.parametrize(
    ("whole", "others", "status", "median", "range_"),
    [
        ([1.0, 2.0, 3.0], [1.0], DIVERGED, [1, INF, INF], ([1, 2, 3], [1, INF, INF])),
        ([3.0, 2.0], [], DIVERGED, [INF, INF], ([3, 2], [INF, INF])),
        ([1.0, 2.0], [1.0, math.nan], FINISHED, [1, INF], ([1, 2], [1, INF])),
    ],
    ids=["diverged later", "diverged at once", "a NaN, which cuts no epoch"],
)
def test_runs_without_a_number_are_the_worst(tmp_path, whole, others, status, median, range_):
    """One run of three has recorded all values."""
    plan = one_unit(seeds=3)
    for run in plan.runs():
        values, how = (others, status) if run.seed else (whole, FINISHED)
        write(tmp_path, run, {"val/loss": values} if values else {}, how)
    loaded = results.load(StudyFolder(plan, tmp_path))
    curve = over_epochs(loaded, loaded.groups[0], LOSS)
    assert (curve.n, curve.x.tolist()) == (3, [*range(1, len(whole) + 1)])
    assert (curve.band.median.tolist(), curve.band.low.tolist(), curve.band.high.tolist()) == (
        median,
        *range_,
    )
    if not others:
        turned = over_epochs(loaded, loaded.groups[0], Column("val/loss", mode="max"))
        assert turned.band.median.tolist() == [-INF, -INF]


@pytest.mark.parametrize("recorded", [[], [1.0, 0.9]])
def test_a_group_of_which_all_diverged_is_infinite_where_others_were_measured(tmp_path, recorded):
    plan = study(grids=({ACT: ["relu", "elu"]},), select=Selection())
    bad = lambda run: run.point[ACT] == "elu"  # noqa: E731
    curves = lambda run: {"val/loss": recorded if bad(run) else [1.0, 0.9, 0.8, 0.7]}  # noqa: E731
    loaded = finished(tmp_path, plan, curves, bad)
    curve = over_epochs(loaded, loaded.groups[1], LOSS)
    expected = [*recorded, *[INF] * (4 - len(recorded))]
    assert (curve.n, curve.x.tolist(), curve.band.median.tolist()) == (2, [1, 2, 3, 4], expected)
    assert over_epochs(loaded, loaded.groups[1], Column("val/none")) is None


def noisy(tmp_path: Path, seeds: int = 3, diverge: int = -1, skip: int = -1) -> results.Results:
    """One activation whose error is noise + seed/10, in layer 2 twice as large; not in order."""
    plan = one_unit(seeds=seeds)
    for run in plan.runs():
        write(tmp_path, run, {"test/error": [0.5]}, DIVERGED if run.seed == diverge else FINISHED)
        if run.seed not in (diverge, skip):
            errors = {
                ("test/error", f"noise={n}"): float(n) + run.seed / 10 for n in ("1", "0", "0.5")
            }
            layers = {("test/error", f"{c},layer=2"): 2 * value for (_, c), value in errors.items()}
            probe(tmp_path, run, "noise", errors | layers | {("test/loss", "noise=high"): 1.0})
    return results.load(StudyFolder(plan, tmp_path))


def across(loaded: results.Results, condition: str = "", key: str = "noise") -> Curve | None:
    return over_conditions(
        loaded, loaded.groups[0], Column("noise/test/error", condition=condition), key
    )


@pytest.mark.parametrize(
    ("lost", "n", "median", "high"),
    [({}, 3, 0.1, 0.2), ({"diverge": 2}, 3, 0.1, INF), ({"skip": 2}, 2, 0.05, 0.1)],
)
def test_a_curve_over_conditions_is_the_median_over_seeds_at_each_number(
    tmp_path, lost, n, median, high
):
    """A diverged run is the worst at each number, a run without the probe is left out."""
    curve = across(noisy(tmp_path, **lost))
    assert (curve.n, curve.x.tolist(), curve.band.low.tolist()) == (n, [0, 0.5, 1], [0, 0.5, 1])
    assert curve.band.median.tolist() == pytest.approx([x + median for x in (0, 0.5, 1)])
    assert curve.band.high.tolist() == pytest.approx([x + high for x in (0, 0.5, 1)])


def test_runs_that_diverged_at_once_are_the_worst_at_every_condition(tmp_path):
    plan, later = one_unit(seeds=3), lambda run: run.seed > 0
    finished(tmp_path, plan, lambda run: {} if run.seed else {"test/error": [0.5]}, later)
    probe(tmp_path, plan.runs()[0], "noise", {("test/error", f"noise={n}"): 0.1 for n in (0, 1)})
    loaded = results.load(StudyFolder(plan, tmp_path))
    curve = across(loaded)
    assert (curve.n, curve.band.median.tolist()) == (3, [math.inf] * 2)
    along = over_epochs(loaded, loaded.groups[0], Column("noise/test/error", condition="noise=1"))
    assert (along.n, along.band.median.tolist()) == (3, [math.inf])


def test_the_other_parts_of_a_condition_are_chosen(tmp_path):
    curve = across(noisy(tmp_path, seeds=1), "layer=2")
    assert (curve.x.tolist(), curve.band.median.tolist()) == ([0, 0.5, 1], [0, 1, 2])
    layers = across(noisy(tmp_path, seeds=1), "noise=0.5", "layer")
    assert (layers.x.tolist(), layers.band.median.tolist()) == ([2], [1])


@pytest.mark.parametrize(
    ("metric", "key", "condition", "message"),
    [
        ("noise/test/error", "nois", "", "did you mean 'noise'.*Allowed: epoch, layer, noise"),
        ("noise/test/error", "noise", "layer=3", "did you mean 'layer=2'"),
        ("noise/test/error", "noise", "layer", "write key=value"),
        (
            "noise/test/error",
            "layer",
            "",
            "Allowed: noise=0, noise=0.5, noise=1. Choose one by 'condition'",
        ),
        ("noise/test/loss", "noise", "", "'high' is not a number"),
        ("noise/test/loss", "noise", "layer=2", "Leave 'condition' out"),
        ("test/error", "noise", "", "unknown key of conditions 'noise'"),
    ],
)
def test_an_axis_needs_numbers_that_were_measured(tmp_path, metric, key, condition, message):
    loaded = noisy(tmp_path, seeds=1)
    with pytest.raises(ActlabError, match=message):
        over_conditions(loaded, loaded.groups[0], Column(metric, condition=condition), key)


def test_a_curve_over_epochs_may_be_of_one_condition(tmp_path):
    loaded = noisy(tmp_path, seeds=1)
    curve = over_epochs(
        loaded, loaded.groups[0], Column("noise/test/error", condition="noise=0.5,layer=2")
    )
    assert (curve.x.tolist(), curve.band.median.tolist()) == ([3], [1])
