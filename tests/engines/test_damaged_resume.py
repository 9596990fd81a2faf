"""What a killed study has left may be damaged: the run is named with its remedy, the others are trained."""

import contextlib
import random
import shutil

import pytest
import torch
from tiny_study import KilledError, execute, kill_after, load, metrics, result

from actlab import checkpoints
from actlab.engines.folders import Row, RunFolder
from actlab.errors import ActlabError
from actlab.files import DamagedError
from damaging import WAYS, damaged


@pytest.fixture(params=["sequential", "stacked"], scope="module")
def killed_once(request, tmp_path_factory):
    """What ``killed`` copies."""
    stacked, tmp_path = request.param == "stacked", tmp_path_factory.mktemp(request.param)
    runs = load(
        tmp_path, overrides=["model.activation=relu", "model.network.dropout=0.0", "model.optimizer.lr=0.01"]
    ).runs()
    execute(runs, tmp_path / "straight", stacked)
    with pytest.raises(KilledError):
        execute(runs, tmp_path / "killed", stacked, kill_after(4 if stacked else 2))
    return runs, tmp_path, stacked


@pytest.fixture
def killed(killed_once, tmp_path):
    """Two runs, killed in their third epoch; the folder of those trained straight; whether they are a stack."""
    runs, folder, stacked = killed_once
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return runs, tmp_path, stacked


def assert_named_or_as_before(runs, root, straight):
    """A damaged run has failed with a remedy, which helps; the other is what it would have been."""
    for run in runs:
        folder = RunFolder(root, run)
        if not folder.finished:
            assert "damaged" in folder.failure or "rows" in folder.failure or "checkpoint" in folder.failure
            assert f"delete {root}" in folder.failure
        else:
            assert metrics(root, run).equals(metrics(straight, run))


@pytest.mark.parametrize("name", ["metrics.jsonl", "last.ckpt"])
def test_a_damaged_file_is_named_and_its_remedy_helps(killed, name):
    runs, folder, stacked = killed
    source = random.Random(name)
    for way in WAYS:
        root = folder / way
        shutil.copytree(folder / "killed", root)
        place = root / "stacks" if stacked and name == "last.ckpt" else root / runs[0].id
        (file,) = place.rglob(name)
        file.write_bytes(damaged(file.read_bytes(), way, source))
        execute(runs, root, stacked)
        assert_named_or_as_before(runs, root, folder / "straight")
    lost = [run for run in runs if RunFolder(root, run).failure]
    assert lost
    shutil.rmtree(root / "stacks", ignore_errors=True)
    for run in lost:
        shutil.rmtree(root / run.id)
    execute(runs, root, stacked)
    for run in runs:
        assert metrics(root, run).equals(metrics(folder / "straight", run))
        assert result(root, run) == result(folder / "straight", run)


@pytest.mark.parametrize("what", ["rows", "folder"])
def test_a_run_that_has_lost_its_rows_is_named_or_trained_from_scratch(killed, what, capsys):
    """A stack trains its other members on as if nothing had happened."""
    runs, folder, stacked = killed
    root, straight = folder / "killed", folder / "straight"
    lost = RunFolder(root, runs[0])
    (lost.path / "metrics.jsonl").unlink() if what == "rows" else shutil.rmtree(lost.path)
    execute(runs, root, stacked)
    assert result(root, runs[1]) == result(straight, runs[1])
    assert metrics(root, runs[1]).equals(metrics(straight, runs[1]))
    if what == "rows" and not stacked:
        assert "has 0 rows" in lost.failure
        assert f"delete {lost.path} and run the study again" in lost.failure
        return
    alone, before = metrics(root, runs[0]), metrics(straight, runs[0])
    assert result(root, runs[0])["engine"] == "sequential"
    assert alone.drop(columns="value").equals(before.drop(columns="value"))
    assert alone["value"].to_numpy() == pytest.approx(before["value"].to_numpy(), rel=1e-4)
    assert (f"{runs[0].id} has lost its rows" in capsys.readouterr().out) == stacked


def test_damaged_rows_of_one_member_fail_that_member(killed):
    runs, folder, stacked = killed
    root = folder / "killed"
    path = root / runs[0].id / "metrics.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:20] + b"?" + whole[21:])
    execute(runs, root, stacked)
    assert "is damaged in line 1" in RunFolder(root, runs[0]).failure
    assert metrics(root, runs[1]).equals(metrics(folder / "straight", runs[1]))
    path.write_bytes(whole)  # of fewer epochs than the stack has by now
    execute(runs, root, stacked)
    assert metrics(root, runs[0]).equals(metrics(folder / "straight", runs[0]))


@pytest.mark.parametrize("stacked", [True, False])
@pytest.mark.parametrize("what", ["root", "folder"])
def test_a_folder_that_vanishes_in_training_is_one_line_and_the_next_start_works(tmp_path, stacked, what):
    runs = load(
        tmp_path, overrides=["model.activation=relu", "model.network.dropout=0.0", "model.optimizer.lr=0.01"]
    ).runs()
    root = tmp_path / "runs"

    def take_away(run, fraction):
        place = root if what == "root" else root / runs[0].id
        if fraction < 0.5 and place.exists():
            place.rename(tmp_path / "elsewhere")

    with pytest.raises(
        ActlabError, match=r"(was deleted, moved or emptied|No such file) .*the same command resumes"
    ):
        execute(runs, root, stacked, take_away)
    execute(runs, root, stacked)
    assert all(RunFolder(root, run).finished for run in runs)


def test_rows_and_checkpoints_of_another_run_are_not_taken_up(tmp_path):
    one, other = load(
        tmp_path, overrides=["model.activation=relu", "model.network.dropout=0.0", "seeds=1"]
    ).runs()
    for run in (one, other):
        with pytest.raises(KilledError):
            execute([run], tmp_path, stacked=False, progress=kill_after(1))
    shutil.copy(RunFolder(tmp_path, one).checkpoint, RunFolder(tmp_path, other).checkpoint)
    execute([other], tmp_path, stacked=False)
    assert f"it is of {one.id}" in RunFolder(tmp_path, other).failure
    shutil.copy(tmp_path / one.id / "metrics.jsonl", tmp_path / other.id / "metrics.jsonl")
    with pytest.raises(DamagedError, match="damaged in line 1"):
        RunFolder(tmp_path, other).rows()


def test_every_flipped_bit_of_a_checkpoint_shows(tmp_path):
    path = tmp_path / "x.ckpt"
    torch.save({"state_dict": {"w": torch.arange(50.0)}}, path)
    whole, content = checkpoints.read(path), path.read_bytes()
    source = random.Random(0)
    for at in source.sample(range(len(content)), 400):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << source.randrange(8)]) + content[at + 1 :])
        with contextlib.suppress(ActlabError):
            found = checkpoints.read(path)  # a bit that says nothing, such as the time of a part
            assert found.keys() == whole.keys()
            assert torch.equal(found["state_dict"]["w"], whole["state_dict"]["w"])


@pytest.mark.parametrize("way", WAYS)
def test_damaged_rows_are_never_read_as_others(tmp_path, way):
    (run, *_) = load(tmp_path).runs()
    folder, source = RunFolder(tmp_path, run), random.Random(way)
    folder.open()
    written = [Row(e / 3, e, "val", "loss", "", 1 / (e + 1)) for e in range(20)]
    folder.append(written)
    content = (folder.path / "metrics.jsonl").read_bytes()
    for _ in range(100):
        (folder.path / "metrics.jsonl").write_bytes(damaged(content, way, source))
        with contextlib.suppress(DamagedError):
            found = folder.rows()
            assert found == written[: len(found)] or way == "twice"
