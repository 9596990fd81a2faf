"""``actlab study new``: write a study file with comments."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from actlab.errors import ActlabError
from actlab.storage.files import regular
from actlab.storage.resources import names_in, resource
from actlab.studies import schema
from actlab.studies.plan import check_name

STUDIES = "configs/studies"
EXAMPLE = """\
title: Three activations on 4,000 handwritten digits
base: mnist_classifier  # a config that ships with actlab, or the path of one
set:  # values in all runs, by dotted key of the config
  data.sample: true  # 4,000 digits that ship with actlab; delete this line to train on data.dataset
  # data.dataset: ylecun/mnist  # a hub id, or a folder of the dataset's files
  data.batch_size: 64
  trainer.max_epochs: 5
  trainer.val_check_interval: 1.0  # validate once an epoch
grid:  # every combination is trained, with each seed
  model.activation: [relu, gelu, elu]  # names (`actlab activations` lists them), or package.module:Name
  model.optimizer.lr: [1.0e-3, 3.0e-3]
compare: model.activation  # the key whose values are compared, …
reference: relu  # … each with this one
select: {tune: [model.optimizer.lr], metric: val/loss, mode: min}  # each chooses its rate by validation
stages:  # the first one chooses, the second compares what was chosen, with other seeds
  - {name: choose, seeds: 2}
  - {name: compare, seeds: 2-9}
table:  # a metric, and the epoch at which it is read; a difference up to the margin is none
  - {metric: test/error, at: last, percent: true, chance: 0.9, margin: 0.005}
  - {metric: val/loss, at: best}
primary: {metric: test/error, at: last}  # the comparison that was decided on before the runs
figures:
  - name: curves
    lines: model.activation
    y: {train/loss: null, val/loss: null}
    label: log loss
"""


def write(path: Path, like: str | None) -> None:
    """Write a study file with comments: the runs of a study that ships with actlab, or an example."""
    if path.suffix not in (".yaml", ".yml"):
        raise ActlabError(f"{path}: give a file name that ends in .yaml")
    check_name(path.stem)
    if path.stem in names_in(STUDIES):
        raise ActlabError(f"{path}: {path.stem} is a study that ships with actlab; give another name")
    text = "".join(f"# {line}\n" for line in _header(path, like))
    text += f"\n{EXAMPLE if like is None else _shipped(like)}"
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise ActlabError(f"{path} exists and is not overwritten: give another name, or delete it") from error
    except FileNotFoundError as error:
        raise ActlabError(f"{path}: the folder {path.parent} does not exist; create it first") from error
    print(f"{path} written; next: `actlab study plan {shlex.quote(str(path))}`")


def _header(path: Path, like: str | None) -> Iterator[str]:
    file = shlex.quote(str(path))
    yield "A study: which networks to train, with which activations and seeds, and what to show of them."
    if like is not None:
        yield f"A copy of the study {like}, which ships with actlab."
    yield f"  actlab study plan {file}           the runs"
    yield f"  actlab study run {file} --smoke    all of it on samples, in seconds"
    yield f"  actlab study run {file} --report   train, print the table, draw the figures; resumes"
    yield f"  actlab study status {file}         what has been done, and what comes next"
    yield f"All keys are described in docs/reference/study_file.md: {', '.join(schema.File.model_fields)}."


def _shipped(name: str) -> str:
    """Return the text of a study that ships with actlab, with the names of base configs instead of paths."""
    text = regular(resource(STUDIES) / f"{name}.yaml").read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    opening = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    kept = [line for line in lines[:opening] if not line.startswith(("# yaml-language-server", "# Command:"))]
    return re.sub(r"\.\./(\w+)\.yaml", r"\1", "".join([*kept, *lines[opening:]]))
