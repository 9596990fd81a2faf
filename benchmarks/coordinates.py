"""`pinn_helmholtz` and `inr_image` against loops by hand: time of an update, and results.

    python benchmarks/coordinates.py [--task pinn|inr] [--updates 200] [--rounds 5] [--activation
    gelu] python benchmarks/coordinates.py --task inr --results 2 --dataset FOLDER

The loops use torch alone: they share no code with the tasks. All sides run in turns, in one process
with one thread, ``--updates`` updates each: a loop, a LightningModule written by hand around the
same loss, the task with one run, in blocks as in studies and by single updates, and with a stack of
15 runs, whose time counts per run. Printed are the medians of the ratios of neighbours, with their
range, of processor time.

With ``--results`` the loops run to their end for so many seeds, and print the final metric:
relative error on the midpoints of the grid, or PSNR of the held-out pixels in odd rows.
"""

from __future__ import annotations

import actlab  # noqa: F401  (first, for torchvision: see actlab.runtime.operators)

# isort: split
import argparse
import itertools
import logging
import math
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from timing import BLOCK, WARM_UP, Clock
from torch import Tensor, nn

from actlab.experiments import build
from actlab.stacking.building import assemble
from actlab.storage.mappings import read_mapping
from actlab.storage.resources import config_file
from actlab.studies import reading

ACTS = {"gelu": nn.GELU, "tanh": nn.Tanh, "silu": nn.SiLU, "relu": nn.ReLU, "mish": nn.Mish}
NAMES = {"pinn": "pinn_helmholtz", "inr": "inr_image"}
RUNS = 15


def mlp(act: Callable[[], nn.Module], sizes: list[int], gain: float, seed: int) -> nn.Sequential:
    """Return linear layers with an activation between each two, weights of std gain / √fan_in."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for d, h in itertools.pairwise(sizes):
        layers += [nn.Linear(d, h), act()]
        nn.init.normal_(layers[-2].get_parameter("weight"), std=gain / math.sqrt(d))
        nn.init.zeros_(layers[-2].get_parameter("bias"))
    return nn.Sequential(*layers[:-1])


class Pinn:
    """The equation: a network, what draws a batch, its loss, and the relative error."""

    updates, lr = 2000, 3e-3

    def __init__(self, act: Callable[[], nn.Module], seed: int) -> None:
        self.net: nn.Module = mlp(act, [2, 64, 64, 64, 1], 1.0, seed)

    def solution(self, p: Tensor) -> Tensor:
        """Return u at points ``(B, 2)``."""
        return torch.sin(math.pi * p[:, :1]) * torch.sin(4 * math.pi * p[:, 1:])

    def draw(self) -> tuple[Tensor, Tensor]:
        """Return points inside and on the sides, each ``(256, 2)``."""
        inside = 2 * torch.rand(256, 2) - 1
        s, one = 2 * torch.rand(64, 1) - 1, torch.ones(64, 1)
        return inside, torch.cat(
            [torch.cat(pair, 1) for pair in ((one, s), (-one, s), (s, one), (s, -one))]
        )

    def loss(self, p: Tensor, sides: Tensor) -> Tensor:
        """Return the mean squared residual, and 100 times that of the sides."""
        v = self.net(p.requires_grad_())
        (g,) = torch.autograd.grad(v.sum(), p, create_graph=True)
        (gx,) = torch.autograd.grad(g[:, 0].sum(), p, create_graph=True)
        (gy,) = torch.autograd.grad(g[:, 1].sum(), p, create_graph=True)
        f = (1 - 17 * math.pi**2) * self.solution(p.detach())
        return (gx[:, :1] + gy[:, 1:] + v - f).square().mean() + 100 * self.net(
            sides
        ).square().mean()

    def metric(self) -> float:
        """Return the relative error on the midpoints of the grid."""
        ends = torch.linspace(-1, 1, 100)
        middle = (ends[1:] + ends[:-1]) / 2
        p = torch.cartesian_prod(middle, middle)
        with torch.no_grad():
            return float((self.net(p) - self.solution(p)).norm() / self.solution(p).norm())


class Inr:
    """The image ``(H, W, 3)``: a network, what draws a batch, its loss, and the PSNR."""

    updates, lr, omega = 1000, 3e-3, 15.0

    def __init__(self, act: Callable[[], nn.Module], seed: int, image: Tensor) -> None:
        layers = mlp(act, [2, 128, 128, 128, 3], 1.4, seed)
        layers[-1] = nn.Linear(128, 3)
        nn.init.normal_(layers[0].get_parameter("weight"), std=self.omega / math.sqrt(2))
        nn.init.uniform_(layers[0].get_parameter("bias"), -self.omega, self.omega)
        self.net: nn.Module = layers
        rows, columns = torch.meshgrid(*map(torch.arange, image.shape[:2]), indexing="ij")
        y, x = (
            2 * places / (n - 1) - 1
            for places, n in zip((rows, columns), image.shape, strict=False)
        )
        p, even = torch.stack([x, y], -1), (rows + columns) % 2 == 0
        held = ~even & (rows % 2 == 1)
        self.training, self.colours = p[even], image[even]
        self.held, self.held_colours = p[held], image[held]

    def draw(self) -> tuple[Tensor, Tensor]:
        """Return 1,024 positions and their colours."""
        index = torch.randint(len(self.training), (1024,))
        return self.training[index], self.colours[index]

    def loss(self, p: Tensor, colours: Tensor) -> Tensor:
        """Return the mean squared error."""
        return (self.net(p) - colours).square().mean()

    def metric(self) -> float:
        """Return the PSNR of the held-out pixels in odd rows."""
        with torch.no_grad():
            return float(-10 * (self.net(self.held) - self.held_colours).square().mean().log10())


Problem = Pinn | Inr


def optimiser(
    problem: Problem,
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """Return Adam and its cosine."""
    opt = torch.optim.Adam(problem.net.parameters(), problem.lr, fused=True)
    share = math.pi / problem.updates
    return opt, torch.optim.lr_scheduler.LambdaLR(opt, lambda k: 0.5 * (1 + math.cos(share * k)))


def by_hand(problem: Problem) -> Iterator[None]:
    """Make one update after the other."""
    opt, schedule = optimiser(problem)
    while True:
        loss = problem.loss(*problem.draw())
        opt.zero_grad()
        loss.backward()
        opt.step()
        schedule.step()
        yield


class Stock(pl.LightningModule):
    """The same loss in a LightningModule as one writes it by hand."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.problem, self.net = problem, problem.net

    def configure_optimizers(self) -> Any:
        """Return Adam and its cosine, moved each update."""
        opt, schedule = optimiser(self.problem)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Return the loss, and log its mean over an epoch."""
        loss = self.problem.loss(*batch)
        self.log("train/loss", loss, on_step=False, on_epoch=True)
        return loss


class Batches(torch.utils.data.IterableDataset[tuple[Tensor, Tensor]]):
    """Draws one batch after the other."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield self.problem.draw()


def stock(problem: Problem, updates: int) -> float:
    """Return the seconds of an update of a LightningModule in a Trainer with a ModelCheckpoint."""
    clock = Clock(now=time.process_time)
    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(
            accelerator="cpu",
            max_steps=updates,
            callbacks=[clock, pl.callbacks.ModelCheckpoint(folder)],
            enable_progress_bar=False,
            enable_model_summary=False,
            logger=False,
        )
        loader = torch.utils.data.DataLoader(Batches(problem), batch_size=None)
        trainer.fit(Stock(problem), loader)
    return clock.milliseconds / 1e3


def fitted(
    task: str, activation: str, updates: int, runs: int, blocks: int, dataset: str | None
) -> float:
    """Return the seconds of an update per run, of a Trainer that trains one run or a stack."""
    words = [f"model.activation=[{activation}]", f"seeds={runs}", *settings(task, dataset)]
    words += [
        f"trainer.max_steps={updates}",
        "trainer.limit_val_batches=0",
        "trainer.limit_test_batches=0",
    ]
    keys = {"pinn": "model.network.gain=[1.0]", "inr": "model.network.omega=[15.0]"}
    words += ["model.optimizer.lr=[0.003]", keys[task]]
    study = reading.load(NAMES[task], overrides=words, staged=False)
    clock = Clock(blocks, time.process_time)
    with tempfile.TemporaryDirectory() as folder:
        trainer, module, data = assemble([run.config for run in study.runs()], clock, Path(folder))
        trainer.fit(module, datamodule=data)
    return clock.milliseconds / 1e3 / runs


def settings(task: str, dataset: str | None) -> list[str]:
    """Return the settings that name the data."""
    if task == "pinn":
        return []
    return [f"data.dataset={dataset}"] if dataset else ["data.sample=true"]


def problem_of(task: str, activation: str, seed: int, image: Tensor | None) -> Problem:
    """Return the problem of a seed, with a network of its own."""
    return Pinn(ACTS[activation], seed) if image is None else Inr(ACTS[activation], seed, image)


def picture(dataset: str | None) -> Tensor:
    """Return the picture of `inr_image`, ``(H, W, 3)`` in [0, 1]."""
    config = read_mapping(config_file("inr_image"))
    config["data"]["init_args"] |= {"dataset": dataset, "sample": dataset is None}
    return build(config).data.image.permute(1, 2, 0).float() / 255  # type: ignore[attr-defined,no-any-return]


def main() -> None:
    """Measure, and print the ratios or results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", choices=NAMES, default="pinn")
    parser.add_argument("--activation", choices=ACTS, default="gelu")
    parser.add_argument("--dataset", help="CIFAR-10, for inr; default: the embedded sample")
    for name, default in (("updates", 200), ("rounds", 5), ("results", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    image = picture(args.dataset) if args.task == "inr" else None
    for seed in range(args.results):
        problem = problem_of(args.task, args.activation, seed, image)
        next(itertools.islice(by_hand(problem), problem.updates - 1, None))
        print(f"seed {seed}: {problem.metric():.4g}", flush=True)
    ratios: dict[str, list[float]] = {
        "plain Lightning": [],
        "alone": [],
        "single": [],
        "stacked": [],
    }
    for _ in range(0 if args.results else args.rounds):
        loop = by_hand(problem_of(args.task, args.activation, 0, image))
        for _ in range(WARM_UP):
            next(loop)
        start = time.process_time()
        for _ in range(args.updates - WARM_UP):
            next(loop)
        hand = (time.process_time() - start) / (args.updates - WARM_UP)
        problem = problem_of(args.task, args.activation, 0, image)
        ratios["plain Lightning"].append(stock(problem, args.updates) / hand)
        for name, runs, blocks in (("alone", 1, BLOCK), ("single", 1, 1), ("stacked", RUNS, BLOCK)):
            taken = fitted(args.task, args.activation, args.updates, runs, blocks, args.dataset)
            ratios[name].append(taken / hand)
        print(
            f"by hand {1000 * hand:.2f} ms",
            {n: round(r[-1], 3) for n, r in ratios.items()},
            flush=True,
        )
    for name, found in ratios.items():
        if found:
            middle = f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"
            print(f"{args.task} {name} / by hand: {middle}")


if __name__ == "__main__":
    main()
