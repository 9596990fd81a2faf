"""An own network of torch's modules in a study: by stacked forms, by vmap, or one by one, with the reason."""

import json

import pandas as pd
import pytest

from actlab.engines import packing
from actlab.storage.files import read_json
from actlab.studies import reading
from child_processes import serve_timed
from tolerances import ROUNDED

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
    "probes: [{name: noise, class_path: actlab.probes.InputNoise, init_args: {strengths: [0.5]}, at: last}]\n"
)
OBSERVED = (
    "  trainer.callbacks+: [{class_path: actlab.callbacks.UnitStatistics, init_args: {samples: 8}}]\ngrid:"
)
ALONE = "one by one instead of stacked: "


@pytest.fixture
def study(cli, program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    program("torch_layers")

    def run(folder, *words, text=STUDY):
        (tmp_path / "own.yaml").write_text(text)
        outcome = cli("study", "run", "own.yaml", "--runs-dir", folder, *words)
        assert outcome.code == 0, outcome.err
        return outcome.out

    return run


def engines(folder):
    """How each run was trained."""
    results = {path.parent.name: json.loads(path.read_text()) for path in folder.glob("*/result.json")}
    return {name: result["engine"] for name, result in results.items()}


def test_forms_and_vmap_train_what_runs_alone_train(study, tmp_path):
    out = study("together", text=STUDY + PROBE)
    assert ALONE not in out
    assert "failed" not in out
    study("alone", "--engine", "sequential", "--set", "seeds=[1]", text=STUDY + PROBE)
    together, alone = tmp_path / "together/own", tmp_path / "alone/own"
    assert [*engines(together).values()] == ["stacked"] * 4
    files = sorted(path.relative_to(alone) for path in alone.rglob("*.parquet"))
    assert len(files) == 2 * 2  # metrics and a probe
    for file in files:
        one, both = (pd.read_parquet(folder / file) for folder in (alone, together))
        pd.testing.assert_frame_equal(both, one, rtol=ROUNDED)


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
    (tmp_path / "own.yaml").write_text(STUDY.replace("grid:", OBSERVED).replace(MIDDLES, "[mapped]"))
    found = packing.pack(reading.load("own.yaml").runs(), tmp_path)
    assert [len(job.runs) for job in found.jobs] == [1] * 2
    assert found.reasons == ["Rows has no stacked form, and vmap hides its activations from a callback"]


def test_a_long_study_times_its_updates_once(study, tmp_path, monkeypatch):
    monkeypatch.setattr("actlab.engines.workers._serve", serve_timed)
    text = STUDY.replace(MIDDLES, "[forms]")
    out = study("runs", "--jobs", "1", text=text)  # a debugger's study, in this process, is not timed
    assert "timing updates alone and in stacks" in out, out
    kept = read_json(tmp_path / "runs/own/engine.json", dict, "")
    ((key, decision),) = kept["stacks"].items()
    assert decision["size"] in (0, 1)
    assert ("takes" in decision["reason"]) == (decision["size"] == 1)
    assert kept["products"] in ("default", "onednn")
    monkeypatch.setattr("actlab.random.streams.compile_masks", lambda: None)
    # A later start takes what is stored, whatever it would find.
    kept["stacks"][key] = {"size": 1, "reason": "a stack of 2 takes 1.05 of the time alone"}
    (tmp_path / "runs/own/engine.json").write_text(json.dumps(kept))
    out = study("runs", text=text.replace("seeds: 2", "seeds: 4"))
    assert "timing updates" not in out
    assert f"{ALONE}a stack of 2 takes 1.05 of the time alone" in out
    assert read_json(tmp_path / "runs/own/engine.json", dict, "") == kept
