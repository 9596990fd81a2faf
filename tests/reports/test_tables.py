"""The printed table and its files."""

import csv
import io
import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from actlab.analysis import results
from actlab.analysis.columns import Column
from actlab.analysis.comparison import table_of
from actlab.engines.running import busy
from actlab.reports import output, table_files, tables, terminal
from actlab.studies import probe_files
from actlab.studies.rows import Row
from actlab.studies.study_folder import StudyFolder
from written_runs import COST


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pipes take one table however wide it is, but for tests of narrow ones."""
    monkeypatch.setattr(terminal, "PIPE", 10_000)


def printed(loaded: Any) -> str:
    text = io.StringIO()
    terminal.print_table(table_of(loaded), text)
    return text.getvalue()


def line_of(activation: str, text: str) -> str:
    """The first printed line of an activation."""
    return next(line for line in text.splitlines() if line.startswith(activation))


def cells(line: str) -> list[str]:
    """A printed line's cells: they are two spaces apart at least."""
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_the_table_says_what_was_measured(written):
    loaded = written()
    head, _ = tables.grid(table_of(loaded))
    # Too few seeds
    assert not [name for name in head if "vs relu" in name or "difference to" in name]
    text = printed(loaded)
    lines = text.splitlines()
    assert lines[0] == "A study of units"
    relu = line_of("relu", text)
    medians = ["4.05 [4.00, 4.10]", "0.405 [0.400, 0.410]", "0.350 (+0.0550)"]
    assert cells(relu) == ["relu", "0", "0.001 (edge)", "2", "2", *medians]
    assert "24 of 24 runs finished." in lines
    assert "the range of the runs (fewer than 6 give no interval)" in text
    assert "No verdict against relu from 2 pairs of runs: with 4 comparisons" in text
    assert "Published: a paper." in lines
    assert "Seeds 0, 1. actlab " in text
    assert "torch " in text
    assert "cores." in text
    assert lines[-1] == "A note."


def test_narrow_tables_fit_80_characters(written, monkeypatch):
    monkeypatch.setattr(terminal, "PIPE", 120)
    lines = printed(written(overrides=["seeds=7"])).splitlines()
    assert max(map(len, lines[: lines.index("Verdict")])) <= 80
    relu = [cells(line) for line in lines if line.startswith("relu")]
    assert len(relu) == 2 * 3  # with and without dropout: settings, test error, validation loss
    assert relu[0] == ["relu", "0", "0.001 (edge)", "2", "7"]
    loss = ["0.430 [0.400, 0.460]", "0.350 (+0.0800)", "-"]  # no p on the metric of selection
    assert relu[4] == ["relu", "0", *loss]
    gelu = next(line for line in lines if line.startswith("gelu_tanh") and "−2.00" in line)
    assert cells(gelu)[-2:] == ["−2.00 [−2.00, −2.00]", "0.00058 / 0.0023"]
    assert "show --json" in lines[-1]


def test_a_wide_terminal_takes_one_table(written, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    loaded = written(overrides=["seeds=7"])
    for columns, expected in ((80, 6), (400, 2)):
        monkeypatch.setenv("COLUMNS", str(columns))
        text = printed(loaded)
        assert sum(line.startswith("relu") for line in text.splitlines()) == expected
        assert ("Better: the probability" in " ".join(text.split())) == (expected == 2)


def test_a_wide_table_comes_in_parts_in_markdown(written):
    whole = [
        line
        for line in table_files.to_markdown(table_of(written())).splitlines()
        if line.startswith("#")
    ]
    assert whole == ["# A study of units", "## Verdict", "## Notes"]
    text = table_files.to_markdown(table_of(written(overrides=["seeds=7"])))
    titles = [line for line in text.splitlines() if line.startswith("#")]
    parts = ["## test error % (last), primary", "## val loss (best)"]
    assert titles == ["# A study of units", *parts, "## Verdict", "## Notes"]
    part = (
        text.partition("## test error % (last), primary\n\n")[2].partition("\n\n")[0].splitlines()
    )
    assert len(part) == 2 + 6  # header, rule, a line a row
    assert {line.count("|") for line in part} == {7}
    tested = "−2.00 [−2.00, −2.00] / −2.00 | 1.00 [0.93, 1.00] | 0.00058 / 0.0023"
    assert f"| gelu_tanh | 0 | 2.30 [2.00, 2.60] | {tested} |" in part


def test_an_unfinished_study_says_so(written):
    loaded = written(
        skip=lambda r: (
            (r.point["model.activation"] == "elu" and r.seed == 1) or r.point["model.lr"] < 1e-3
        )
    )
    text = printed(loaded)
    assert "10 of 24 runs finished; the study is unfinished" in text
    assert "* chosen while runs are missing" in text
    elu = line_of("elu", text)
    assert cells(elu)[:6] == ["elu", "0", "0.001* (edge)", "2", "1 of 2", "3.00"]
    shutil.rmtree(loaded.root)
    text = printed(written(skip=lambda run: True))
    assert "0 of 24 runs finished" in text
    assert "0 of 2" in text


def test_diverged_runs_are_counted(written):
    text = printed(written(diverge=lambda r: r.point["model.activation"] == "relu" and r.seed == 1))
    assert "24 of 24 runs finished, 4 of which diverged." in text
    relu = line_of("relu", text)
    assert "2, 1 diverged" in relu
    assert "diverged [4.00, diverged]" in relu
    assert "A diverged run counts as the worst value." in text


def test_seven_seeds_give_intervals_and_p(written):
    text = printed(written(overrides=["seeds=7"]))
    assert (
        "interval between order statistics of the median, which covers at least 95 % (98.4 % with 7"
        in text
    )
    gelu = line_of("gelu_tanh", text)
    assert gelu.count("0.00058 / 0.0023") == 1  # 2/3432, times 4 comparisons
    # Always 0.2 and 2 points apart from relu.
    assert "−2.00 [−2.00, −2.00] / −2.00" in gelu
    assert "−0.200 / −0.200" in gelu
    assert "1.00 [0.93, 1.00]" in gelu
    assert (
        "No p for val loss (best): these values are the best of several epochs or settings" in text
    )
    assert "exact where both sides have the same distribution" in text
    assert "Primary: 4 comparisons of test error % (last) with relu." in text


def test_a_diverged_run_leaves_the_probability_and_a_note(written):
    loaded = written(
        overrides=["seeds=7"],
        diverge=lambda r: r.point["model.activation"] == "elu" and r.seed == 1,
    )
    text = printed(loaded)
    elu = line_of("elu", text)
    assert elu.count("0.044 / 0.089") == 1
    assert "−1.00 / −1.00" in elu
    assert (
        "Where a run failed (it diverged, or is at chance), p belongs to the probability of being "
        "better, and the mean"
    ) in text
    gelu = line_of("gelu_tanh", text)
    assert gelu.count("0.00058 / 0.0023") == 1  # the family is as large as without it


def test_where_most_pairs_diverged_the_median_difference_says_which_side(written):
    for who, sign in (("gelu_tanh", "+"), ("relu", "−")):
        text = printed(
            written(
                overrides=["seeds=6"], diverge=lambda r, who=who: r.point["model.activation"] == who
            )
        )
        gelu = line_of("gelu_tanh", text)
        assert f"- / {sign}∞" in gelu


def test_without_a_choice_the_metric_of_selection_is_tested_too(written):
    text = printed(written(edit={"lr: [1.0e-3, 1.0e-4]": "lr: [1.0e-3]"}, overrides=["seeds=7"]))
    gelu = line_of("gelu_tanh", text)
    # Times 4 primary comparisons, and as many secondary ones
    assert gelu.count("0.00058 / 0.0023") == 2
    assert "The other 4 are secondary, and corrected separately." in text
    assert "−0.200 [−0.200, −0.200] / −0.200" in gelu
    assert "No p" not in text


def test_a_published_sd_shows_mean_and_sd(written):
    text = printed(written(edit={"value: 0.35}": "value: 0.35, sd: 0.02}"}))
    relu = line_of("relu", text)
    # Of 0.40 and 0.41: mean 0.405, sd 0.01/√2.
    assert cells(relu)[-2:] == ["0.405 [0.400, 0.410], 0.405 ± 0.00707", "0.350 ± 0.0200 (+0.0550)"]
    assert "±: mean and standard deviation over runs (n - 1)." in text


def test_a_pipe_cuts_no_name(written, programs, tmp_path, monkeypatch):
    monkeypatch.setattr(terminal, "PIPE", 120)
    name = "a_unit_with_a_name_that_is_far_longer_than_any_terminal_is_wide_" * 3
    loaded = written(activations=[f"some.module:{name}"])
    words = [
        programs / "printed_table.py",
        tmp_path / "units.yaml",
        f"some.module:{name}",
        loaded.root,
    ]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)
    assert name in done.stdout
    assert done.stdout == printed(loaded)
    assert "\x1b" not in done.stdout


def test_costs_stand_beside_the_accuracy(written):
    loaded = written()
    root, runs = loaded.root, {run.point["model.activation"]: run for run in reversed(loaded.runs)}
    of = {
        unit: {"compared": unit, "run": run.id, "point": dict(run.point)}
        for unit, run in runs.items()
    }
    cost = {**COST, **of["gelu_tanh"], "seconds_per_update": 0.0021, "bytes_kept": 10}
    base = {**cost, **of["relu"], "seconds_per_update": 0.0021 / 1.25, "bytes_kept": 5}
    (root / "cost.json").write_text(json.dumps([cost, base]))
    text = printed(written(skip=lambda run: True))
    assert "/ relu" in text
    gelu = line_of("gelu_tanh", text)
    assert cells(gelu)[-3:] == ["2.10", "1.25", "2.00"]
    assert "measured on this machine, the fastest of 25 rounds in turns." in text
    # Without relu nothing is relative.
    (root / "cost.json").write_text(json.dumps([{**base, **of["elu"]}, cost]))
    head, _ = tables.grid(table_of(results.load(StudyFolder(written().study, root))))
    assert not any("\n/ " in name for name in head)


@pytest.mark.parametrize(
    ("load", "share", "said"),
    [
        (1.5, {"cpu_per_second": 0.99}, ""),
        (9.0, {"cpu_per_second": 0.99}, "load 9.0 on 2 cores, 0.99 s of processor time a second"),
        (1.0, {"cpu_per_second": 0.3}, "load 1.0 on 2 cores, 0.30 s of processor time a second"),
        (7.0, {}, "load 7.0 on 2 cores"),
    ],
)
def test_a_busy_machine_is_said(load, share, said):
    assert busy([{"machine": {"load": load, "cores": 2, **share}}]) == said


def test_the_spread_of_costs_is_said(written):
    """By the reference that is asked for."""
    loaded = written()
    runs = {run.point["model.activation"]: run for run in reversed(loaded.runs)}
    parts = {"gelu_tanh": [1.25, 1.5], "elu": [1.1, 1.1], "relu": [1.0, 1.0]}

    def said(**changes: object) -> str:
        costs = [
            {
                **COST,
                "run": run.id,
                "point": dict(run.point),
                "seconds_per_update": min(parts[unit]),
            }
            | {"seconds_in_parts": parts[unit], **changes}
            for unit, run in runs.items()
        ]
        (loaded.root / "cost.json").write_text(json.dumps(costs))
        return next(
            note
            for note in table_of(results.load(StudyFolder(loaded.study, loaded.root))).remarks
            if "Time of" in note
        )

    quiet = said()
    assert "this machine, the fastest of 25 rounds in turns." in quiet
    assert (
        "In fifths of the rounds time / relu lies between 1.25 and 1.50 for gelu_tanh, and" in quiet
    )
    assert "this machine, in one round, which can be far off." in said(rounds=1)


def test_units_that_would_print_alike_print_their_files(written, tmp_path):
    loaded = written(
        activations=["./mine.py:relu", {"name": "./mine.py:elu", "alpha": 2}, "./mine.py:bent"]
    )
    head, body = tables.grid(table_of(loaded))
    units = ["gelu_tanh", "relu", "elu", f"{Path.cwd()}/mine.py:relu", "elu(alpha=2)", "bent"]
    assert sorted({line[0] for line in body}) == sorted(units)
    assert not [name for name in head if "published" in name and name.startswith("test error")]
    column = head.index("val loss (best)\npublished (ours - it)")
    assert [line[0] for line in body if line[column] != "-"] == ["relu"]
    rows = csv.DictReader(io.StringIO(table_files.to_csv(loaded)))
    assert {row["model.activation"] for row in rows} == set(units)


@pytest.mark.parametrize(
    ("value", "column", "options", "text"),
    [
        (0.0789, Column("e", percent=True), {}, "7.89"),
        (-0.001, Column("e", percent=True), {"signed": True}, "−0.10"),
        (0.00844, Column("e"), {}, "0.00844"),
        (0.12, Column("e"), {}, "0.120"),
        (150.0, Column("e"), {}, "150"),
        (7.666, Column("e", "best_epoch", True), {}, "7.7"),
        (math.inf, Column("e"), {}, "diverged"),
        (math.inf, Column("e"), {"diverged": False}, "∞"),  # of runs that ended well
        (-math.inf, Column("e"), {"diverged": False}, "−∞"),
        (math.inf, Column("e", "below 0.1"), {}, "never"),
        (math.inf, Column("e", "below 0.1"), {"diverged": False}, "never"),
        (None, Column("e"), {}, "-"),
    ],
)
def test_numbers_are_printed_as_their_column_says(value, column, options, text):
    assert tables.number(value, column, **options) == text


def test_the_values_hold_what_settings_were_chosen_by(written):
    loaded = written(edit=lambda text: text.replace("  - {metric: val/loss, at: best}\n", "", 1))
    assert [column.key for column in loaded.columns] == ["test/error@last"]
    values = pd.read_csv(io.StringIO(table_files.to_csv(loaded)))
    assert list(values.columns[-3:]) == ["test/error@last", "val/loss@best", "run"]
    medians = values.groupby(["model.activation", "model.dropout", "model.lr"])[
        "val/loss@best"
    ].median()
    lowest = medians.groupby(level=[0, 1]).idxmin()
    chosen = values[values["chosen"] == 1].groupby(["model.activation", "model.dropout"])[
        "model.lr"
    ]
    assert {key: setting[2] for key, setting in lowest.items()} == dict(
        chosen.unique().str[0].items()
    )
    left_out = (
        "select: {tune: [model.lr], metric: val/loss}\n",
        "  - {metric: val/loss, at: best}\n",
    )
    untuned = written(edit=lambda text: text.replace(left_out[0], "").replace(left_out[1], "", 1))
    assert next(csv.reader(io.StringIO(table_files.to_csv(untuned))))[-2:] == [
        "test/error@last",
        "run",
    ]


def test_files_hold_all_digits_and_fractions(written, tmp_path):
    loaded = written(diverge=lambda r: r.point["model.activation"] == "elu" and r.seed == 1)
    paths = table_files.write(table_of(loaded), loaded, tmp_path / "out")
    assert [path.name for path in paths] == ["table.md", "table.json", "values.csv"]
    markdown, record = paths[0].read_text(), json.loads(paths[1].read_text())
    table = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len(table) == 2 + 6
    assert len({line.count("|") for line in table}) == 1
    assert (record["planned"], record["finished"], record["diverged"], record["seeds"]) == (
        24,
        20,
        4,
        [0, 1],
    )
    assert set(record["versions"]) == {
        "actlab",
        "torch",
        "pytorch-lightning",
        "torchmetrics",
        "python",
    }
    assert len(record["hardware"]) == 1
    relu = next(
        row
        for row in record["rows"]
        if row["point"] == {"model.activation": "relu", "model.dropout": 0.0}
    )
    assert relu["columns"][0]["values"] == pytest.approx({"0": 0.04, "1": 0.041})
    assert relu["columns"][1]["published"] == 0.35
    assert relu["columns"][1]["interval"]["coverage"] == 0.5
    gelu = record["rows"][0]["columns"][0]
    assert gelu["paired"] == {
        "mean": pytest.approx(-0.02),
        "low": None,
        "high": None,
        "median": pytest.approx(-0.02),
        "p": None,
        "correlation": None,
        "sd": pytest.approx(0, abs=1e-12),
    }
    elu = next(row for row in record["rows"] if row["point"]["model.activation"] == "elu")
    assert elu["columns"][0]["values"]["1"] is None
    rows = list(csv.DictReader(io.StringIO(paths[2].read_text())))
    assert len(rows) == 24
    assert {row["test/error@last"] for row in rows if row["status"] == "diverged"} == {"inf"}
    assert sum(row["chosen"] == "1" for row in rows) == 12


def test_all_digits_of_grid_values_are_written(written, tmp_path):
    grid = lambda text: text.replace("[1.0e-3, 1.0e-4]", "[0.00031622776601683794, 1.0e-4]")  # noqa: E731
    _, table, values = table_files.write(
        table_of(written(edit=grid)), written(edit=grid), tmp_path / "out"
    )
    record = json.loads(table.read_text(), parse_constant=pytest.fail)
    assert {row["chosen"]["model.lr"] for row in record["rows"]} <= {0.00031622776601683794, 1e-4}
    rows = list(csv.DictReader(io.StringIO(values.read_text())))
    assert {row["model.lr"] for row in rows} == {"0.00031622776601683794", "0.0001"}


def test_a_metric_that_was_not_recorded_is_named_below_the_table(written):
    loaded = written(edit={"metric: test/error, at: last": "metric: test/err"})
    assert not any("test err" in name for name in tables.grid(table_of(loaded))[0])
    assert any("did you mean 'test/error'" in note for note in table_of(loaded).footnotes)


@pytest.mark.usefixtures("undrawn")
def test_a_column_without_values_is_hidden_everywhere(written, tmp_path):
    """Also where a value was published for it: the runs have four epochs."""
    column, value = "metric: val/loss, at: mean 5-50", "metric: val/loss, at: best, value: 0.35}"
    found = written(
        edit={
            "  - {metric: val/loss, at: best}\n": (
                f"  - {{metric: val/loss, at: best}}\n  - {{{column}}}\n"
            ),
            value: f"{value}\n    - {{where: {{model.activation: relu}}, {column}, value: 0.3}}",
        }
    )
    (page,) = [
        path
        for path in output.write([found], table_of(found), tmp_path, html=True)
        if path.suffix == ".html"
    ]
    heads = [
        printed(found).partition("Verdict")[0],
        table_files.to_markdown(table_of(found)).partition("## Verdict")[0],
        table_files.to_latex(table_of(found)),
        page.read_text().partition("Medians over seeds")[2].partition('class="remarks"')[0],
    ]
    assert ["val loss (best)" in text for text in heads] == [True] * 4
    assert ["5-50" in text for text in heads] == [False] * 4
    assert json.loads(table_of(found).to_json())["rows"][0]["columns"][2]["at"] == "mean 5-50"
    assert "Not measured: val loss (mean of epochs 5-50) for 12 of 12 runs" in printed(found)


def test_keys_that_end_alike_have_columns_of_their_own(written):
    loaded = written(edit={"model.dropout: [0.0, 0.5]": "model.dropout: [0.0]\n  x.dropout: [1]"})
    head, body = tables.grid(table_of(loaded))
    assert head[:3] == ["activation", "model.dropout", "x.dropout"]
    assert body[0][:3] == ["gelu_tanh", "0", "1"]
    # As the column of runs
    head, body = tables.grid(table_of(written(edit={"model.dropout": "model.runs"})))
    assert {"model.runs", "runs"} <= {*head}
    assert {line[head.index("model.runs")] for line in body} == {"0", "0.5"}


def test_a_column_under_a_condition_says_so_and_where_it_was_not_measured(written, tmp_path):
    column = "  - {metric: noise/test/error, condition: noise=1}\n"
    loaded = written(edit=lambda text: text.replace("published:", column + "published:", 1))
    assert "Not measured: noise test error (noise=1, last) for 12 of 12 runs." in printed(loaded)
    for run in loaded.runs:
        if run.seed == 0:
            file = probe_files.file_of(loaded.root / run.id, "noise", [])
            probe_files.write(file, [Row(4.0, 4, "test", "error", "noise=1", 0.25)])
    probed = results.load(StudyFolder(loaded.study, loaded.root))
    gap = (
        r"Not measured: noise test error \(noise=1, last\) for 6 of 12 runs \((.*) and 3 "
        r"more\): the medians"
    )
    (lacking,) = re.findall(gap, printed(probed))
    shown = {run.id for run in probed.runs if run.seed == 1}
    assert len(set(lacking.split(", ")) & shown) == 3
    head, body = tables.grid(table_of(probed))
    assert body[0][head.index("noise test error (noise=1, last)\nmedian")] == "0.250"
    _, record, values = (
        path.read_text() for path in table_files.write(table_of(probed), probed, tmp_path / "out")
    )
    cell = json.loads(record)["rows"][0]["columns"][2]
    assert (cell["metric"], cell["condition"], cell["values"]) == (
        "noise/test/error",
        "noise=1",
        {"0": 0.25},
    )
    first = next(csv.DictReader(io.StringIO(values)))
    assert first["noise/test/error[noise=1]@last"] == "0.25"
