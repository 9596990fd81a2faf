"""The activations of a folder's studies: ratios, differences and means over tasks, by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actlab.analysis.columns import Column
from actlab.scoreboard import selections, studies_overview, tables
from actlab.scoreboard.statistic import effect, mean_of, ratio_of
from actlab.scoreboard.studies_overview import Overview
from page_blocks import blocks_of
from tables_by_hand import cell, leave, table

ROOT = Path(__file__).parents[2]
ACT = "model.activation"
# Errors of five runs; silu has 0.8, 0.5 and 0.9 times the error of relu
ERRORS = {"digits": [0.1, 0.11, 0.12, 0.1, 0.09], "letters": [0.4, 0.41, 0.39, 0.42, 0.4]}
TIMES = {"digits": 0.8, "letters": 0.5, "words": 0.9}
BETTER = {"digits": 0.9, "letters": 1.0, "words": 0.6}


def by_seed(values: Any) -> dict[str, Any]:
    return {str(seed): value for seed, value in enumerate(values)}


def a_study(name: str, mine: Any, relu: Any, better: float = 1.0, **column: Any) -> dict[str, Any]:
    """The table of a study that compares silu with relu."""
    rows = []
    for activation, values in (("relu", relu), ("silu", mine)):
        numbers = [np.inf if value is None else value for value in values]
        compared: dict[str, Any] = {}
        if activation == "silu":
            differences = np.subtract(numbers, relu)
            compared["better"] = {"probability": better}
            if np.isfinite(differences).all():
                compared["paired"] = {"mean": float(differences.mean())}
        entry = cell(by_seed(values), float(np.median(numbers)), **{**compared, **column})
        if not np.isfinite(entry["median"]):
            entry["median"] = None
        rows.append({"point": {ACT: activation}, "chosen": {}, "edges": [], "columns": [entry]})
    return table(name, ACT, rows)


def of_errors(name: str, relu: Any = None) -> dict[str, Any]:
    relu = np.array(relu or ERRORS[name])
    return a_study(name, (TIMES[name] * relu).tolist(), relu.tolist(), BETTER[name])


def overview(tmp_path: Any, *studies: dict[str, Any], **tasks: str) -> Overview:
    leave(tmp_path, *studies)
    records = [stored.table for stored in tables.read(tmp_path).records]
    (found,) = studies_overview.overviews(records, tasks)
    return found


def ratio_to(name: str) -> Any:
    relu = ERRORS[name]
    return effect([TIMES[name] * value for value in relu], relu)


def test_ratios_and_their_mean_over_tasks_are_those_of_the_scoreboard(tmp_path):
    found = overview(tmp_path, of_errors("digits"), of_errors("letters"))
    (silu,) = found.lines
    ratios = [ratio_to(name) for name in ERRORS]
    assert (found.reference, found.columns, found.tasks) == ("relu", ("digits", "letters"), 2)
    assert silu.texts == tuple(str(ratio_of(ratio)) for ratio in ratios)
    assert silu.texts[1].startswith("0.500 [")
    assert silu.mean == str(ratio_of(mean_of(ratios)))
    assert silu.mean.startswith(f"{(0.8 * 0.5) ** 0.5:.3f}")
    assert silu.better == pytest.approx(0.95)
    assert "mean over 2 tasks" in found.reading


def test_a_column_without_ratios_shows_the_difference_and_has_no_mean(tmp_path):
    relu = [0.8, 0.81, 0.79, 0.8, 0.82]
    accuracy = a_study(
        "words",
        [value + 0.02 for value in relu],
        relu,
        BETTER["words"],
        metric="test/accuracy",
        mode="max",
    )
    (silu,) = overview(tmp_path, of_errors("digits"), accuracy).lines
    assert silu.texts[1] == "+2.00 points"
    assert silu.mean == "-"
    assert silu.better == pytest.approx((0.9 + 0.6) / 2)


def test_an_activation_that_failed_has_no_mean(tmp_path):
    relu = ERRORS["letters"]
    failed = a_study("letters", [None, None, None, 0.1, 0.1], relu, 0.4, diverged=True)
    (silu,) = overview(tmp_path, of_errors("digits"), failed).lines
    assert (silu.texts[1], silu.mean) == ("failed", "-")
    assert silu.better == pytest.approx((0.9 + 0.4) / 2)  # failed runs lose


def test_studies_of_a_task_weigh_as_one(tmp_path):
    words = of_errors("words", ERRORS["digits"])
    studies = (of_errors("digits"), of_errors("letters"), words)
    found = overview(tmp_path, *studies, digits="pictures", letters="pictures")
    (silu,) = found.lines
    assert found.tasks == 2
    assert silu.better == pytest.approx(((0.9 + 1.0) / 2 + 0.6) / 2)
    assert silu.mean.startswith(f"{((0.8 * 0.5) ** 0.5 * 0.9) ** 0.5:.3f}")


def test_one_task_has_no_mean_over_tasks(tmp_path):
    found = overview(
        tmp_path, of_errors("digits"), of_errors("letters"), digits="one", letters="one"
    )
    (silu,) = found.lines
    assert (silu.better, silu.mean, silu.better_text) == (None, "-", "-")


def test_an_activation_of_one_study_alone_is_last_and_has_no_mean(tmp_path):
    more = of_errors("letters")
    more["rows"].append({**more["rows"][1], "point": {ACT: "gelu"}})
    silu, gelu = overview(tmp_path, of_errors("digits"), more).lines
    assert (silu.label, gelu.label) == ("silu", "gelu")
    assert (gelu.texts[0], gelu.better, gelu.mean) == ("-", None, "-")
    assert gelu.texts[1] == silu.texts[1]


def test_points_without_the_reference_are_left_out(tmp_path):
    """Of another dropout, and a row without an activation."""
    more = of_errors("letters")
    for row in more["rows"]:
        row["point"]["dropout"] = 0.0
    silu = more["rows"][1]
    more["rows"].append({**silu, "point": {ACT: "silu", "dropout": 0.5}})
    more["rows"].append({**silu, "point": {"dropout": 0.0}})
    found = overview(tmp_path, of_errors("digits"), more)
    assert found.columns == ("digits", "letters, dropout 0")
    assert [line.label for line in found.lines] == ["silu"]


def test_few_runs_have_no_interval(tmp_path):
    relu = ERRORS["letters"][:3]
    few = a_study("letters", relu, relu)
    (silu,) = overview(tmp_path, of_errors("digits"), few).lines
    assert (silu.texts[1], silu.mean) == ("fewer than 4 runs", "-")


def test_smoke_runs_and_other_references_are_left_out(tmp_path):
    other = of_errors("letters")
    other["reference"] = "silu"
    smoke = of_errors("words", ERRORS["digits"])
    smoke["study"] = "words-smoke"
    leave(tmp_path, of_errors("digits"), other, smoke)
    records = [stored.table for stored in tables.read(tmp_path).records]
    assert studies_overview.overviews(records, {}) == []


@pytest.mark.parametrize(
    ("column", "values", "expected"),
    [
        ({"metric": "test/error"}, [0.1, 0.2], True),
        ({"metric": "test/error"}, [0.0, 0.2], False),
        ({"metric": "test/accuracy", "mode": "max"}, [0.9], False),
        ({"metric": "test/psnr", "mode": "max", "scale": "decibels"}, [-1.0, 20.0], True),
        ({"metric": "test/error", "at": "below 0.1"}, [3.0], False),
    ],
)
def test_ratios_need_positive_errors_or_decibels(column, values, expected):
    assert studies_overview.has_ratios(Column(**column), values) == expected


def test_errors_of_decibels_are_mean_squared_errors():
    column = Column("test/psnr", mode="max", scale="decibels", chance=5.0)
    errors = selections.errors_of(column, [10.0, 20.0, 4.0])
    assert errors == pytest.approx([0.1, 0.01])


def test_the_command_shows_the_overview_and_reads_tasks(cli, tmp_path):
    runs = tmp_path / "runs"
    leave(runs, of_errors("digits"), of_errors("letters"))
    page = cli("report", "--runs-dir", runs).succeeded().strip()
    text = (runs / "index.html").read_text()
    assert page == str(runs / "index.html")
    assert "Overview, relative to relu" in text
    assert "0.632 [" in text

    latex = cli("report", "--runs-dir", runs, "--latex").succeeded()
    assert latex.count(r"\begin{table}") == 2
    assert r"silu & 0.95 & 0.632 [" in latex

    file = tmp_path / "tasks.yaml"
    file.write_text("all: [digits, letters]\n")
    cli("report", "--runs-dir", runs, "--tasks", file).succeeded()
    assert "0.632 [" not in (runs / "index.html").read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("all: [digits, leters]", "unknown study 'leters'; did you mean 'letters'?"),
        ("all: digits", "tasks.yaml: all: expected a list of studies, got 'digits'."),
        ("a: [digits]\nb: [digits]", "digits: expected one task, got a and b. Remove one."),
    ],
)
def test_a_wrong_file_of_tasks_is_rejected(cli, tmp_path, text, message):
    runs = tmp_path / "runs"
    leave(runs, of_errors("digits"), of_errors("letters"))
    file = tmp_path / "tasks.yaml"
    file.write_text(text)
    assert message in cli("report", "--runs-dir", runs, "--tasks", file).rejection


def test_the_example_of_the_guide_is_a_file_of_tasks(tmp_path):
    (example,) = [
        block.text
        for block in blocks_of(ROOT / "docs/guide/studies.md")
        if block.text.startswith("digits:")
    ]
    file = tmp_path / "tasks.yaml"
    file.write_text(example)
    names = ("mnist", "fashion", "twitter_pos")
    leave(tmp_path / "runs", *(a_study(name, [0.1], [0.1]) for name in names))
    records = [stored.table for stored in tables.read(tmp_path / "runs").records]
    assert studies_overview.read_tasks(file, records) == {
        "mnist": "digits",
        "fashion": "digits",
        "twitter_pos": "tweets",
    }
