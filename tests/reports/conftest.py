"""Studies whose runs were written by hand, in true run folders."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actlab.analysis import results
from actlab.config.labels import label
from actlab.studies import reading
from actlab.studies.rows import Row
from actlab.studies.run_folder import RunFolder
from actlab.studies.states import DIVERGED, FINISHED
from actlab.studies.study_folder import StudyFolder

Written = Callable[..., results.Results]
EPOCHS = 4
LOWEST = {"relu": 0.4, "elu": 0.3}  # of the validation loss; other units 0.2

BASE = "model: {activation: relu, init_args: {}}\ntrainer: {max_epochs: 4}\n"
STUDY = """
title: A study of units
base: ./base.yaml
grid:
  model.activation: [gelu_tanh, relu, elu]
  model.dropout: [0.0, 0.5]
  model.lr: [1.0e-3, 1.0e-4]
seeds: 2
select: {tune: [model.lr], metric: val/loss}
table:
  - {metric: test/error, at: last, percent: true}
  - {metric: val/loss, at: best}
published:
  source: a paper
  values:
    - {where: {model.activation: relu, model.dropout: 0.0}, metric: val/loss, at: best, value: 0.35}
figures:
  - name: curves
    lines: model.activation
    y: {train/loss: train, val/loss: heldout}
    label: log loss
    panels:
      - {title: plain, where: {model.dropout: 0.0}, published: A, ylim: [0, 1]}
      - {title: dropped, where: {model.dropout: 0.5}, y: {test/error: null}, label: test error,
         percent: true}
    published: {file: PUBLISHED, names: {gelu_tanh: GELU, relu: ReLU}}
notes: ["A note."]
"""


def finish(folder: RunFolder, status: str) -> None:
    """Write a run: at 1e-3 it ends at the unit's lowest loss, at 1e-4 0.1 above it."""
    folder.open()
    point, seed = folder.run.point, folder.run.seed
    low = LOWEST.get(label(point["model.activation"]), 0.2) + (point["model.lr"] < 1e-3) * 0.1
    rows = []
    for epoch in range(1, EPOCHS + 1):
        value = low + 0.01 * seed + 0.5 * (EPOCHS - epoch)
        named = (
            ("train", "loss", value / 2),
            ("val", "loss", value),
            ("test", "error", value / 10),
        )
        rows += [Row(float(epoch), epoch, split, metric, "", v) for split, metric, v in named]
    folder.finish(status, rows, seconds=1.0)


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where each run is written once, to be copied into the folders of tests."""
    return tmp_path_factory.mktemp("templates")


def copy(template: Path, folder: RunFolder, status: str) -> None:
    """Copy a finished run, which a name stands for, from the folder of those written before."""
    kept = RunFolder(template / status, folder.run)
    if not kept.finished:
        finish(kept, status)
    shutil.copytree(kept.path, folder.path, dirs_exist_ok=True)


@pytest.fixture
def written(tmp_path: Path, templates: Path) -> Written:
    """Write the study's runs and load them.

    ``skip`` and ``diverge`` say which runs are missing or diverge; ``edit`` changes the study's
    text, or says what to replace in it by what; ``activations`` and ``overrides`` are the command
    line's.
    """

    def write(
        skip: Any = None, diverge: Any = None, edit: Any = (), **command: Any
    ) -> results.Results:
        published = tmp_path / "published.csv"
        published.write_text(
            "panel,act,curve,epoch,value\nA,ReLU,heldout,1,0.9\nA,ReLU,heldout,3,0.5\n"
            "A,GELU,train,1,0.7\nA,GELU,train,4,0.2\n"
        )
        (tmp_path / "base.yaml").write_text(BASE)
        text = STUDY.replace("PUBLISHED", str(published))
        for before in () if callable(edit) else edit:
            text = text.replace(before, edit[before])
        (tmp_path / "units.yaml").write_text(edit(text) if callable(edit) else text)
        study = reading.load(str(tmp_path / "units.yaml"), **command)
        root = tmp_path / "runs" / study.name
        for run in study.runs():
            if not (skip and skip(run)):
                copy(
                    templates,
                    RunFolder(root, run),
                    DIVERGED if diverge and diverge(run) else FINISHED,
                )
        root.mkdir(parents=True, exist_ok=True)
        return results.load(StudyFolder(study, root))

    return write
