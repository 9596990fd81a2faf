"""Verdicts of studies that are extended by more seeds after a verdict was seen."""

from dataclasses import replace
from pathlib import Path

import pytest

from actlab.analysis import looks, results
from actlab.analysis.comparison import table_of
from actlab.studies.plan import Block, Selection, Stage, Study
from actlab.studies.run_folder import RunFolder
from actlab.studies.study_folder import StudyFolder
from written_runs import ACT, study, write

SHIFTS = [-0.003 - 0.0001 * (-1) ** seed for seed in range(16)]


def planned(
    seeds: int, activations: tuple[str, ...] = ("gelu", "relu"), **changes: object
) -> Study:
    table = ({"metric": "test/error", "percent": True},)
    return study(
        seeds=tuple(range(seeds)),
        grids=({ACT: list(activations)},),
        select=Selection(),
        table=table,
        **changes,
    )


def finish(root: Path, plan: Study, *outcomes: str) -> results.Results:
    """Write all runs of a study, and record its verdicts as ``study run`` does, or the outcomes."""
    for run in (run for run in plan.runs() if not RunFolder(root, run).finished):
        shift = SHIFTS[run.seed] if run.point[ACT] == "gelu" else 0.0
        write(root, run, {"test/error": [0.1 + 0.01 * (run.seed % 5) + shift]})
    found = results.load(StudyFolder(plan, root))
    looks.record(found.folder, outcomes or [one.outcome for one in table_of(found).verdicts])
    # Recording a look does not change it
    assert results.load(StudyFolder(plan, root)).looks == found.looks
    return found


def p_of(found: results.Results) -> float:
    (cell,) = (cell for row in table_of(found).rows for cell in row.columns if cell.family)
    assert cell.p_holm is not None
    return cell.p_holm


def test_a_verdict_after_an_extension_is_corrected_for_the_earlier_look(tmp_path):
    first = finish(tmp_path, planned(8))
    assert (first.looks, p_of(first)) == (0, 2 / 2**8)
    second = finish(tmp_path, planned(12))
    assert second.looks == 1
    assert p_of(second) == pytest.approx(6 * 2 / 2**12)
    *_, text, note = list(table_of(second).summary)
    assert "p = 0.00049 alone, 0.0029 after Holm's correction for 1 comparison and 2 looks" in text
    assert "extended after 1 verdict, by seeds" in note
    assert "p-values are multiplied by 6" in note
    third = finish(tmp_path, planned(16))
    assert third.looks == 2
    assert p_of(third) == pytest.approx(12 * 2 / 2**16)
    assert finish(tmp_path, planned(8)).looks == 0, "the first seeds alone keep their first verdict"
    assert [len(look["seeds"]) for look in looks.read(StudyFolder(planned(8), tmp_path))] == [
        8,
        12,
        16,
    ]


def test_fewer_seeds_than_were_begun_are_a_look(tmp_path):
    plan = planned(12)
    for run in plan.runs():
        if run.seed < 8 or (run.seed == 8 and run.point[ACT] == "gelu"):
            write(tmp_path, run, {"test/error": [0.1 + 0.01 * (run.seed % 5)]})
    assert results.load(StudyFolder(plan, tmp_path)).looks == 0
    found = results.load(StudyFolder(planned(8), tmp_path))
    assert found.looks == 1
    assert "or cut short" in list(table_of(found).summary)[-1]


def test_the_runs_of_another_stage_are_no_look(tmp_path):
    """Here the stages compare the same activations at the same settings, on seeds of their own."""
    stages = (Stage("choose", tuple(range(8))), Stage("compare", tuple(range(8, 16))))
    for stage in stages:
        plan = planned(8, stages=stages)
        for run in replace(plan, seeds=stage.seeds).runs():
            write(tmp_path, run, {"test/error": [0.1 + 0.01 * (run.seed % 5)]})
    for stage in stages:
        assert results.load(StudyFolder(replace(plan, seeds=stage.seeds), tmp_path)).looks == 0


@pytest.mark.parametrize("seeds", [3, 5])
def test_too_few_pairs_for_a_verdict_are_no_look(tmp_path, seeds):
    finish(tmp_path, planned(seeds))
    assert finish(tmp_path, planned(8)).looks == 0


def test_the_number_of_pairs_needed_covers_earlier_looks(tmp_path):
    activations = ("relu", *(f"./acts.py:Act{number}" for number in range(15)))
    finish(tmp_path, planned(6, activations))
    found = finish(tmp_path, planned(7, activations))
    # 6 · 15 times the smallest p of 7 runs of each side is 0.052
    assert table_of(found).verdicts[0].outcome == "too few pairs"
    assert (
        "with 15 comparisons and 2 looks, so few cannot reach p < 0.05"
        in list(table_of(found).summary)[-1]
    )


def test_other_settings_and_further_activations_are_no_extension(tmp_path):
    finish(tmp_path, planned(8))
    assert finish(tmp_path, planned(8, ("gelu", "relu", "elu"))).looks == 0
    assert finish(tmp_path, planned(12, title="Another title")).looks == 1
    assert finish(tmp_path, planned(12, ("gelu", "relu", "elu"))).looks == 1
    assert finish(tmp_path, planned(14, ("silu", "tanh"))).looks == 0


def test_each_comparison_of_a_search_is_a_look_at_its_question(tmp_path):
    def searched(
        seeds: int, *activations: str, question: str = "q", verdict: str = "better"
    ) -> int:
        return finish(tmp_path, planned(seeds, activations, question=question), verdict).looks

    assert searched(8, "gelu", "relu", verdict="too few pairs") == 0
    assert searched(8, "gelu", "relu") == 0
    assert searched(8, "elu", "relu", verdict="undecided") == 1
    assert searched(12, "elu", "relu") == 2
    assert searched(8, "gelu", "relu") == 0  # the verdict that was seen first
    assert searched(12, "elu", "relu", question="other code") == 0
    # Of no search
    assert results.load(StudyFolder(planned(12, ("elu", "relu")), tmp_path)).looks == 0


def test_an_activation_that_failed_at_a_look_makes_no_further_look(tmp_path):
    def searched(*activations: str, failed: str = "") -> int:
        blocks = []
        for activation in activations:
            blocks.append(Block({ACT: [activation]}, opened=activation != failed))
        plan = replace(planned(8, question="q"), blocks=tuple(blocks))
        return finish(tmp_path, plan, "better").looks

    assert searched("gelu", "relu", "elu", failed="elu") == 0
    assert searched("gelu", "relu", "elu") == 0
    assert searched("gelu", "relu", "elu", failed="gelu") == 0
    assert len(looks.read(StudyFolder(planned(8), tmp_path))) == 1
    assert searched("gelu", "relu", "silu") == 1, "as if the search had chosen another setting"


def test_a_damaged_record_is_reported_with_its_remedy(tmp_path):
    finish(tmp_path, planned(8))
    finish(tmp_path, planned(12))
    (tmp_path / looks.FILE).write_text("{")
    (line,) = results.load(StudyFolder(planned(12), tmp_path)).left_out
    assert "looks.json is damaged" in line
    assert "Delete it." in line
