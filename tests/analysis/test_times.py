"""Values at equal training time, and curves over seconds, against times worked out by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from actlab.analysis import comparison, results
from actlab.analysis.results import Results
from actlab.errors import ActlabError
from actlab.reports import notes, table_files
from actlab.reports.plots import read, read_entry
from actlab.studies.folders import DIVERGED, FINISHED, StudyFolder
from actlab.studies.plan import Selection
from written_runs import ACT, study, write

EQUAL = {"metric": "test/error", "at": "equal time", "percent": True}
TABLE = ({"metric": "test/error", "at": "last", "percent": True}, EQUAL)
COSTS = {"relu": 0.1, "slow": 0.2, "fast": 0.05}  # seconds an update; the last has none
UNITS = [*COSTS, "untimed"]
ERRORS = [0.5, 0.4, 0.3, 0.2]  # after each of four epochs of ten updates; another seed has .01 more


def written(root: Path, status: Any = None, parts: Any = None, **changes: Any) -> Results:
    """Four units of two seeds, with costs but for the last."""
    plan = study(
        **{"grids": ({ACT: UNITS},), "select": Selection(), "reference": "relu", "table": TABLE, **changes}
    )
    costs = []
    for run in plan.runs():
        unit = run.point[ACT]
        errors = [error + 0.01 * run.seed for error in ERRORS]
        how = (status or {}).get(unit, FINISHED)
        write(root, run, {"test/error": errors}, how, updates=40, last_good_epoch=4)
        if run.seed == 0 and unit in COSTS:
            cost = {"point": dict(run.point), "run": run.id, "seconds_per_update": COSTS[unit], "bytes_kept": 1}
            costs.append(
                cost | {"seconds_in_parts": [COSTS[unit] * part for part in (parts or {}).get(unit, [1])]}
            )
    (root / "cost.json").write_text(json.dumps(costs))
    return results.load(StudyFolder(plan, root))


def cells(loaded: Results, number: int = 1) -> dict[str, Any]:
    return {row.point[ACT]: row.cells[number] for row in comparison.rows(loaded)}


def test_both_sides_are_read_at_the_shorter_time(tmp_path: Path) -> None:
    found = cells(written(tmp_path))
    # slow needs 8 s, relu 4 s: slow has ended two epochs by then
    assert found["slow"].values == pytest.approx({0: 0.4, 1: 0.41})
    assert found["slow"].difference.mean == pytest.approx(0.2)
    # fast ends after 2 s, when relu has ended two epochs
    assert found["fast"].values == pytest.approx({0: 0.2, 1: 0.21})
    assert found["fast"].difference.mean == pytest.approx(-0.2)
    assert found["relu"].values == pytest.approx({0: 0.2, 1: 0.21})
    assert found["untimed"].values == {}


def test_an_epoch_counts_when_it_has_ended(tmp_path: Path) -> None:
    loaded = written(tmp_path, parts={"slow": [1]})
    costs = json.loads((tmp_path / "cost.json").read_text())
    costs[1]["seconds_per_update"] = 0.15  # two and two thirds epochs of slow last as long as four of relu
    (tmp_path / "cost.json").write_text(json.dumps(costs))
    assert cells(results.load(StudyFolder(loaded.study, tmp_path)))["slow"].median == pytest.approx(0.405)


def test_it_is_neither_ranked_nor_tested(tmp_path: Path) -> None:
    many = tuple(range(6))
    loaded = written(tmp_path, seeds=many)
    for cell in cells(loaded).values():
        assert (cell.p, cell.p_holm, cell.family, cell.column.ranked) == (None, None, "", False)
    assert cells(loaded, 0)["slow"].p is not None
    with pytest.raises(ActlabError, match="cannot be ranked: 'at: equal time' has no test"):
        comparison.rows(written(tmp_path, table=({**EQUAL, "ranked": True},)))


def test_a_note_says_where_and_how_far_the_costs_vary(tmp_path: Path) -> None:
    loaded = written(tmp_path, parts={"relu": [1, 1.1], "slow": [1, 1], "fast": [1, 0.8]})
    (note,) = (text for text in notes.remarks(loaded) if text.startswith("At equal training time"))
    assert (
        "Time reaches epoch 2.0 of 4 (2.0 to 2.2 by fifths of the timed rounds) of slow; epoch 2.0 of 4 ("
        in note
    )
    assert "; epoch 2.0 of 4 (1.5 to 2.0 by fifths of the timed rounds) of relu against fast." in note
    assert "No value without a measured cost: untimed." in note
    assert not [text for text in notes.remarks(written(tmp_path, table=TABLE[:1])) if "equal" in text]


def test_runs_that_diverged_are_worst(tmp_path: Path) -> None:
    found = cells(written(tmp_path, {"slow": DIVERGED}))
    assert list(found["slow"].values.values()) == [float("inf")] * 2


def test_files_have_the_values_of_the_table(tmp_path: Path) -> None:
    text = table_files.to_csv(written(tmp_path))
    assert text.splitlines()[0] == f"{ACT},seed,chosen,status,test/error@last,test/error@equal time,run"
    errors = [line.split(",")[5] for line in text.splitlines()[1:]]
    assert [float(error) for error in errors if error] == pytest.approx([0.2, 0.21, 0.4, 0.41, 0.2, 0.21])


def test_a_panel_is_over_seconds(tmp_path: Path) -> None:
    panels = [{"title": "epochs"}, {"title": "seconds", "x": "seconds"}]
    loaded = written(tmp_path, figures=({"name": "both", "y": {"test/error": None}, "panels": panels},))
    (plot,) = read(loaded)
    epochs, seconds = plot.panels
    assert {line.label for line in epochs.lines} == set(UNITS)
    found = {line.label: line.ours.x.tolist() for line in seconds.lines}
    assert found == {unit: pytest.approx([10 * cost * e for e in (1, 2, 3, 4)]) for unit, cost in COSTS.items()}
    assert (seconds.xlabel, seconds.seconds, seconds.over_epochs) == ("seconds", True, True)
    assert (
        "over the number of updates × the measured time of one (not measured, so not drawn: untimed)"
        in plot.caption
    )


def test_without_costs_there_is_no_panel_over_seconds(tmp_path: Path) -> None:
    panels = [{"title": "epochs"}, {"title": "seconds", "x": "seconds"}]
    loaded = written(tmp_path, figures=({"name": "both", "y": {"test/error": None}, "panels": panels},))
    (tmp_path / "cost.json").unlink()
    loaded = results.load(StudyFolder(loaded.study, tmp_path))
    plot = read_entry(loaded, loaded.study.figures[0])
    assert plot
    assert [panel.title for panel in plot.panels] == ["epochs"]
    assert "Without the panels over seconds, for no cost was measured." in plot.caption
    alone = {"name": "alone", "x": "seconds", "y": {"test/error": None}}
    assert read_entry(loaded, alone) is None


@pytest.mark.parametrize(
    ("panel", "message"),
    [
        ({"x": "noise", "at": "equal time"}, "'at: equal time' is for columns of the table"),
        ({"x": "seconds", "at": "last"}, "'at' is allowed only with an 'x' of conditions"),
    ],
)
def test_what_a_panel_cannot_show_is_refused(tmp_path: Path, panel: dict[str, str], message: str) -> None:
    loaded = written(tmp_path)
    with pytest.raises(ActlabError, match=message):
        read_entry(loaded, {"y": {"test/error": None}, **panel})
