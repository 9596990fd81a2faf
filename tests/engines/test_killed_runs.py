"""Runs that are killed at any moment, or whose disk is full, resume to the same files."""

import itertools
import random
import resource
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path

import pytest
import torch
from torch import nn

from actlab.activations.stochastic import SOI
from actlab.errors import ActlabError
from actlab.studies import reading
from actlab.studies.plan import Keep
from actlab.studies.run_folder import RunFolder
from actlab.tasks.training import Training
from damaging import damaged
from tiny_study import KilledError, execute, left_in, untried

STUDY = f"""\
base: mnist_classifier
set:
  data.sample: true
  data.batch_size: 500
  trainer.max_epochs: 3
  trainer.limit_train_batches: 2
  trainer.val_check_interval: 0.5
  trainer.callbacks:
    - {{class_path: actlab.callbacks.TestEveryEpoch}}
    - {{class_path: actlab.callbacks.UnitStatistics, init_args: {{samples: 100}}}}
  model.network: {{class_path: actlab.networks.MLP, init_args: {{hidden: [8, 8], dropout: 0.3}}}}
  model.optimizer.lr: 0.01
  model.schedules:  # a loss that falls is a plateau of its highest value
    lr:
      class_path: actlab.optim.Plateau
      init_args: {{metric: val/loss, mode: max, patience: 0}}
    dropout: {{class_path: actlab.optim.Steps, init_args: {{factors: {{3: 1.5}}, by: update}}}}
  model.metrics:
    f1:
      class_path: torchmetrics.F1Score
      init_args: {{task: multiclass, num_classes: 10, average: macro}}
    confusion:
      class_path: torchmetrics.ConfusionMatrix
      init_args: {{task: multiclass, num_classes: 10}}
grid: {{model.activation: ["{__name__}:Drawing"]}}
seeds: 2
"""


class Drawing(nn.Module):
    """A learnt slope beside the masks of SOI and numbers of torch's own generator."""

    def __init__(self):
        super().__init__()
        self.slope, self.soi = nn.Parameter(torch.tensor(0.25)), SOI()

    def forward(self, x):
        drawn = torch.rand_like(x) if self.training else 0.5
        return self.soi(x) + self.slope * drawn * x


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(True, id="stacked"),
        pytest.param(False, id="alone", marks=pytest.mark.slow),
    ],
)
def straight(request, tmp_path_factory):
    """The runs, whether they are stacked, and what they leave without a kill."""
    folder = tmp_path_factory.mktemp("straight")
    (folder / "study.yaml").write_text(STUDY)
    first, second = reading.load(str(folder / "study.yaml")).runs()
    # The first epoch is the best
    runs = [replace(second, keep=Keep("val/loss", "max", epochs=(1,)))]
    if request.param:
        runs.append(replace(first, keep=Keep("val/loss", "min")))
    with untried():
        execute(runs, folder / "runs", request.param)
    return runs, request.param, left_in(folder / "runs")


@contextmanager
def files_end_at(size):
    """Fail to write any file beyond some bytes, as on a full disk; Python ignores the signal."""
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, former[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)


@contextmanager
def killed_before(what, number):
    """Kill before an update, or before a file of some name is replaced, after a number of them."""
    kind, name = (Training, "training_step") if what == "update" else (Path, "replace")
    call, left = getattr(kind, name), iter(range(number))

    @wraps(call)  # Lightning looks at the arguments of a training step
    def dying(self, *args):
        meant = what in ("update", "any file") or what == Path(args[0]).name
        if meant and next(left, None) is None:
            raise KilledError
        return call(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, name, dying)
        yield


MOMENTS = {  # of each start the kill, and what then happens to the rows for people
    "an update within the second epoch": ("update", 3, "cut"),
    "the second checkpoint, when all else of its epoch is written": ("checkpoint", 0, "zeros"),
    "the third epoch": ("update", 2, "twice"),
    "a run is closed": ("metrics.parquet", 0, "other"),
}


def test_runs_that_are_killed_again_and_again_leave_what_others_do(straight, tmp_path):
    runs, stacked, expected = straight
    with (
        files_end_at(30_000),
        pytest.raises(ActlabError, match=r"File too large.*The same command resumes\."),
    ):
        execute(runs, tmp_path, stacked)
    assert not any(RunFolder(tmp_path, run).state.reason for run in runs)
    for what, number, way in MOMENTS.values():
        if what == "checkpoint":
            what = "stack.ckpt" if stacked else "last.ckpt"
        with pytest.raises(KilledError), killed_before(what, number):
            execute(runs, tmp_path, stacked)
        for run in runs:
            rows = tmp_path / run.id / "metrics.csv"
            lines = rows.read_text().splitlines()  # of this start, whatever the former one left
            assert len({*lines}) == len(lines)
            rows.write_bytes(damaged(rows.read_bytes(), way, random.Random(0)))
            assert isinstance(RunFolder(tmp_path, run).epochs, int)
            later = tmp_path / run.id / "units/9.npz"
            assert not later.exists()
            later.touch()  # of an epoch that no checkpoint holds
    with pytest.raises(KilledError), killed_before("result.json", len(runs) - 1):
        execute(runs, tmp_path, stacked)
    with killed_before("update", 0):  # nothing is trained again
        execute(runs, tmp_path, stacked)
    assert left_in(tmp_path) == expected


@pytest.mark.slow  # dozens of starts: 50 s of an idle core
@pytest.mark.timeout(1800)
def test_a_kill_before_any_write_changes_nothing(straight, tmp_path):
    runs, stacked, expected = straight
    for number in itertools.count():
        root = tmp_path / str(number)
        with killed_before("any file", number):
            try:
                execute(runs, root, stacked)
            except KilledError:
                pass
            else:
                break
        execute(runs, root, stacked)
        assert left_in(root) == expected, number
    assert number > 15
