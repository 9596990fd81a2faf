"""Training resumes at any batch of an epoch: the weights and every logged row equal those of one start."""

import json
import signal
from typing import Any

import pytest
import torch

SMALL = [
    *("--data.sample", "true", "--data.batch_size", "128", "--model.network.hidden", "[16, 16]"),
    *("--model.network.dropout", "0.2", "--model.activation", "soi", "--trainer.max_epochs", "2"),
    *("--trainer.enable_model_summary", "false", "--trainer.log_every_n_steps", "2"),
    *("--trainer.limit_train_batches", "4", "--trainer.limit_val_batches", "2"),
    *("--trainer.limit_test_batches", "1"),
    *("--trainer.logger", "line_logger.LineLogger"),
]


PLATEAU = [  # smaller after each epoch
    *("trainer.val_check_interval=0.5", "model.scheduler=ReduceLROnPlateau"),
    *("model.scheduler.monitor=val/loss", "model.scheduler.patience=0", "model.scheduler.threshold=9"),
]

RISING = "{class_path: actlab.optim.Warmup, init_args: {length: 0.5, then: {class_path: actlab.optim.Cosine}}}"
STEPS = ["model.scheduler=StepLR", "model.scheduler.step_size=1", "model.scheduler.gamma=0.5"]


CASES = {
    "intervals": ["trainer.val_check_interval=0.334", "trainer.limit_train_batches=6"],
    "epochs": ["trainer.val_check_interval=1.0"],
    "validations": ["trainer.val_check_interval=0.334"],
    "second": ["trainer.check_val_every_n_epoch=2"],
    "steps": ["trainer.max_steps=6"],
    "accumulated": ["trainer.accumulate_grad_batches=2"],
    "plateau": PLATEAU,
    "rates": [*STEPS, "model.scheduler_interval=epoch"],
    "shares": [f"model.schedules={{lr: {RISING}}}"],
    "of-steps": [*STEPS, "model.scheduler_interval=step"],
}


@pytest.fixture
def fit(cli, tmp_path, monkeypatch, program):
    program("line_logger")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def run(root, *words):
        return cli("fit", "-c", "mnist_classifier", *SMALL, "--trainer.default_root_dir", root, *words)

    return run


def left(folder) -> tuple[list[Any], dict[str, torch.Tensor]]:
    """What a fit logged, and its last weights."""
    (run,) = (path for path in folder.iterdir() if path.is_dir())
    lines = [json.loads(line) for line in (run / "lines.jsonl").read_text().splitlines()]
    return lines, torch.load(run / "checkpoints/last.ckpt", weights_only=True)["state_dict"]


def metrics(lines):
    return [line for line in lines if isinstance(line, list)]


def kept(best="val/loss", **arguments):
    """Tests after each epoch, the last and best epochs, and the checkpoints that ``arguments`` ask for."""
    made = [
        {"filename": "last", "save_on_train_epoch_end": True},
        {"filename": "best", "monitor": best, "save_on_train_epoch_end": True},
        {"filename": "at-{step}", "save_top_k": -1, "save_on_train_epoch_end": False, **arguments},
    ]
    kinds = [{"class_path": "pytorch_lightning.callbacks.ModelCheckpoint", "init_args": one} for one in made]
    return f"--trainer.callbacks={json.dumps([{'class_path': 'actlab.callbacks.TestEveryEpoch'}, *kinds])}"


@pytest.mark.filterwarnings("ignore:The dirpath has changed")  # each resume has a folder of its own
@pytest.mark.parametrize("case", CASES)
def test_training_resumes_at_any_batch(fit, tmp_path, case):
    """Each resume starts from a checkpoint of the resume before."""
    words = CASES[case]
    best = "train/loss" if case == "second" else "val/loss"
    saves: dict[str, Any] = {"monitor": "val/error"} if case == "validations" else {"every_n_train_steps": 1}
    words = ["--trainer.enable_progress_bar=false", *(f"--{word}" for word in words)]
    outcome = fit("whole", *words, kept(best, **saves))
    assert outcome.code == 0, outcome.err
    lines, weights = left(tmp_path / "whole")
    names = [line for line in lines if line not in metrics(lines) and line.startswith("at-")]
    if words[-1] == "--trainer.max_steps=6":  # after the last update there is nothing to resume
        names.remove("at-step=6.ckpt")
    assert len(names) >= 4
    root = "whole"
    for name in names:
        (path,) = (tmp_path / root).glob(f"*/checkpoints/{name}")
        outcome, root = fit(name, *words, kept(best, **saves), "--ckpt_path", path), name
        assert outcome.code == 0, outcome.err
        rows, found = left(tmp_path / name)
        assert metrics(rows) == metrics(lines[lines.index(name) + 1 :]), name
        assert found.keys() == weights.keys()
        assert all(torch.equal(found[key], value) for key, value in weights.items()), name


def test_a_terminated_fit_resumes_at_its_last_checkpoint(fit, tmp_path):
    assert fit("whole", "--trainer.enable_progress_bar=false", kept(every_n_train_steps=1)).code == 0
    lines, weights = left(tmp_path / "whole")
    outcome = fit("cut", kept(every_n_train_steps=1), "--trainer.logger.last", "at-step=5.ckpt")
    assert outcome.code == 128 + signal.SIGTERM
    (path,) = (tmp_path / "cut").glob("*/checkpoints/at-step=5.ckpt")
    (path.parents[1] / "lines.jsonl").unlink()
    outcome = fit("cut", kept(every_n_train_steps=1), "--ckpt_path", path)  # with a progress bar
    assert outcome.code == 0, outcome.err
    rows, found = left(tmp_path / "cut")
    assert metrics(rows) == metrics(lines[lines.index(path.name) + 1 :])
    assert all(torch.equal(found[key], value) for key, value in weights.items())
