"""The differences of the scoreboard: to GELU in each task, with intervals; printed, drawn and in files."""

import csv
import io
import json
import math
from pathlib import Path
from typing import Any, cast

import pytest

import boards_by_hand
from actlab.analysis.scoreboard import Board, StoredTable, Table, boards
from actlab.reports import boards as files
from actlab.reports import effects, style
from actlab.reports.canvas import mpl
from boards_by_hand import cell, leave, on_page
from drawn_texts import misplaced

KEY, MINE = "model.activation", "./mine.py:Mine"
Values = dict[str, list[float | None]]


def table(name: str, values: Values, **column: Any) -> dict[str, Any]:
    """A table as a study leaves it: one column with the values of each activation by seed."""
    rows = []
    for unit, found in values.items():
        known = sorted(v for v in found if v is not None)
        median = known[len(found) // 2] if len(found) // 2 < len(known) else None
        of = {str(seed): value for seed, value in enumerate(found)}
        rows.append({"point": {KEY: unit}, "columns": [cell(of, median, **column)]})
    return boards_by_hand.table(name, KEY, rows, own=[MINE])


def board_of(*tables: dict[str, Any]) -> Board:
    (board,) = boards([StoredTable(Path(one["study"]), cast(Table, one)) for one in tables])
    return board


def shifted(by: float) -> list[float | None]:
    return [0.1 + 0.01 * seed + by for seed in range(6)]


def six(**units: float) -> Values:
    """Six seeds of activations that lie a given distance from 10 %."""
    return {MINE if name == "mine" else name: shifted(by) for name, by in units.items()}


def test_differences_are_to_gelu_whatever_a_study_refers_to() -> None:
    board = board_of(table("a", six(relu=0.02, gelu_tanh=0.0, mine=-0.01)), table("b", six(relu=0, mine=0.01)))
    one, other = effects.compared(board)
    assert [task.reference for task, _ in (one, other)] == ["gelu_tanh", "relu"]
    assert [(label, effects.text(found, one[0].column)) for label, found in one[1].items()] == [
        ("Mine", "-1.00 [-1.00, -1.00]"),
        ("relu", "+2.00 [+2.00, +2.00]"),
    ]
    assert board.users == {"Mine"}
    assert [(label, found.pairs) for label, found in other[1].items()] == [("Mine", 6)]


def test_only_seeds_that_both_have_are_pairs() -> None:
    values = six(gelu=0.0, relu=0.01)
    found = table("a", {**values, "relu": values["relu"][:4]})
    one = effects.compared(board_of(found))[0][1]["relu"]
    assert (one.pairs, one.low) == (4, None)
    assert one.mean == pytest.approx(0.01)
    assert effects.pairs([one]) == "4 pairs"
    assert any("Without interval: fewer than 6 pairs" in line for line in effects.notes([board_of(found)]))


@pytest.mark.parametrize(("lost", "mean", "text"), [(1, 0.0, "+0.00"), (6, None, "failed")])
def test_a_run_that_failed_leaves_the_mean_of_the_others(lost: int, mean: float | None, text: str) -> None:
    diverged = [*shifted(0.0)[lost:], *[None] * lost]
    found = table("a", {"gelu": [*shifted(0.0)[lost:], *[0.1] * lost], "relu": diverged})
    one = effects.compared(board_of(found))[0][1]["relu"]
    assert (one.mean, one.low) == (mean, None)
    assert f"relu {text}" in shown(found)


@pytest.mark.parametrize("biased", [False, True])
def test_the_best_of_several_settings_has_no_interval(biased: bool) -> None:
    found = table("a", six(gelu=0.0, relu=0.01), biased=biased)
    one = effects.compared(board_of(found))[0][1]["relu"]
    assert (one.low is None) == biased


def test_tables_without_a_reference_have_no_differences(tmp_path: Path) -> None:
    board = board_of(table("b", six(elu=0.0, silu=0.01)))
    assert effects.compared(board) == []
    assert effects.notes([board]) == []
    assert files.write([board], tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def shown(*tables: dict[str, Any]) -> str:
    return on_page(StoredTable(Path(one["study"]), cast(Table, one)) for one in tables)


def test_the_page_shows_means_over_tasks_then_differences() -> None:
    """Where the reference is at chance it is marked, and does not count over tasks."""
    one, other = six(gelu=0.0, mine=-0.05), six(gelu=0.0, mine=0.02)
    text = shown(table("a", one), table("b", other, chance=0.05))
    over, of_a, of_b = (
        text.index(words)
        for words in (
            "over tasks probability of being better than gelu [other seeds] [other seeds and tasks]",
            "a test error % (last), difference to gelu; lower is better; 6 pairs",
            "b test error % (last), difference to gelu; lower is better; 6 pairs",
        )
    )
    assert "Mine 0.97 [0.82, 1.00] 1 task" in text[over:of_a]
    assert "Mine -5.00 [-5.00, -5.00]" in text[of_a:of_b]
    assert "Mine failed chance" in text[of_b:]
    assert "Left out over tasks (gelu is at chance): b." in text
    assert "8.00 0.97" in text


def test_high_values_may_be_better() -> None:
    found = table("a", six(gelu=0.0, relu=0.01), metric="test/accuracy", mode="max")
    assert "difference to gelu; higher is better" in shown(found)
    (figure,) = files.figures_of(board_of(found))
    assert figure.axes[0].get_xlabel() == "higher is better →"


def test_a_forest_plot_has_a_panel_for_each_task_in_its_own_unit() -> None:
    values: Values = {**six(gelu=0.0, relu=0.01, mine=-0.02), "elu": [None] * 6}
    losses = six(gelu=0.0, relu=0.5, mine=1.0)
    tables = (table("a", values), table("b", losses, metric="test/loss", percent=False), table("c", values))
    board = board_of(*tables)
    with mpl.rc_context(style.RC):
        (figure,) = files.figures_of(board)
    assert [axes.get_visible() for axes in figure.axes] == [True, True, True, False]
    errors, loss = figure.axes[:2]
    assert errors.get_title(loc="left") == "a\ntest error % (last) − gelu, 6 pairs"
    assert [label.get_text() for label in errors.get_yticklabels()] == ["Mine", "relu", "elu"]
    assert errors.get_yticklabels()[0].get_fontweight() == "bold"
    means = [line.get_xdata()[0] for line in errors.get_lines() if line.get_marker() == "o"]
    assert means == pytest.approx([-2.0, 1.0])
    assert "failed: no mean difference" in [text.get_text() for text in errors.texts]
    low, high = loss.get_xlim()
    assert low < 0 < 1 < high < 1.2
    colours = {line.get_color() for line in errors.get_lines() if line.get_marker() == "o"}
    assert style._OWN[0] in colours
    assert "Open circles" not in files.caption_of(board)


@pytest.mark.parametrize("paper", [None, style.Paper(1, "serif"), style.Paper(2, "sans")])
def test_no_labels_of_a_forest_plot_overlap(paper: style.Paper | None) -> None:
    long = "a_study_with_quite_a_long_name_of_its_own"
    board = board_of(*(table(f"{long}_{n}", six(gelu=0.0, relu=1e-5, mine=-2e-5, elu=3e-5)) for n in range(3)))
    with mpl.rc_context(paper.rc if paper else style.RC):
        for figure in (*files.figures_of(board, paper), files.profile_of(board, paper)):
            assert not misplaced(figure)


def test_a_profile_has_a_line_for_each_activation() -> None:
    """The user's is thick; an activation that lacks a task says of how many its line is."""
    board = board_of(table("a", six(gelu=0.0, mine=0.1, elu=1.0)), table("b", six(gelu=0, mine=0.1)))
    with mpl.rc_context(style.RC):
        figure = files.profile_of(board)
    (axes,) = figure.axes
    lines = {line.get_label(): line for line in axes.get_lines()[1:]}
    assert [*lines] == ["gelu", "Mine", "elu (1 task)"]
    assert lines["Mine"].get_linewidth() > lines["gelu"].get_linewidth()
    assert lines["Mine"].get_ydata()[-1] == pytest.approx(100)
    assert axes.get_xlim()[0] < 1 < axes.get_xlim()[1]


def test_report_writes_the_figures_and_all_digits(cli: Any, tmp_path: Path) -> None:
    found = table("a", six(gelu=0.0, relu=1 / 30, mine=-0.01))
    leave(tmp_path, found)
    outcome = cli("report", "--runs-dir", tmp_path, "--paper", 1)
    assert outcome.code == 0, outcome.err
    stems = "scoreboard-activation", "scoreboard-activation-profile"
    figures = [f"{stem}.{kind}" for kinds in (("svg", "png"), ("pdf",)) for stem in stems for kind in kinds]
    numbers = ["scoreboard.csv", "scoreboard.json", "scoreboard-profile.csv"]
    assert [Path(line).name for line in outcome.out.split()] == [*numbers, *figures, "index.html"]
    rows = list(csv.DictReader(io.StringIO((tmp_path / "scoreboard.csv").read_text())))
    assert [(row["activation"], row["reference"], row["pairs"]) for row in rows] == [
        ("Mine", "gelu", "6"),
        ("relu", "gelu", "6"),
    ]
    assert math.isclose(float(rows[1]["difference"]), 1 / 30)
    page = (tmp_path / "index.html").read_text()
    assert all(f'href="{name}"' in page for name in [*figures, *numbers])
    assert "data:image/svg+xml" in page
    (board,) = json.loads((tmp_path / "scoreboard.json").read_text())
    mean = board["better"]["Mine"]
    assert (board["reference"], board["own"], board["tasks"]) == ("gelu", ["Mine"], {"a": "counts"})
    assert float(rows[0]["better"]) == mean["probability"] == pytest.approx(23 / 36)
    low, high = mean["runs"]
    assert f"{mean['probability']:.2f} [{low:.2f}, {high:.2f}]" in page
    profile = list(csv.DictReader(io.StringIO((tmp_path / "scoreboard-profile.csv").read_text())))
    assert float(
        next(row["share"] for row in reversed(profile) if row["activation"] == "Mine")
    ) == pytest.approx(1)
    assert "-1.00 [-1.00, -1.00]" in page
    assert '<tr class="own"' in page
    assert "difference to gelu; lower is better; 6 pairs" in page
    paper = style.Paper(1)
    figure = files.draw(board_of(found), paper)["scoreboard-activation"]
    (again,) = style.save(figure, tmp_path / "again", paper)
    assert (tmp_path / "scoreboard-activation.pdf").read_bytes() == again.read_bytes()


@pytest.mark.usefixtures("undrawn")
def test_two_activations_of_one_name_are_two(cli: Any, tmp_path: Path) -> None:
    """The files of three studies have the same name; those of the first and third the same content."""
    digests = {"a": "1" * 64, "b": "2" * 64, "c": "1" * 64}
    for name, digest in digests.items():
        leave(tmp_path, table(name, six(gelu=0.0, mine=-0.01)) | {"sources": {MINE: digest}})
    assert cli("report", "--runs-dir", tmp_path).code == 0
    rows = list(csv.DictReader(io.StringIO((tmp_path / "scoreboard.csv").read_text())))
    assert [row["activation"] for row in rows] == ["Mine (111111)", "Mine (222222)", "Mine (111111)"]
    (board,) = json.loads((tmp_path / "scoreboard.json").read_text())
    assert board["own"] == ["Mine (111111)", "Mine (222222)"]
    assert [board["better"][label]["studies"] for label in board["own"]] == [2, 1]


@pytest.mark.usefixtures("undrawn")
def test_a_forest_higher_than_a_page_is_split(cli: Any, tmp_path: Path) -> None:
    tables = [table(f"t{n}", six(gelu=0.0, relu=0.01, elu=0.02, mine=-0.01)) for n in range(9)]
    leave(tmp_path, *tables)
    outcome = cli("report", "--runs-dir", tmp_path, "--paper", 1)
    assert outcome.code == 0, outcome.err
    names = [Path(line).name for line in outcome.out.split()]
    pages = ["scoreboard-activation.pdf", "scoreboard-activation-2.pdf"]
    assert [name for name in names if name.endswith(".pdf")] == [*pages, "scoreboard-activation-profile.pdf"]
    page = (tmp_path / "index.html").read_text()
    assert all(f'href="{name}"' in page for name in pages)
    paper = style.Paper(1)
    with mpl.rc_context(paper.rc):
        figures = files.figures_of(board_of(*tables), paper)
        assert len(figures) == 2
        assert all(figure.get_figheight() <= style.PAGE and not misplaced(figure) for figure in figures)
    titles = [axes.get_title(loc="left") for figure in figures for axes in figure.axes]
    assert [title.splitlines()[0] for title in titles] == [one["study"] for one in tables]


def test_one_task_higher_than_a_page_is_split() -> None:
    units = {f"./mine.py:Unit{n}": shifted(n / 1000) for n in range(50)}
    board, paper = board_of(table("t", {"gelu": shifted(0.0), **units})), style.Paper(2)
    with mpl.rc_context(paper.rc):
        figures = files.figures_of(board, paper)
        assert all(figure.get_figheight() <= style.PAGE and not misplaced(figure) for figure in figures)
    labels = [text.get_text() for figure in figures for ax in figure.axes for text in ax.get_yticklabels()]
    assert sorted(labels) == sorted(f"Unit{n}" for n in range(50))
