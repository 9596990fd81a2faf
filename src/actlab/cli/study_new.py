"""``actlab study new``: write a study file whose comments are the descriptions of the schema."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from actlab.config.keys import as_list
from actlab.errors import ActlabError
from actlab.storage.files import regular
from actlab.storage.mappings import parse
from actlab.storage.resources import names_in, resource
from actlab.studies import schema
from actlab.studies.plan import check_name

WIDTH = 100  # of comments, in columns
STUDIES = "configs/studies"
# Comments in it are about keys of configs and about values; those about keys of studies come from the schema.
EXAMPLE = """\
title: Three activations on 4,000 handwritten digits
base: mnist_classifier
set:
  data.sample: true  # 4,000 digits that ship with actlab; delete this line to train on data.dataset
  # data.dataset: ylecun/mnist  # a hub id, or a folder of the dataset's files
  data.batch_size: 64
  trainer.max_epochs: 5
  trainer.val_check_interval: 1.0  # validate once an epoch
grid:
  model.activation: [relu, gelu, elu]  # names (`actlab activations` lists them), or package.module:Name
  model.optimizer.lr: [1.0e-3, 3.0e-3]
compare: model.activation
reference: relu
select: {tune: [model.optimizer.lr], metric: val/loss, mode: min}
stages:
  - {name: choose, seeds: 2}
  - {name: compare, seeds: 2-9}
table:
  - {metric: test/error, at: last, percent: true, chance: 0.9, margin: 0.005}
  - {metric: val/loss, at: best}
primary: {metric: test/error, at: last}
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
    text = commented(EXAMPLE if like is None else _shipped(like), _header(path, like))
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


def _shipped(name: str) -> str:
    """Return the text of a study that ships with actlab, with the names of base configs instead of paths."""
    text = regular(resource(STUDIES) / f"{name}.yaml").read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    opening = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    kept = [line for line in lines[:opening] if not line.startswith(("# yaml-language-server", "# Command:"))]
    return re.sub(r"\.\./(\w+)\.yaml", r"\1", "".join([*kept, *lines[opening:]]))


def commented(text: str, header: Iterable[str]) -> str:
    """Return the text of a study file with the schema's description above each key of the top level."""
    values, whole = parse(text), schema.File.model_json_schema()
    keys: Mapping[str, Any] = whole["properties"]
    lines = [f"# {line}".rstrip() for line in header]
    for line in text.splitlines():
        if (found := re.match(r"(\w+):", line)) and found[1] in keys:
            entry = keys[found[1]]
            lines += ["", *_comment("", entry, 0), *_inner(entry, values[found[1]], whole["$defs"], 1)]
        lines.append(line)
    others = [line for key in keys if key not in values for line in _comment(key, keys[key], 1)]
    return "\n".join([*lines, "", "# Further keys:", *others]) + "\n"


def _inner(entry: Mapping[str, Any], value: Any, parts: Mapping[str, Any], depth: int) -> Iterator[str]:
    """Yield comments about the keys that are used in the part of a study file that an entry describes."""
    if not (name := schema.part_in(entry)):
        return
    items = [item for item in as_list(value) if isinstance(item, Mapping)]
    for key, inner in parts[name]["properties"].items():
        if used := [item[key] for item in items if key in item]:
            yield from _comment(key, inner, depth)
            yield from _inner(inner, [one for own in used for one in as_list(own)], parts, depth + 1)


def _comment(key: str, entry: Mapping[str, Any], depth: int) -> list[str]:
    text = entry.get("description", "").replace("`", "")
    said = f"{key}: {text}" if key else f"{text[:1].upper()}{text[1:]}."
    indent = "# " + "  " * depth
    return textwrap.wrap(said, WIDTH, initial_indent=indent, subsequent_indent=indent + "  " * bool(key))
