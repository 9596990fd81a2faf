"""Curves over epochs and over conditions, against medians worked out by hand."""

import math
from pathlib import Path

import pytest

from actlab.analysis import results
from actlab.analysis.columns import Column
from actlab.analysis.curves import Curve, over_conditions, over_epochs
from actlab.errors import ActlabError
from actlab.studies.folders import DIVERGED, FINISHED
from actlab.studies.plan import Selection
from written_runs import ACT, LR, one_unit, probe, study, write

LOSS = Column("val/loss")


def test_a_curve_is_the_median_and_range_over_seeds(full: results.Results) -> None:
    curve = over_epochs(full, full.groups[0], LOSS)
    assert curve.x.tolist() == [1, 2, 3]
    assert curve.band.median.tolist() == pytest.approx([1, 0.205, 0.5])
    assert (curve.band.low[1], curve.band.high[1], curve.n) == pytest.approx((0.2, 0.21, 2))
    fixed = over_epochs(full, full.groups[0], LOSS, {LR: 0.01})
    assert fixed.band.median[1] == pytest.approx(0.405)
    assert over_epochs(full, full.groups[0], LOSS, {LR: 7}) is None


def test_a_curve_is_infinite_from_where_most_runs_diverged(tmp_path: Path) -> None:
    plan = one_unit(seeds=3)
    for run in plan.runs():
        values, status = ([1.0], DIVERGED) if run.seed else ([1.0, 2.0, 3.0], FINISHED)
        write(tmp_path, run, {"val/loss": values}, status)
    loaded = results.load(plan, tmp_path)
    curve = over_epochs(loaded, loaded.groups[0], LOSS)
    assert curve.band.median.tolist() == [1, math.inf, math.inf]
    assert curve.band.low.tolist() == [1, 2, 3]


def test_a_run_that_diverged_before_it_recorded_anything_is_the_worst_from_the_start(tmp_path: Path) -> None:
    plan = one_unit(seeds=3)
    for run in plan.runs():
        write(tmp_path, run, {} if run.seed else {"val/loss": [3.0, 2.0]}, DIVERGED if run.seed else FINISHED)
    loaded = results.load(plan, tmp_path)
    curve = over_epochs(loaded, loaded.groups[0], LOSS)
    assert (curve.n, curve.x.tolist()) == (3, [1, 2])
    assert curve.band.median.tolist() == [math.inf, math.inf]
    assert curve.band.low.tolist() == [3, 2]
    accuracy = Column("val/loss", mode="max")
    turned = over_epochs(loaded, loaded.groups[0], accuracy)
    assert turned.band.median.tolist() == [-math.inf, -math.inf]


def test_a_group_of_which_all_diverged_at_once_is_infinite_where_others_were_measured(tmp_path: Path) -> None:
    plan = study(grids=({ACT: ["relu", "elu"]},), select=Selection())
    for run in plan.runs():
        bad = run.point[ACT] == "elu"
        write(tmp_path, run, {} if bad else {"val/loss": [3.0, 2.0]}, DIVERGED if bad else FINISHED)
    loaded = results.load(plan, tmp_path)
    curve = over_epochs(loaded, loaded.groups[1], LOSS)
    assert (curve.n, curve.x.tolist(), curve.band.median.tolist()) == (2, [1, 2], [math.inf] * 2)
    assert over_epochs(loaded, loaded.groups[1], Column("val/none")) is None


def test_a_group_of_which_all_diverged_later_is_infinite_to_the_end(tmp_path: Path) -> None:
    plan = study(grids=({ACT: ["relu", "elu"]},), select=Selection())
    for run in plan.runs():
        bad = run.point[ACT] == "elu"
        values, status = ([1.0, 0.9], DIVERGED) if bad else ([1.0, 0.9, 0.8, 0.7], FINISHED)
        write(tmp_path, run, {"val/loss": values}, status)
    loaded = results.load(plan, tmp_path)
    curve = over_epochs(loaded, loaded.groups[1], LOSS)
    assert (curve.x.tolist(), curve.band.median.tolist()) == ([1, 2, 3, 4], [1, 0.9, math.inf, math.inf])


def test_a_recorded_nan_is_the_worst_value_and_cuts_no_epoch(tmp_path: Path) -> None:
    plan = one_unit(seeds=3)
    for run in plan.runs():
        write(tmp_path, run, {"val/loss": [1.0, math.nan if run.seed == 2 else 2.0 + run.seed]})
    loaded = results.load(plan, tmp_path)
    curve = over_epochs(loaded, loaded.groups[0], LOSS)
    assert (curve.band.median.tolist(), curve.band.high.tolist()) == ([1, 3], [1, math.inf])


def noisy(tmp_path: Path, seeds: int = 3, diverge: int = -1, skip: int = -1) -> results.Results:
    """One unit whose error is noise + seed/10, in layer 2 twice as large; written in no order."""
    plan = one_unit(seeds=seeds)
    for run in plan.runs():
        write(tmp_path, run, {"test/error": [0.5]}, DIVERGED if run.seed == diverge else FINISHED)
        if run.seed not in (diverge, skip):
            errors = {("test/error", f"noise={n}"): float(n) + run.seed / 10 for n in ("1", "0", "0.5")}
            layers = {("test/error", f"{c},layer=2"): 2 * value for (_, c), value in errors.items()}
            probe(tmp_path, run, "noise", errors | layers | {("test/loss", "noise=high"): 1.0})
    return results.load(plan, tmp_path)


def across(loaded: results.Results, condition: str = "", key: str = "noise") -> Curve | None:
    return over_conditions(loaded, loaded.groups[0], Column("noise/test/error", condition=condition), key)


def test_a_curve_over_conditions_is_the_median_over_seeds_at_each_number(tmp_path: Path) -> None:
    curve = across(noisy(tmp_path))
    assert curve.x.tolist() == [0, 0.5, 1]
    assert curve.band.median.tolist() == pytest.approx([0.1, 0.6, 1.1])
    assert curve.band.low.tolist() == pytest.approx([0, 0.5, 1])
    assert curve.band.high.tolist() == pytest.approx([0.2, 0.7, 1.2])
    assert curve.n == 3


def test_a_diverged_run_is_the_worst_at_every_condition(tmp_path: Path) -> None:
    curve = across(noisy(tmp_path, diverge=2))
    assert curve.n == 3
    assert curve.band.median.tolist() == pytest.approx([0.1, 0.6, 1.1])
    assert curve.band.high.tolist() == [math.inf] * 3


def test_runs_that_diverged_at_once_are_the_worst_at_every_condition(tmp_path: Path) -> None:
    plan = one_unit(seeds=3)
    for run in plan.runs():
        write(tmp_path, run, {} if run.seed else {"test/error": [0.5]}, DIVERGED if run.seed else FINISHED)
    probe(tmp_path, plan.runs()[0], "noise", {("test/error", f"noise={n}"): 0.1 for n in (0, 1)})
    curve = across(results.load(plan, tmp_path))
    assert (curve.n, curve.band.median.tolist()) == (3, [math.inf] * 2)
    loaded = results.load(plan, tmp_path)
    along = over_epochs(loaded, loaded.groups[0], Column("noise/test/error", condition="noise=1"))
    assert (along.n, along.band.median.tolist()) == (3, [math.inf])


def test_a_run_without_the_probe_is_left_out(tmp_path: Path) -> None:
    curve = across(noisy(tmp_path, skip=2))
    assert (curve.n, curve.band.high[0]) == (2, pytest.approx(0.1))


def test_the_other_parts_of_a_condition_are_chosen(tmp_path: Path) -> None:
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
        ("noise/test/error", "layer", "", "choose one by 'condition': noise=0, noise=0.5, noise=1"),
        ("noise/test/loss", "noise", "", "'high' is not a number"),
        ("noise/test/loss", "noise", "layer=2", "measured without further conditions"),
        ("test/error", "noise", "", "unknown key of conditions 'noise'"),
    ],
)
def test_an_axis_needs_numbers_that_were_measured(
    tmp_path: Path, metric: str, key: str, condition: str, message: str
) -> None:
    loaded = noisy(tmp_path, seeds=1)
    with pytest.raises(ActlabError, match=message):
        over_conditions(loaded, loaded.groups[0], Column(metric, condition=condition), key)


def test_a_curve_over_epochs_may_be_of_one_condition(tmp_path: Path) -> None:
    loaded = noisy(tmp_path, seeds=1)
    curve = over_epochs(loaded, loaded.groups[0], Column("noise/test/error", condition="noise=0.5,layer=2"))
    assert (curve.x.tolist(), curve.band.median.tolist()) == ([3], [1])
