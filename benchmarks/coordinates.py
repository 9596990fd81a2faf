"""`pinn_helmholtz` and `inr_image` against loops by hand: time of an update, and results of the same task.

    python benchmarks/coordinates.py [--task pinn|inr] [--updates 200] [--rounds 5] [--activation gelu]
    python benchmarks/coordinates.py --task inr --results 2 --dataset FOLDER

The loops use torch alone: they share no code with the tasks. Both sides run in turns, in one process with one
thread, as many updates each as ``--updates``: a loop, a Trainer with one run, and one with a stack of 15 runs,
whose time counts per run. Printed are the medians of the ratios of neighbours, with their range.

With ``--results`` the loops run to their end for so many seeds, and print the final metric: relative error on
the midpoints of the grid, or PSNR of the held-out pixels in odd rows.
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

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from actlab.engines.stacked import assemble
from actlab.experiments import build
from actlab.storage.mappings import read_mapping
from actlab.storage.resources import config_file
from actlab.studies import reading

ACTS = {"gelu": nn.GELU, "tanh": nn.Tanh, "silu": nn.SiLU, "relu": nn.ReLU, "mish": nn.Mish}
NAMES = {"pinn": "pinn_helmholtz", "inr": "inr_image"}
RUNS = 15
LENGTHS = {"pinn": 2000, "inr": 1000}  # updates


def mlp(act: Callable[[], nn.Module], sizes: list[int], gain: float, seed: int) -> nn.Sequential:
    """Return linear layers with an activation between each two, weights normal with std gain / √fan_in."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for d, h in itertools.pairwise(sizes):
        layers += [nn.Linear(d, h), act()]
        nn.init.normal_(layers[-2].get_parameter("weight"), std=gain / math.sqrt(d))
        nn.init.zeros_(layers[-2].get_parameter("bias"))
    return nn.Sequential(*layers[:-1])


def pinn(act: Callable[[], nn.Module], seed: int, lr: float = 3e-3) -> Iterator[Callable[[], float]]:
    """Make one update after the other; yield after each what measures the relative error."""
    net = mlp(act, [2, 64, 64, 64, 1], 1.0, seed)
    opt = torch.optim.Adam(net.parameters(), lr, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda k: 0.5 * (1 + math.cos(math.pi * k / 2000)))

    def u(p: Tensor) -> Tensor:
        return torch.sin(math.pi * p[:, :1]) * torch.sin(4 * math.pi * p[:, 1:])

    def error() -> float:
        ends = torch.linspace(-1, 1, 100)
        middle = (ends[1:] + ends[:-1]) / 2
        p = torch.cartesian_prod(middle, middle)
        with torch.no_grad():
            return float((net(p) - u(p)).norm() / u(p).norm())

    while True:
        p = (2 * torch.rand(256, 2) - 1).requires_grad_()
        s, one = 2 * torch.rand(64, 1) - 1, torch.ones(64, 1)
        sides = torch.cat([torch.cat(pair, 1) for pair in ((one, s), (-one, s), (s, one), (s, -one))])
        v = net(p)
        (g,) = torch.autograd.grad(v.sum(), p, create_graph=True)
        (gx,) = torch.autograd.grad(g[:, 0].sum(), p, create_graph=True)
        (gy,) = torch.autograd.grad(g[:, 1].sum(), p, create_graph=True)
        f = (1 - 17 * math.pi**2) * u(p.detach())
        loss = (gx[:, :1] + gy[:, 1:] + v - f).square().mean() + 100 * net(sides).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        schedule.step()
        yield error


def inr(
    act: Callable[[], nn.Module], seed: int, image: Tensor, lr: float = 3e-3, omega: float = 15.0
) -> Iterator[Callable[[], float]]:
    """Make one update after the other; yield after each what measures the PSNR. ``image``: ``(H, W, 3)``."""
    net = mlp(act, [2, 128, 128, 128, 3], 1.4, seed)
    first, last = net[0], nn.Linear(128, 3)
    net[-1] = last
    nn.init.normal_(first.get_parameter("weight"), std=omega / math.sqrt(2))
    nn.init.uniform_(first.get_parameter("bias"), -omega, omega)
    opt = torch.optim.Adam(net.parameters(), lr, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda k: 0.5 * (1 + math.cos(math.pi * k / 1000)))
    rows, columns = torch.meshgrid(*map(torch.arange, image.shape[:2]), indexing="ij")
    y, x = (2 * places / (n - 1) - 1 for places, n in zip((rows, columns), image.shape, strict=False))
    p, even = torch.stack([x, y], -1), (rows + columns) % 2 == 0
    training, colours, held = p[even], image[even], ~even & (rows % 2 == 1)

    def psnr() -> float:
        with torch.no_grad():
            return float(-10 * (net(p[held]) - image[held]).square().mean().log10())

    while True:
        index = torch.randint(len(training), (1024,))
        loss = (net(training[index]) - colours[index]).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        schedule.step()
        yield psnr


class Updates(pl.Callback):
    """Times the updates of a fit after the first few."""

    stackable = True
    skipped = 5

    def __init__(self) -> None:
        self.begin = self.end = 0.0

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, *rest: object) -> None:
        """Note the processor time."""
        self.end = time.process_time()
        if trainer.global_step == self.skipped:
            self.begin = self.end


def fitted(task: str, activation: str, updates: int, runs: int, dataset: str | None) -> float:
    """Return the seconds of an update per run, of a Trainer that trains one run or a stack."""
    words = [f"model.activation=[{activation}]", f"seeds={runs}", *settings(task, dataset)]
    words += [f"trainer.max_steps={updates}", "trainer.limit_val_batches=0", "trainer.limit_test_batches=0"]
    keys = {"pinn": "model.network.gain=[1.0]", "inr": "model.network.omega=[15.0]"}
    words += ["model.optimizer.lr=[0.003]", keys[task]]
    study = reading.load(NAMES[task], overrides=words, staged=False)
    clock = Updates()
    with tempfile.TemporaryDirectory() as folder:
        trainer, module, data = assemble(study.runs(), clock, Path(folder))
        trainer.fit(module, datamodule=data)
    return (clock.end - clock.begin) / (updates - clock.skipped) / runs


def settings(task: str, dataset: str | None) -> list[str]:
    """Return the settings that name the data."""
    if task == "pinn":
        return []
    return [f"data.dataset={dataset}"] if dataset else ["data.sample=true"]


def by_hand(task: str, activation: str, seed: int, image: Tensor | None) -> Iterator[Callable[[], float]]:
    """Return the updates of a loop."""
    if image is None:
        return pinn(ACTS[activation], seed)
    return inr(ACTS[activation], seed, image)


def picture(dataset: str | None) -> Tensor:
    """Return the picture of `inr_image`, ``(H, W, 3)`` in [0, 1]."""
    config = read_mapping(config_file("inr_image"))
    config["data"]["init_args"] |= {"dataset": dataset, "sample": dataset is None}
    return build(config).data.image.permute(1, 2, 0).float() / 255  # type: ignore[attr-defined,no-any-return]


def main() -> None:
    """Measure, and print the ratios or results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
        updates = by_hand(args.task, args.activation, seed, image)
        metric = next(itertools.islice(updates, LENGTHS[args.task] - 1, None))
        print(f"seed {seed}: {metric():.4g}", flush=True)
    ratios: dict[str, list[float]] = {"alone": [], "stacked": []}
    for _ in range(0 if args.results else args.rounds):
        loop = by_hand(args.task, args.activation, 0, image)
        for _ in range(Updates.skipped):
            next(loop)
        start = time.process_time()
        for _ in range(args.updates - Updates.skipped):
            next(loop)
        hand = (time.process_time() - start) / (args.updates - Updates.skipped)
        for name, runs in (("alone", 1), ("stacked", RUNS)):
            taken = fitted(args.task, args.activation, args.updates, runs, args.dataset)
            ratios[name].append(taken / hand)
        print(f"by hand {1000 * hand:.2f} ms", {n: round(r[-1], 3) for n, r in ratios.items()}, flush=True)
    for name, found in ratios.items():
        if found:
            middle = f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"
            print(f"{args.task} {name} / by hand: {middle}")


if __name__ == "__main__":
    main()
