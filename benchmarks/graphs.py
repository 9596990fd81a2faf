"""Whether CUDA graphs are right on a device: trainings with and without them, in many cases.

Each case is trained three times on samples: without graphs, again, which shows the noise of the
device, and replayed. Its verdict compares all weights and the training loss at the end:

- ``bits``: equal in every bit.
- ``noise``: as far apart as ten times two trainings without graphs.
- ``eager``: no update was replayed, for the reason in the row.
- ``differs``, ``error``: graphs are wrong.

`actlab.tasks.graphs` reads these rows. On a CPU the updates are traced, not captured.
"""

from __future__ import annotations

import actlab  # noqa: F401  (first, for torchvision: see actlab.runtime.operators)

# isort: split
import copy
import math
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from pytorch_lightning.callbacks import Checkpoint
from timing import DEVICE

from actlab.config import paths
from actlab.errors import ActlabError
from actlab.runtime import devices
from actlab.runtime.devices import threads
from actlab.runtime.quiet import quiet
from actlab.stacking import building
from actlab.studies import reading
from actlab.tasks import blocks, replay

UPDATES, FEW = 50, 12  # of a training, in full and in small
NOISE = 10  # multiple of the difference of two trainings without graphs
PLAIN = {
    "trainer.logger": False,
    "trainer.max_epochs": 1000,
    "trainer.limit_train_batches": 25,
    "trainer.limit_val_batches": 0,
    "trainer.val_check_interval": 1.0,
    "trainer.check_val_every_n_epoch": 1000,
    "trainer.limit_test_batches": 0,
}


class Case(NamedTuple):
    """Some runs of a study, with other settings, that differ in their seed and maybe in one key."""

    name: str
    study: str
    runs: int
    settings: Mapping[str, Any]
    key: str = ""
    values: Sequence[float] = ()

    def configs(self, updates: int) -> list[dict[str, Any]]:
        """Return the config of each run."""
        settings = {**PLAIN, **self.settings, "trainer.max_steps": updates, "seeds": 1}
        first = reading.load(self.study, smoke=True, settings=settings, staged=False).runs()[0]
        configs = []
        for seed in range(self.runs):
            config = copy.deepcopy(dict(first.config))
            config["seed_everything"] = seed
            if self.values:
                paths.set_dotted(config, self.key, self.values[seed % len(self.values)])
            configs.append(config)
        return configs


MLP, DROPOUT = "gelu_mnist_classifier", "model.network.dropout"
B50, B16 = {"data.batch_size": 50}, {"data.batch_size": 16}
HALF = {"trainer.precision": "bf16-mixed"}
SCALED = {"data.preprocessing": ["scale"]}
L2 = {"class_path": "actlab.optim.L2", "init_args": {"strength": 1e-3}}
LONG = {
    "data.context": 256,
    "model.network.width": 256,
    "model.network.blocks": 4,
    "model.network.heads": 4,
}
CASES = (
    Case("classifier", MLP, 1, B50),
    Case("classifiers", MLP, 15, B50),
    Case("dropout", MLP, 15, {**B50, DROPOUT: 0.5}),
    Case("dropouts differ", MLP, 4, {**B50, DROPOUT: 0.3}, DROPOUT, (0.2, 0.5)),
    Case("rates differ", MLP, 4, B50, "model.optimizer.lr", (1e-3, 1e-4)),
    Case("clipping", MLP, 3, {**B50, "trainer.gradient_clip_val": 0.1}),
    Case("l2", MLP, 3, {**B50, "model.l2": L2}),
    Case("dropout, half precision", MLP, 3, {**B50, **HALF, DROPOUT: 0.3}),
    Case("dropout, half precision, alone", MLP, 1, {**B50, **HALF, DROPOUT: 0.3}),
    Case("soi", "soi_mnist", 3, B50),
    Case("rrelu", MLP, 3, {**B50, "model.activation": "rrelu"}),
    Case("prelu", MLP, 3, {**B50, "model.activation": "prelu"}),
    Case("torch's rrelu", MLP, 1, {**B50, "model.activation": "torch.nn:RReLU"}),
    Case("autoencoder", "gelu_mnist_autoencoder", 3, B50),
    Case("statistics of units", "elu_mnist_units", 3, B50),
    Case("tweets", "gelu_twitter_pos", 2, B16),
    Case("speech", "gelu_timit", 2, {"data.batch_size": 4}),
    Case("gpt", "gpt_plain", 3, B16),
    Case("gpt, gated, half precision", "gpt_gated", 1, {**B16, **HALF}),
    Case("gpt, width 256, half precision", "gpt_plain", 3, {**B16, **LONG, **HALF}),
    Case("equation", "pinn_helmholtz", 3, {}),
    Case("image", "inr_image", 3, {}),
    Case("resnet", "cifar10_resnet20", 1, B16),
    Case("resnet, half precision", "cifar10_resnet20", 1, {**B16, **HALF}),
    Case("resnets, mapped", "cifar10_resnet20", 3, B16),
    Case("convolutions", "gelu_cifar10", 1, {**B16, **SCALED}),
    Case(
        "convolutions, half",
        "gelu_cifar10",
        1,
        {**B16, **SCALED, **HALF, "trainer.benchmark": True},
    ),
    Case("wide resnet, half precision", "gelu_cifar100", 1, {**B16, **HALF}),
    Case("eleven layers", "elu_cifar100", 1, {**B16, "data.preprocessing": ["unit"]}),
)


class Trained(NamedTuple):
    """What a training leaves."""

    weights: torch.Tensor
    loss: torch.Tensor
    updates: int
    replayed: int
    reason: str


def train(configs: Sequence[Mapping[str, Any]], with_graphs: bool) -> Trained:
    """Train a run or a stack."""
    program: Any = replay.Captured if DEVICE == "cuda" else replay.traced
    with ExitStack() as all_:
        folder = all_.enter_context(tempfile.TemporaryDirectory())
        all_.enter_context(quiet())
        all_.enter_context(threads(1))
        all_.enter_context(patch.object(blocks, "LONGEST", 1e9))
        all_.enter_context(patch.object(devices, "graphs", True))
        programs = {DEVICE: program} if with_graphs else {}
        all_.enter_context(patch.dict(replay.PROGRAMS, programs, clear=True))

        trainer, task, data = building.assemble(copy.deepcopy(configs), Checkpoint(), Path(folder))
        module: Any = task
        trainer.fit(task, datamodule=data)

    metrics = module.latest if module.stacked else trainer.callback_metrics
    floats = [value for value in module.state_dict().values() if value.is_floating_point()]
    return Trained(
        torch.cat([value.detach().double().cpu().flatten() for value in floats]),
        torch.as_tensor(metrics["train/loss"]).double().cpu().flatten(),
        trainer.global_step,
        module._blocks.replay.replayed,
        module.not_replayed or module.single_updates,
    )


def distance(here: Trained, there: Trained) -> float:
    """Return the largest difference of weights or losses, relative to the largest; inf for nan."""
    if here.updates != there.updates:
        return math.inf
    found = []
    for values, others in ((here.weights, there.weights), (here.loss, there.loss)):
        difference = float((values - others).abs().max() / others.abs().max())
        found.append(math.inf if math.isnan(difference) else difference)
    return max(found)


def verdict_of(first: Trained, again: Trained, replayed: Trained) -> str:
    """Return the verdict of a case."""
    if not replayed.replayed:
        return "eager"
    far = distance(replayed, first)
    if far == 0:
        return "bits"
    if far <= NOISE * distance(again, first) < math.inf:
        return "noise"
    return "differs"


def row_of(case: Case, updates: int) -> dict[str, Any]:
    """Train a case three times and return its row."""
    row: dict[str, Any] = {"case": case.name, "runs": case.runs}
    try:
        configs = case.configs(updates)
        first, again, replayed = (
            train(configs, with_graphs) for with_graphs in (False, False, True)
        )
    except (ActlabError, RuntimeError) as error:
        return {**row, "verdict": "error", "reason": str(error).partition("\n")[0]}
    return {
        **row,
        "verdict": verdict_of(first, again, replayed),
        "updates": replayed.updates,
        "replayed": replayed.replayed,
        "reason": replayed.reason,
        # May be infinite, which JSON has no number for
        "distance": f"{distance(replayed, first):.1e}",
        "noise": f"{distance(again, first):.1e}",
    }
