"""Every folder of submissions follows its checklist; a made one shows what the check finds."""

import copy
import json

import pytest

from actlab.analysis.statistics import median
from actlab.scoreboard import definition, scores, selections, tables
from actlab.storage import contents
from actlab.storage.resources import resource
from actlab.studies.reading import load
from actlab.studies.seeds import seed_list
from submissions import problems


def written(folder, table):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.json").write_text(json.dumps(table))


@pytest.fixture
def made(program, tmp_path):
    """A submission on all data sets of the scoreboard: GELU's stored values as those of a file."""
    folder = tmp_path / "slope"
    folder.mkdir()
    file = program("learnt_swish")
    (folder / file.name).write_bytes(file.read_bytes())
    digest = contents.content_of(f"{folder / file.name}:Mine", False)
    head = {"activation": f"{file.name}:Mine", "code": digest, "source": "a test", "licence": "MIT"}
    (folder / "submission.json").write_text(json.dumps(head))

    for task, stated in definition.load().with_tables.items():
        for first, *_ in stated.groups:
            selecting = folder / task / first / selections.FILE
            selecting.parent.mkdir(parents=True)
            text = (resource(stated.data[first].table) / selections.FILE).read_text()
            selecting.write_text(text.replace("gelu,", "Mine,"))
        for data, data_set in stated.data.items():
            seeds = load(stated.study).stages[-1].seeds
            if data_set.seeds:
                seeds = seed_list(data_set.seeds)
            table = json.loads((resource(data_set.table) / "table.json").read_text())
            written(folder / task / data, renamed(table, digest, list(seeds)))
    return folder


def renamed(table, digest, seeds):
    """Return GELU's rows of a table as those of the file, under the seeds of a user's runs."""
    rows = []
    for row in copy.deepcopy(table["rows"]):
        if row["point"].get(table["compare"]) != table["reference"]:
            continue
        row["point"][table["compare"]] = "./learnt_swish.py:Mine"
        for cell in row["columns"]:
            values = [*cell["values"].values()]
            shown = dict(zip(map(str, seeds), values * len(seeds), strict=False))
            cell["values"] = shown
            cell["median"] = median(shown.values())
        rows.append(row)
    return {
        **table,
        "rows": rows,
        "sources": {"./learnt_swish.py:Mine": digest},
        "samples": False,
        "cut": "",
    }


def test_every_submission_follows_the_checklist():
    root = resource(tables.SUBMITTED)
    assert "submission.json" in (root / "README.md").read_text(encoding="utf-8")
    folders = [path for path in root.iterdir() if path.is_dir()]
    for folder in folders:
        assert problems(folder) == []


def test_a_submission_is_on_the_scoreboard_under_its_name(made, monkeypatch):
    assert problems(made) == []
    monkeypatch.setattr(tables, "SUBMITTED", str(made.parent))
    gelu, *others = scores.load().standings
    (slope,) = [standing for standing in others if standing.label == "slope"]
    ratios = [data.ratio.value for data in slope.on if data.ratio]
    assert ratios == pytest.approx([1.0] * len(ratios), rel=0.3)
    assert slope.failures == gelu.failures == ["picture: texture"]
    assert slope.rank.datasets == gelu.rank.datasets == 24

    # Its selections vary as GELU's do
    stated = definition.load()
    comparisons = scores.compared(tables.of_scoreboard(stated, {}, {}), stated)
    for comparison in comparisons:
        slope_setting = comparison.runs["slope"].setting
        assert slope_setting.variance == comparison.runs["gelu"].setting.variance
    assert any(comparison.runs["slope"].setting.variance > 0 for comparison in comparisons)


def changed(file, change):
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def first_cell(table):
    return table["rows"][0]["columns"][0]


WRONG_HEADS = {
    "licence '' is not": lambda head: head.update(licence=""),
    "no source": lambda head: head.update(source=""),
    "learnt_swish.py:Mine is not the code of the runs": lambda head: head.update(code="0"),
}
WRONG_TABLES = {
    "other code than the file": lambda table: table["sources"].clear(),
    "not of whole data": lambda table: table.update(samples=True),
    "the rows are not those of one activation": lambda table: table["rows"].append(
        table["rows"][0]
    ),
    "no column": lambda table: first_cell(table).update(metric="val/other"),
    "seeds": lambda table: first_cell(table)["values"].popitem(),
    "the median of": lambda table: first_cell(table).update(median=99.0),
}


@pytest.mark.parametrize("message", WRONG_HEADS)
def test_a_wrong_head_is_found(made, message):
    changed(made / "submission.json", WRONG_HEADS[message])
    assert any(message in problem for problem in problems(made))


@pytest.mark.parametrize("message", WRONG_TABLES)
def test_a_wrong_table_is_found(made, message):
    changed(made / "classifier/MNIST/table.json", WRONG_TABLES[message])
    assert any(message in problem for problem in problems(made))


def test_missing_runs_that_selected_settings_are_found(made):
    (made / "text/Bible" / selections.FILE).unlink()
    assert problems(made) == [f"text, Bible: no {selections.FILE}"]


def test_a_missing_data_set_is_found(made):
    (made / "classifier/MNIST/table.json").unlink()
    assert problems(made) == ["classifier, MNIST: no table.json"]
