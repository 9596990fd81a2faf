"""The file of what has ended saves reading runs, and never changes what is read."""

import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from actlab.analysis import comparison, results
from actlab.analysis.results import Results
from actlab.config import keys
from actlab.storage.files import write_sealed
from actlab.studies import ended, probe_files
from actlab.studies.folders import Row, RunFolder
from actlab.studies.plan import Probe, Selection, Study
from actlab.studies.states import states_of
from damaging import WAYS, damaged
from written_runs import ACT, DROP, curves_of, study, write

PLAN = study()


def settle(root: Path) -> None:
    """Make all files old enough to be kept."""
    for file in (path for path in root.rglob("*") if path.is_file()):
        os.utime(file, (1e9, 1e9))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which all runs have ended long ago, one with a probe; a load keeps what it reads."""
    monkeypatch.setattr(ended, "LEAST", 1)
    folder = tmp_path / "runs"
    for run in PLAN.runs():
        write(folder, run, curves_of(run))
    rows = [Row(1.0, 1, "test", "error", "noise=1", 0.25)]
    probe_files.write(probe_files.file_of(folder / PLAN.runs()[0].id, "noise"), rows, ["asked"], [])
    settle(folder)
    return folder


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the runs whose own ``result.json`` is read."""
    names: list[str] = []
    record = RunFolder.record.fget  # type: ignore[attr-defined]

    def counted(folder: RunFolder) -> Any:
        names.append(folder.run.id)
        return record(folder)

    monkeypatch.setattr(RunFolder, "record", property(counted))
    return names


def content(loaded: Results) -> Sequence[Any]:
    """All that was read: results, summaries, series, lines."""
    found = {run: recorded.summaries for run, recorded in loaded.series.runs.items()}
    values = {key: [part.tolist() for part in series] for key, series in loaded.series.items()}
    return loaded.results, found, [*loaded.series], values, loaded.left_out, loaded.conditions


def test_what_is_kept_equals_what_is_read(root: Path, read: list[str]) -> None:
    first = content(results.load(PLAN, root))
    assert len(read) == len(PLAN.runs())
    assert content(results.load(PLAN, root)) == first
    assert len(read) == len(PLAN.runs())
    assert ("noise/test/error", "noise=1") in first[1][PLAN.runs()[0].id]


def test_a_changed_run_is_read_again_and_the_others_are_not(root: Path, read: list[str]) -> None:
    results.load(PLAN, root)
    read.clear()
    run = PLAN.runs()[3]
    path = root / run.id / "result.json"
    write_sealed(path, {**RunFolder(root, run).record, "seconds": 77.0})
    read.clear()
    assert results.load(PLAN, root).results[run.id]["seconds"] == 77.0
    assert read == [run.id]
    shutil.rmtree(root / run.id)
    assert run.id not in results.load(PLAN, root).results


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("name", ["result.json", "metrics.parquet", "config.yaml"])
def test_damage_after_a_run_was_kept_is_named(root: Path, name: str, how: str) -> None:
    whole = results.load(PLAN, root)
    run = PLAN.runs()[5]
    file = root / run.id / name
    file.write_bytes(damaged(file.read_bytes(), how, random.Random(how + name)))
    loaded = results.load(PLAN, root)
    assert str(root / run.id) in loaded.left_out[0]
    assert loaded.results == {key: value for key, value in whole.results.items() if key != run.id}


@pytest.mark.parametrize("how", WAYS)
def test_a_damaged_file_is_ignored_and_written_again(root: Path, read: list[str], how: str) -> None:
    whole = content(results.load(PLAN, root))
    file, source = root / ended.FILE, random.Random(how)
    kept = file.read_bytes()
    for _ in range(20):
        file.write_bytes(damaged(kept, how, source))
        read.clear()
        assert content(results.load(PLAN, root)) == whole
        assert len(read) == len(PLAN.runs())
    read.clear()
    results.load(PLAN, root)
    assert read == []


def test_a_folder_that_cannot_be_written_to_is_read_all_the_same(root: Path) -> None:
    whole = content(results.load(PLAN, root))
    (root / ended.FILE).unlink()
    (root / ended.FILE).mkdir()
    assert content(results.load(PLAN, root)) == whole


def test_runs_of_this_moment_and_small_studies_are_not_kept(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in root.iterdir():
        (folder / "result.json").touch()
    results.load(PLAN, root)
    assert not (root / ended.FILE).exists()
    settle(root)
    monkeypatch.undo()
    results.load(PLAN, root)
    assert not (root / ended.FILE).exists()


def test_entries_of_other_seeds_stay_until_their_runs_are_deleted(root: Path, read: list[str]) -> None:
    results.load(study(seeds=(0,)), root)
    results.load(study(seeds=(1,)), root)
    read.clear()
    results.load(PLAN, root)
    assert read == []
    gone, changed = PLAN.runs()[0], PLAN.runs()[1]
    shutil.rmtree(root / gone.id)
    os.utime(root / changed.id / "result.json", (1e9 + 1, 1e9 + 1))
    results.load(study(seeds=(1,)), root)
    assert gone.id not in ended.read(root)
    assert len(ended.read(root)) == len(PLAN.runs()) - 1


def test_a_probe_that_now_asks_something_else_is_left_out(root: Path) -> None:
    results.load(PLAN, root)
    asking = study(probes=(Probe("noise", "actlab.probes.InputNoise"),))
    for _ in range(2):
        loaded = results.load(asking, root)
        assert ["1 runs" in line for line in loaded.left_out] == [True]
        assert "noise/test/error" not in loaded.conditions


def test_states_are_those_without_the_file(root: Path, read: list[str]) -> None:
    unfinished = PLAN.runs()[2]
    shutil.rmtree(root / unfinished.id)
    before = states_of(PLAN.runs(), root)
    results.load(PLAN, root)
    read.clear()
    assert states_of(PLAN.runs(), root) == before
    assert read == []
    assert before[unfinished.id].kind == "missing"


def large(points: int) -> Study:
    return study(
        grids=({ACT: ["gelu", "relu"], DROP: [0.001 * i for i in range(points)]},),
        select=Selection(),
        seeds=(0,),
    )


def test_a_table_looks_each_point_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    same = keys.same
    for module in (results, comparison):
        monkeypatch.setattr(module, "same", lambda *values: calls.append(1) or same(*values))
    counts = []
    for points in (10, 40):
        plan = large(points)
        run = plan.runs()[0]
        write(tmp_path, run, {"test/error": [0.5]})
        comparison.rows(results.load(plan, tmp_path))
        counts.append(len(calls))
        calls.clear()
    assert counts[1] <= 4 * counts[0]
