"""What stacking saves: time of one update of one run, alone and in stacks, against its products.

    python benchmarks/stacks.py [--dataset FOLDER_OR_HUB_ID] [--trainer [--rounds 5]] [--profile R]

The network is the MNIST classifier with GELU, Adam and batches of 128. Sides take turns; the
figures are medians over the rounds, in milliseconds an update and run. Under a Trainer, updates are
in blocks, as in studies, but for the template's, and those named single.

- ``grid_…_ms``: the grid of one unit, 5 seeds × 3 learning rates × 3 dropouts (0, 0.25, 0.5), as
  our engines train it, and as project templates do: a dataset read sample by sample, metrics logged
  every step.
- ``loop_ms``, ``trainer_ms``, ``single_ms``: one run without dropout, by a loop written by hand,
  and under a Trainer by blocks and by single updates. ``--trainer`` measures these alone. On a CPU
  they take one thread, and it is processor time, because other programs would change the ratio.
- ``stacked_R_ms``, ``stacked_R_mb``: a stack of R runs without dropout, and the memory it adds at
    its peak.
- ``products_R_ms``: its matrix products alone, in the order of an update, so that each finds the
  caches as training leaves them.
- ``explicit_ms``, ``func_ms``: forward and backward of 15 networks by our batched layers and by
    ``torch.func``.
- ``trimmed_ms``, ``kept_ms``: a stack of 15 without and with `actlab.runtime.devices.keep_freed`.
"""

from __future__ import annotations

import actlab  # noqa: F401  (first, for torchvision: see actlab.runtime.operators)

# isort: split
import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import data as batches
import psutil
import pytorch_lightning as pl
import sides
import torch
from figures import show
from opponents import explicit_and_func, looped, products, template
from timing import BLOCK, DEVICE, Clock, threads_of, updates_of
from torch.utils.data import DataLoader

from actlab import experiments
from actlab.config import paths
from actlab.engines import packing
from actlab.random import masks
from actlab.runtime.denormals import flush_denormals
from actlab.runtime.devices import keep_freed
from actlab.runtime.quiet import quiet
from actlab.stacking import building
from actlab.studies import plan, reading

ROUNDS = 5
SIZES = (1, 2, 5, 15, 45, 90) if DEVICE == "cpu" else (1, 15, 90, 450)
LEARNING_RATE, DROPOUT = "model.optimizer.lr", "model.network.dropout"
RATES, DROPOUTS = (1e-3, 1e-4, 1e-5), (0.0, 0.25, 0.5)


@contextmanager
def long_epochs(dataset: str | None) -> Iterator[str]:
    """Yield the dataset, or a folder with the bundled sample repeated: a fit is within an epoch."""
    with tempfile.TemporaryDirectory() as folder:
        yield dataset or str(sides.repeated("mnist", Path(folder, "mnist"), 3))


def grid(
    dataset: str | None, *overrides: str, study: str = "gelu_mnist_classifier"
) -> list[plan.Run]:
    """Runs of a study without its stages, by default that of Fig 2, with GELU and few updates."""
    few = (
        f"trainer.max_steps={updates_of()}",
        "trainer.limit_val_batches=0",
        "trainer.val_check_interval=1.0",
    )
    short = ("model.activation=gelu", *few)
    source = f"data.dataset={dataset}" if dataset else "data.sample=true"
    return reading.load(study, overrides=[source, *short, *overrides], staged=False).runs()


def as_a_study_does() -> None:
    """Set up this process as ``actlab study run`` sets up its own."""
    flush_denormals()
    keep_freed()


def alone(
    runs: Sequence[plan.Run], blocks: int = BLOCK, now: Callable[[], float] = time.perf_counter
) -> float:
    """Milliseconds an update of stacks of one: mean over the runs."""
    taken = []
    for run in runs:
        clock = Clock(blocks, now)
        with tempfile.TemporaryDirectory() as folder, quiet(), threads_of(1):
            trainer, task, module = building.assemble([run.config], clock, Path(folder))
            trainer.logger = pl.loggers.CSVLogger(folder)
            trainer.fit(task, datamodule=module)
        taken.append(clock.milliseconds)
    return statistics.mean(taken)


def in_stack(runs: Sequence[plan.Run], clock: Clock | None = None) -> float:
    """Milliseconds an update of a stack."""
    clock = clock or Clock()
    with tempfile.TemporaryDirectory() as folder, quiet(), threads_of(len(runs)):
        trainer, task, module = building.assemble([run.config for run in runs], clock, Path(folder))
        trainer.fit(task, datamodule=module)
    return clock.milliseconds


def stacked_grid(runs: Sequence[plan.Run]) -> float:
    """Milliseconds an update and run of a grid, in the stacks that the engine makes of it."""
    with tempfile.TemporaryDirectory() as folder:
        jobs = packing.pack(runs, Path(folder)).jobs
    return sum(in_stack(job.runs) for job in jobs) / len(runs)


def members(runs: Sequence[plan.Run], size: int) -> list[plan.Run]:
    """So many of the runs without dropout, from all learning rates where there are three."""
    plain = [run for run in runs if not paths.get_dotted(run.config, DROPOUT)]
    by_rate = [
        [r for r in plain if paths.get_dotted(r.config, LEARNING_RATE) == rate] for rate in RATES
    ]
    bounds = [round(i * size / 3) for i in range(4)]
    chosen = [of_rate[: b - a] for of_rate, (a, b) in zip(by_rate, pairwise(bounds), strict=True)]
    return [run for part in chosen for run in part]


def without_dropout(dataset: str | None, size: int, *overrides: str) -> list[plan.Run]:
    """So many runs without dropout, which train as long as is fit for a stack of them."""
    settings = (
        f"seeds={-(-size // 3)}",
        "model.network.dropout=0.0",
        f"trainer.max_steps={updates_of(size)}",
    )
    return members(grid(dataset, *settings, *overrides), size)


def begin_peak() -> int:
    """Let `peak_memory` begin at the bytes that this process holds now, and return them."""
    if DEVICE == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    return psutil.Process().memory_info().rss


def peak_memory() -> int:
    """Peak bytes of this process, on the GPU if there is one; ``getrusage`` counts its parent's."""
    if DEVICE == "cuda":
        return torch.cuda.max_memory_allocated()
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024


def measured(runs: Sequence[plan.Run]) -> dict[str, float]:
    """Milliseconds an update and run of a stack, and the MiB that it adds at its peak."""
    gc.collect()
    before = begin_peak()
    milliseconds = in_stack(runs) / len(runs)
    return {"ms": milliseconds, "mb": (peak_memory() - before) / 2**20}


def report_one(dataset: str | None, size: int) -> None:
    """Print time and memory of one stack, as JSON: what `own_process` reads."""
    as_a_study_does()
    print(json.dumps(measured(without_dropout(dataset, size))))


def own_process(dataset: str | None, size: int, **environment: str) -> dict[str, float]:
    """Time and memory of one stack in a process of its own."""
    words = [
        sys.executable,
        __file__,
        "--one",
        str(size),
        *(["--dataset", dataset] if dataset else []),
    ]
    done = subprocess.run(
        words, check=True, capture_output=True, text=True, env={**os.environ, **environment}
    )
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def profile(dataset: str | None, size: int) -> None:
    """Print what the time of a stack goes to, by operation."""
    as_a_study_does()
    runs = without_dropout(dataset, size, "trainer.max_steps=300")
    with torch.profiler.profile() as profiler:
        in_stack(runs)
    operations = [event for event in profiler.key_averages() if event.key.startswith("aten::")]
    total = sum(event.self_cpu_time_total for event in operations)
    for event in sorted(operations, key=lambda event: -event.self_cpu_time_total)[:14]:
        share = event.self_cpu_time_total / total
        print(
            f"{event.key:36} {share:8.1%} {event.self_cpu_time_total / event.count:10.0f} µs a call"
        )


def medians(timed: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Median of each side, which take turns."""
    turns = [{name: side() for name, side in timed.items()} for _ in range(rounds)]
    return {name: statistics.median(turn[name] for turn in turns) for name in timed}


def against_loop(run: plan.Run, loader: Any) -> dict[str, Callable[[], float]]:
    """The sides of one run: a loop by hand, and a Trainer by blocks and by single updates."""
    now = time.process_time if DEVICE == "cpu" else time.perf_counter
    return {
        "loop_ms": lambda: looped(loader, now),
        "trainer_ms": lambda: alone([run], BLOCK, now),
        "single_ms": lambda: alone([run], 1, now),
    }


def to_loop(figures: Mapping[str, float]) -> dict[str, float]:
    """The ratios of these sides."""
    return {
        f"{name}_vs_loop": figures[f"{name}_ms"] / figures["loop_ms"]
        for name in ("trainer", "single")
    }


@quiet()
def measure_trainer(dataset: str | None = None, rounds: int = ROUNDS) -> dict[str, float]:
    """Figures of one run alone: ``trainer_vs_loop``, ``single_vs_loop``, and their parts."""
    as_a_study_does()
    with long_epochs(dataset) as source:
        (run,) = without_dropout(source, 1)
        module: Any = experiments.build(run.config).data
        module.setup("fit")
        figures = medians(against_loop(run, module.train_dataloader()), rounds)
    return figures | to_loop(figures)


@quiet()
def measure(dataset: str | None = None) -> dict[str, float]:
    """All figures: milliseconds an update and run, memory, and the ratios.

    Returns:
        ``trainer_vs_loop``, ``single_vs_loop``, ``template_vs_stacked``, ``sequential_vs_stacked``,
        ``stacked_vs_products``, ``func_vs_explicit``, ``trimmed_vs_kept``, and what they are made
        of.
    """
    with long_epochs(dataset) as source:
        return measure_on(source)


def measure_on(dataset: str) -> dict[str, float]:
    """All figures of one dataset."""
    as_a_study_does()
    masks.compile_masks()
    runs = grid(dataset, "model.network.dropout=[0.0,0.25,0.5]")
    plain = {size: without_dropout(dataset, size) for size in SIZES}
    by_dropout = [
        next(r for r in runs if paths.get_dotted(r.config, DROPOUT) == p) for p in DROPOUTS
    ]
    module: Any = experiments.build(runs[0].config).data
    module.setup("fit")
    samples = batches.PerSample(*module.train.tensors)
    explicit, func = explicit_and_func()
    figures = medians(
        {
            **against_loop(by_dropout[0], module.train_dataloader()),
            "grid_template_ms": lambda: template(
                DROPOUTS, DataLoader(samples, 128, shuffle=True, drop_last=True)
            ),
            "grid_sequential_ms": lambda: alone(by_dropout),
            "grid_stacked_ms": lambda: stacked_grid(runs),
            **{f"stacked_{n}_ms": lambda n=n: in_stack(plain[n]) / n for n in SIZES},
            **{f"products_{n}_ms": lambda n=n: products(n) / n for n in SIZES},
            "explicit_ms": explicit,
            "func_ms": func,
        },
        ROUNDS,
    )
    freed: dict[str, Callable[[], float]] = {
        "trimmed_ms": lambda: own_process(dataset, 15, MALLOC_ARENA_MAX="8")["ms"],
        "kept_ms": lambda: own_process(dataset, 15)["ms"],
    }
    figures |= medians(freed, 3)
    figures |= {f"stacked_{n}_mb": own_process(dataset, n)["mb"] for n in SIZES}
    best = min(SIZES, key=lambda n: figures[f"stacked_{n}_ms"])
    return figures | {
        "best_size": float(best),
        **to_loop(figures),
        "template_vs_stacked": figures["grid_template_ms"] / figures["grid_stacked_ms"],
        "sequential_vs_stacked": figures["grid_sequential_ms"] / figures["grid_stacked_ms"],
        "stacked_vs_products": figures[f"stacked_{best}_ms"] / figures[f"products_{best}_ms"],
        "func_vs_explicit": figures["func_ms"] / figures["explicit_ms"],
        "trimmed_vs_kept": figures["trimmed_ms"] / figures["kept_ms"],
    }


def main() -> None:
    """Measure and print, one figure a line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--dataset", help="hub id or folder; by default the embedded sample of MNIST"
    )
    parser.add_argument(
        "--trainer", action="store_true", help="one run alone: Trainer against a loop by hand"
    )
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="turns of each side, with --trainer"
    )
    parser.add_argument(
        "--one", type=int, metavar="R", help="time and memory of one stack of R runs"
    )
    parser.add_argument(
        "--profile", type=int, metavar="R", help="what the time of a stack of R runs goes to"
    )
    args = parser.parse_args()
    if args.one:
        report_one(args.dataset, args.one)
    elif args.profile:
        profile(args.dataset, args.profile)
    elif args.trainer:
        show(measure_trainer(args.dataset, args.rounds))
    else:
        show(measure(args.dataset))


if __name__ == "__main__":
    main()
