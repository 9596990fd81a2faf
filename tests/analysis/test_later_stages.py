"""What a later stage runs at: the selected setting, and nothing that only the first stage sets."""

from dataclasses import replace
from pathlib import Path

import pytest

from actlab.analysis.comparison import table_of
from actlab.errors import ActlabError
from actlab.reports.pages.study import heat_map
from actlab.stages import opening
from actlab.storage.files import DamagedError
from actlab.studies.groups import groups
from actlab.studies.plan import Block, Selection, Stage, Study
from actlab.studies.run_folder import RunFolder
from actlab.studies.study_folder import StudyFolder
from written_runs import ACT, LR, curves_of, study, write

MOMENTUM, ALL = "model.momentum", "data.train_on_all"


THREE = ({ACT: ["gelu", "relu", "elu"], LR: [0.1, 0.01]},)


def run_all(plan: Study, root: Path, *failed: str) -> list[Study]:
    """Write the runs of each stage as it opens, or failures of activations; return the stages."""
    while True:
        opened = [stage.study for stage in opening.opened(StudyFolder(plan, root)).stages]
        for run in (run for stage in opened for run in stage.runs()):
            if run.point[ACT] in failed:
                RunFolder(root, run).fail("ValueError: boom")
            else:
                error = 0.2 if run.point[ACT] == "gelu" else 0.3
                write(root, run, {**curves_of(run), "test/error": [error]})
        if len(opened) == len(opening.opened(StudyFolder(plan, root)).stages):
            return opened


def test_a_point_with_a_failed_run_stays_planned_in_all_later_stages(tmp_path):
    given = (Stage("choose", (0, 1)), Stage("compare", tuple(range(5, 13))), Stage("again", (20,)))
    plan = study(grids=THREE, stages=given)
    opened = run_all(plan, tmp_path, "elu")
    assert [len(stage.runs()) for stage in opened] == [12, 16, 2]
    assert [len(stage.planned()) for stage in opened] == [12, 24, 3]
    loaded = opening.load(StudyFolder(plan, tmp_path), "compare")[-1]
    assert (loaded.missing, len(loaded.failures)) == (8, 4)
    gelu, _, elu = table_of(loaded).rows
    assert (elu.settings, elu.planned, elu.finished, elu.edges) == (2, 8, 0, ())
    assert not elu.chosen
    (cell,), (other,) = gelu.columns, elu.columns
    assert other.median is None
    assert (cell.p, cell.p_holm) == (2 / 2**8, 4 / 2**8)
    said = list(table_of(loaded).summary)[-1]
    assert said.startswith("No verdict yet against relu on 1 comparison: ")
    assert said.endswith(" failed. Repair what failed and repeat the command.")
    known = StudyFolder(plan, tmp_path).selection
    fixed = run_all(plan, tmp_path)
    assert [len(stage.runs()) for stage in fixed] == [12, 24, 3]
    after = StudyFolder(plan, tmp_path).selection
    assert all(known[name].items() <= after[name].items() for name in known)
    assert opening.load(StudyFolder(plan, tmp_path), "compare")[-1].looks == 0
    assert table_of(loaded).rows[0] == gelu


def test_without_the_reference_there_is_no_verdict(tmp_path):
    plan = study(grids=THREE, stages=(Stage("choose", (0, 1)), Stage("compare", (5, 6))))
    assert len(run_all(plan, tmp_path, "relu")[-1].runs()) == 4
    (said,) = list(table_of(opening.load(StudyFolder(plan, tmp_path))[-1]).summary)
    assert "No verdict yet against relu on 2 comparisons: " in said


def test_a_stage_waits_for_runs_that_have_not_failed(tmp_path):
    plan = study(grids=THREE, stages=(Stage("choose", (0, 1)), Stage("compare", (5, 6))))
    run_all(plan, tmp_path, "elu")
    first = opening.opened(StudyFolder(plan, tmp_path)).stages[0].study.runs()
    RunFolder(tmp_path, next(run for run in first if run.point[ACT] == "elu")).try_again()
    assert len(opening.opened(StudyFolder(plan, tmp_path)).stages) == 1


def test_what_the_first_stage_sets_stays_there(tmp_path):
    given = (
        Stage("choose", (0, 1), {ALL: False}),
        Stage("compare", (5,)),
        Stage("again", (6,), {ALL: None}),
    )
    plan = study(stages=given)
    plan = replace(
        plan, blocks=tuple(replace(b, base={"data": {"train_on_all": True}}) for b in plan.blocks)
    )
    opened = run_all(plan, tmp_path)
    seen = [{run.config["data"]["train_on_all"] for run in stage.runs()} for stage in opened]
    assert seen == [{False}, {True}, {None}]
    assert [stage.title for stage in opened] == [
        "S, stage choose",
        "S, stage compare",
        "S, stage again",
    ]


def test_all_stages_before_count_as_those_that_chose(tmp_path):
    given = (Stage("choose", (0, 1)), Stage("compare", (5, 6, 7)), Stage("again", (8, 9)))
    assert [sorted(s.chosen_on) for s in run_all(study(stages=given), tmp_path)] == [
        [],
        [0, 1],
        [0, 1, 5, 6, 7],
    ]


def test_a_seed_that_chose_is_not_compared(tmp_path):
    plan = study(stages=(Stage("choose", (0, 1)), Stage("compare", (5, 6))))
    run_all(plan, tmp_path)
    other = replace(plan, stages=(Stage("choose", (0, 7)), Stage("compare", (1, 2))))
    with pytest.raises(
        ActlabError, match=r"stage compare has seed 1, which selected .* above 1, or delete"
    ):
        opening.opened(StudyFolder(other, tmp_path))


def chose(folder: Path, *later: Stage) -> list[int]:
    """The runs in each cell of "How lr was chosen", with other seeds than the selection's."""
    plan = study(stages=(Stage("choose", (0, 1)), Stage("compare", (5, 6))))
    run_all(plan, folder)
    run_all(replace(plan, stages=later), folder)
    found = heat_map(opening.load(StudyFolder(replace(plan, stages=later), folder), "choose")[0])
    return [cell["n"] for row in found["rows"] for cell in row["cells"]] if found else []


def test_how_a_setting_was_chosen_shows_the_runs_that_chose(tmp_path):
    assert (
        chose(tmp_path / "more", Stage("choose", (0, 1, 2, 3)), Stage("compare", (5, 6))) == [2] * 4
    )
    assert (
        chose(tmp_path / "mixed", Stage("choose", (0, 1, 5, 6)), Stage("compare", (7, 8)))
        == [2] * 4
    )
    assert chose(tmp_path / "fewer", Stage("choose", (0,)), Stage("compare", (5, 6))) == []


def test_a_setting_is_run_in_the_block_that_it_was_chosen_in(tmp_path):
    """Here the better one is of the second grid, which has a key more and a base of its own."""
    blocks = (
        Block({ACT: ["relu"], LR: [0.1]}, {"data": {"size": 1}}),
        Block({ACT: ["relu"], LR: [0.01], MOMENTUM: [0.5, 0.9]}, {"data": {"size": 2}}),
    )
    plan = replace(
        study(
            select=Selection((LR, MOMENTUM)), stages=(Stage("choose", (0,)), Stage("compare", (5,)))
        ),
        blocks=blocks,
    )
    (run,) = run_all(plan, tmp_path)[-1].runs()
    assert (run.config["model"]["lr"], run.config["model"]["momentum"]) == (0.01, 0.5)
    assert run.config["data"]["size"] == 2
    other = replace(
        plan, blocks=(blocks[0], replace(blocks[1], grid={**blocks[1].grid, MOMENTUM: [0.9]}))
    )
    with pytest.raises(
        DamagedError, match=r"has selected lr 0\.01, momentum 0\.5, which the grid does not have"
    ):
        opening.opened(StudyFolder(other, tmp_path))


@pytest.mark.parametrize(
    "rule", [Selection((LR,), "val/error"), Selection((LR,), "val/loss", "max")]
)
def test_a_selection_by_another_rule_is_rejected(tmp_path, rule):
    plan = study(stages=(Stage("choose", (0, 1)), Stage("compare", (5,))))
    run_all(plan, tmp_path)
    with pytest.raises(
        DamagedError,
        match=(
            f"min of the best val/loss, not the {rule.mode} of the best {rule.metric}. Delete it"
        ),
    ):
        opening.opened(StudyFolder(replace(plan, select=rule), tmp_path))


def test_blocks_that_a_table_could_not_tell_apart_are_refused():
    plan = study(select=Selection())
    blocks = tuple(Block({ACT: ["relu"]}, settings={"model.width": width}) for width in (64, 128))
    with pytest.raises(ActlabError, match=r"two blocks of s .* seed 0. Add a 'name' to each"):
        groups(replace(plan, blocks=blocks))
    named = tuple(replace(block, name=str(number)) for number, block in enumerate(blocks))
    assert len(groups(replace(plan, blocks=named))) == 2
