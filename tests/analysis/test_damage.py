"""Damaged files of a study: named with their remedy, never a traceback, never another result."""

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from actlab.analysis import results
from actlab.storage import checkpoints
from actlab.storage.files import DamagedError, read_json, write_sealed
from actlab.studies import probe_files
from actlab.studies.folders import Row, RunFolder
from damaging import WAYS, damaged
from written_runs import curves_of, study, write


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("name", ["result.json", "metrics.parquet", "config.yaml"])
def test_a_damaged_run_is_named_and_the_others_stay_usable(tmp_path: Path, name: str, how: str) -> None:
    plan, source = study(), random.Random(how + name)
    for run in plan.runs():
        write(tmp_path / "whole", run, curves_of(run))
    whole = results.load(plan, tmp_path / "whole")
    for number in range(12):
        root = tmp_path / str(number)
        shutil.copytree(tmp_path / "whole", root)
        run = plan.runs()[number % 8]
        file = root / run.id / name
        file.write_bytes(damaged(file.read_bytes(), how, source))
        loaded = results.load(plan, root)
        (line,) = loaded.left_out
        assert str(root / run.id) in line
        assert "run the study again" in line
        assert loaded.results == {k: v for k, v in whole.results.items() if k != run.id}
        assert loaded.missing == 1


def test_damaged_costs_are_named(tmp_path: Path) -> None:
    run = study().runs()[0]
    (tmp_path / run.id).mkdir()
    entry = {"run": run.id, "point": {}, "seconds_per_update": 0.5, "bytes_kept": 3}
    write_sealed(tmp_path / "cost.json", [entry])
    assert results.load(study(), tmp_path).costs == [entry]
    (tmp_path / "cost.json").write_text('{"digest": "x", "content": []}')
    loaded = results.load(study(), tmp_path)
    assert loaded.costs == []
    assert "cost.json is damaged" in loaded.left_out[0]


def test_what_never_ends_is_not_read(tmp_path: Path) -> None:
    plan = study()
    run = plan.runs()[0]
    write(tmp_path, run, curves_of(run))
    for file in (tmp_path / "cost.json", tmp_path / run.id / "result.json"):
        file.unlink(missing_ok=True)
        os.mkfifo(file)
    assert all("not a regular file" in line for line in results.load(plan, tmp_path).left_out)
    os.mkfifo(tmp_path / "x.ckpt")
    with pytest.raises(DamagedError, match="not a regular file"):
        checkpoints.read(tmp_path / "x.ckpt")


@pytest.mark.parametrize("content", ["[]", "null", "3", "{}", '{"status": "finished"}'])
def test_a_result_of_another_kind_is_named(tmp_path: Path, content: str) -> None:
    plan = study()
    run = plan.runs()[0]
    write(tmp_path, run, curves_of(run))
    (tmp_path / run.id / "result.json").write_text(content)
    assert "result.json is damaged" in results.load(plan, tmp_path).left_out[0]


def test_rows_of_a_probe_are_those_of_its_run(tmp_path: Path) -> None:
    one, other = study().runs()[:2]
    rows = [Row(1.0, 1, "test", "loss", "noise=1", 0.25)]
    for run in (one, other):
        write(tmp_path, run, curves_of(run))
        probe_files.write(probe_files.file_of(tmp_path / run.id, "noise"), rows, ["asked"], [])
    assert not results.load(study(), tmp_path).left_out
    for name in ("noise.parquet", "noise.json"):
        shutil.copy(tmp_path / one.id / "probes" / name, tmp_path / other.id / "probes" / name)
    (line,) = results.load(study(), tmp_path).left_out
    assert f"{other.id}/probes/noise.parquet is damaged" in line


@pytest.mark.parametrize("content", [{"a": 1, "b": [1.5, None]}, [1, 2], []])
def test_sealed_files_hold_what_was_written(tmp_path: Path, content: Any) -> None:
    write_sealed(tmp_path / "x.json", content)
    assert read_json(tmp_path / "x.json", type(content), "") == content


def test_a_result_that_names_files_elsewhere_is_refused(tmp_path: Path) -> None:
    plan = study()
    run = plan.runs()[0]
    write(tmp_path, run, curves_of(run))
    folder = RunFolder(tmp_path, run)
    write_sealed(folder.path / "result.json", {**folder.result(), "files": {"../../secret": "x"}})
    with pytest.raises(DamagedError, match="not a file of a run"):
        folder.result()
