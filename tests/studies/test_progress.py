"""What is shown while a study runs."""

import re

import pytest

from actlab.engines import progress
from actlab.engines.progress import Display
from actlab.runtime import signals
from actlab.studies.plan import Run, Selection
from actlab.studies.points import Point
from actlab.studies.rows import Row
from actlab.studies.run_folder import RunFolder
from actlab.studies.states import DIVERGED, FINISHED
from tiny_study import STUDY

RUNS = [Run(f"run{i}", Point({}), i, {}) for i in range(4)]
BEST = {"min": ("0.2", "run2"), "max": ("0.9", "run0")}


@pytest.fixture
def every_line(monkeypatch):
    """Show a line for each report of progress."""
    monkeypatch.setattr(progress, "LINE_EVERY", -1)


def display_of(root, runs=RUNS, mode="min", verbose=True):
    return Display(runs, root, Selection(metric="val/error", mode=mode), verbose)


def finish(root, run, values, status=FINISHED):
    folder = RunFolder(root, run)
    folder.open()
    rows = [Row(epoch, epoch, "val", "error", "", value) for epoch, value in enumerate(values, 1)]
    folder.finish(status, rows, last_good_epoch=len(values))


@pytest.mark.parametrize("mode", ["min", "max"])
def test_lines_say_the_best_value_so_far(tmp_path, capsys, every_line, mode):
    with display_of(tmp_path, mode=mode) as display:
        display.update(RUNS[0], 1.0)  # its result comes a moment later
        assert "best" not in capsys.readouterr().out
        finish(tmp_path, RUNS[0], [0.9, 0.3, 0.4])
        display.update(RUNS[1], 0.5)
        value = "0.3" if mode == "min" else "0.9"
        assert f"1 of 4 runs, 0 s; best val/error {value}: run0" in capsys.readouterr().out
        finish(tmp_path, RUNS[1], [0.01, 0.99], DIVERGED)  # does not count
        finish(tmp_path, RUNS[2], [0.6, 0.2])
        display.update(RUNS[1], 1.0)
        display.update(RUNS[2], 1.0)
        assert (
            "best val/error {}: {}; now run".format(*BEST[mode])
            in capsys.readouterr().out.splitlines()[-1]
        )
        finish(tmp_path, RUNS[3], [0.5])
        (tmp_path / "run3/metrics.parquet").write_bytes(b"damaged")
        display.update(RUNS[3], 1.0)
        assert (
            "best val/error {}: {}; now run".format(*BEST[mode])
            in capsys.readouterr().out.splitlines()[-1]
        )


def test_a_short_line_has_runs_and_times_only(tmp_path, capsys, every_line, clock):
    """The best value and the latest run are shown with ``--verbose``."""
    with display_of(tmp_path, verbose=False) as display:
        finish(tmp_path, RUNS[1], [0.5])
        display.update(RUNS[1], 1.0)
        for number in range(7):
            clock[0] = 60.0 + 2 * number
            display.update(RUNS[0], number / 8)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1 of 4 runs, 0 s"
    assert re.fullmatch(r"1 of 4 runs, 72 s, about \d+ (s|min) left", lines[-1])


def test_the_best_of_last_values_where_a_study_selects_by_them(tmp_path, capsys, every_line):
    with Display(RUNS, tmp_path, Selection(metric="val/error", at="last"), verbose=True) as display:
        finish(tmp_path, RUNS[0], [0.1, 0.6])
        finish(tmp_path, RUNS[1], [0.7, 0.4])
        display.update(RUNS[1], 1.0)
    assert "; best val/error 0.4: run1" in capsys.readouterr().out


@pytest.fixture
def clock(monkeypatch):
    """A clock that tests set."""
    now = [0.0]
    monkeypatch.setattr("actlab.engines.progress.time.monotonic", lambda: now[0])
    return now


def lines_of(stack, shown, clock, runs=RUNS):
    """Report the progress of runs at times ``shown``, ``(time, fraction)``, each run in turn."""
    with stack as display:
        for clock[0], fraction in shown:
            for run in runs:
                display.update(run, fraction)


def test_the_time_left_is_that_of_training_not_of_the_start(tmp_path, capsys, every_line, clock):
    shown = [(60 + 2 * n, n / 8) for n in range(7)]  # a minute passes before the first batch
    lines_of(display_of(tmp_path), shown, clock, RUNS[:1])
    lines = capsys.readouterr().out.splitlines()
    assert ["left" in line for line in lines] == [False] + [True] * 5
    assert ["about 60 s left" in lines[1], "about 50 s left" in lines[5]] == [True, True]


def test_the_members_of_a_stack_report_at_one_time(tmp_path, capsys, every_line, clock):
    """The first of two stacks of 15 runs has run for 4 s at 1 % a second: both take 200 s."""
    runs = [Run(f"run{i}", Point({}), i, {}) for i in range(30)]
    lines_of(
        display_of(tmp_path, runs), [(time, time / 100) for time in range(5)], clock, runs[:15]
    )
    assert "about 3 min left" in capsys.readouterr().out.splitlines()[-1]


def test_epochs_that_this_start_did_not_train_are_no_gain(tmp_path, capsys, every_line, clock):
    """Two runs of 16 epochs resume after eight; one trains an epoch in five minutes, one fails."""
    runs = [
        Run(name, Point({}), 0, {"trainer": {"max_epochs": 16}}) for name in ("trained", "failed")
    ]
    with display_of(tmp_path, runs) as display:
        for epoch in range(8, 12):
            clock[0] = 300.0 * epoch
            display.update(runs[0], epoch / 16)
        display.update(runs[1], 0.5)
        display.update(runs[1], 1.0)
        clock[0] = 300.0 * 12
        display.update(runs[0], 12 / 16)
    assert "1 of 2 runs, 1 h 00 min, about 20 min left" in capsys.readouterr().out.splitlines()[-1]


def test_lines_come_without_progress_too(tmp_path, capsys, clock):
    with display_of(tmp_path) as display:
        for clock[0] in range(31):
            signals.check()
        display.update(RUNS[0], 0.25)
        for clock[0] in range(31, 45):
            signals.check()
    assert capsys.readouterr().out.splitlines() == [
        "0 of 4 runs, 11 s",
        "0 of 4 runs, 22 s",
        "0 of 4 runs, 33 s; now run0, 25 %",
        "0 of 4 runs, 44 s; now run0, 25 %",
    ]


def test_progress_within_an_epoch_is_shown(succeed, tmp_path, monkeypatch, every_line):
    """A run of one epoch shows its fraction, in this process and from a worker."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signals, "EVERY", 0.0)
    text = STUDY.replace("max_epochs: 3", "max_epochs: 1").replace(
        "batch_size: 500", "batch_size: 100"
    )
    (tmp_path / "tiny.yaml").write_text(text)
    words = [
        "--set=model.activation=relu",
        "--set=model.optimizer.lr=0.01",
        "--set=model.network.dropout=0.0",
    ]
    outcome = succeed(
        "study", "run", "tiny.yaml", *words, "--set=seeds=1", "--jobs", "0", "--verbose"
    )
    shown = [
        float(text) for text in re.findall(r"now relu-\S+, epoch ([\d.]+) of 1\n", outcome.out)
    ]
    assert len({fraction for fraction in shown if 0 < fraction < 1}) > 5
    assert shown == sorted(shown)
    assert shown[-1] == 1


def test_runs_that_fail_are_counted_apart(tmp_path, capsys, every_line):
    with display_of(tmp_path) as display:
        for run in RUNS[:2]:
            RunFolder(tmp_path, run).fail("ValueError: no")
            display.update(run, 1.0)
        finish(tmp_path, RUNS[2], [0.5])
        display.update(RUNS[2], 1.0)
    lines = [line.partition(",")[0] for line in capsys.readouterr().out.splitlines()]
    assert lines == [f"{n} of 4 runs ({min(n, 2)} failed)" for n in (1, 2, 3)]
