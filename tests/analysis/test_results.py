"""Values of runs and chosen settings, against values chosen by hand."""

import math
from pathlib import Path

import pytest

from actlab.analysis import results
from actlab.analysis.columns import Column, column
from actlab.analysis.comparison import table_of
from actlab.errors import ActlabError
from actlab.studies.plan import Selection, Study
from actlab.studies.rows import Row
from actlab.studies.run_folder import RunFolder
from actlab.studies.states import FINISHED
from actlab.studies.study_folder import StudyFolder
from written_runs import ACT, LR, curves_of, finished, one_unit, probe, study, write


@pytest.mark.parametrize(
    ("at", "value"),
    [
        ("last", 0.4),
        ("best", 0.2),
        ("best_epoch", 3),
        (2, 0.6),
        (2.9, 0.6),
        (4, 0.4),
        (5, None),  # it was trained for four epochs
        (0.5, None),
        ("mean 2-4", 0.4),
        ("mean 2-5", None),
        ("selected", 0.6),
        ("best val/error", 0.2),
        ("best val/accuracy", 0.8),
    ],
)
def test_the_value_of_a_run(tmp_path, at, value):
    plan = one_unit()
    curves = {
        "test/error": [0.8, 0.6, 0.2, 0.4],
        "val/loss": [3.0, 1.0, 2.0, 2.0],
        "val/error": [3.0, 2.0, 1.0, 2.0],
        "val/accuracy": [3.0, 2.0, 1.0, 2.0],
    }
    read = column({"metric": "test/error", "at": at}, plan)
    found = finished(tmp_path, plan, curves, last_good_epoch=4).value(plan.runs()[0], read)
    assert found == (value if value is None else pytest.approx(value))


def test_a_place_must_be_one_of_validation(tmp_path):
    places = ("best test/error", "best val/lost")
    tested, lost = (one_unit(table=({"metric": "test/error", "at": at},)) for at in places)
    with pytest.raises(
        ActlabError, match="'at: best test/error': test/error is not a validation metric"
    ):
        finished(tmp_path, tested, {"test/error": [0.8]}).columns  # noqa: B018 (checked when it is built)
    loaded = finished(tmp_path, lost, {"test/error": [0.8], "val/loss": [3.0]})
    assert (loaded.columns, len(loaded.metrics.unrecorded(loaded.planned))) == ([], 1)
    assert "unknown metric 'val/lost'" in loaded.metrics.unrecorded(loaded.planned)[0]


def test_an_early_selection_reads_the_first_value_of_a_rarer_metric(tmp_path):
    plan = one_unit()
    folder = RunFolder(tmp_path, plan.runs()[0])
    folder.open()
    named = (
        ("val", "loss", 1 / 3, 1),
        ("val", "loss", 2 / 3, 2),
        ("test", "error", 1, 0.5),
        ("test", "error", 2, 0.1),
    )
    folder.finish(FINISHED, [Row(e, round(3 * e), s, m, "", v) for s, m, e, v in named])
    selected = column({"metric": "test/error", "at": "selected"}, plan)
    assert results.load(StudyFolder(plan, tmp_path)).value(plan.runs()[0], selected) == 0.5


def test_a_metric_that_begins_long_after_the_selection_was_not_measured_there(tmp_path):
    """A probe of the last checkpoint says nothing of the epoch that was selected."""
    plan = one_unit()
    (run,) = plan.runs()
    write(tmp_path, run, {"val/loss": [0.9, 0.1, 0.5, 0.6]})
    probe(tmp_path, run, "noise", {("test/error", ""): 0.5}, epoch=4.0)
    loaded = results.load(StudyFolder(plan, tmp_path))
    assert loaded.value(run, column({"metric": "noise/test/error", "at": "selected"}, plan)) is None
    assert loaded.value(run, Column("noise/test/error", "last")) == 0.5


def test_a_metric_that_is_always_nan_has_no_best_epoch(tmp_path):
    loaded = finished(
        tmp_path, one_unit(), {"val/error": [math.nan, math.nan], "test/error": [0.1, 0.2]}
    )
    (run,) = loaded.runs
    assert loaded.value(run, Column("val/error", "best_epoch")) == math.inf
    watched = column({"metric": "test/error", "at": "best val/error"}, loaded.study)
    assert loaded.value(run, watched) == math.inf


def test_accuracy_is_best_when_high(tmp_path):
    plan = one_unit(seeds=2)
    loaded = finished(tmp_path, plan, {"test/accuracy": [0.1, 0.9, 0.5]}, lambda run: run.seed == 1)
    best = column({"metric": "test/accuracy", "at": "best"}, plan)
    assert [loaded.value(run, best) for run in plan.runs()] == [0.9, -math.inf]


def test_tuned_values_are_chosen_on_validation_alone(full):
    rows = table_of(full).rows
    assert [(dict(row.point), dict(row.chosen), row.settings) for row in rows] == [
        ({ACT: "gelu"}, {LR: 0.1}, 2),
        ({ACT: "relu"}, {LR: 0.01}, 2),
    ]
    assert [row.columns[0].median for row in rows] == [0.3, 0.3]  # the worse test error, honestly


def test_the_choice_takes_the_median_of_the_best_values(tmp_path):
    plan = study(grids=({ACT: ["relu"], LR: [0.1, 0.01]},), seeds=(0, 1, 2))
    lows = {0.1: [0.1, 0.5, 0.5], 0.01: [0.3, 0.3, 0.9]}  # means .37 and .5, medians .5 and .3
    curves = lambda run: {"val/loss": [1, lows[run.point[LR]][run.seed], 2], "test/error": [0.5]}  # noqa: E731
    assert table_of(finished(tmp_path, plan, curves)).rows[0].chosen == {LR: 0.01}


def test_selecting_on_test_is_refused(full, tmp_path):
    loaded = results.load(StudyFolder(study(select=Selection((LR,), "test/error")), tmp_path))
    with pytest.raises(ActlabError, match="not a validation metric"):
        table_of(loaded)


def test_missing_runs_are_counted_and_marked(tmp_path):
    plan = study()
    for run in plan.runs():
        if not (run.point[ACT] == "relu" and run.seed == 1):
            write(tmp_path, run, curves_of(run))
    loaded = results.load(StudyFolder(plan, tmp_path))
    assert (loaded.finished, loaded.diverged, loaded.missing) == (6, 0, 2)
    gelu, relu = table_of(loaded).rows
    assert (gelu.finished, gelu.planned, gelu.provisional) == (2, 2, False)
    assert (relu.finished, relu.planned, relu.provisional) == (1, 2, True)
    assert relu.chosen == {LR: 0.01}


def test_a_diverged_run_is_infinite_and_never_chosen_for_it(tmp_path):
    bad = lambda run: run.point[LR] == 0.1 and run.seed > 0  # noqa: E731
    curves = lambda run: {"val/loss": [0.01 if bad(run) else 0.5], "test/error": [0.2]}  # noqa: E731
    loaded = finished(tmp_path, study(seeds=(0, 1, 2)), curves, bad)
    assert (loaded.finished, loaded.diverged) == (8, 4)
    assert [row.chosen for row in table_of(loaded).rows] == [{LR: 0.01}] * 2
    only = results.load(
        StudyFolder(study(seeds=(0, 1, 2), grids=({ACT: ["relu"], LR: [0.1]},)), tmp_path)
    )
    (row,) = table_of(only).rows
    assert (row.finished, row.diverged, row.columns[0].median) == (1, 2, math.inf)


def test_nothing_run_is_no_error(tmp_path):
    loaded = results.load(StudyFolder(study(), tmp_path / "none"))
    assert (loaded.finished, loaded.missing) == (0, 8)
    assert [row.columns[0].median for row in table_of(loaded).rows] == [None, None]


NOISY = {("test/error", "noise=0"): 0.1, ("test/error", "noise=0.5"): 0.3, ("test/loss", ""): 2.0}


def noisy(root: Path, plan: Study) -> results.Results:
    """A study of one run, which has recorded its test error and what the probe has measured."""
    write(root, plan.runs()[0], {"test/error": [0.9]})
    probe(root, plan.runs()[0], "noise", NOISY)
    return results.load(StudyFolder(plan, root))


def test_a_column_names_the_condition_it_was_measured_under(tmp_path):
    entries = [{"metric": "noise/test/error", "condition": c} for c in ("noise=0", "noise=0.5")]
    plan = one_unit(table=(*entries, {"metric": "noise/test/loss"}, {"metric": "test/error"}))
    (row,) = table_of(noisy(tmp_path, plan)).rows
    assert [cell.median for cell in row.columns] == [0.1, 0.3, 2.0, 0.9]
    assert row.columns[1].name == "noise test error (noise=0.5, last)"


@pytest.mark.parametrize(
    ("metric", "condition", "message"),
    [
        (
            "test/error",
            "noise=1",
            "unknown condition of test/error 'noise=1'. Leave 'condition' out",
        ),
        (
            "noise/test/error",
            "",
            "noise/test/error ''.*noise=0, noise=0.5.*Name one as 'condition'",
        ),
        ("noise/test/error", "noise=0.4", "did you mean .*'noise=0.5'.* Allowed: noise=0, "),
    ],
)
def test_unknown_conditions_are_refused(tmp_path, metric, condition, message):
    plan = one_unit(table=({"metric": metric, "condition": condition},))
    with pytest.raises(ActlabError, match=message):
        table_of(noisy(tmp_path, plan))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            {"metric": "noise/test/eror"},
            "unknown metric 'noise/test/eror'; did you mean 'noise/test/error'",
        ),
        ({"metric": "test/loss"}, "unknown metric 'test/loss'"),
        ({"metric": "test/error", "at": "selected"}, "unknown metric 'val/loss'"),
    ],
)
def test_a_metric_that_was_not_recorded_leaves_the_other_columns(tmp_path, entry, message):
    loaded = noisy(tmp_path, one_unit(table=({"metric": "test/error"}, entry)))
    assert [cell.median for row in table_of(loaded).rows for cell in row.columns] == [0.9]
    (line,) = loaded.metrics.unrecorded(loaded.planned)
    assert message in line


def test_a_probe_that_was_not_made_yet_leaves_its_column_empty(tmp_path):
    plan = one_unit(table=({"metric": "noise/test/error", "condition": "noise=7"},))
    (row,) = table_of(finished(tmp_path, plan, {"test/error": [0.9]})).rows
    assert (row.columns[0].median, row.finished) == (None, 1)


def test_runs_on_two_revisions_of_a_dataset_are_not_compared(tmp_path):
    plan = study()
    for number, run in enumerate(plan.runs()):
        write(tmp_path, run, curves_of(run), revisions={"someone/digits": "ab"[number // 7]})
    with pytest.raises(
        ActlabError, match=r"revision a of someone/digits, .* pin the other with --set"
    ):
        results.load(StudyFolder(plan, tmp_path))
