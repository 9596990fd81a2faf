"""A study of 16 runs of three short epochs, trained like ``actlab study run``, and killed."""

import contextlib
import json

import pandas as pd
import pytest
import torch

from actlab.__main__ import main
from actlab.engines import packing, training, workers
from actlab.studies import plan, reading
from child_processes import serve_untried

STUDY = """\
base: mnist_classifier
set:
  data.sample: true
  data.batch_size: 500
  trainer.max_epochs: 3
  model.network.hidden: [16, 16]
grid:
  model.activation: [relu, soi]
  model.network.dropout: [0.0, 0.3]
  model.optimizer.lr: [1.0e-2, 1.0e-3]
seeds: 2
select: {tune: [model.optimizer.lr]}
"""
# Four of the runs, which draw no masks
RELU = [
    "model.activation=relu",
    "model.network.dropout=0.0",
]
PLAIN = "trained as plain modules"  # why stacks are not tried
TWO = [*RELU, "model.optimizer.lr=0.01"]


def study_text(
    grid="model.activation: [relu]", more="", *, seeds=2, epochs=2, batches=2, **settings
):
    """Return the YAML of a study of MNIST's sample with tiny networks.

    ``grid`` holds entries in one line, ``more`` further lines of the file. ``settings`` are entries
    of ``set``, with two underscores for each dot: ``data__batch_size=100``.
    """
    given = {
        "data.sample": True,
        "data.batch_size": 500,
        "trainer.max_epochs": epochs,
        "trainer.limit_train_batches": batches,
        "model.network.hidden": [8],
        **{name.replace("__", "."): value for name, value in settings.items()},
    }
    lines = [f"  {name}: {json.dumps(value)}\n" for name, value in given.items()]
    return f"base: mnist_classifier\nset:\n{''.join(lines)}grid: {{{grid}}}\nseeds: {seeds}\n{more}"


def load(folder, **options):
    """The study, from a file in ``folder``."""
    path = folder / "tiny.yaml"
    path.write_text(STUDY)
    return reading.load(str(path), **options)


def leave_untried(patch):
    """Let ``patch`` leave out trials of stacks and of opened files, as tests without the mark."""
    patch.setattr("actlab.engines.running.opens_new_files", lambda *_: False)
    patch.setattr("actlab.checks.stack_trial.difference", lambda run: None)
    patch.setattr("actlab.checks.stack_trial.dependence", lambda *_: None)
    patch.setattr("actlab.engines.workers._serve", serve_untried)


@contextlib.contextmanager
def untried():
    """Leave out these trials in a module's fixture, which comes before the one for tests."""
    with pytest.MonkeyPatch.context() as patch:
        leave_untried(patch)
        yield


def trained_once(folder, text, name="tiny", *words):
    """Return the folder of a finished study's runs, for copies; its output lies beside it."""
    (folder / f"{name}.yaml").write_text(text)
    words = (*words, "--runs-dir", str(folder / "runs"), "--jobs", "0")
    with untried(), pytest.MonkeyPatch.context() as patch, (folder / "out.txt").open("w") as out:
        patch.setattr("actlab.cli.study.Worker", workers.Inline)
        patch.setattr("actlab.checks.cost.ROUNDS", 1)
        with contextlib.redirect_stdout(out):
            assert main(["study", "run", str(folder / f"{name}.yaml"), *words]) == 0
    return folder / "runs"


def ignore(name, fraction):
    """No progress display."""


@contextlib.contextmanager
def shown_by(progress):
    """Call a function with the id of a run and its completed fraction, at each report."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "actlab.runtime.signals.report", lambda parts: [progress(*part) for part in parts]
        )
        yield


def execute(runs, root, stacked=True, progress=ignore, most=plan.MAX_STACK):
    """Train some runs; as plain modules if they are not ``stacked``."""
    root.mkdir(parents=True, exist_ok=True)
    with shown_by(progress):
        for job in packing.pack(runs, root, most, untried="" if stacked else PLAIN).jobs:
            assert training.work(job, root)


def metrics(root, run):
    return pd.read_parquet(root / run.id / "metrics.parquet")


def result(root, run):
    entries = json.loads((root / run.id / "result.json").read_text())
    return {name: value for name, value in entries.items() if name != "seconds"}


def assert_same(runs, root, other):
    """The runs have the same rows and results in both folders."""
    for run in runs:
        assert metrics(root, run).equals(metrics(other, run))
        assert result(root, run) == result(other, run)


def left_in(root, *patterns):
    """Every file, or those of some patterns, by its path."""
    files = (
        path for pattern in patterns or ("*",) for path in root.rglob(pattern) if path.is_file()
    )
    return {str(path.relative_to(root)): content(path) for path in files}


def content(path):
    """What a file of a run says, but for seconds and what Lightning counts."""
    if path.suffix == ".parquet":
        return pd.read_parquet(path).to_csv()
    if path.suffix == ".json":
        return {
            name: value for name, value in json.loads(path.read_text()).items() if name != "seconds"
        }
    if path.suffix == ".ckpt":
        found = torch.load(path, weights_only=True)
        kept = {name: part for name, part in found.items() if name not in ("callbacks", "loops")}
        return torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.tolist, kept)
    return path.read_bytes()


class KilledError(BaseException):
    """Stands for a kill between two epochs."""


def kill_after(number):
    calls = iter(range(number))

    def progress(name, fraction):
        if next(calls, None) is None:
            raise KilledError

    return progress
