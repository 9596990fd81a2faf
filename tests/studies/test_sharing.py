"""What one study has trained is not trained again by another."""

import io
import json
import os
import shutil

import pandas as pd
import pytest

from actlab.engines import reuse
from actlab.studies import reading
from fuzzing import within
from tiny_study import study_text, trained_once
from tolerances import counted

FIRST = study_text("model.activation: [relu, elu], model.network.dropout: [0.0, 0.5]", epochs=1)
SECOND = study_text("model.activation: [elu]", seeds="1-2", epochs=1)
PROBE = "probes: [{name: noise, class_path: actlab.probes.InputNoise, init_args: {strengths: [0.0, 1.0]}}]\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder in which the first study has been trained."""
    folder = tmp_path_factory.mktemp("shared")
    (folder / "second.yaml").write_text(SECOND + PROBE)
    return trained_once(folder, FIRST, "first").parent


@pytest.fixture
def second(trained, tmp_path, cli):
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    return lambda *words: cli("study", *words, tmp_path / "second.yaml", "--runs-dir", tmp_path / "runs")


def the(tmp_path, pattern):
    (found,) = tmp_path.glob(f"runs/{pattern}")
    return found


def test_a_run_of_another_study_is_taken_over(second, tmp_path):
    outcome = second("run")
    assert outcome.code == 0, outcome.err
    assert f"1 run copied from {tmp_path}/runs/first" in outcome.out
    assert "2 runs, 1 finished, 1 to run" in outcome.out
    ours, theirs = the(tmp_path, "second/elu-seed1-*"), the(tmp_path, "first/elu-dropout0-seed1-*")
    assert ours.name.rpartition("-")[2] == theirs.name.rpartition("-")[2]
    assert (ours / "metrics.parquet").read_bytes() == (theirs / "metrics.parquet").read_bytes()
    assert not (theirs / "probes").exists()
    rows = pd.read_parquet(ours / "probes").set_index(["metric", "condition"])["value"]
    final = pd.read_parquet(ours / "metrics.parquet")
    error = final[(final["split"] == "test") & (final["metric"] == "error")]["value"].iloc[-1]
    assert rows["error", "noise=0"] == counted(error)
    assert "2 runs, 2 finished, 0 to run" in second("run").out


@pytest.mark.parametrize("name", ["result.json", "metrics.parquet", "checkpoints/last.ckpt"])
def test_a_damaged_run_is_not_taken_over(trained, tmp_path, name):
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    runs, root = reading.load(str(tmp_path / "second.yaml")).runs(), tmp_path / "runs/second"
    path = the(tmp_path, "first/elu-dropout0-seed1-*") / name
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert reuse.take(runs, root) == {}
    assert not list(root.glob("*"))
    path.write_bytes(whole)
    assert reuse.take(runs, root) == {"first": 1}


def test_what_never_ends_beside_a_run_is_not_copied(trained, tmp_path):
    """A run is its known files; whatever else lies in its folder stays there."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    runs, root = reading.load(str(tmp_path / "second.yaml")).runs(), tmp_path / "runs/second"
    theirs = the(tmp_path, "first/elu-dropout0-seed1-*")
    (theirs / "checkpoints/zeros").symlink_to("/dev/zero")
    os.mkfifo(theirs / "pipe")
    with within():
        assert reuse.take(runs, root) == {"first": 1}
    ours = the(tmp_path, "second/elu-seed1-*")
    copied = sorted(path.name for path in ours.rglob("*") if path.is_file())
    assert copied == ["config.yaml", "last.ckpt", "metrics.parquet", "result.json"]


def test_what_is_shown_for_machines(trained, cli):
    words = ["study", "show", trained / "first.yaml", "--runs-dir", trained / "runs"]
    table = json.loads(cli(*words, "--json").out)
    assert [row["point"]["model.activation"] for row in table["rows"]] == ["relu", "relu", "elu", "elu"]
    values = pd.read_csv(io.StringIO(cli(*words, "--csv").out))
    assert len(values) == 8
    assert cli(*words, "--json", "--csv").code == 2
