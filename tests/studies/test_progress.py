"""What is shown while a study runs."""

import pytest

from actlab.engines import progress
from actlab.engines.progress import Display
from actlab.studies.folders import DIVERGED, FINISHED, Row, RunFolder
from actlab.studies.plan import Run, Selection

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


def test_the_time_left_is_that_of_epochs_not_of_the_start(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(progress, "LINE_EVERY", -1)
    clock = iter([0.0, 60.0, 62.0, 64.0])  # a minute passes before the first epoch has ended
    monkeypatch.setattr("actlab.engines.progress.time.monotonic", lambda: next(clock))
    with Display(RUNS, tmp_path, Selection(metric="val/error")) as display:
        for fraction in (0.25, 0.5, 0.75):
            display(RUNS[0], fraction)
    lines = capsys.readouterr().out.splitlines()
    assert "left" not in lines[0]
    assert ["about 28 s left" in lines[1], "about 26 s left" in lines[2]] == [True, True]


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
