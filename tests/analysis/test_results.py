"""Results from run folders written as engines write them, against values chosen by hand."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from actlab.analysis import comparison, results
from actlab.analysis.columns import Column, column
from actlab.engines.folders import DIVERGED, FINISHED, Row, RunFolder
from actlab.errors import ActlabError
from actlab.studies.plan import Run, Selection, Study

ACT, LR, DROP = "model.activation", "model.lr", "model.dropout"
Curves = dict[str, list[float]]


def study(**changes: Any) -> Study:
    """Two units, two learning rates, two seeds unless changed."""
    given = {
        "name": "s",
        "title": "S",
        "base": {},
        "settings": {},
        "seeds": (0, 1),
        "select": Selection((LR,)),
        "blocks": ({ACT: ["gelu", "relu"], LR: [0.1, 0.01]},),
        "table": ({"metric": "test/error", "at": "last", "percent": True},),
    }
    return Study(**{**given, **changes})  # type: ignore[arg-type]


def write(root: Path, run: Run, curves: Curves, status: str = FINISHED) -> None:
    """A run folder with each metric's values at epochs 1, 2, …"""
    folder = RunFolder(root, run)
    folder.open()
    folder.append(
        Row(float(epoch), 10 * epoch, *name.split("/"), value)
        for name, values in curves.items()
        for epoch, value in enumerate(values, 1)
    )
    folder.finish(status, seconds=1.0)


def curves_of(run: Run) -> Curves:
    """gelu is best at 0.1, relu at 0.01; the test error says the opposite of what validation says."""
    good = run.point[LR] == (0.1 if run.point[ACT] == "gelu" else 0.01)
    low = (0.2 if good else 0.4) + 0.01 * run.seed
    return {"val/loss": [1.0, low, 0.5], "test/error": [0.9, 0.5, 0.3 if good else 0.1]}


@pytest.fixture
def full(tmp_path: Path) -> results.Results:
    plan = study()
    for run in plan.runs():
        write(tmp_path, run, curves_of(run))
    return results.load(plan, tmp_path)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        ("last", 0.4),
        ("best", 0.2),
        ("best_epoch", 3),
        (2, 0.6),
        (2.9, 0.6),
        (99, 0.4),
        (0.5, None),
        ("selected", 0.6),
    ],
)
def test_the_value_of_a_run(tmp_path: Path, at: str | float, value: float | None) -> None:
    plan = study(blocks=({ACT: ["relu"]},), select=Selection(), seeds=(0,))
    write(tmp_path, plan.runs()[0], {"test/error": [0.8, 0.6, 0.2, 0.4], "val/loss": [3, 1, 2, 2]})
    loaded = results.load(plan, tmp_path)
    assert loaded.value(plan.runs()[0], Column("test/error", at)) == value


def test_an_early_selection_reads_the_first_value_of_a_rarer_metric(tmp_path: Path) -> None:
    plan = study(blocks=({ACT: ["relu"]},), select=Selection(), seeds=(0,))
    folder = RunFolder(tmp_path, plan.runs()[0])
    folder.open()
    folder.append(Row(epoch, 1, "val", "loss", value) for epoch, value in ((1 / 3, 1), (2 / 3, 2)))
    folder.append(Row(epoch, 2, "test", "error", value) for epoch, value in ((1, 0.5), (2, 0.1)))
    folder.finish(FINISHED)
    assert results.load(plan, tmp_path).value(plan.runs()[0], Column("test/error", "selected")) == 0.5


def test_accuracy_is_best_when_high(tmp_path: Path) -> None:
    plan = study(blocks=({ACT: ["relu"]},), select=Selection(), seeds=(0, 1))
    first, second = plan.runs()
    write(tmp_path, first, {"test/accuracy": [0.1, 0.9, 0.5]})
    write(tmp_path, second, {"test/accuracy": [0.1]}, DIVERGED)
    loaded, best = results.load(plan, tmp_path), column({"metric": "test/accuracy", "at": "best"}, plan)
    assert loaded.value(first, best) == 0.9
    assert loaded.value(second, best) == -math.inf


def test_tuned_values_are_chosen_on_validation_alone(full: results.Results) -> None:
    rows = comparison.rows(full)
    assert [(row.point, row.chosen, row.tried) for row in rows] == [
        ({ACT: "gelu"}, {LR: 0.1}, 2),
        ({ACT: "relu"}, {LR: 0.01}, 2),
    ]
    assert [row.cells[0].median for row in rows] == [0.3, 0.3]  # the worse test error, honestly


def test_the_choice_takes_the_median_of_the_best_values(tmp_path: Path) -> None:
    plan = study(blocks=({ACT: ["relu"], LR: [0.1, 0.01]},), seeds=(0, 1, 2))
    lows = {0.1: [0.1, 0.5, 0.5], 0.01: [0.3, 0.3, 0.9]}  # means .37 and .5, medians .5 and .3
    for run in plan.runs():
        write(tmp_path, run, {"val/loss": [1, lows[run.point[LR]][run.seed], 2], "test/error": [0.5]})
    assert comparison.rows(results.load(plan, tmp_path))[0].chosen == {LR: 0.01}


def test_selecting_on_test_is_refused(full: results.Results, tmp_path: Path) -> None:
    loaded = results.load(study(select=Selection((LR,), "test/error")), tmp_path)
    with pytest.raises(ActlabError, match="no validation metric"):
        comparison.rows(loaded)


def test_missing_runs_are_counted_and_marked(tmp_path: Path) -> None:
    plan = study()
    for run in plan.runs():
        if not (run.point[ACT] == "relu" and run.seed == 1):
            write(tmp_path, run, curves_of(run))
    loaded = results.load(plan, tmp_path)
    assert (loaded.finished, loaded.diverged, loaded.missing) == (6, 0, 2)
    gelu, relu = comparison.rows(loaded)
    assert (gelu.finished, gelu.planned, gelu.provisional) == (2, 2, False)
    assert (relu.finished, relu.planned, relu.provisional, relu.chosen) == (1, 2, True, {LR: 0.01})


def test_a_diverged_run_is_infinite_and_never_chosen_for_it(tmp_path: Path) -> None:
    plan = study(seeds=(0, 1, 2))
    for run in plan.runs():
        bad = run.point[LR] == 0.1 and run.seed > 0
        curves = {"val/loss": [0.01 if bad else 0.5], "test/error": [0.2]}
        write(tmp_path, run, curves, DIVERGED if bad else FINISHED)
    loaded = results.load(plan, tmp_path)
    assert (loaded.finished, loaded.diverged) == (8, 4)
    assert [row.chosen for row in comparison.rows(loaded)] == [{LR: 0.01}] * 2
    only = results.load(study(seeds=(0, 1, 2), blocks=({ACT: ["relu"], LR: [0.1]},)), tmp_path)
    (row,) = comparison.rows(only)
    assert (row.finished, row.diverged, row.cells[0].median) == (1, 2, math.inf)


def test_published_values_are_matched_by_label_and_by_the_most_particular(tmp_path: Path) -> None:
    values = [
        {"where": {ACT: "elu(alpha=2)"}, "metric": "test/error", "at": "last", "value": 0.3},
        {"where": {ACT: "relu"}, "metric": "test/error", "value": 0.1},
        {"where": {ACT: "relu", DROP: 0.5}, "metric": "test/error", "value": 0.2},
        {"where": {ACT: "relu"}, "metric": "test/error", "at": "best", "value": 0.9},
    ]
    plan = study(
        blocks=({ACT: ["relu", {"name": "elu", "alpha": 2}], DROP: [0, 0.5]},),
        select=Selection(),
        published={"source": "P", "values": values},
        seeds=(0,),
    )
    for run in plan.runs():
        write(tmp_path, run, {"test/error": [0.5, 0.15]})
    cells = [row.cells[0] for row in comparison.rows(results.load(plan, tmp_path))]
    assert [cell.published for cell in cells] == [0.1, 0.2, 0.3, 0.3]
    assert [cell.difference for cell in cells] == pytest.approx([0.05, -0.05, -0.15, -0.15])


def paired(tmp_path: Path, pairs: int) -> list[comparison.Row]:
    plan = study(seeds=tuple(range(pairs)), blocks=({ACT: ["gelu", "relu", "elu"]},), select=Selection())
    better = {"gelu": -0.01, "relu": 0.0, "elu": 0.01}
    for run in plan.runs():
        shift = better[run.point[ACT]] * (1 + 0.1 * run.seed)
        write(tmp_path, run, {"test/error": [0.1 + 0.05 * (run.seed % 3) + shift]})
    return comparison.rows(results.load(plan, tmp_path))


def test_units_are_tested_against_the_reference_seed_by_seed(tmp_path: Path) -> None:
    gelu, relu, elu = (row.cells[0] for row in paired(tmp_path, 7))
    assert (gelu.pairs, gelu.p, gelu.p_holm) == (7, 2 / 128, 4 / 128)
    assert gelu.p_wilcoxon == pytest.approx(2 / 128)
    assert (elu.p, elu.p_holm) == (2 / 128, 4 / 128)
    assert (relu.pairs, relu.p, relu.p_holm) == (0, None, None)
    assert gelu.interval is not None
    assert gelu.interval.kind == "interval"


def test_five_pairs_give_a_range_and_no_p(tmp_path: Path) -> None:
    gelu = paired(tmp_path, 5)[0].cells[0]
    assert (gelu.pairs, gelu.p, gelu.p_wilcoxon) == (5, None, None)
    assert gelu.interval == (min(gelu.values.values()), max(gelu.values.values()), "range")


def test_the_cost_is_found_by_the_units_label(full: results.Results, tmp_path: Path) -> None:
    (tmp_path / "cost.json").write_text(json.dumps([{"activation": "gelu", "relative_to_reference": 1.2}]))
    rows = comparison.rows(results.load(study(), tmp_path))
    assert rows[0].cost == {"activation": "gelu", "relative_to_reference": 1.2}
    assert rows[1].cost is None


def test_a_curve_is_the_median_and_range_over_seeds(full: results.Results) -> None:
    curve = full.curve(full.groups[0], "val/loss")
    assert curve is not None
    assert curve.epochs.tolist() == [1, 2, 3]
    assert curve.band.median.tolist() == pytest.approx([1, 0.205, 0.5])
    assert (curve.band.low[1], curve.band.high[1], curve.n) == pytest.approx((0.2, 0.21, 2))
    fixed = full.curve(full.groups[0], "val/loss", {LR: 0.01})
    assert fixed is not None
    assert fixed.band.median[1] == pytest.approx(0.405)
    assert full.curve(full.groups[0], "val/loss", {LR: 7}) is None


def test_a_curve_is_infinite_from_where_most_runs_diverged(tmp_path: Path) -> None:
    plan = study(blocks=({ACT: ["relu"]},), select=Selection(), seeds=(0, 1, 2))
    for run in plan.runs():
        values, status = ([1.0], DIVERGED) if run.seed else ([1.0, 2.0, 3.0], FINISHED)
        write(tmp_path, run, {"val/loss": values}, status)
    loaded = results.load(plan, tmp_path)
    curve = loaded.curve(loaded.groups[0], "val/loss")
    assert curve is not None
    assert curve.band.median.tolist() == [1, math.inf, math.inf]
    assert curve.band.low.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"metric": "test/eror"}, "did you mean 'test/error'"),
        ({"metric": "test/error", "at": "lst"}, "did you mean 'last'"),
        ({"metric": "test/error", "procent": True}, "did you mean 'percent'"),
        ({"at": "last"}, "lacks 'metric'"),
    ],
)
@pytest.mark.usefixtures("full")
def test_mistakes_in_the_table_are_told(tmp_path: Path, entry: Any, message: str) -> None:
    with pytest.raises(ActlabError, match=message):
        comparison.rows(results.load(study(table=(entry,)), tmp_path))


def test_nothing_run_is_no_error(tmp_path: Path) -> None:
    loaded = results.load(study(), tmp_path / "none")
    assert (loaded.finished, loaded.missing) == (0, 8)
    assert [row.cells[0].median for row in comparison.rows(loaded)] == [None, None]
