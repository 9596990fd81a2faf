"""Finished runs with the names of before 2026-11 get those of today, and nothing of them is trained again."""

import json

import pandas as pd
import pytest
import yaml

from actlab.config import identity
from actlab.storage.files import read_json, write_sealed
from actlab.studies import reading, renaming

STUDY = """\
base: mnist_classifier
set:
  data.sample: true
  trainer.max_epochs: 1
  trainer.limit_train_batches: 2
  model.network.hidden: [4]
grid:
  model.activation: [relu, ./mine.py:Unit]
  model.optimizer.lr: [1.0e-3, 1.0e-4]
seeds: 1
stages:
  - name: choose
    seeds: 1
  - name: compare
    seeds: 1
select: {tune: [model.optimizer.lr]}
probes:
  - name: noise
    class_path: actlab.probes.InputNoise
    init_args: {strengths: [0.5]}
"""
WORDS = ("mine.yaml", "--stage", "choose")


@pytest.fixture
def former(tmp_path, monkeypatch, cli):
    """A study whose runs were finished under names of before."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("import torch\nclass Unit(torch.nn.ReLU): ...")
    (tmp_path / "mine.yaml").write_text(STUDY)
    assert cli("study", "run", "mine.yaml").code == 0
    root = tmp_path / "runs/mine"
    names = {}
    for folder in [path.parent for path in root.glob("*/result.json")]:
        config = yaml.safe_load((folder / "config.yaml").read_text())
        names[folder.name] = f"{folder.name.rpartition('-')[0]}-{renaming.former_digest(config, {})}"
        result = read_json(folder / "result.json", dict, "")
        assert result.pop("identity").startswith(folder.name.rpartition("-")[2])
        write_sealed(folder / "result.json", {**result, "id": names[folder.name]})
    for old, new in names.items():
        (root / old).rename(root / new)
    renaming.rewrite(root, names)
    return root


def rows_of(root):
    """The rows of metrics and probes, by grid point and seed."""
    points = {path.parent: json.loads(path.read_text()) for path in sorted(root.glob("*/point.json"))}
    return {
        json.dumps([point["point"], point["seed"], file.name]): pd.read_parquet(file).to_csv()
        for folder, point in points.items()
        for file in (folder / "metrics.parquet", folder / "probes/noise.parquet")
        if file.exists()
    }


def test_runs_are_renamed_and_found(former, cli, capsys):
    before = rows_of(former)
    outcome = cli("study", "show", *WORDS)
    assert "python -m actlab.studies.renaming runs/mine" in outcome.err
    assert "python -m actlab.studies.renaming runs/mine" in cli("study", "run", "mine.yaml").err
    assert renaming.main([str(former)]) == 0
    assert f"{former}: " in capsys.readouterr().out
    assert rows_of(former) == before
    assert not renaming.former_in(former)
    outcome = cli("study", "run", "mine.yaml")
    assert (outcome.code, outcome.err) == (0, "")
    assert rows_of(former) == before
    times = [path.stat().st_mtime_ns for path in sorted(former.glob("*/metrics.parquet"))]
    assert cli("study", "run", "mine.yaml").code == 0
    assert [path.stat().st_mtime_ns for path in sorted(former.glob("*/metrics.parquet"))] == times


def test_runs_of_other_code_or_settings_are_left(former, cli, tmp_path, capsys):
    (tmp_path / "mine.py").write_text("import torch\nclass Unit(torch.nn.ELU): ...")
    own = [folder.name for folder in renaming.former_in(former) if folder.name.startswith("Unit")]
    assert own
    assert renaming.main([str(former)]) == 1
    left = [line for line in capsys.readouterr().out.splitlines() if "is not renamed: its settings" in line]
    assert [folder.name for folder in renaming.former_in(former)] == own
    assert len(left) == len(own)


def test_the_former_digest_is_that_of_finished_runs():
    """Of one that lies in ``results/gelu_mnist_noise``, and of a large file."""
    plan = reading.load("gelu_mnist_noise", overrides=["data.dataset=/nowhere"])
    (run,) = [run for run in plan.runs() if run.id.startswith("gelu_tanh-seed19-")]
    config = {**run.config, "data": {**run.config["data"]}}
    sources = {"/nowhere": "34204090411766ae"}
    assert identity.identity_of(identity.counted(config, sources), sources)[:8] == "e791ef80"


@pytest.mark.parametrize(
    ("size", "changed", "same"), [(80 * 2**20, 2**20 + 2**18, True), (3 * 2**20, 2**20, False)]
)
def test_the_former_digest_read_large_files_in_part(tmp_path, size, changed, same):
    config = {"data": {"dataset": str(tmp_path / "table.csv")}}
    digests = []
    for content in (b"0", b"1"):
        with (tmp_path / "table.csv").open("wb") as file:
            file.truncate(size)
            file.seek(changed)
            file.write(content)
        digests.append(renaming.former_digest(config, {}))
    assert (digests[0] == digests[1]) == same
