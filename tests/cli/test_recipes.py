"""Nested schedules and decay by kind as words, in configs, studies and checkpoints."""

import json

import pytest
import torch
import yaml

from actlab.optim import Cosine, Steps, Warmup
from actlab.storage.mappings import read_mapping
from actlab.storage.resources import config_file
from actlab.studies import reading
from actlab.tasks import ClassificationTask
from tiny_study import study_text

COSINE = {"class_path": "actlab.optim.Cosine", "init_args": {"final": 0.1}}
WARMUP = {"class_path": "actlab.optim.Warmup", "init_args": {"length": 0.5, "then": COSINE}}
PLATEAU = {"class_path": "actlab.optim.Plateau"}
STEPS = {
    "class_path": "actlab.optim.Steps",
    "init_args": {"factors": {0.25: 0.5, 0.75: 0.25}, "by": "update"},
}
SMALL = [
    *("--data.sample", "true", "--model.network.hidden", "[8]", "--trainer.max_epochs", "2"),
    *(
        "--trainer.limit_train_batches",
        "4",
        "--trainer.limit_val_batches",
        "1",
        "--trainer.logger",
        "false",
    ),
    *("--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"),
]
GPT = [
    *("--model.optimizer", "torch.optim.AdamW", "--model.optimizer.betas", "[0.9, 0.95]"),
    *(
        "--model.l2",
        "{strength: 0.1, of: [weights, embeddings]}",
        "--trainer.gradient_clip_val",
        "1.0",
    ),
]


def schedule(value):
    return ["--model.schedules", json.dumps({"lr": value})]


@pytest.fixture
def fit(succeed, tmp_path):
    """Fit in a temporary folder, and return the last checkpoint."""

    def run(*words, config="mnist_classifier"):
        succeed("fit", "-c", config, *SMALL, *words)
        return max(tmp_path.glob("runs/**/last.ckpt"), key=lambda path: path.stat().st_mtime_ns)

    return run


def groups(checkpoint):
    (state,) = torch.load(checkpoint, weights_only=True)["optimizer_states"]
    return state["param_groups"]


def test_the_recipe_of_a_gpt_from_the_command_line(fit, succeed):
    path = fit(*schedule(WARMUP), *GPT)
    decayed, free = groups(path)
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.1, 0.0)
    assert {tuple(group["betas"]) for group in (decayed, free)} == {(0.9, 0.95)}
    assert (len(decayed["params"]), len(free["params"])) == (2, 2)  # weights, biases
    # Update 8 of 8
    assert decayed["lr"] == free["lr"] == pytest.approx(1e-3 * Cosine(4, 0.1).factor(3))
    task = ClassificationTask.load_from_checkpoint(path)
    assert task.schedules == {"lr": Warmup(0.5, then=Cosine(final=0.1))}
    assert task.l2 is not None
    assert (task.l2.strength, task.l2.of, task.penalised) == (0.1, ("weights", "embeddings"), False)
    succeed("test", "--ckpt_path", path, "--trainer.logger", "false")


def test_a_config_gives_nested_schedules_and_steps_by_shares(fit, tmp_path, cli):
    base = read_mapping(config_file("mnist_classifier"))
    base["model"]["init_args"]["schedules"] = {"lr": WARMUP, "beta1": STEPS}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(base))
    (group,) = groups(path := fit(config="own.yaml"))
    assert group["lr"] == pytest.approx(1e-3 * Cosine(4, 0.1).factor(3))
    assert group["betas"] == (pytest.approx(0.9 * 0.25), 0.999)
    again = ClassificationTask.load_from_checkpoint(path)
    assert again.schedules["beta1"] == Steps({0.25: 0.5, 0.75: 0.25}, by="update")
    words = ("-c", "own.yaml", "--model.schedules.lr.then.final", "0.5", "--print_config")
    changed = yaml.safe_load(cli("fit", *words).out)["model"]["init_args"]["schedules"]["lr"]
    assert changed["init_args"]["then"]["init_args"]["final"] == 0.5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (schedule({**WARMUP, "init_args": {"length": "0.1"}}), "'0.1'"),
        (
            schedule({**WARMUP, "init_args": {"length": 2, "then": PLATEAU}}),
            "got Plateau, which follows a metric from",
        ),
        ([*GPT, "--model.l2.of", "[embedings]"], "did you mean 'embeddings'"),
    ],
)
def test_mistakes_are_one_line(cli, words, message):
    assert message in cli("fit", "-c", "mnist_classifier", *SMALL, *words).rejection


STUDY = study_text(
    "model.activation: [relu], model.schedules.lr.length: [0.25, 0.5, 3]",
    seeds=1,
    epochs=1,
    batches=1.0,
    trainer__precision="64-true",
    trainer__gradient_clip_val=0.5,
    model__optimizer={"class_path": "torch.optim.AdamW", "init_args": {"lr": 0.01}},
    model__schedules={"lr": WARMUP},
    model__l2={"strength": 0.1},
)


def test_members_of_a_study_have_their_own_warm_ups(succeed, tmp_path):
    """Stacked as alone, in float64: the trial of the stack sees clipping, schedules and decay."""
    (tmp_path / "warm.yaml").write_text(STUDY)
    names, found = [run.id for run in reading.load("warm.yaml").runs()], []
    for size in ("3", "1"):
        succeed("study", "run", "warm.yaml", "--runs-dir", size, "--max-stack", size)
        results = [
            json.loads((tmp_path / size / f"warm/{name}/result.json").read_text()) for name in names
        ]
        assert [one["stack"]["size"] for one in results] == [int(size)] * 3
        assert not any("train/penalised_loss" in one["summary"] for one in results)
        found.append([one["summary"]["train/loss"][""]["last"] for one in results])
    assert found[0] == found[1]
    assert len(set(found[0])) == 3


@pytest.mark.parametrize(("optimizer", "known"), [("Adam", True), ("AdamW", False)])
def test_a_plan_knows_whether_there_is_a_penalised_loss(cli, tmp_path, optimizer, known):
    text = STUDY.replace("torch.optim.AdamW", f"torch.optim.{optimizer}")
    (tmp_path / "warm.yaml").write_text(text + "table: [{metric: train/penalised_loss}]\n")
    outcome = cli("study", "plan", "warm.yaml")
    assert (outcome.code == 0) is known, outcome.err
    assert known or "unknown metric 'train/penalised_loss'" in outcome.err
