"""Measure a machine with one CUDA GPU, part by part, in calls of bounded time; write ``gpu.json``.

    python benchmarks/gpu.py [PART ...] [--minutes 9] [--cifar10 FOLDER] [--jobs N] [--out runs/gpu]
    [--smoke]

The same command resumes: a finished part is not repeated, and what a part has kept is not measured
again. Each part runs in a process of its own, which is ended when the minutes are over; trainings
are studies of actlab and resume from their last epoch. The folder ``--out`` holds all that is
needed for that. Nothing is downloaded.

- ``tests``: the tests marked ``gpu``: how many passed, failed and were skipped.
- ``mnist``: stacks of 15 and 90 MNIST classifiers in float32, against JAX where it is installed and
  finds the GPU (`jax_table`), else alone: milliseconds an update and run, and the ratio.
- ``convnet``: the GELU paper's network for CIFAR-10 in bf16-mixed, with GELU, ReLU and ELU, three
    seeds.
- ``resnet``: ResNet-20 in bf16-mixed, with GELU, SiLU and ReLU, three seeds.
- ``gpt``: ``gpt_plain`` with four blocks of width 256 in bf16-mixed: time of an update and memory
  of stacks of 1, 5 and 15 runs, how a stack differs from its runs alone (null: they agree), and the
  size that a study would choose (0: all runs).
- ``blocks``: stacks of 15 and 90 MNIST classifiers in float32, without and with dropout, by single
  updates, in blocks as studies have them, replayed as a CUDA graph (on a CPU as traced operators),
  and in JAX, whose turns hold validations and the test set too; and an update of ``convnet``'s
  network alone against its kernels, on embedded images. Milliseconds an update and run.
- ``correct``: trainings with and without CUDA graphs, in 29 cases (`graphs.py`). Where all are
  right, graphs are the default of devices of this name, once the file lies in ``benchmarks/`` as
  ``gpu_NAME.json``.
- ``epochs``: ``convnet`` for three epochs with one seed, with and without CUDA graphs: seconds an
  epoch, and why updates were not replayed.

``convnet`` and ``resnet`` train for 200 epochs and read CIFAR-10 from a folder in the hub's layout,
``plain_text/train-00000-of-00001.parquet`` (84 MiB) and ``plain_text/test-00000-of-00001.parquet``
(17 MiB). Shards ``train-00000-of-00002.parquet``, … are read alike, where a file is too large to
transfer.

``--smoke`` runs all parts in small forms, on samples, also on the CPU.
"""

from __future__ import annotations

import actlab  # (first, for torchvision: see actlab.runtime.operators)

# isort: split
import argparse
import multiprocessing as mp
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch
from xml.etree import ElementTree

import graphs
import jax_table
import pytorch_lightning as pl
import sides
import stacks
import torch
from timing import BLOCK, DEVICE, Clock

from actlab.checks import stack_trial
from actlab.checks.facts import BuiltFacts
from actlab.engines import timing
from actlab.random import masks
from actlab.runtime.devices import name_of
from actlab.runtime.quiet import quiet
from actlab.storage.json_files import read_json, write_json
from actlab.studies import plan
from actlab.tasks import replay

ROOT = Path(__file__).parent.parent
PATIENCE = 20.0  # seconds that a part may take to end
Entry = dict[str, Any]  # of a part in gpu.json


class Sizes(NamedTuple):
    """What differs between the full form and the small one."""

    mnist: tuple[int, ...]  # runs of a stack
    epochs: int  # of these runs: more than the turns take
    rounds: int
    dropouts: tuple[float, ...]  # of these runs
    gpt: tuple[int, ...]  # runs of a stack
    settings: Mapping[str, Any]  # of their config
    convnet: Mapping[str, Any]  # settings of the network for CIFAR-10


FULL = Sizes(
    *((15, 90), sides.EPOCHS, 3, (0.0, 0.5), (1, 5, 15)),
    {
        **{"model.network.width": 256, "model.network.blocks": 4, "model.network.heads": 4},
        **{"data.context": 256, "data.updates_per_epoch": 20_000},
    },
    {"data.batch_size": 100},
)
SMOKE = Sizes(
    *((2,), 90, 1, (0.0,), (1, 2)),
    {
        **{"model.network.width": 16, "model.network.blocks": 1, "model.network.heads": 2},
        **{"data.context": 16, "data.updates_per_epoch": 100},
    },
    {"data.batch_size": 10, "model.network.widths": [8, 8], "trainer.max_steps": 31},
)


def tests(_: argparse.Namespace, entry: Entry) -> Iterator[Entry]:
    """Count the tests marked ``gpu`` by outcome."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        words = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider"]
        ended = subprocess.run(
            [*words, f"--junitxml={report}", "tests/test_gpu.py"], cwd=ROOT, check=False
        )
        if ended.returncode not in (0, 1):  # 1: some failed
            raise SystemExit(f"pytest ended with exit code {ended.returncode}")
        found = ElementTree.parse(report).getroot()[0].attrib
    skipped, failed = int(found["skipped"]), int(found["failures"]) + int(found["errors"])
    yield {"passed": int(found["tests"]) - failed - skipped, "failed": failed, "skipped": skipped}


def jax_found() -> tuple[bool, str]:
    """Return whether JAX computes on our device, and what it finds."""
    # Unless told, JAX multiplies float32 as TF32 on a GPU, which torch does not, and takes most of
    # its memory.
    os.environ |= {
        "JAX_DEFAULT_MATMUL_PRECISION": "highest",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    words = [sys.executable, "-c", "import jax; print(jax.default_backend())"]
    backend = subprocess.run(words, check=False, capture_output=True, text=True).stdout.strip()
    jax = backend == {"cuda": "gpu"}.get(DEVICE, DEVICE)
    return (
        jax,
        backend if jax else f"not measured: {f'JAX finds the {backend}' if backend else 'no JAX'}",
    )


def mnist(options: argparse.Namespace, entry: Entry) -> Iterator[Entry]:
    """Time stacks of MNIST classifiers against JAX, one size after the other."""
    jax, found = jax_found()
    yield {"jax": found}
    sizes = sizes_of(options)
    timed = partial(
        jax_table.measure,
        rounds=sizes.rounds,
        dropouts=sizes.dropouts,
        jax=jax,
        epochs=sizes.epochs,
    )
    for size in sizes.mnist:
        if (name := f"runs_{size}") not in entry:
            yield {name: timed(size=size)}


def training(
    activations: list[str],
    smoke: Mapping[str, Any],
    base: str,
    options: argparse.Namespace,
    entry: Entry,
) -> Iterator[Entry]:
    """Train a network for CIFAR-10 with some activations and three seeds, as a study."""
    file = options.out / f"{base}.yaml"
    write_json(file, study_of(base, activations, smoke, seeds=3))
    data = {"data.dataset": str(options.cifar10), "data.cache_dir": str(options.out / "cache")}
    study = actlab.load_study(file, settings={} if options.smoke else data, smoke=options.smoke)
    found = actlab.run_study(study, runs_dir=options.out / "runs", jobs=options.jobs)
    if found.failed:
        raise SystemExit(f"{found.failed} runs failed: see {found.root}")
    values = found.values[["model.activation", "seed", "status", "test/error@last", "run"]]
    results = (
        read_json(found.root / run / "result.json", Entry, "delete it") for run in values["run"]
    )
    yield {"runs": values.assign(seconds=[one["seconds"] for one in results]).to_dict("records")}


def study_of(
    base: str,
    activations: list[str],
    smoke: Mapping[str, Any],
    seeds: int,
    settings: Mapping[str, Any] = {},
) -> dict[str, Any]:
    """The file of a study of a network for CIFAR-10 in bf16-mixed."""
    return {
        "base": base,
        "set": {"trainer.precision": "bf16-mixed", "trainer.benchmark": True, **settings},
        "grid": {"model.activation": activations},
        "seeds": seeds,
        "table": [{"metric": "test/error", "at": "last", "percent": True}],
        "smoke": {"data.batch_size": 10, **smoke},
    }


def epochs(options: argparse.Namespace, entry: Entry) -> Iterator[Entry]:
    """Train a network with convolutions with and without CUDA graphs, each in its own folder."""
    number = 3
    smoke = {"model.network.widths": [8, 8], "trainer.max_steps": 31}
    settings = {"trainer.max_epochs": number, "data.cache_dir": str(options.out / "cache")}
    if not options.smoke:
        settings["data.dataset"] = str(options.cifar10)
    file = options.out / "epochs.yaml"
    write_json(file, study_of("cifar10_convnet", ["gelu_tanh"], smoke, 1, settings))
    words = ["study", "run", str(file), "--jobs=1", *(["--smoke"] if options.smoke else [])]

    for side in ("graphs", "no-graphs"):
        if side in entry:
            continue
        root = options.out / side
        subprocess.run(
            [sys.executable, "-m", "actlab", *words, f"--{side}", f"--runs-dir={root}"], check=True
        )
        results = [read_json(path, Entry, "delete it") for path in root.rglob("result.json")]
        seconds = [result["seconds"] / number for result in results]
        reasons = [
            result.get("not_replayed") or result.get("single_updates") or "" for result in results
        ]
        yield {side: {"seconds_an_epoch": seconds, "reasons": reasons}}


def gpt(options: argparse.Namespace, entry: Entry) -> Iterator[Entry]:
    """Time updates of GPTs in stacks, in turns; then try a stack and choose its size as studies."""
    stacks.as_a_study_does()
    sizes = sizes_of(options)
    settings = {
        "seeds": max(sizes.gpt),
        "model.optimizer.lr": 0.003,
        "trainer.precision": "bf16-mixed",
    }
    words = [f"{key}={value}" for key, value in {**settings, **sizes.settings}.items()]
    runs = stacks.grid(None, *words, study="gpt_plain")
    with quiet():
        if "stacks" not in entry:
            turns = [
                [stacks.measured(runs[:n]) for n in sizes.gpt] for _ in range(1 + sizes.rounds)
            ]
            by_size = [*zip(*turns[1:], strict=True)]  # the first turn prepares memory and kernels
            ms = [statistics.median(one["ms"] for one in of_size) for of_size in by_size]
            mb = [max(one["mb"] for one in of_size) for of_size in by_size]
            names = ("runs", "ms", "mb", "updates_per_second", "vs_alone")
            rows = [
                (n, t, m, 1e3 / t, t / ms[0]) for n, t, m in zip(sizes.gpt, ms, mb, strict=True)
            ]
            yield {"stacks": [dict(zip(names, row, strict=True)) for row in rows]}
        yield {"differs": stack_trial.dependence(runs, exact=stacks.DEVICE == "cpu")}
        updates = BuiltFacts().updates_of(runs[0]) or 1
        yield {"chosen": timing.best_size(runs, updates, max(sizes.gpt), forms=True)}


class Kernels(Clock):
    """Measures the time of the kernels of a GPU instead."""

    def on_train_batch_end(self, trainer: pl.Trainer, *rest: object) -> None:
        """Profile from the end of the warm-up to the last update."""
        before = self.begin
        super().on_train_batch_end(trainer, *rest)
        if before is None and self.begin is not None:
            self.profiler = torch.profiler.profile(
                activities=[torch.profiler.ProfilerActivity.CUDA]
            )
            self.profiler.start()
        if trainer.global_step == trainer.max_steps:
            self.profiler.stop()

    @property
    def milliseconds(self) -> float:
        """Per update."""
        events = self.profiler.key_averages()
        kernels = [
            one for one in events if one.device_type.name == "CUDA" and not one.is_user_annotation
        ]
        return sum(one.self_device_time_total for one in kernels) / self.updates / 1e3


def in_blocks(runs: Sequence[plan.Run]) -> dict[str, Callable[[], float]]:
    """Milliseconds an update and run, by side: single updates, blocks, and replayed blocks."""

    def timed(most: int, program: Any = None) -> float:
        with patch.dict(replay.PROGRAMS, {DEVICE: program} if program else {}, clear=True):
            return stacks.in_stack(runs, Clock(most)) / len(runs)

    program = replay.Captured if DEVICE == "cuda" else replay.traced
    return {
        "single_ms": lambda: timed(1),
        "blocks_ms": lambda: timed(BLOCK),
        "graph_ms": lambda: timed(BLOCK, program),
    }


def against_jax(data: Path, size: int, dropout: float, rounds: int, jax: bool) -> dict[str, float]:
    """Time stacks of MNIST classifiers by single updates, in blocks, replayed, and in JAX."""
    settings = (f"seeds={size}", f"model.network.dropout={dropout}", "model.optimizer.lr=0.001")
    place = (f"data.validation={sides.VAL}", f"data.cache_dir={data / 'cache'}")
    timed = in_blocks(stacks.grid(str(data / "mnist"), *settings, *place))
    with ExitStack() as open_:
        if jax:
            side = open_.enter_context(sides.Jax(data, size, dropout))
            side.turn()  # compiles
            timed["jax_ms"] = side.turn
        figures = stacks.medians(timed, rounds)
    return with_ratios(figures)


def against_kernels(folder: Path, settings: Mapping[str, Any], rounds: int) -> dict[str, float]:
    """Time an update of the GELU paper's network for CIFAR-10, and its kernels on a GPU."""
    images = sides.repeated("cifar10", folder / "cifar10", 40)  # preprocessed before training
    known = {
        "model.activation": "gelu_tanh",
        "data.validation": 50,
        "data.preprocessing": ["scale"],
        "data.cache_dir": folder / "cache",
    }
    known |= {
        "trainer.precision": "bf16-mixed",
        "trainer.benchmark": True,
        "model.optimizer.lr": 0.001,
        **settings,
    }
    runs = stacks.grid(
        str(images), *(f"{key}={value}" for key, value in known.items()), study="gelu_cifar10"
    )
    figures = stacks.medians(in_blocks(runs), rounds)
    if DEVICE == "cuda":
        figures["kernels_ms"] = stacks.in_stack(runs, Kernels())
    return with_ratios(figures)


def with_ratios(figures: dict[str, float]) -> dict[str, float]:
    """Add single updates and blocks by what they are compared with, as far as it was measured."""
    pairs = [
        ("blocks", "single"),
        ("graph", "blocks"),
        *product(("single", "blocks", "graph"), ("jax", "kernels")),
    ]
    found = [(a, b) for a, b in pairs if f"{b}_ms" in figures]
    return figures | {f"{a}_vs_{b}": figures[f"{a}_ms"] / figures[f"{b}_ms"] for a, b in found}


def blocks(options: argparse.Namespace, entry: Entry) -> Iterator[Entry]:
    """Time single updates against blocks, in stacks and of one network with convolutions."""
    jax, found = jax_found()
    yield {"jax": found}
    sizes = sizes_of(options)
    stacks.as_a_study_does()
    if not options.smoke:
        masks.compile_masks()
    with tempfile.TemporaryDirectory() as folder:
        data = sides.make_data(Path(folder))
        for size, dropout in product(sizes.mnist, sizes.dropouts):
            if (name := f"runs_{size}{'_dropout' * bool(dropout)}") not in entry:
                yield {name: against_jax(data, size, dropout, sizes.rounds, jax)}
        if "convnet" not in entry:
            yield {"convnet": against_kernels(data, sizes.convnet, sizes.rounds)}


def correct(options: argparse.Namespace, entry: Entry) -> Iterator[Entry]:
    """Train each case with and without graphs; those that have a row are not trained again."""
    stacks.as_a_study_does()
    updates = graphs.FEW if options.smoke else graphs.UPDATES
    rows = entry.get("rows", [])
    yield {"about": {"device": name_of(torch.device(DEVICE)), "smoke": options.smoke}}
    for case in graphs.CASES[len(rows) : 2 if options.smoke else None]:
        rows = [*rows, graphs.row_of(case, updates)]
        yield {"rows": rows}


class Part(NamedTuple):
    """A part: its precision, and a function that yields figures, which are stored one by one."""

    precision: str
    measure: Callable[[argparse.Namespace, Entry], Iterator[Entry]]
    needs_data: bool = False


CONVNET = partial(
    training,
    ["gelu_tanh", "relu", "elu"],
    {"model.network.widths": [8, 8], "trainer.max_steps": 31},
    "cifar10_convnet",
)
RESNET = partial(training, ["gelu", "silu", "relu"], {"model.network.depth": 8}, "cifar10_resnet20")
PARTS = {
    "tests": Part("of each test", tests),
    "mnist": Part("float32", mnist),
    "convnet": Part("bf16-mixed", CONVNET, needs_data=True),
    "resnet": Part("bf16-mixed", RESNET, needs_data=True),
    "gpt": Part("bf16-mixed", gpt),
    "blocks": Part("float32, with convolutions bf16-mixed", blocks),
    "correct": Part("of each case", correct),
    "epochs": Part("bf16-mixed", epochs, needs_data=True),
}


def sizes_of(options: argparse.Namespace) -> Sizes:
    """The sizes of the full or of the small form."""
    return SMOKE if options.smoke else FULL


def path_of(options: argparse.Namespace) -> Path:
    """The file of all figures; small forms have their own."""
    return Path(options.out, "gpu-smoke.json" if options.smoke else "gpu.json")


def known(options: argparse.Namespace) -> dict[str, Entry]:
    """What earlier calls have kept, by part."""
    path = path_of(options)
    return read_json(path, dict[str, Entry], "delete it to measure again") if path.exists() else {}


def keep(options: argparse.Namespace, name: str, entry: Entry) -> None:
    """Write the entry of a part."""
    write_json(path_of(options), {**known(options), name: entry})


def commit() -> str:
    """The commit that is checked out; empty outside a repository."""
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    return subprocess.run(words, check=False, capture_output=True, text=True).stdout.strip()


def measure(name: str, options: argparse.Namespace) -> None:
    """Measure a part in this process, the first of a group, and keep what it yields at once."""
    os.setsid()
    entry = known(options).get(name, {}) | {
        "finished": False,
        "device": name_of(torch.device(DEVICE)),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "commit": commit(),
        "dtype": PARTS[name].precision,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    keep(options, name, entry)
    for figures in PARTS[name].measure(options, entry):
        print(f"{name}: {figures}", flush=True)
        entry |= figures
        keep(options, name, entry)
    keep(options, name, entry | {"finished": True})


def attempt(name: str, options: argparse.Namespace, end: float) -> str:
    """Measure a part in its own process until ``end``; return why it did not finish, or nothing."""
    if known(options).get(name, {}).get("finished"):
        print(f"{name}: finished earlier")
        return ""
    if PARTS[name].needs_data and not (options.smoke or options.cifar10):
        return "give the folder of CIFAR-10 by --cifar10 FOLDER (its layout: --help)"
    if time.monotonic() > end:
        return "not begun"
    print(f"{name}: begins", flush=True)
    # Forked, because importing torch takes longer than a small form; this process never uses the
    # GPU.
    process = mp.get_context("fork").Process(target=measure, args=(name, options))
    process.start()
    assert process.pid is not None
    try:
        process.join(max(0.0, end - time.monotonic()))
        over = process.exitcode is None
    finally:
        process.terminate()
        process.join(PATIENCE)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it has started
        process.join()
    return "time is over" if over else f"exit code {process.exitcode}" if process.exitcode else ""


def main() -> None:
    """Run the parts that have not finished, until the time is over."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: all"
    )
    parser.add_argument(
        "--minutes", type=float, default=9.0, help="of this call, at most; default: 9"
    )
    parser.add_argument(
        "--cifar10", type=Path, metavar="FOLDER", help="CIFAR-10 in the hub's layout"
    )
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="processes of a training; default: one per GPU"
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "runs/gpu", metavar="FOLDER", help="default: runs/gpu"
    )
    parser.add_argument(
        "--smoke", action="store_true", help="small forms on samples, also on the CPU"
    )
    options = parser.parse_args()
    if unknown := [name for name in options.parts if name not in PARTS]:
        parser.error(f"{unknown[0]!r} is no part: give some of {', '.join(PARTS)}, or none for all")
    if DEVICE == "cpu" and not options.smoke:
        parser.error("torch finds no CUDA device: give --smoke for small forms on the CPU")
    if options.cifar10 and not options.cifar10.is_dir():
        parser.error(f"--cifar10 {options.cifar10}: no such folder")
    options.out, options.cifar10 = (
        options.out.resolve(),
        options.cifar10 and options.cifar10.resolve(),
    )
    end = time.monotonic() + 60 * options.minutes
    with sides.closing_at_sigterm():
        left = {name: attempt(name, options, end) for name in options.parts or PARTS}
    print(f"wrote {path_of(options)}")
    if reasons := [f"{name}: {reason}" for name, reason in left.items() if reason]:
        raise SystemExit("\n".join(["not finished; the same command resumes", *reasons]))


if __name__ == "__main__":
    main()
