"""What studies of 1,000 and 10,000 runs cost: plan, packing, status, table, progress display.

    python benchmarks/large_studies.py [--folder DIR] [--runs 1000 10000] [--write]

Writes studies of synthetic finished runs with the project's own writer into a folder, by default a
temporary one, and measures every part in a process of its own: processor time, with imports where
the part is a command, and peak memory. A folder that is kept (``--folder``) serves several versions
of actlab: ``--write`` only writes it. 10,000 runs take 200 MB on ``/dev/shm`` and a minute or two
to write.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from actlab.cli import study as command
from actlab.studies.plan import Run, Study
from actlab.studies.reading import load
from actlab.studies.rows import Row
from actlab.studies.run_folder import RunFolder
from actlab.studies.states import FINISHED

UNITS = [
    "relu",
    "gelu",
    "gelu_tanh",
    "gelu_sigmoid",
    "silu",
    "elu",
    "leaky_relu",
    "identity",
    "tanh",
    "sigmoid",
]
SEEDS, EPOCHS, SAMPLES = 10, 5, 1_000
SIZES = {1_000: (5, 2), 10_000: (10, 10)}  # learning rates and dropouts by number of runs
MESSAGES = 500  # to the display
METRICS = ("train/loss", "val/loss", "val/error", "test/loss", "test/error")
STUDY = """\
title: {runs} synthetic runs
base: mnist_classifier
set: {{data.sample: true, trainer.max_epochs: 5, model.network.hidden: [16, 16]}}
grid:
  model.activation: {units}
  model.network.dropout: {dropouts}
  model.optimizer.lr: {rates}
seeds: {seeds}
select: {{tune: [model.optimizer.lr]}}
table:
  - {{metric: test/error, at: last, percent: true}}
  - {{metric: val/loss, at: best}}
"""


def study_of(runs: int, folder: Path) -> tuple[Path, Study]:
    """Return the file of a study of so many runs, written if missing, and the study."""
    rates, dropouts = SIZES[runs]
    text = STUDY.format(
        runs=f"{runs:,}",
        units=UNITS,
        dropouts=[round(0.9 * i / dropouts, 4) for i in range(dropouts)],
        rates=[round(0.1 / (1 + i), 6) for i in range(rates)],
        seeds=SEEDS,
    )
    path = folder / f"large{runs}.yaml"
    if not path.exists():
        path.write_text(text, encoding="utf-8")
    return path, load(str(path))


def write(runs: int, folder: Path) -> None:
    """Write the missing runs of a study, each with some rows, as training does at its end."""
    _, study = study_of(runs, folder)
    root = folder / "runs" / study.name
    for run in study.runs():
        if not (found := RunFolder(root, run)).finished:
            found.open()
            facts = {"seconds": 12.5, "engine": "stacked", "last_good_epoch": EPOCHS}
            found.finish(FINISHED, rows_of(run), **facts, scored={"val": SAMPLES, "test": SAMPLES})


def rows_of(run: Run) -> list[Row]:
    """Return the rows of a run: shares that depend on the epoch, the grid point and the seed."""
    place = int(run.identity[:8], 16) / 2**32
    first, named = (
        SAMPLES * (0.5 + place + 0.01 * run.seed) / 2,
        [name.partition("/")[::2] for name in METRICS],
    )
    return [
        Row(float(epoch), 100 * epoch, split, metric, "", round(first / epoch) / SAMPLES)
        for epoch in range(1, EPOCHS + 1)
        for split, metric in named
    ]


def commanded(*words: str) -> Callable[[int, Path], float]:
    """Return a function that measures a command on the finished runs, or none with ``--fresh``."""

    def measure(runs: int, folder: Path) -> float:
        root = folder / ("none" if "--fresh" in words else "runs")
        with contextlib.redirect_stdout(io.StringIO()):
            command.main([words[0], str(folder / f"large{runs}.yaml"), "--runs-dir", str(root)])
        return time.process_time()

    return measure


def pack(runs: int, folder: Path) -> float:
    """Measure forming stacks of all runs of a study, without the trials."""
    from actlab.engines import packing, trials

    _, study = study_of(runs, folder)
    planned = study.runs()
    untried = mock.patch.multiple(
        trials.stack_trial, difference=lambda *_: "", dependence=lambda *_: ""
    )
    with tempfile.TemporaryDirectory() as root, untried, contextlib.redirect_stdout(io.StringIO()):
        start = time.process_time()
        packed = packing.pack(planned, Path(root))
        assert sum(len(job.runs) for job in packed.jobs) == runs
        return time.process_time() - start


def display(runs: int, folder: Path) -> float:
    """Measure one message to the progress display."""
    from actlab.engines.progress import Display

    _, study = study_of(runs, folder)
    planned = study.runs()
    with tempfile.TemporaryDirectory() as root, Display(planned, Path(root), study.select) as shown:
        start = time.process_time()
        for run in planned[:MESSAGES]:
            shown.update(run, 0.5)
        return (time.process_time() - start) / MESSAGES


def planned(runs: int, folder: Path) -> float:
    """Measure the expansion of a study file into runs, with imports."""
    _, study = study_of(runs, folder)
    assert len(study.runs()) == runs
    return time.process_time()


PARTS: dict[str, Callable[[int, Path], float]] = {
    "runs of a study file": planned,
    "`study plan`, nothing trained": commanded("plan", "--fresh"),
    "packing, without trials": pack,
    "a message to `Display`": display,
    "`study status`, nothing trained": commanded("status", "--fresh"),
    "`study show`": commanded("show"),
    "`study status`, all finished": commanded("status"),
}


def peak() -> float:
    """Return the peak memory of this process in MiB from Linux; rusage counts the parent's, too."""
    return (
        int(re.findall(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text(encoding="utf-8"))[0])
        / 1024
    )


def in_process(part: str, runs: int, folder: Path) -> tuple[float, float]:
    """Measure a part in its own process; return its processor time in seconds and peak in MiB."""
    words = [sys.executable, __file__, "--folder", str(folder), "--runs", str(runs), "--part", part]
    seconds, memory = json.loads(
        subprocess.run(words, check=True, capture_output=True, text=True).stdout
    )
    return seconds, memory


def text_of(seconds: float) -> str:
    """Return a time as printed: ``1.2 s``, ``34 µs``."""
    return f"{1e6 * seconds:.0f} µs" if seconds < 0.1 else f"{seconds:.1f} s"


def main() -> None:
    """Print a table of times and peaks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, help="where studies are written and kept; default: a temporary one"
    )
    parser.add_argument("--runs", type=int, nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--write", action="store_true", help="only write the studies")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part:
        seconds = PARTS[args.part](args.runs[0], args.folder)
        print(json.dumps([seconds, peak()]))
        return
    with contextlib.ExitStack() as stack:
        folder = args.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        for runs in args.runs:
            write(runs, folder)
        if args.write:
            return
        print(
            "| | "
            + " | ".join(f"{runs:,} runs" for runs in args.runs)
            + " |\n|---|"
            + "---|" * len(args.runs)
        )
        for part in PARTS:
            found = [in_process(part, runs, folder) for runs in args.runs]
            cells = [f"{text_of(seconds)}, {memory:.0f} MiB" for seconds, memory in found]
            print(f"| {part} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
