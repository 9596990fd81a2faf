"""What is shown while a study runs."""

import re

import pytest

from actlab.engines import progress
from actlab.engines.progress import Display
from actlab.runtime import signals
from actlab.studies.folders import DIVERGED, FINISHED, Row, RunFolder
from actlab.studies.plan import Run, Selection
from tiny_study import STUDY

RUNS = [Run(f"run{i}", {}, i, {}) for i in range(4)]
BEST = {"min": ("0.2", "run2"), "max": ("0.9", "run0")}


def finish(root, run, values, status=FINISHED):
    folder = RunFolder(root, run)
    folder.open()
    rows = [Row(epoch, epoch, "val", "error", "", value) for epoch, value in enumerate(values, 1)]
    folder.finish(status, rows, last_good_epoch=len(values))


@pytest.mark.parametrize("mode", ["min", "max"])
def test_lines_say_the_best_value_so_far(tmp_path, capsys, monkeypatch, mode):
    monkeypatch.setattr(progress, "LINE_EVERY", -1)
    with Display(RUNS, tmp_path, Selection(metric="val/error", mode=mode)) as display:
        display(RUNS[0], 1.0)  # its result comes a moment later
        assert "best" not in capsys.readouterr().out
        finish(tmp_path, RUNS[0], [0.9, 0.3, 0.4])
        display(RUNS[1], 0.5)
        value = "0.3" if mode == "min" else "0.9"
        assert f"left; best val/error {value}: run0" in capsys.readouterr().out
        finish(tmp_path, RUNS[1], [0.01, 0.99], DIVERGED)  # does not count
        finish(tmp_path, RUNS[2], [0.6, 0.2])
        display(RUNS[1], 1.0)
        display(RUNS[2], 1.0)
        assert "best val/error {}: {}; now run".format(*BEST[mode]) in capsys.readouterr().out.splitlines()[-1]
        finish(tmp_path, RUNS[3], [0.5])
        (tmp_path / "run3/metrics.parquet").write_bytes(b"damaged")
        display(RUNS[3], 1.0)
        assert "best val/error {}: {}; now run".format(*BEST[mode]) in capsys.readouterr().out.splitlines()[-1]


@pytest.fixture
def clock(monkeypatch):
    """A clock that tests set."""
    now = [0.0]
    monkeypatch.setattr("actlab.engines.progress.time.monotonic", lambda: now[0])
    return now


def test_the_time_left_is_that_of_training_not_of_the_start(tmp_path, capsys, monkeypatch, clock):
    monkeypatch.setattr(progress, "LINE_EVERY", -1)
    with Display(RUNS, tmp_path, Selection(metric="val/error")) as display:
        for clock[0], fraction in ((60.0, 0.25), (62.0, 0.5), (64.0, 0.75)):  # a minute passes before the first
            display(RUNS[0], fraction)
    lines = capsys.readouterr().out.splitlines()
    assert "left" not in lines[0]
    assert ["about 28 s left" in lines[1], "about 26 s left" in lines[2]] == [True, True]


def test_the_time_left_follows_the_speed_of_the_last_minute(tmp_path, capsys, monkeypatch, clock):
    """The machine becomes four times as fast: after two minutes the mean since the start is still far off."""
    monkeypatch.setattr(progress, "LINE_EVERY", -1)
    runs, done = RUNS[:2], 0.0
    with Display(runs, tmp_path, Selection(metric="val/error")) as display:
        for clock[0] in range(600):
            done += 0.0005 if clock[0] < 480 else 0.002
            display(runs[0], done)
    left = (2 - done) / 0.002
    assert f"about {left / 60:.0f} min left" in capsys.readouterr().out.splitlines()[-1]


def test_lines_come_without_progress_too(tmp_path, capsys, clock):
    with Display(RUNS, tmp_path, Selection(metric="val/error")) as display:
        for clock[0] in range(31):
            signals.check()
        display(RUNS[0], 0.25)
        for clock[0] in range(31, 45):
            signals.check()
    assert capsys.readouterr().out.splitlines() == [
        "0 of 4 runs done, 11 s elapsed",
        "0 of 4 runs done, 22 s elapsed",
        "0 of 4 runs done, 33 s elapsed; now run0, 25 %",
        "0 of 4 runs done, 44 s elapsed; now run0, 25 %",
    ]


def test_progress_within_an_epoch_is_shown(cli, tmp_path, monkeypatch):
    """A run of one epoch shows its fraction, in this process and from a worker."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(progress, "LINE_EVERY", -1)
    monkeypatch.setattr(signals, "EVERY", 0.0)
    text = STUDY.replace("max_epochs: 3", "max_epochs: 1").replace("batch_size: 500", "batch_size: 100")
    (tmp_path / "tiny.yaml").write_text(text)
    words = ["--set=model.activation=relu", "--set=model.optimizer.lr=0.01", "--set=model.network.dropout=0.0"]
    outcome = cli("study", "run", "tiny.yaml", *words, "--set=seeds=1", "--jobs", "0")
    assert outcome.code == 0, outcome.err
    shown = [float(text) for text in re.findall(r"now relu-\S+, epoch ([\d.]+) of 1\n", outcome.out)]
    assert len({fraction for fraction in shown if 0 < fraction < 1}) > 5
    assert shown == sorted(shown)
    assert shown[-1] == 1


def test_phases_are_lines_where_there_is_no_terminal(capsys):
    with progress.phase("measuring"):
        assert capsys.readouterr().out == "measuring …\n"


def test_a_message_looks_only_at_the_runs_that_have_just_ended(tmp_path, monkeypatch):
    looked = []
    monkeypatch.setattr(progress, "RunFolder", lambda root, run: looked.append(run.id) or RunFolder(root, run))
    runs = [Run(f"run{i}", {}, i, {}) for i in range(30)]
    with Display(runs, tmp_path, Selection(metric="val/error")) as display:
        for run in runs:
            for fraction in (0.1, 0.3, 0.7):
                display(run, fraction)
        for run in runs:
            finish(tmp_path, run, [0.5])
            display(run, 1.0)
    assert looked == [run.id for run in runs]
    assert display.bar.tasks[0].completed == len(runs)
