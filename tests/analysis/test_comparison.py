"""The rows of a table: published values, tests against the reference, costs."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actlab.analysis import results, study_table
from actlab.analysis.comparison import table_of
from actlab.analysis.study_table import Row
from actlab.errors import ActlabError
from actlab.reports import tables
from actlab.studies import plan
from actlab.studies.plan import Run, Selection
from actlab.studies.points import Point
from actlab.studies.study_folder import StudyFolder
from written_runs import ACT, COST, DROP, LR, finished, one_unit, probe, study, write


def rows_of(
    root: Path, planned: plan.Study, error: Callable[[plan.Run], float], **given: Any
) -> tuple[Row, ...]:
    """The table of a study whose runs have recorded these errors on the test set."""
    return table_of(finished(root, planned, lambda run: {"test/error": [error(run)]}, **given)).rows


def test_of_several_published_values_that_fit_the_one_with_most_keys_counts(tmp_path):
    values = [
        {"where": {ACT: "elu(alpha=2)"}, "metric": "test/error", "at": "last", "value": 0.3},
        {"where": {ACT: "relu"}, "metric": "test/error", "value": 0.1},
        {"where": {ACT: "relu", DROP: 0.5}, "metric": "test/error", "value": 0.2},
        {"where": {ACT: "relu"}, "metric": "test/error", "at": "best", "value": 0.9},
    ]
    plan = study(
        grids=({ACT: ["relu", {"name": "elu", "alpha": 2}], DROP: [0, 0.5]},),
        select=Selection(),
        published={"source": "P", "values": values},
        seeds=(0,),
        table=tuple({"metric": "test/error", "at": at} for at in ("last", "best")),
    )
    cells = [
        row.columns[0]
        for row in table_of(finished(tmp_path, plan, {"test/error": [0.5, 0.15]})).rows
    ]
    assert [cell.published for cell in cells] == [0.1, 0.2, 0.3, 0.3]
    for entry, message in (
        (
            {"metric": "test/eror"},
            "unknown column of a published value 'test/eror last'; did you mean",
        ),
        ({"metric": "test/error", "where": {f"{ACT}s": "relu"}}, f"did you mean '{ACT}'"),
    ):
        typo = replace(plan, published={"values": [{"value": 0.3, **entry}]})
        with pytest.raises(ActlabError, match=message):
            table_of(results.load(StudyFolder(typo, tmp_path)))
    assert [cell.difference for cell in cells] == pytest.approx([0.05, -0.05, -0.15, -0.15])


def test_activations_are_tested_against_the_reference_seed_by_seed(tmp_path):
    plan = study(seeds=tuple(range(7)), grids=({ACT: ["gelu", "relu", "elu"]},), select=Selection())
    better = {"gelu": -0.01, "relu": 0.0, "elu": 0.01}
    base = lambda run: 0.1 + 0.05 * (run.seed % 3)  # noqa: E731
    rows = rows_of(
        tmp_path, plan, lambda run: base(run) + better[run.point[ACT]] * (1 + 0.1 * run.seed)
    )
    gelu, relu, elu = (row.columns[0] for row in rows)
    assert (gelu.pairs, gelu.paired.p, gelu.p_holm) == (7, 2 / 128, 4 / 128)
    assert (elu.paired.p, elu.p_holm) == (2 / 128, 4 / 128)
    assert (relu.pairs, relu.paired.p, relu.p_holm) == (0, None, None)
    # The differences are -0.010, -0.011, …, -0.016; 7 of 128 patterns must hold a shift that is not
    # refused. Two hold any, and each mean of a part counts twice: the third of the outermost, after
    # -0.016 and -0.0155.
    assert gelu.paired.mean == pytest.approx(-0.013)
    assert gelu.paired.median == pytest.approx(-0.013)
    assert (gelu.paired.low, gelu.paired.high) == pytest.approx((-0.015, -0.011))
    assert gelu.interval.kind == "interval"


def diverging(tmp_path: Path, activations: tuple[str, ...], bad: str, **changes: Any) -> Any:
    """Cells by activation: each beats relu in all seeds but one; one run of ``bad`` diverges."""
    planned = study(
        seeds=tuple(range(8)), grids=({ACT: [*activations, "relu"]},), select=Selection(), **changes
    )
    sign = -1 if planned.table[0].get("mode") == "max" else 1

    def error(run: plan.Run) -> float:
        shift = 0.01 * (1 + 0.1 * run.seed) * (-1 if run.seed else 0.2)
        return sign * (0.1 + (shift if run.point[ACT] != "relu" else 0.0))

    rows = rows_of(
        tmp_path, planned, error, bad=lambda run: run.point[ACT] == bad and run.seed == 3
    )
    return {row.point[ACT]: row.columns[0] for row in rows}


def test_the_family_stays_what_was_planned_when_another_activation_diverges(tmp_path):
    activations = ("gelu", "elu", "silu")
    cells = diverging(tmp_path / "all", activations, bad="none")
    fewer = diverging(tmp_path / "fewer", activations, bad="silu")
    assert cells["gelu"].p_holm == 3 * cells["gelu"].paired.p
    assert fewer["gelu"].p_holm == cells["gelu"].p_holm
    silu = fewer["silu"]
    assert silu.by_probability
    assert (silu.paired.p, silu.p, silu.family) == (None, silu.better.p, "primary")


def test_activations_that_have_not_run_belong_to_the_family(tmp_path):
    plan = study(seeds=tuple(range(6)), grids=({ACT: ["gelu", "relu", "elu"]},), select=Selection())
    for run in plan.runs():
        if run.point[ACT] != "elu":
            write(tmp_path, run, {"test/error": [0.1 * run.seed + (run.point[ACT] == "relu")]})
    loaded = results.load(StudyFolder(plan, tmp_path))
    gelu, _, elu = (row.columns[0] for row in table_of(loaded).rows)
    assert table_of(loaded).correction("primary").comparisons == 2
    assert (gelu.p_holm, gelu.missing) == (2 * 2 / math.comb(12, 6), 0)
    assert (elu.p, elu.missing) == (None, 6)


def test_a_comparison_has_a_p_when_all_planned_runs_of_both_sides_have_ended(tmp_path):
    plan = study(seeds=tuple(range(8)), grids=({ACT: ["gelu", "relu"]},), select=Selection())
    gelu, _ = rows_of(tmp_path, replace(plan, seeds=tuple(range(7))), lambda run: 0.1 * run.seed)
    assert gelu.columns[0].p == 1
    gelu, _ = table_of(results.load(StudyFolder(plan, tmp_path))).rows
    assert (gelu.columns[0].p, gelu.columns[0].paired.low, gelu.columns[0].better.low) == (
        None,
    ) * 3
    assert (gelu.columns[0].missing, gelu.columns[0].paired.mean) == (2, 0)


@pytest.mark.parametrize("mode", ["min", "max"])
def test_the_difference_to_a_diverged_run_is_infinite_by_whose_it_is(tmp_path, mode):
    table = ({"metric": "test/error", "mode": mode},)
    worse = diverging(tmp_path / "activation", ("gelu",), bad="gelu", table=table)["gelu"]
    better = diverging(tmp_path / "reference", ("gelu",), bad="relu", table=table)["gelu"]
    for cell in (worse, better):
        # The mean of the pairs in which both succeeded.
        shifts = [0.01 * (1 + 0.1 * seed) * (-1 if seed else 0.2) for seed in range(8) if seed != 3]
        sign = -1 if mode == "max" else 1
        assert (cell.pairs, cell.paired.p, cell.paired.low) == (8, None, None)
        assert cell.paired.mean == pytest.approx(sign * sum(shifts) / 7)
        assert cell.paired.median is not None
    # The first and the diverged run lose against all of relu
    assert worse.better.probability == 6 * 8 / 64
    assert better.better.probability == (7 * 8 + 1) / 64  # and all win against relu's
    assert (worse.p, better.p) == (worse.better.p, better.better.p)


SELECTED = (
    {"metric": "val/loss", "at": "best"},
    {"metric": "val/loss"},
    {"metric": "test/error"},
    {"metric": "val/loss", "at": "best_epoch"},
)


def test_the_metric_that_chose_is_not_tested_where_either_side_had_a_choice(tmp_path):
    grids = ({ACT: ["gelu", "elu"], LR: [0.1]}, {ACT: ["relu"], LR: [0.1, 0.01, 0.001]})
    plan = study(grids=grids, seeds=tuple(range(6)), table=SELECTED)
    loss = lambda run: [0.1 * run.seed + (run.point[ACT] == "relu")]  # noqa: E731
    curves = lambda run: dict.fromkeys(("val/loss", "test/error"), loss(run))  # noqa: E731
    rows = table_of(finished(tmp_path, plan, curves)).rows
    assert [(row.settings, row.reference_settings) for row in rows] == [(1, 3), (1, 3), (3, None)]
    best, last, error, epoch = rows[0].columns
    for cell in (best, last, epoch):
        assert (cell.p, cell.paired.low, cell.p_holm) == (None,) * 3
        assert (cell.family, cell.biased) == ("", True)
    assert best.paired.mean == pytest.approx(-1)
    # Of gelu and elu
    assert (error.p, error.p_holm, error.family) == (
        2 / math.comb(12, 6),
        2 * 2 / math.comb(12, 6),
        "secondary",
    )
    head, body = tables.grid(table_of(results.load(StudyFolder(plan, tmp_path))))
    assert [line[head.index("settings\ntried")] for line in body] == [
        "1 (relu 3)",
        "1 (relu 3)",
        "3",
    ]


def test_a_later_stage_knows_what_an_earlier_one_tried(tmp_path):
    tried = {Point({ACT: activation}): 3 for activation in ("gelu", "relu")}
    grids = ({ACT: ["gelu", "relu"], LR: [0.1]},)
    plan = study(grids=grids, seeds=tuple(range(6)), table=SELECTED, tried=tried)
    gelu, _ = table_of(finished(tmp_path, plan, {"val/loss": [1.0], "test/error": [1.0]})).rows
    assert (gelu.settings, gelu.reference_settings) == (3, 3)
    assert [bool(cell.family) for cell in gelu.columns] == [False, False, True, False]
    # On seeds of which none has chosen, the metric that chose is as fair as any other.
    for chosen_on, planned in (({20, 21}, True), ({5, 6}, False)):
        fresh = replace(plan, chosen_on=frozenset(chosen_on))
        gelu, _ = table_of(results.load(StudyFolder(fresh, tmp_path))).rows
        assert [bool(cell.family) for cell in gelu.columns] == [planned, planned, True, planned]


def leave_costs(
    tmp_path: Path, runs: list[plan.Run], seconds: Callable[[plan.Run], float] = lambda run: 1.0
) -> list[dict[str, Any]]:
    """A ``cost.json`` of measurements on some runs, whose updates keep ten bytes a second."""
    found = []
    for run in runs:
        (tmp_path / run.id).mkdir(exist_ok=True)
        of_run = {"point": dict(run.point), "run": run.id, "seconds_per_update": seconds(run)}
        found.append({**COST, **of_run, "bytes_kept": 10 * seconds(run)})
    (tmp_path / "cost.json").write_text(json.dumps(found))
    return found


def test_a_cost_is_that_of_the_rows_own_runs(tmp_path):
    """Not of another dropout's, nor of runs that the study no longer has."""
    grid = {ACT: ["gelu", "relu"], DROP: [0.0, 0.5], LR: [0.1, 0.2]}
    before, after = (study(grids=(grid,), seeds=seeds) for seeds in ((0, 1), (1, 2)))
    tuned = [run for run in before.runs() if (run.point[LR], run.seed) == (0.2, 1)]
    costs = leave_costs(tmp_path, tuned[:3])
    rows = table_of(results.load(StudyFolder(before, tmp_path))).rows
    measured = [*(cost["run"] for cost in costs), None]
    assert [row.cost and row.cost["run"] for row in rows] == measured
    later = table_of(results.load(StudyFolder(after, tmp_path))).rows
    assert [row.cost and row.cost["run"] for row in later] == measured
    leave_costs(tmp_path, [run for run in before.runs() if run.seed == 0])
    assert not any(row.cost for row in table_of(results.load(StudyFolder(after, tmp_path))).rows)


@pytest.mark.parametrize(("reference", "expected"), [("relu", (2.0, 1.0)), ("gelu", (1.0, 0.5))])
def test_costs_are_relative_to_the_reference_that_is_asked_for(tmp_path, reference, expected):
    """Whatever they were measured beside."""
    plan = study(
        grids=({ACT: ["gelu", "relu"]},), select=Selection(), seeds=(0,), reference=reference
    )
    leave_costs(tmp_path, plan.runs(), lambda run: 2.0 if run.point[ACT] == "gelu" else 1.0)
    loaded = results.load(StudyFolder(plan, tmp_path))
    found = [row.cost for row in table_of(loaded).rows]
    assert tuple(cost and cost["relative_to_reference"] for cost in found) == expected
    assert f"time\n/ {reference}" in tables.grid(table_of(loaded))[0]


def test_an_activation_of_a_file_inherits_nothing_from_the_registry(tmp_path):
    values = [{"where": {ACT: "relu"}, "metric": "test/error", "value": 0.1}]
    mine = "./mine.py:relu"
    plan = study(grids=({ACT: [mine, "relu"]},), select=Selection(), published={"values": values})
    costs = leave_costs(tmp_path, plan.runs()[-1:])
    ours, registered = rows_of(tmp_path, plan, lambda run: 0.5 if run.point[ACT] == mine else 0.4)
    assert [row.columns[0].published for row in (ours, registered)] == [None, 0.1]
    assert [row.cost and row.cost["run"] for row in (ours, registered)] == [None, costs[0]["run"]]
    # relu itself is the reference, not the file's activation
    assert ours.columns[0].paired.mean == pytest.approx(0.1)
    assert registered.columns[0].pairs == 0


def test_costs_belong_to_a_value_not_to_its_text(tmp_path):
    alike = [f"./{name}.py:bent" for name in ("one", "two")]
    plan = study(grids=({ACT: [*alike, {"name": "elu", "alpha": 2}]},), select=Selection())
    one_seed = [run for run in plan.runs() if run.seed == 0]
    costs = leave_costs(tmp_path, one_seed[1:])
    loaded = results.load(StudyFolder(plan, tmp_path))
    assert [row.cost for row in table_of(loaded).rows] == [None, *costs]
    # Without a reference
    assert not any(head.startswith("time") for head in tables.grid(table_of(loaded))[0])


def test_a_reference_that_the_grid_lacks_is_refused(tmp_path):
    plan = study(grids=({ACT: ["gelu", "./mine.py:bent"]},), select=Selection(), reference="glu")
    with pytest.raises(
        ActlabError, match=r"unknown reference 'glu'; did you mean 'gelu'.*Allowed: ./mine\.py:bent"
    ):
        table_of(results.load(StudyFolder(plan, tmp_path)))


@pytest.mark.parametrize("activations", [["gelu", "elu"], ["gelu", "./mine.py:relu"]])
def test_without_the_default_reference_nothing_is_tested(tmp_path, activations):
    plan = study(grids=({ACT: activations},), select=Selection(), seeds=tuple(range(6)))
    rows = rows_of(tmp_path, plan, lambda run: 0.1 * run.seed)
    assert (
        table_of(results.load(StudyFolder(plan, tmp_path))).correction("primary").comparisons == 0
    )
    assert [cell.pairs for row in rows for cell in row.columns] == [0, 0]


def test_a_reference_may_be_written_as_it_is_printed(tmp_path):
    elu = {"name": "elu", "alpha": 2.0}
    plan = study(
        grids=({ACT: ["gelu", elu]},), select=Selection(), reference="elu(alpha=2)", seeds=range(6)
    )
    gelu, _ = rows_of(tmp_path, plan, lambda run: 0.1 * run.seed)
    assert gelu.columns[0].pairs == 6
    assert table_of(results.load(StudyFolder(plan, tmp_path))).reference_text == "elu(alpha=2)"


def test_another_key_can_be_compared(tmp_path):
    grid = {ACT: ["relu", "elu"], DROP: [0.0, 0.5]}
    plan = study(
        grids=(grid,), select=Selection(), seeds=tuple(range(6)), compare=DROP, reference="0"
    )
    leave_costs(tmp_path, [run for run in plan.runs() if run.point[DROP]])
    rows = rows_of(tmp_path, plan, lambda run: 0.2 + 0.1 * run.point[DROP] + 0.01 * run.seed)
    assert [
        (row.point[ACT], row.point[DROP]) for row in rows if row.columns[0].paired.p == 2 / 64
    ] == [
        ("relu", 0.5),
        ("elu", 0.5),
    ]
    assert [row.point[DROP] for row in rows if row.cost] == [0.5, 0.5]


def test_a_published_value_holds_under_its_condition_alone(tmp_path):
    entry = {"where": {}, "metric": "noise/test/error", "value": 0.4, "condition": "noise=1"}
    table = tuple({"metric": "noise/test/error", "condition": c} for c in ("noise=0", "noise=1"))
    plan = one_unit(table=table, published={"values": [entry]})
    write(tmp_path, plan.runs()[0], {"test/error": [0.9]})
    probe(tmp_path, plan.runs()[0], "noise", {("test/error", f"noise={n}"): 0.1 for n in (0, 1)})
    (row,) = table_of(results.load(StudyFolder(plan, tmp_path))).rows
    assert [cell.published for cell in row.columns] == [None, 0.4]


def test_shorter_runs_stand_beside_published_values_of_their_epochs_alone(tmp_path):
    table = tuple({"metric": "test/error", "at": at} for at in ("last", 2))
    values = [{"metric": "test/error", "at": at, "value": 0.4} for at in ("last", 2)]
    for other_length, expected in (("", [0.4, 0.4]), ("3 epochs, not 50", [None, 0.4])):
        plan = one_unit(table=table, published={"values": values}, other_length=other_length)
        loaded = finished(
            tmp_path, plan, {name: [0.9, 0.5, 0.3] for name in ("test/error", "val/loss")}
        )
        (row,) = table_of(loaded).rows
        assert [cell.published for cell in row.columns] == expected
        assert any(
            f"hese runs have {other_length}" in text for text in table_of(loaded).footnotes
        ) == bool(other_length)


def test_a_published_standard_deviation_asks_for_ours(tmp_path):
    values = [
        {"where": {ACT: "relu"}, "metric": "test/error", "value": 0.2, "sd": 0.03},
        {"where": {ACT: "gelu"}, "metric": "test/error", "value": 0.2},
    ]
    grids = ({ACT: ["relu", "gelu"]},)
    plan = study(grids=grids, select=Selection(), published={"values": values}, seeds=(0, 1, 2))
    relu, gelu = (
        row.columns[0] for row in rows_of(tmp_path, plan, lambda run: [0.1, 0.2, 0.6][run.seed])
    )
    assert (relu.published, relu.published_sd) == (0.2, 0.03)
    # Squares .04, .01, .09; half of .14
    assert (relu.mean, relu.sd) == pytest.approx((0.3, 0.07**0.5))
    assert (gelu.mean, gelu.sd) == (None, None)
    assert [relu.difference, gelu.difference] == pytest.approx([0.1, 0.0])
    (row, _) = rows_of(tmp_path / "b", plan, lambda run: 0.3, bad=lambda run: run.seed == 2)
    # No median in place of the mean
    assert (row.columns[0].median, row.columns[0].difference) == (
        0.3,
        None,
    )


def test_published_values_are_not_of_samples(tmp_path):
    values = [{"metric": "test/error", "value": 0.2}]
    plan, parts = (
        one_unit(published={"values": values}),
        ("limit_train_batches", "limit_val_batches"),
    )
    given: list[dict[str, Any]] = [
        {},
        {"data.sample": True},
        *({f"trainer.{part}": 1} for part in parts),
    ]
    for settings in given:
        (block,) = plan.blocks
        (row,) = rows_of(
            tmp_path, replace(plan, blocks=(replace(block, settings=settings),)), lambda run: 0.3
        )
        assert bool(row.columns[0].published) != bool(settings)


def test_a_cost_is_that_of_the_chosen_setting_beside_the_references(tmp_path):
    grids = ({ACT: ["soi"], DROP: [0.0]}, {ACT: ["relu"], DROP: [0.0, 0.5]})
    plan = study(grids=grids, select=Selection((DROP,)), seeds=(0,))
    seconds = lambda run: 3.0 if run.point[ACT] == "soi" else 1.0 + run.point[DROP]  # noqa: E731
    for run in plan.runs():
        write(tmp_path, run, {"val/loss": [0.5 - run.point[DROP]], "test/error": [0.1]})
    leave_costs(tmp_path, plan.runs(), seconds)
    soi, relu = table_of(results.load(StudyFolder(plan, tmp_path))).rows
    assert relu.chosen == {DROP: 0.5}
    assert (soi.cost["relative_to_reference"], soi.cost["bytes_relative"]) == (2.0, 2.0)
    assert relu.cost["seconds_per_update"] == 1.5
    leave_costs(tmp_path, plan.runs()[:2], seconds)
    soi, relu = table_of(results.load(StudyFolder(plan, tmp_path))).rows
    assert "relative_to_reference" not in soi.cost
    assert (soi.cost["seconds_per_update"], relu.cost) == (3.0, None)


def test_numbers_written_differently_are_one_point(tmp_path):
    grids = ({ACT: ["relu"], DROP: [0], LR: [1e-3]}, {ACT: ["elu"], DROP: [0.0], LR: [0.001]})
    plan = study(grids=grids, select=Selection(), seeds=tuple(range(6)))
    elu = rows_of(tmp_path, plan, lambda run: 0.2 if run.point[ACT] == "relu" else 0.3)[1]
    assert elu.columns[0].family
    assert elu.columns[0].paired.p == 2 / 64


def test_a_metric_has_one_mode_wherever_it_is_read(tmp_path):
    table = (
        {"metric": "test/f1", "mode": "max"},
        {"metric": "test/f1", "at": "best"},
        {"metric": "val/f1"},
    )
    values = {"test/f1": [0.2, 0.9], "val/f1": [0.2, 0.9]}
    loaded = finished(tmp_path, one_unit(table=table, seeds=2), values, lambda run: run.seed == 1)
    assert [c.mode for c in loaded.columns] == ["max", "max", "max"]
    last, best, _ = table_of(loaded).rows[0].columns
    assert last.values == {0: 0.9, 1: -math.inf}
    assert best.values[0] == 0.9


def test_a_table_is_read_as_it_was_made(tmp_path: Path) -> None:
    """With a run that diverged, which JSON cannot represent, and an activation with arguments."""
    elu = {"name": "elu", "alpha": 0.5}
    table = (
        {"metric": "test/error", "percent": True, "margin": "5 %"},
        {"metric": "val/loss", "at": 1},
    )
    grid = {ACT: ["gelu", "relu", elu]}
    plan = study(grids=(grid,), select=Selection(), seeds=tuple(range(8)), table=table)

    def curves(run: Run) -> dict[str, list[float]]:
        return {"test/error": [0.1 + 0.01 * run.seed], "val/loss": [1.0 + run.seed]}

    diverged = plan.runs()[3].id
    made = table_of(finished(tmp_path, plan, curves, lambda run: run.id == diverged))
    (tmp_path / "table.json").write_text(made.to_json())
    read = study_table.read(tmp_path / "table.json")
    assert made.diverged == 1
    assert read == made
    assert read.to_json() == made.to_json()
