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
        assert capsys.readouterr().out.endswith("best val/error {}: {}\n".format(*BEST[mode]))
        finish(tmp_path, RUNS[3], [0.5])
        (tmp_path / "run3/metrics.parquet").write_bytes(b"damaged")
        display(RUNS[3], 1.0)
        assert capsys.readouterr().out.endswith("best val/error {}: {}\n".format(*BEST[mode]))
