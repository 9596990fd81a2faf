"""An own network of torch's modules in a study: stacked forms, vmap, or one by one, and why."""

import json

import pandas as pd
import pytest

from actlab.engines import packing, timing
from actlab.storage.json_files import read_json
from actlab.studies import reading

pytestmark = pytest.mark.tries_stacks

STUDY = """\
base: mnist_classifier
set:
  model.network: {class_path: torch_layers.Rows}
  data.sample: true
  data.batch_size: 200
  trainer.max_epochs: 1
  trainer.limit_train_batches: 2
  trainer.limit_val_batches: 1
  trainer.precision: 64-true
grid:
  model.activation: [gelu]
  model.network.middle: [forms, mapped]
seeds: 2
"""
MIDDLES = "[forms, mapped]"
PROBE = (
    "probes: [{name: noise, class_path: actlab.probes.InputNoise, "
    "init_args: {strengths: [0.5]}, at: last}]\n"
)
OBSERVED = (
    "  trainer.callbacks+: [{class_path: actlab.callbacks.UnitStatistics, "
    "init_args: {samples: 8}}]\ngrid:"
)


@pytest.fixture
def study(succeed, program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    program("torch_layers")

    # What is tried here are stacks
    monkeypatch.setattr("actlab.engines.running.opens_new_files", lambda *_: False)

    def run(folder, *words, text=STUDY):
        (tmp_path / "own.yaml").write_text(text)
        outcome = succeed("study", "run", "own.yaml", "--runs-dir", folder, *words)
        return outcome.out

    return run


def engines(folder):
    """How each run was trained."""
    results = {
        path.parent.name: json.loads(path.read_text()) for path in folder.glob("*/result.json")
    }
    return {name: result["engine"] for name, result in results.items()}


def test_forms_and_vmap_train_what_runs_alone_train(study, tmp_path):
    assert "failed" not in study("together", text=STUDY + PROBE)
    study("alone", "--set", "seeds=[1]", text=STUDY + PROBE)
    together, alone = tmp_path / "together/own", tmp_path / "alone/own"
    assert [engine for name, engine in engines(together).items() if "forms" in name] == [
        "stacked"
    ] * 2
    files = sorted(path.relative_to(alone) for path in alone.rglob("*.parquet"))
    assert len(files) == 2 * 2  # metrics and a probe
    for file in files:
        one, both = (pd.read_parquet(folder / file) for folder in (alone, together))
        pd.testing.assert_frame_equal(both, one)


@pytest.mark.usefixtures("study")
def test_what_vmap_cannot_map_is_trained_alone(tmp_path):
    (tmp_path / "own.yaml").write_text(STUDY.replace(MIDDLES, "[dropped, recurrent, branching]"))
    found = packing.pack(reading.load("own.yaml").runs(), tmp_path)
    assert [len(job.runs) for job in found.jobs] == [1] * 6
    assert len(found.reasons) == 3
    for reason in (
        "vmap: called random operation while in randomness error mode",
        "Batching rule not implemented for aten::lstm.input",
        "vmap: It looks like you're attempting",
    ):
        assert any(line.startswith(f"vmap cannot map Rows: {reason}") for line in found.reasons)
    verdicts = read_json(tmp_path / "trials.json", dict, "").values()
    assert [trial["verdict"] for trial in verdicts] == ["differ"] * 3


@pytest.mark.usefixtures("study")
def test_observed_activations_of_a_mapped_network(tmp_path):
    (tmp_path / "own.yaml").write_text(
        STUDY.replace("grid:", OBSERVED).replace(MIDDLES, "[mapped]")
    )
    found = packing.pack(reading.load("own.yaml").runs(), tmp_path)
    assert [len(job.runs) for job in found.jobs] == [1] * 2
    assert found.reasons == [
        "Rows has no stacked form, and vmap hides its activations from a callback"
    ]


@pytest.mark.usefixtures("study")
def test_updates_of_long_studies_are_timed(tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "WORTH", 0.0)
    monkeypatch.setattr(timing, "UPDATES", 2)
    (tmp_path / "own.yaml").write_text(STUDY.replace(MIDDLES, "[forms]"))
    runs = reading.load("own.yaml").runs()
    assert timing.best_size(runs, 1, 2, True) in (1, 2)
    monkeypatch.setattr(
        timing, "fastest", lambda runs, forms, sharing=1: {2: 3.0, 1: 1.0}[len(runs)]
    )
    found = packing.pack(runs, tmp_path, sharing=1)
    assert found.reasons == ["stacks save no time"]
    assert [len(job.runs) for job in found.jobs] == [1, 1]
    assert all(job.stacked for job in found.jobs), "in the form that a stack would give them"
