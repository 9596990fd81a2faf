"""Updates in blocks equal single updates, bit for bit: weights, metrics, counts, checkpoints."""

import copy
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, Checkpoint, EarlyStopping, ModelCheckpoint, Timer
from torch.utils._python_dispatch import TorchDispatchMode

from actlab import experiments
from actlab.errors import RunError
from actlab.random.positions import BatchBlock
from actlab.runtime.quiet import quiet
from actlab.stacking import StackedTask
from actlab.stacking.building import assemble
from actlab.tasks import Quantity, blocks
from toys import Frames, FrameTask, fitted
from updates_in_blocks import (
    CLASSIFIER,
    DROPOUT,
    OneByOne,
    check_equal,
    left,
    runs_of,
    traced_on_a_cpu,
)

COSINE = {"class_path": "actlab.optim.Cosine", "init_args": {"by": "update"}}
DECAY = {"class_path": "actlab.optim.L2", "init_args": {"strength": 1e-3}}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "dropout, clipping": (CLASSIFIER, {**DROPOUT, "trainer.gradient_clip_val": 0.1}),
    "a schedule of updates": (CLASSIFIER, {"model.schedules.lr": COSINE}),
    "decay by kind": (CLASSIFIER, {"model.l2": DECAY}),
    "half precision": (CLASSIFIER, {**DROPOUT, "trainer.precision": "bf16-mixed"}),
    "a stochastic map": ("soi_mnist", {}),
    "learnt parameters": (CLASSIFIER, {"model.activation": "prelu"}),
    "unit statistics": ("elu_mnist_units", {}),
    "convolutions, batch norm": ("cifar10_resnet20", {}),
    "language": ("gpt_gated", {}),
    "derivatives": ("pinn_helmholtz", {}),
}

RAGGED = {  # no program serves two sizes
    "batches that differ in size": (
        "gelu_twitter_pos",
        {**DROPOUT, "data.batch_size": 16, "trainer.val_check_interval": 1.0},
    )
}


# By default
REPLAYED = (
    "dropout, clipping",
    "a stochastic map",
    "learnt parameters",
    "derivatives",
)


@pytest.fixture(autouse=True)
def unhurried(monkeypatch):
    """Blocks end by their number of updates, not by a second."""
    monkeypatch.setattr(blocks, "LONGEST", 1e9)


class Validations(Callback):
    """The updates before each validation, and what it measures; the sizes of blocks."""

    blocks = True

    def __init__(self) -> None:
        self.seen: list[tuple[int, dict[str, float]]] = []
        self.sizes: list[int] = []

    def on_train_batch_start(
        self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, _: int
    ) -> None:
        self.sizes.append(len(batch) if isinstance(batch, BatchBlock) else 1)

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        measured = {name: float(value) for name, value in trainer.callback_metrics.items()}
        self.seen.append((trainer.global_step, measured))


@pytest.mark.filterwarnings(
    "ignore:There is a performance drop because we have not yet implemented"
)
@pytest.mark.parametrize(
    ("kind", "stacked"),
    [
        *(pytest.param(kind, False, id=f"{kind}, alone") for kind in KINDS | RAGGED),
        *(
            pytest.param(kind, True, id=f"{kind}, stacked", marks=pytest.mark.slow)
            for kind in [*(KINDS | RAGGED)][1:]
        ),
        pytest.param(next(iter(KINDS)), True, id="stacked"),
    ],
)
def test_blocks_leave_what_single_updates_leave(kind, stacked, tmp_path):
    configs = [run.config for run in runs_of(*(KINDS | RAGGED)[kind])]
    single, several = (left(configs, tmp_path, one, stacked) for one in (True, False))
    assert max(single.pop("sizes")) == 1 < max(several.pop("sizes"))
    check_equal(single, several)


@pytest.mark.filterwarnings(
    "ignore:There is a performance drop because we have not yet implemented"
)
@pytest.mark.parametrize(
    "stacked", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["alone", "stacked"]
)
@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=() if kind in REPLAYED else pytest.mark.slow) for kind in KINDS],
)
def test_replayed_updates_leave_what_single_updates_leave(kind, stacked, tmp_path, monkeypatch):
    """Traced as one program, an update is as frozen as a CUDA graph."""
    study, settings = KINDS[kind]
    brief = {"trainer.limit_train_batches": 9, "trainer.max_epochs": 3}
    configs = [run.config for run in runs_of(study, {**settings, **brief})]
    single = left(configs, tmp_path, True, stacked)
    calls, operators = traced_on_a_cpu(monkeypatch)
    replayed = left(configs, tmp_path, False, stacked)
    assert max(single.pop("sizes")) == 1 < max(replayed.pop("sizes"))
    check_equal(single, replayed)
    assert len(calls) > 1, "the program was rejected"
    assert not operators & HOSTS


# They wait for a device
HOSTS = {
    "_local_scalar_dense",
    "lift_fresh",
    "lift_fresh_copy",
    "nonzero",
}


VIEWS = frozenset(
    [
        "alias",
        "as_strided",
        "detach",
        "expand",
        "permute",
        "reshape",
        "select",
        "slice",
        "split",
        "squeeze",
        "t",
        "transpose",
        "unbind",
        "unsqueeze",
        "view",
        "_unsafe_view",
    ]
)


class Operators(TorchDispatchMode):
    """How often operators that compute are started."""

    started = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.started += function.__name__.partition(".")[0] not in VIEWS
        return function(*args, **(kwargs or {}))


class CountsOperators(Checkpoint):
    """The operators of each update, in blocks."""

    blocks = True

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, _: int) -> None:
        self.mode = Operators()
        self.mode.__enter__()

    def on_train_batch_end(
        self, trainer: Any, module: Any, outputs: Any, batch: Any, _: int
    ) -> None:
        self.mode.__exit__(None, None, None)
        self.seen.append(self.mode.started / (len(batch) if isinstance(batch, BatchBlock) else 1))


def test_a_stacked_update_with_dropout_starts_at_most_205_operators(tmp_path):
    """A GPU takes longer to start than to compute them. Eight layers mask, clean passes do not."""
    settings = {
        "model.network.dropout": 0.5,
        "model.network.hidden": [128] * 8,
        "trainer.max_epochs": 1,
    }
    first = runs_of(CLASSIFIER, settings)[0].config
    configs = [{**copy.deepcopy(first), "seed_everything": seed} for seed in range(15)]
    counts = CountsOperators()
    with quiet():
        trainer, task, data = assemble(configs, counts, tmp_path)
        trainer.fit(task, datamodule=data)
    assert min(counts.seen) <= 205  # six pad the logits to whole vectors


@pytest.mark.parametrize("first", [True, False], ids=["blocks first", "single first"])
def test_training_resumes_within_an_epoch_in_the_other_way(first, tmp_path):
    """A validation in the middle of the epoch saves a checkpoint, after 4 of 7 updates."""
    config = runs_of(CLASSIFIER, {"trainer.val_check_interval": 4})[0].config
    save = ModelCheckpoint(
        tmp_path, "{step}", save_top_k=-1, every_n_epochs=1, save_on_train_epoch_end=False
    )
    straight = left([config], tmp_path / "straight", True, False)
    with quiet():
        trainer, task, data = experiments.build(
            config, callbacks=[save], default_root_dir=str(tmp_path)
        )
        trainer.callbacks += [] if first else [OneByOne()]  # type: ignore[attr-defined]
        trainer.fit(task, datamodule=data)
    assert sorted(path.name for path in tmp_path.glob("step*")) == ["step=11.ckpt", "step=4.ckpt"]
    resumed = left([config], tmp_path / "resumed", first, False, ckpt_path=tmp_path / "step=4.ckpt")
    assert (4 in straight["sizes"], max(resumed["sizes"])) == (False, 1 if first else 4)
    del straight["sizes"], resumed["sizes"]
    check_equal(straight, resumed)


def test_blocks_end_at_the_last_update(tmp_path):
    steps = {"trainer.max_steps": 10, "trainer.val_check_interval": 1.0}
    assert left([runs_of(CLASSIFIER, steps)[0].config], tmp_path, False, False)["sizes"] == [
        1,
        6,
        3,
    ]


class Drawing(FrameTask):
    """A loss with numbers of torch's own generator, after every ``every`` updates."""

    every = 1

    def quantities(self, output: Any, batch: Any) -> dict[str, Quantity]:
        found = super().quantities(output, batch)
        if self.training and self.global_step % self.every == self.every - 1:
            found["loss"] = Quantity(found["loss"].values * torch.rand(()), found["loss"].weights)
        return found


def test_a_loss_that_draws_is_seeded_at_each_update(tmp_path):
    tasks = []
    for callbacks in ([OneByOne()], []):
        fitted(task := Drawing(clean_training_loss=False), Frames(), tmp_path, *callbacks)
        tasks.append(task)
    check_equal(*(task.state_dict() for task in tasks))


def test_a_loss_that_draws_at_some_updates_alone_is_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr(Drawing, "every", 5)
    with pytest.raises(
        RunError, match=r"draws random numbers in some updates only\. Draw in every update, or"
    ):
        fitted(Drawing(clean_training_loss=False), Frames(), tmp_path)


MANY = {"callbacks": [ModelCheckpoint(every_n_train_steps=2)], "enable_checkpointing": True}


class Watching(Callback):
    def on_before_optimizer_step(self, *_: Any) -> None:
        pass


class OwnStep(FrameTask):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return super().training_step(batch, batch_idx)


class OwnTransfer(Frames):
    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return batch


@pytest.mark.parametrize(
    ("reason", "task", "data", "options"),
    [
        ("Watching watches single updates", FrameTask, Frames, {"callbacks": [Watching()]}),
        ("Timer watches single updates", FrameTask, Frames, {"callbacks": [Timer("1:00:00:00")]}),
        ("ModelCheckpoint watches", FrameTask, Frames, MANY),
        ("OwnStep overrides training_step", OwnStep, Frames, {}),
        ("OwnTransfer overrides on_after_batch_transfer", FrameTask, OwnTransfer, {}),
        ("gradients are accumulated", FrameTask, Frames, {"accumulate_grad_batches": 2}),
        ("a profiler times single updates", FrameTask, Frames, {"profiler": "simple"}),
    ],
)
def test_single_updates_say_why(reason, task, data, options, tmp_path):
    made, others = task(), {name: value for name, value in options.items() if name != "callbacks"}
    fitted(made, data(), tmp_path, *options.get("callbacks", ()), max_epochs=1, **others)
    assert made.single_updates.startswith(reason)


OVER_EPOCHS = {"val_check_interval": 5, "check_val_every_n_epoch": None}
# By the first validation
STOPPED = {"callback": partial(EarlyStopping, "val/loss", divergence_threshold=-1.0)}
BEST = {"callback": partial(ModelCheckpoint, monitor="val/loss"), "enable_checkpointing": True}
TRAINERS: dict[str, dict[str, Any]] = {  # epochs have 12 batches
    "default": {},
    "5 batches": {"val_check_interval": 5},
    "12 batches": {"val_check_interval": 12},
    "each batch": {"val_check_interval": 1},
    "a third": {"val_check_interval": 1 / 3},
    "a share of 3.6 batches": {"val_check_interval": 0.3},
    "a share below one batch": {"val_check_interval": 0.01},
    "5 batches over epochs": OVER_EPOCHS,
    "9 batches over epochs": {"val_check_interval": 9, "check_val_every_n_epoch": None},
    "17 batches over epochs": {"val_check_interval": 17, "check_val_every_n_epoch": None},
    "5 of 7 batches over epochs": {**OVER_EPOCHS, "limit_train_batches": 7},
    "every second epoch": {"check_val_every_n_epoch": 2},
    "5 batches of every second epoch": {"val_check_interval": 5, "check_val_every_n_epoch": 2},
    "half of the training batches": {"limit_train_batches": 0.5},
    "a third of 7 training batches": {"limit_train_batches": 7, "val_check_interval": 1 / 3},
    "2 validation batches": {"limit_val_batches": 2, "val_check_interval": 4},
    "half of the validation batches": {"limit_val_batches": 0.5},
    "no validation": {"limit_val_batches": 0, "val_check_interval": 100},
    "17 updates": {"max_steps": 17, "val_check_interval": 5},
    "17 updates over epochs": {**OVER_EPOCHS, "max_steps": 17},
    "stopped": {**STOPPED, "val_check_interval": 5},
    "stopped after 8 updates": {**STOPPED, "val_check_interval": 5, "min_steps": 8},
    "stopped after 15 updates": {**STOPPED, "val_check_interval": 5, "min_steps": 15},
    "stopped after 2 epochs": {**STOPPED, "min_epochs": 2},
    "validation before training": {"num_sanity_val_steps": 2},
    "fresh loaders": {"reload_dataloaders_every_n_epochs": 1, "val_check_interval": 5},
    "overfitted batches": {"overfit_batches": 3},
    "seven batches": {"fast_dev_run": 7},
    "clipped values": {"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"},
    "rows of 5 updates": {"log_every_n_steps": 5, "val_check_interval": 5},
    "checked derivatives": {"detect_anomaly": True},
    "the best of all validations": {**BEST, "val_check_interval": 5},
}
COMBINED = {  # of what others have alone, or at another number
    *("12 batches", "each batch", "9 batches over epochs", "5 of 7 batches over epochs"),
    *(
        "5 batches of every second epoch",
        "a third of 7 training batches",
        "half of the validation batches",
    ),
    *("17 updates over epochs", "stopped after 8 updates"),
}


def validated(options: dict[str, Any], folder: Path, single: bool, stacked: bool) -> dict[str, Any]:
    """What a fit leaves, its validations, and the sizes of its blocks."""
    options = dict(options)
    validations = Validations()
    others: list[Callback] = [OneByOne()] if single else []
    if callback := options.pop("callback", None):
        others.append(callback())

    tasks = [FrameTask(seed) for seed in range(2 if stacked else 1)]
    task = StackedTask(tasks) if stacked else tasks[0]
    data = Frames(batch_size=4, seed=[0, 1] if stacked else 0)
    trainer = fitted(task, data, folder, validations, *others, **options)
    progress = trainer.fit_loop.epoch_loop.batch_progress

    return {
        "state": task.state_dict(),
        "validations": validations.seen,
        "counts": (
            trainer.global_step,
            trainer.current_epoch,
            vars(progress.total),
            vars(progress.current),
        ),
        "best": [
            Path(saved.best_model_path).name
            for saved in others
            if isinstance(saved, ModelCheckpoint)
        ],
        "sizes": validations.sizes,
    }


@pytest.mark.filterwarnings("ignore:You have overridden `val_dataloader`")
@pytest.mark.parametrize(
    "stacked", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["alone", "stacked"]
)
@pytest.mark.parametrize(
    "settings",
    [pytest.param(name, marks=pytest.mark.slow if name in COMBINED else ()) for name in TRAINERS],
)
def test_blocks_follow_the_trainer_as_single_updates_do(settings, stacked, tmp_path):
    if stacked and "callback" in TRAINERS[settings]:
        pytest.skip("such a callback needs one value of a metric, a stack has one for each run")

    single, several = (
        validated(TRAINERS[settings], tmp_path / str(one), one, stacked) for one in (True, False)
    )
    assert max(single.pop("sizes")) == 1
    assert max(several.pop("sizes")) > 1 or settings in ("each batch", "a share below one batch")
    check_equal(single, several)


def test_validations_by_time_follow_single_updates(tmp_path):
    options = {"val_check_interval": timedelta(days=1), "max_epochs": 1}
    assert set(validated(options, tmp_path, single=False, stacked=False)["sizes"]) == {1}
