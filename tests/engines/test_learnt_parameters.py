"""Learnt parameters of activations: rows of each layer and epoch, and the curve that they give."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from actlab import experiments
from actlab.engines import packing
from actlab.studies import reading
from actlab.studies.run_folder import RunFolder
from tiny_study import execute, metrics, study_text, untried
from wandb_logs import config as logged_config
from wandb_logs import history, summary

SMALL = {"data__batch_size": 200, "model__network__hidden": [8, 6], "model__optimizer__lr": 0.05}
STUDY = study_text("model.activation: [UNITS]", batches=3, **SMALL)
UNITS = {  # spec → names of its parameters
    "./learnt_parameters.py:Swish": ["beta"],
    "{name: prelu, per_channel: true}": ["weight", "weight_max", "weight_min"],
    "./learnt_parameters.py:ChannelSwish": ["beta", "beta_max", "beta_min"],
    "./learnt_parameters.py:Blend": ["inner.beta", "weights", "weights_max", "weights_min"],
    "{name: gelu, learnable: true}": ["log_sigma", "mu"],
    "elu": [],
    "./learnt_parameters.py:Frozen": [],
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two runs of each unit in a stack, and the first of them alone; their folder."""
    folder = tmp_path_factory.mktemp("learnt")
    shutil.copy(Path(__file__).parents[1] / "programs/learnt_parameters.py", folder)
    (folder / "study.yaml").write_text(
        STUDY.replace("UNITS", ", ".join(UNITS).replace("./", f"{folder}/"))
    )
    runs = reading.load(str(folder / "study.yaml")).runs()
    with untried():
        assert [len(job.runs) for job in packing.pack(runs, folder / "stacked").jobs] == [2] * len(
            UNITS
        )
        execute(runs, folder / "stacked")
    execute(runs[::2], folder / "alone", stacked=False)
    return dict(zip(UNITS, zip(runs[::2], runs[1::2], strict=True), strict=True)), folder


def learnt(root, run):
    rows = metrics(root, run)
    return rows[rows["split"] == "activation"].reset_index(drop=True)


@pytest.mark.parametrize("engine", ["stacked", "alone"])
@pytest.mark.parametrize("unit", UNITS)
def test_each_epoch_has_the_parameters_of_each_layer(trained, unit, engine):
    root, names = trained[1] / engine, UNITS[unit]
    for run in trained[0][unit][: 2 if engine == "stacked" else 1]:
        rows = learnt(root, run)
        expected = [(e, n, f"layer={layer}") for e in (1, 2) for n in names for layer in (1, 2)]
        assert (
            sorted(rows[["epoch", "metric", "condition"]].itertuples(index=False, name=None))
            == expected
        )
        assert (root / run.id / "matrices.json").exists() == bool(names)
        saved = torch.load(RunFolder(root, run).checkpoint, weights_only=True)["state_dict"]
        task: Any = experiments.build(run.config).task
        last = rows[rows["epoch"] == 2].set_index(["metric", "condition"])["value"]
        for layer, place in enumerate(task.sites, 1):
            for name in names:
                own, end = name.removesuffix("_min").removesuffix("_max"), name[-3:]
                values = saved[f"network.{place}.{own}"].double().numpy()
                value = {"min": np.min, "max": np.max}.get(end, np.mean)(values)
                assert last[name, f"layer={layer}"] == pytest.approx(value, rel=1e-6)


def test_the_curve_is_that_of_the_parameters_at_both_ends(trained):
    runs, folder = trained
    for run in runs["./learnt_parameters.py:Swish"]:
        kept = json.loads((folder / "stacked" / run.id / "matrices.json").read_text())
        rows = learnt(folder / "stacked", run).query("epoch == 2").set_index("condition")["value"]
        for layer in ("1", "2"):
            for name, beta in (
                ("initial_activation", 1.0),
                ("learnt_activation", rows[f"layer={layer}"]),
            ):
                x = kept[name]["x"]
                assert (x[0], x[-1]) == (-4, 4)
                expected = [at / (1 + math.exp(-beta * at)) for at in x]
                assert kept[name][layer] == pytest.approx(expected, abs=2e-6)


def test_the_curve_of_a_parameter_per_channel_is_the_mean_over_channels(trained):
    runs, folder = trained
    run = runs["{name: prelu, per_channel: true}"][0]
    kept = json.loads((folder / "alone" / run.id / "matrices.json").read_text())[
        "learnt_activation"
    ]
    rows = (
        learnt(folder / "alone", run)
        .query("epoch == 2")
        .set_index(["metric", "condition"])["value"]
    )
    slope = rows["weight", "layer=2"]
    assert kept["2"] == pytest.approx([max(x, 0) + slope * min(x, 0) for x in kept["x"]], abs=2e-6)


def test_a_fit_logs_them(succeed, program, tmp_path, monkeypatch):
    program("learnt_parameters")
    monkeypatch.chdir(tmp_path)
    words = [
        "--model.activation",
        "./learnt_parameters.py:Swish",
        "--model.network.hidden",
        "[8, 6]",
    ]
    words += [
        "--data.sample",
        "true",
        "--trainer.max_epochs",
        "2",
        "--trainer.limit_train_batches",
        "3",
    ]
    words += ["--trainer.logger", "CSVLogger", "--trainer.logger.save_dir", "log"]
    succeed("fit", "-c", "mnist_classifier", *words)
    (log,) = tmp_path.glob("log/**/metrics.csv")
    logged = pd.read_csv(log)
    names = ["activation/beta[layer=1]", "activation/beta[layer=2]"]
    assert sorted(name for name in map(str, logged) if name.startswith("activation")) == names
    assert [len(logged[name].dropna()) for name in names] == [2, 2]


def test_wandb_has_them(succeed, program, tmp_path, monkeypatch):
    """In a stack; runs alone log by the same callback, as a fit does."""
    program("learnt_parameters")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text(STUDY.replace("UNITS", "./learnt_parameters.py:Swish"))
    succeed("study", "run", "study.yaml", "--logger", "wandb")
    root = tmp_path / "runs/study"
    logs = list(root.glob("wandb/offline-run-*/*.wandb"))
    assert len(logs) == 2
    for log in logs:
        seed = logged_config(log)["seed"]
        (folder,) = root.glob(f"Swish-seed{seed}-*")
        rows = pd.read_parquet(folder / "metrics.parquet").query(
            "metric == 'beta' and condition == 'layer=2'"
        )
        name = "activation/beta[layer=2]"
        assert [step[name] for step in history(log.parent) if name in step] == rows[
            "value"
        ].tolist()
        assert summary(log)[f"last/{name}"] == rows["value"].iloc[-1]
        assert f"best/{name}" not in summary(log)
