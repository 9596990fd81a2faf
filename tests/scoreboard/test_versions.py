"""Versions of the scoreboard: tasks with results, and tasks that are stated before their runs."""

import json
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from actlab.scoreboard import definition, page, planning, scores, sentences
from actlab.studies.seeds import seed_list

FOLDER = Path(__file__).parents[2] / "results/scoreboard"
ALONE = "one task gives no rank, because a rank needs two"
EARLIER = ("text", "equation", "picture")  # tasks of `kept`


@pytest.fixture
def later(kept, state, tmp_path):
    """A second version: a task in two groups of data sets with some results, and one without."""
    earlier = yaml.safe_load((tmp_path / "scoreboard_2.yaml").read_text())
    state(earlier, version=1)
    data = {
        "letter": {"table": str(tmp_path / "words")},
        "pens": {"table": str(tmp_path / "nowhere"), "seeds": "20-27"},
        "magic": {"table": str(tmp_path / "waves"), "selects": True},
        "mails": {"table": str(tmp_path / "photo"), "seeds": "20-27"},
    }
    study = {"title": "rows", "study": "board_mnist"}
    tagging = {"tweets": {"table": str(tmp_path / "nowhere")}}
    tasks = {"rows": {**study, "data": data}, "tagging": {**study, "data": tagging}}
    content = {**earlier, "includes": 1, "stated": date(2026, 11, 29), "tasks": tasks}
    del content["version"]
    state(content, version=2)
    return content


def test_a_later_version_ranks_on_the_data_with_results_and_names_the_rest(later, tmp_path):
    scoreboard = scores.load(version=2)
    sine = next(standing for standing in scoreboard.standings if standing.label == "sine")
    assert [*sine.tasks] == [*EARLIER, "rows"]
    assert [score.name for score in sine.on if score.name.startswith("rows")] == [
        "rows: letter",
        "rows: magic",
        "rows: mails",
    ]
    assert sine.rank.datasets == 6
    assert sine.rank.tasks == 4

    line = "Stated, not run yet: rows: pens; tagging."
    assert sentences.lines(scoreboard)[0] == line
    files = page.write(scoreboard, tmp_path / "out")
    assert files[0].read_text().startswith(f"# Scoreboard, version 2\n\n{line}\n\n## Ranks\n")
    stored = json.loads(files[1].read_text())
    assert stored["version"] == 2
    assert stored["not_run"] == ["rows: pens", "tagging"]

    # The earlier version stays as it is
    earlier = scores.load(version=1)
    assert [*earlier.standings[0].tasks] == [*EARLIER]
    assert "not run" not in page.to_markdown(earlier)
    assert "not_run" not in page.to_json(earlier)


def test_a_task_of_both_versions_has_the_data_sets_of_both(later, state, tmp_path):
    """A further data set inherits the settings that the earlier version selected."""
    more = {"more": {"table": str(tmp_path / "photo")}, "last": {"table": str(tmp_path / "none")}}
    state({**later, "tasks": {}, "further": {"picture": more}}, version=2)
    assert [*definition.load(2).tasks] == [*EARLIER]
    assert [*definition.load(2).tasks["picture"].data] == ["photo", "more", "last"]
    assert [*definition.load(1).tasks["picture"].data] == ["photo"]
    scoreboard = scores.load(version=2)
    assert scoreboard.not_run == ("picture: last",)
    sine = next(standing for standing in scoreboard.standings if standing.label == "sine")
    names = [score.name for score in sine.on if score.name.startswith("picture")]
    assert names == ["picture: photo", "picture: more"]


def test_data_whose_settings_were_not_selected_yet_has_no_results(later, state, tmp_path):
    """Its table alone, without the table of the data set that selects."""
    later["tasks"]["rows"]["data"]["magic"]["table"] = str(tmp_path / "nowhere")
    state(later, version=2)
    assert scores.load(version=2).not_run == ("rows: pens", "rows: magic", "rows: mails", "tagging")


def test_a_group_of_data_sets_has_settings_of_its_own(later, tmp_path):
    """An edge on magic is an edge on mails, and none on letter."""
    for name, edges in (("words", []), ("waves", ["model.optimizer.lr"]), ("photo", [])):
        file = tmp_path / name / "table.json"
        table = json.loads(file.read_text())
        table["rows"][2]["edges"] = edges
        file.write_text(json.dumps(table))
    (sine,) = [s for s in scores.load(version=2).standings if s.label == "sine"]
    marks = {score.name: score.edge for score in sine.on}
    assert not marks["rows: letter"]
    assert marks["rows: magic"]
    assert marks["rows: mails"]


def test_a_group_of_data_sets_is_a_study_of_its_own(later):
    tasks = planning.named_tasks("rows", definition.load(2))
    plans, notes = planning.planned(tasks, ["silu"], None)
    assert {name: (plan.task, plan.data) for name, plan in plans.items()} == {
        "rows": ("rows", ("letter",)),
        "rows-magic": ("rows", ("magic", "mails")),
    }
    assert notes == [ALONE]
    names = [stage.name for stage in plans["rows-magic"].study.stages]
    assert names == ["choose", "compare", "mails"]
    assert plans["rows-magic"].study.stages[-1].seeds == tuple(range(20, 28))


def test_a_group_without_the_data_that_selects_is_left_out(later, state, tmp_path):
    for name, data_set in later["tasks"]["rows"]["data"].items():
        data_set["file"] = name
    state(later, version=2)
    (tmp_path / "mails").touch()
    (tmp_path / "letter").touch()
    tasks = planning.named_tasks("rows", definition.load(2))
    plans, notes = planning.planned(tasks, ["silu"], tmp_path)
    assert [*plans] == ["rows"]
    assert notes == [
        "left out: rows, magic: magic is not in the folder of --data",
        "left out: rows, mails: its settings are selected on magic",
        ALONE,
    ]


@pytest.mark.usefixtures("later", "undrawn")
def test_the_command_writes_an_earlier_version_into_its_own_folder(succeed, tmp_path):
    out = succeed("scoreboard", "--version", "1", "--runs-dir", tmp_path / "runs").out
    assert "not run yet" not in out
    text = (tmp_path / "runs/version_1/scoreboard.md").read_text()
    assert text.startswith("# Scoreboard, version 1\n")
    assert not (tmp_path / "runs/scoreboard.md").exists()

    # The current version is with the runs
    out = succeed("scoreboard", "--runs-dir", tmp_path / "runs").out
    assert "Stated, not run yet: rows: pens; tagging." in out
    text = (tmp_path / "runs/scoreboard.md").read_text()
    assert text.startswith("# Scoreboard, version 2\n")
    assert "rows: magic" in text


def test_the_second_version_states_its_data_before_they_have_runs():
    stated = definition.load(2)
    assert stated.stated.isoformat() == "2026-11-29"
    assert [*stated.tasks][4:] == ["tabular", "tagging", "autoencoder", "convolutions"]

    # The tasks of version 1 are its own, with further pictures
    for name, task in definition.load(1).tasks.items():
        further = {"picture": ["cat", "coffee", "tissue"]}.get(name, [])
        data = stated.tasks[name].data
        assert [*data] == [*task.data, *further]
        earlier = {key: data[key] for key in task.data}
        assert stated.tasks[name].model_copy(update={"data": earlier}) == task

    tabular = stated.tasks["tabular"]
    assert tabular.groups == [
        ["letter", "satimage", "penbased", "optdigits"],
        ["magic", "spambase"],
    ]

    # Each data set of a group has seeds of its own, above those of a study
    for task in stated.tasks.values():
        for group in task.groups:
            used = set(range(20)) if task.study.startswith("board_") else set()
            for name in group[1:]:
                seeds = {*seed_list(task.data[name].seeds)}
                assert len(seeds) == 8
                assert not seeds & used
                used |= seeds


def test_version_1_is_what_its_tables_give(succeed, tmp_path, undrawn):
    succeed("scoreboard", "--version", "1", "--runs-dir", tmp_path)
    for name in ("scoreboard.md", "scoreboard.json", "index.html"):
        stored = (FOLDER / "version_1" / name).read_text(encoding="utf-8")
        assert (tmp_path / "version_1" / name).read_text(encoding="utf-8") == stored


def test_ratios_on_tables_are_recomputed_from_the_values():
    """Geometric means over runs, then over the six data sets, none of which has a failure."""
    logs = {}
    for name in ("letter", "satimage", "penbased", "optdigits", "magic", "spambase"):
        values = pd.read_csv(FOLDER / f"tabular_{name}/values.csv")
        by_activation = np.log(values["test/error@last"]).groupby(values["model.activation"])
        logs[name] = by_activation.mean()
    expected = np.exp(pd.DataFrame(logs).mean(axis=1))

    standings = scores.load(version=2).standings
    ratios = {s.label: s.tasks["tabular"].ratio for s in standings if "tabular" in s.tasks}
    assert len(ratios) == 10
    for label, ratio in ratios.items():
        assert ratio.value == pytest.approx(expected[label] / expected["gelu"])
