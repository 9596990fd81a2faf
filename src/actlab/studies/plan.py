"""A study file becomes runs: pure, before anything is trained.

A study is a base config, a grid of dotted config keys, seeds, a rule of selection and published values. The id
of a run is a function of the study and the grid point alone, so the same command starts, skips or resumes it.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from actlab.errors import ActlabError, unknown
from actlab.resources import config_file

SEED = "seed_everything"
ACTIVATION = "model.activation"
SMOKE = {"data.sample": True, "trainer.max_epochs": 1, "trainer.limit_train_batches": 4}
SMOKE_SEEDS = 2
# What a run folder provides itself, so a study takes it out of the base config.
_PROVIDED = ("logger", "default_root_dir", "enable_progress_bar", "enable_model_summary")
_CHECKPOINT = "ModelCheckpoint"


@dataclass(frozen=True)
class Selection:
    """How the best value of the tuned keys is chosen: on validation data, by the median over seeds.

    Args:
        tune: grid keys that are chosen rather than compared, such as the learning rate.
        metric: the quantity, its best value reached in the run counts.
        mode: ``min`` or ``max``.
    """

    tune: tuple[str, ...] = ()
    metric: str = "val/loss"
    mode: str = "min"


@dataclass(frozen=True)
class Run:
    """One training: a grid point and a seed.

    Args:
        id: readable, unique within the study, a folder name.
        point: value of each grid key.
        seed: the run's seed.
        config: the complete config, without what the run folder provides.
    """

    id: str
    point: dict[str, Any]
    seed: int
    config: dict[str, Any]


@dataclass(frozen=True)
class Study:
    """A study as its file and the command line give it; `runs` expands it.

    Args:
        name: names the folder under the runs directory.
        title: one line for tables and figures.
        base: the base config as nested values.
        settings: dotted config keys set in every run.
        blocks: grids; the study is their union.
        seeds: the seeds of every grid point.
        select: the rule of selection.
        table: columns of the table: ``metric``, ``at`` (``last``, ``best`` or an epoch), ``percent``.
        published: ``source`` and ``values``: each ``where`` (grid keys), ``metric``, ``at``, ``value``.
        figures: what ``report`` draws; see `actlab.reports.figures`.
        reference: label of the compared value that costs and significance are given against.
        notes: departures from the paper and how to read the results, printed below the table.
        compare: the grid key whose values are compared; by default the grid's first one that is not tuned.
    """

    name: str
    title: str
    base: dict[str, Any]
    settings: dict[str, Any]
    blocks: tuple[dict[str, list[Any]], ...]
    seeds: tuple[int, ...]
    select: Selection = Selection()
    table: tuple[dict[str, Any], ...] = ({"metric": "test/error", "at": "last", "percent": True},)
    published: dict[str, Any] = field(default_factory=dict)
    figures: tuple[dict[str, Any], ...] = ()
    reference: str = "relu"
    notes: tuple[str, ...] = ()
    compare: str = ""

    def __post_init__(self) -> None:
        """Fill in what is compared.

        Raises:
            ActlabError: when ``compare`` is no key of the grid, or a tuned one.
        """
        untuned = [key for key in self.keys if key not in self.select.tune]
        if self.compare and self.compare not in untuned:
            raise unknown(
                "key to compare", self.compare, untuned, "'compare' names a grid key that is not tuned."
            )
        object.__setattr__(self, "compare", self.compare or next(iter(untuned), next(iter(self.keys), "")))

    @property
    def keys(self) -> tuple[str, ...]:
        """All grid keys, in the order of the file."""
        return tuple(dict.fromkeys(key for block in self.blocks for key in block))

    def runs(self) -> list[Run]:
        """Every run of the study, each once, in the order of the file with the seeds innermost."""
        runs: dict[str, Run] = {}
        for block in self.blocks:
            for values in itertools.product(*block.values()):
                for seed in self.seeds:
                    run = self._run(dict(zip(block, values, strict=True)), seed)
                    runs[run.id] = run
        return list(runs.values())

    def _run(self, point: dict[str, Any], seed: int) -> Run:
        config = copy.deepcopy(self.base)
        for key, value in {**self.settings, **point, SEED: seed}.items():
            set_dotted(config, key, copy.deepcopy(value))
        point = {key: point[key] if key in point else get_dotted(config, key) for key in self.keys}
        return Run(self._id(point, seed, config), point, seed, config)

    def _id(self, point: Mapping[str, Any], seed: int, config: Mapping[str, Any]) -> str:
        identity = [self.name, config, [source_digest(value) for value in point.values()]]
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()[:8]
        words = [
            label(value) if key == ACTIVATION else short(key) + label(value) for key, value in point.items()
        ]
        slug = "-".join([*words, f"seed{seed}"])
        return "".join(c if c.isalnum() or c in "._-" else "_" for c in slug)[:100] + f"-{digest}"


def load(
    name: str,
    smoke: bool = False,
    overrides: Iterable[str] = (),
    activations: Iterable[str] = (),
) -> Study:
    """Read a study file and apply the command line to it.

    Args:
        name: a path, or the bare name of a study that travels with actlab.
        smoke: run on samples for a moment: the file's ``smoke`` settings over `SMOKE`, few seeds.
        overrides: ``key=value`` each; a dotted config key, a grid key (a value or a list replaces its
            values) or ``seeds``.
        activations: units added to every grid of activations.

    Raises:
        ActlabError: for an unknown key, a value of the wrong kind or a missing file.
    """
    path = config_file(name, "configs/studies")
    text = _mapping(path)
    allowed = {
        "title",
        "base",
        "set",
        "grid",
        "seeds",
        "select",
        "table",
        "published",
        "figures",
        "smoke",
        "reference",
        "notes",
        "compare",
    }
    for key in text:
        if key not in allowed:
            raise unknown("study key", str(key), allowed, f"In {path}.")
    for key in ("base", "grid"):
        if key not in text:
            raise ActlabError(f"{path} lacks {key!r}: a study needs at least 'base' and 'grid'")
    blocks = [_block(block, path) for block in _as_list(text["grid"])]
    settings, seeds = dict(text.get("set", {})), text.get("seeds", 5)
    if smoke:
        settings |= SMOKE | text.get("smoke", {})
        seeds = min(SMOKE_SEEDS, len(_seeds(seeds)))
    for override in overrides:
        key, value = _assignment(override)
        if key == "seeds":
            seeds = value
        elif any(key in block for block in blocks):
            blocks = [{**b, key: _as_list(value)} if key in b else b for b in blocks]
        else:
            settings[key] = value
    for unit in map(_unit, activations):
        if not any(ACTIVATION in block for block in blocks):
            raise ActlabError(f"{path} compares no activations: its grid lacks {ACTIVATION!r}")
        blocks = [{**b, ACTIVATION: [*b[ACTIVATION], unit]} if ACTIVATION in b else b for b in blocks]
    optional: dict[str, Any] = {k: tuple(text[k]) for k in ("table", "figures", "notes") if k in text}
    optional |= {k: text[k] for k in ("published", "reference", "compare") if k in text}
    return Study(
        name=path.stem + ("-smoke" if smoke else ""),
        title=text.get("title", path.stem),
        base=_base(str(text["base"]), path),
        settings=settings,
        blocks=tuple(blocks),
        seeds=_seeds(seeds),
        select=_selection(text.get("select", {}), blocks, path),
        **optional,
    )


def _mapping(path: Path) -> dict[str, Any]:
    """The YAML mapping in a file."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ActlabError(f"{path} is not readable as YAML: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise ActlabError(f"{path} holds no mapping of keys to values")
    return values


def _base(name: str, study: Path) -> dict[str, Any]:
    """The base config, without what run folders provide; a path is relative to the study file."""
    beside = study.parent / name
    config = _mapping(beside if beside.is_file() else config_file(name))
    trainer = config.setdefault("trainer", {})
    for key in _PROVIDED:
        trainer.pop(key, None)
    callbacks = trainer.get("callbacks") or []
    trainer["callbacks"] = [c for c in callbacks if not c["class_path"].endswith(_CHECKPOINT)]
    return config


def _block(block: Any, path: Path) -> dict[str, list[Any]]:
    if not isinstance(block, dict) or not block:
        raise ActlabError(f"the grid of {path} must map config keys to lists of values, not be {block!r}")
    return {str(key): _as_list(values) for key, values in block.items()}


def _selection(values: Any, blocks: Sequence[Mapping[str, Any]], path: Path) -> Selection:
    if not isinstance(values, dict):
        raise ActlabError(f"'select' in {path} must be a mapping with tune, metric and mode, not {values!r}")
    for key in values:
        if key not in ("tune", "metric", "mode"):
            raise unknown("key of 'select'", str(key), ("tune", "metric", "mode"), f"In {path}.")
    tune = tuple(_as_list(values.get("tune", [])))
    grid_keys = {key for block in blocks for key in block}
    for key in tune:
        if key not in grid_keys:
            raise unknown("tuned key", str(key), grid_keys, f"'select: tune' in {path} names grid keys.")
    if (mode := values.get("mode", "min")) not in ("min", "max"):
        raise unknown("mode of selection", str(mode), ("min", "max"), f"In {path}.")
    return Selection(tune, values.get("metric", "val/loss"), mode)


def _seeds(value: Any) -> tuple[int, ...]:
    """``5`` means the seeds 0 … 4; a list is taken as it is."""
    seeds = range(value) if isinstance(value, int) else value
    if not isinstance(seeds, list | range) or not seeds or not all(type(s) is int and s >= 0 for s in seeds):
        raise ActlabError(f"seeds {value!r}: give how many (a whole number from 1) or a list of whole numbers")
    return tuple(seeds)


def _assignment(override: str) -> tuple[str, Any]:
    key, equals, value = override.partition("=")
    if not (key and equals):
        raise ActlabError(f"--set {override!r}: write key=value, such as data.dataset=FOLDER or seeds=3")
    try:
        return key.strip(), yaml_value(value)
    except yaml.YAMLError as error:
        raise ActlabError(f"--set {override!r}: the value is not readable as YAML") from error


def _unit(text: str) -> Any:
    """A unit from the command line: a name, a mapping, or ``./file.py:Unit`` with its path made absolute."""
    spec = yaml_value(text)
    name = spec.get("name", "") if isinstance(spec, dict) else str(spec)
    file, colon, attribute = name.rpartition(":")
    if not (colon and file.endswith(".py")):
        return spec
    absolute = f"{Path(file).expanduser().resolve()}:{attribute}"
    return {**spec, "name": absolute} if isinstance(spec, dict) else absolute


def yaml_value(text: str) -> Any:
    """A value as YAML reads it, with ``1e-3`` a number."""
    value = yaml.safe_load(text)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return [yaml_value(v) if isinstance(v, str) else v for v in value] if isinstance(value, list) else value


def set_dotted(config: dict[str, Any], key: str, value: Any) -> None:
    """Set ``a.b.c`` in nested values, in place; ``init_args`` may be left out below a ``class_path``."""
    *path, last = key.split(".")
    node = config
    for part in path:
        node = _inside(node, part).setdefault(part, {})
        if not isinstance(node, dict):
            raise ActlabError(f"config key {key!r}: {part!r} holds the value {node!r}, not further keys")
    _inside(node, last)[last] = value


def get_dotted(config: Mapping[str, Any], key: str, default: Any = None) -> Any:
    """The value at ``a.b.c``, or ``default``."""
    node: Any = config
    for part in key.split("."):
        if not isinstance(node, dict) or part not in _inside(node, part):
            return default
        node = _inside(node, part)[part]
    return node


def _inside(node: dict[str, Any], key: str) -> dict[str, Any]:
    """Where ``key`` belongs: with the arguments of a ``class_path``, or in the node itself."""
    own = "class_path" not in node or key in ("class_path", "init_args")
    arguments: dict[str, Any] = node if own else node.setdefault("init_args", {})
    return arguments


def short(key: str) -> str:
    """The last part of a dotted key: how tables and run ids call it."""
    return key.rpartition(".")[2]


def label(value: Any) -> str:
    """A grid value for people: ``elu(alpha=0.5)``, ``MyUnit``, ``0.001``."""
    if isinstance(value, dict) and "name" in value:
        parameters = ", ".join(f"{k}={label(v)}" for k, v in value.items() if k != "name")
        return f"{label(value['name'])}({parameters})" if parameters else label(value["name"])
    if isinstance(value, str):
        return value.rpartition(":")[2] or value
    return f"{value:g}" if isinstance(value, float) else str(value)


def source_digest(value: Any) -> str:
    """Digest of the file that defines a unit given as ``file.py:Unit``; empty for any other value.

    An edited unit is another unit: its runs are run again.
    """
    name = value.get("name", "") if isinstance(value, dict) else value
    path = Path(name.rpartition(":")[0]) if isinstance(name, str) and ".py:" in name else None
    return hashlib.sha256(path.read_bytes()).hexdigest() if path and path.is_file() else ""


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
