"""Studies and their runs, as plain data without any training.

A run's id depends only on what changes its numbers (`actlab.config.identity`), so the same command
starts, skips or resumes the run. `actlab.studies.reading` reads studies from files.
"""

from __future__ import annotations

import copy
import itertools
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from actlab.config import identity
from actlab.config.class_paths import class_of, with_import_paths
from actlab.config.labels import in_full, label
from actlab.config.metric_classes import directions
from actlab.config.metrics import mode_of, quantity
from actlab.config.paths import ACTIVATION, get_dotted, is_activation, set_dotted, short
from actlab.config.values import as_number, is_user_defined, named, same
from actlab.errors import ActlabError
from actlab.errors.messages import unknown
from actlab.storage import contents
from actlab.storage.spec import Spec
from actlab.studies import opened
from actlab.studies.lengths import EPOCHS, LENGTHS, is_endless
from actlab.studies.points import Point
from actlab.studies.schema import ProbePart
from actlab.studies.spaces import Search, Space

SEED = "seed_everything"
# Runs in a study (benchmarks/large_studies.py) and in a stack. Larger stacks of 45 and
# 90 runs need as much time per update and run as stacks of 15 (benchmarks/stacks.py).
MOST_RUNS, MAX_STACK = 10_000, 15
_LONGEST = 100  # characters of the readable part of a run's id
SMOKE_SUFFIX = "-smoke"  # of the name of a study that runs on samples
BLOCK = "block"  # key of the block's name in a grid point


@dataclass(frozen=True)
class Selection:
    """Rule that selects the values of the tuned keys by a median over seeds.

    It is the median of a validation metric. ``tune`` are grid keys whose values are selected rather
    than compared, such as the learning rate. Of each run the ``best`` value of the metric counts,
    or the ``last``, by ``at``. A study that knows which values of the metric are better replaces an
    empty ``mode`` by ``min`` or ``max``.
    """

    tune: tuple[str, ...] = ()
    metric: str = "val/loss"
    mode: str = "min"
    at: str = "best"

    @property
    def value(self) -> str:
        """The value of a run that counts, in words: ``best val/loss``."""
        return f"{self.at} {self.metric}"


@dataclass(frozen=True)
class Keep:
    """Which checkpoints of a run are kept in addition to the last one.

    ``best`` is the metric that selects the best epoch, by ``mode``; None keeps no best checkpoint.
    The initial state is the checkpoint after 0 ``epochs``.
    """

    best: str | None = None
    mode: str = "min"
    epochs: tuple[int, ...] = ()


@dataclass(frozen=True)
class Run:
    """One training run: a grid point and a seed.

    The ``id`` is readable, unique within the study, and names the run's folder; it ends in the
    first digits of the ``identity``, the digest of config and ``sources``. The ``sources`` are
    digests of files and code outside actlab, by path or importable name; ``code`` has the digest of
    each file of the user's code. The ``config`` is complete, except what the run folder provides.
    Runs share parts of it, so copy it before changing it.
    """

    id: str
    point: Point
    seed: int
    config: dict[str, Any]
    keep: Keep = Keep()
    block: int = 0
    sources: dict[str, str] = field(default_factory=dict)
    identity: str = ""
    code: dict[str, str] = field(default_factory=dict)

    @property
    def spelling(self) -> Any:
        """The activation as the grid or the config writes it, not its label; "" without one."""
        value = self.point.get(ACTIVATION) or self.activation or ""
        return value.plain if isinstance(value, Spec) else value

    @cached_property
    def activation(self) -> Spec | None:
        """The model's activation; None without one."""
        value = get_dotted(self.config, ACTIVATION)
        return Spec.of(value) if value else None

    @property
    def epochs(self) -> int | None:
        """Number of epochs to train; None if only the number of updates is limited."""
        value = get_dotted(self.config, EPOCHS)
        return value if isinstance(value, int) and value > 0 else None


@dataclass(frozen=True)
class Trial:
    """A point of a search: searched values at a grid point, without runs."""

    group: Mapping[str, Any]  # the grid point, and the name of the group
    tuned: Point  # values by config key, and by argument of the activation
    space: Mapping[str, Space]  # the same keys


@dataclass(frozen=True)
class Block:
    """A grid, lists of values by dotted config key, over a base config.

    The runs are the Cartesian product of the lists. ``settings`` are values of dotted config keys
    for every run. The ``name`` is written in tables, to distinguish blocks of different networks or
    tasks, and may be empty. The runs of a block that is not ``opened`` are planned but not trained:
    the runs that select its settings have failed. A block of a search has one grid point, a
    ``trial``.
    """

    grid: dict[str, list[Any]]
    base: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    opened: bool = True
    trial: Trial | None = None

    def __post_init__(self) -> None:
        for part in ("grid", "base", "settings"):
            object.__setattr__(self, part, with_import_paths(getattr(self, part)))

    def config(self, more: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy of the base config with the settings and the dotted keys of ``more``."""
        config = copy.deepcopy(self.base)
        for key, value in {**self.settings, **more}.items():
            set_dotted(config, key, copy.deepcopy(value))
        return config

    @property
    def first(self) -> dict[str, Any]:
        """The config of the first grid point."""
        return self.config({key: values[0] for key, values in self.grid.items()})


@dataclass(frozen=True)
class Stage:
    """A part of a study that runs after the previous stage, at the settings selected there."""

    name: str
    seeds: tuple[int, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    search: Search | None = None


def _check_equal(run: Run, second_run: Run) -> None:
    """Check that two runs of one id, from two blocks, are the same run at the same grid point."""
    if run.identity != second_run.identity:
        raise ActlabError(
            f"two different runs would get the same ID {run.id}. Change the seed of one of them."
        )
    for key, value in run.point.items():
        if run.point.only([key]) != second_run.point.only([key]):
            values = f"{in_full(value)} and {in_full(second_run.point[key])}"
            raise ActlabError(
                f"{key}: {values} have the same content and would be the same run. Remove one of "
                "them."
            )


def _uses_partial_data(config: Mapping[str, Any]) -> bool:
    for key in ("data.sample", "trainer.fast_dev_run", "trainer.overfit_batches"):
        if get_dotted(config, key):
            return True
    for part in ("train", "val", "test"):
        limit = get_dotted(config, f"trainer.limit_{part}_batches")
        if limit is not None and (isinstance(limit, int) or limit != 1.0):
            return True
    return False


def check_name(name: str) -> None:
    """Check the name of a study, which names its folder.

    It has letters of any script, digits, ``.``, ``_`` and ``-``.

    >>> check_name("gelu_mnist-2.1")
    """
    # Unicode categories: L letters, M their marks, N digits
    kinds = ""
    for character in name:
        if character not in "._-":
            character = unicodedata.category(character)[0]
        kinds += character
    if not re.fullmatch(r"[LN][LMN._-]*", kinds):
        raise ActlabError(
            f"study name: expected a letter or digit, then letters, digits, '.', '_' and '-', got "
            f"{name!r}. Rename the study's file."
        )


@dataclass(frozen=True)
class Study:
    """A study as its file and the command line state it.

    It is plain data: it knows which runs there are (`runs`), how values are selected and compared,
    and what tables and figures show. It checks names and grid values. It trains nothing, reads no
    results, and knows no folder but its own name; see `actlab.studies.study_folder` and
    `actlab.stages.opening`.
    """

    # What is run
    name: str  # of the study's folder under the runs directory; see `check_name`
    title: str  # one line for tables and figures
    blocks: tuple[Block, ...]  # grids whose union is the study
    seeds: tuple[int, ...]  # of every grid point; with stages, of the first stage

    # Grid key whose values are compared, or `BLOCK`; by default the first that is not
    # tuned
    compare: str = ""
    select: Selection = Selection()
    # In order; empty if the study runs as a whole; see `actlab.stages.opening`
    stages: tuple[Stage, ...] = ()
    probes: tuple[ProbePart, ...] = ()  # evaluations after training
    keep: Keep = Keep()

    # Columns
    table: tuple[dict[str, Any], ...] = (
        {"metric": "test/error", "at": "last", "percent": True},
    )
    # Metric, ``at`` and condition of the column that answers the question; by default
    # the first that is ranked
    primary: dict[str, Any] = field(default_factory=dict)
    # ``source`` and ``values``; each value has ``where`` (grid keys), ``metric``,
    # ``at`` and ``value``
    published: dict[str, Any] = field(default_factory=dict)
    # Length of runs if the command line or a stage states another than the file,
    # shorter or longer: ``25 epochs, not 250``
    other_length: str = ""
    figures: tuple[
        dict[str, Any], ...
    ] = ()  # of ``report``; see `actlab.reports.plots`
    # Compared value to which costs and significance refer, or its full text
    reference: Any = "relu"
    # Whether the user gave it; only the default may be missing in the grid.
    reference_given: bool = False
    # Departures from the paper and hints for reading, printed below the table
    notes: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()  # of the runs in loggers

    # Of earlier stages, the first two by grid point
    tried: Mapping[Point, int] = field(default_factory=dict)  # number of settings
    # Keys and arguments chosen at an end
    edges: Mapping[Point, tuple[str, ...]] = field(default_factory=dict)
    chosen_on: frozenset[int] = frozenset()  # seeds of the runs that selected settings
    # Why runs failed, by their ids.
    failed: Mapping[str, str] = field(default_factory=dict)

    # Of the command or call that planned the study
    added: tuple[Any, ...] = ()  # activations that the user added to the file's grid
    # What sets ``seeds``, ``{}`` for their number; may be empty
    more_seeds: str = "--seeds {}"
    # Digest of what a search compares, without its settings and seeds; else empty
    question: str = ""
    # What users' code opens, as stored
    opened_files: opened.OpenedFiles = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name(self.name)

        # The compared key
        untuned = [key for key in self.keys if key not in self.select.tune]
        candidates = untuned or [*self.keys]
        if self.compare and self.compare not in candidates:
            hint = "Set 'compare' to a grid key that is not tuned."
            raise unknown("key to compare", self.compare, untuned, hint)
        default = next(
            (key for key in untuned if key != BLOCK), next(iter(candidates), "")
        )
        object.__setattr__(self, "compare", self.compare or default)

        # Grid values that texts name
        reference = with_import_paths(self.reference, self.compare)
        object.__setattr__(
            self, "reference", named(reference, self._values(self.compare))
        )
        for part in ("published", "figures"):
            object.__setattr__(self, part, self._with_values(getattr(self, part)))

        # The mode of the selection and of the best checkpoint
        mode = self.select.mode or self.mode_of(self.select.metric)
        if mode != self.select.mode:
            object.__setattr__(self, "select", replace(self.select, mode=mode))
        if not self.keep.mode:
            object.__setattr__(self, "keep", replace(self.keep, mode=self.select.mode))

    def _values(self, key: str) -> list[Any]:
        values: list[Any] = []
        for block in self.blocks:
            if key == BLOCK:
                values.append(block.name)
            else:
                values += block.grid.get(key, ())
        return values

    def _with_values(self, part: Any) -> Any:
        """Return a part of a study file with the grid values that texts in it name.

        Grid values stand at ``where`` and ``fixed``.
        """
        if isinstance(part, list | tuple):
            return type(part)(map(self._with_values, part))
        if not isinstance(part, Mapping):
            return part

        replaced: dict[str, Any] = {}
        for name, inner in part.items():
            if name in ("where", "fixed"):
                replaced[name] = {
                    k: named(value, self._values(k)) for k, value in inner.items()
                }
            else:
                replaced[name] = self._with_values(inner)
        return replaced

    @property
    def smoke(self) -> bool:
        """Whether this is a smoke test on samples."""
        return self.name.endswith(SMOKE_SUFFIX)

    @cached_property
    def samples(self) -> bool:
        """Whether any run uses only part of its data: samples or limited batches."""
        if self.smoke:
            return True
        for block in self.blocks:
            for key, values in block.grid.items():
                if any(
                    _uses_partial_data(block.config({key: value})) for value in values
                ):
                    return True
        return False

    @cached_property
    def modes(self) -> dict[str, str]:
        """``min`` or ``max`` by metric, from the study file or the metric's class."""
        of_file = {}
        for column in self.table:
            if column.get("mode"):
                of_file[column["metric"]] = column["mode"]
        if self.select.mode:
            of_file[self.select.metric] = self.select.mode

        modes = directions(block.first for block in self.blocks)
        for metric, mode in of_file.items():
            modes[quantity(metric)] = mode
        return {**modes, **of_file}

    def mode_of(self, metric: str) -> str:
        """Return ``min`` or ``max``; "" if nothing says it.

        Low values count as better for what actlab's probes measure.
        """
        mode = mode_of(metric, self.modes)
        if mode:
            return mode

        # Names of what probes measure begin with the probe
        probe_name, _, name = metric.partition("/")
        if "/" in name:
            return ""
        for probe in self.probes:
            if probe.name == probe_name and probe.class_path.startswith("actlab."):
                return "min"
        return ""

    def is_own(self, key: str, value: Any) -> bool:
        """Return whether a grid value is an activation of the user, which tables emphasise.

        It is user-defined, or added to the grid.
        """
        if not is_activation(key):
            return False
        return is_user_defined(value) or any(same(value, added) for added in self.added)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """All grid keys in the order of the file, preceded by ``block`` if blocks have names."""
        keys: dict[str, None] = {}
        if any(block.name for block in self.blocks):
            keys[BLOCK] = None
        for block in self.blocks:
            keys |= dict.fromkeys(block.grid)
        return tuple(keys)

    def runs(self) -> list[Run]:
        """Return all distinct runs of the opened blocks, in the order of the file.

        Seeds change fastest.
        """
        return [run for run in self._runs if self.blocks[run.block].opened]

    def planned(self) -> list[Run]:
        """Return the runs of all blocks."""
        return list(self._runs)

    @cached_property
    def _runs(self) -> tuple[Run, ...]:
        # Reject too many runs before any is built
        points = sum(math.prod(map(len, block.grid.values())) for block in self.blocks)
        number = points * len(self.seeds)
        if number > MOST_RUNS:
            raise ActlabError(
                f"{self.name}: expected at most {MOST_RUNS:,} runs, got {number:,}. Remove values "
                "or seeds."
            )

        # Digests are computed once
        contents_by_text: contents.ContentsByText = {}
        code: dict[str, dict[str, str]] = {}
        runs: dict[str, Run] = {}
        for block_number, block in enumerate(self.blocks):
            for values in itertools.product(*block.grid.values()):
                point = dict(zip(block.grid, values, strict=True))
                for run in self._runs_at(block_number, point, contents_by_text, code):
                    equal_run = runs.setdefault(run.id, run)
                    if equal_run is not run:
                        _check_equal(equal_run, run)
        return tuple(runs.values())

    def _runs_at(
        self,
        number: int,
        point: dict[str, Any],
        contents_by_text: contents.ContentsByText,
        code: dict[str, dict[str, str]],
    ) -> Iterator[Run]:
        """Yield the runs of a grid point of a block; remember digests of files and code."""
        # The config with the first seed stands for all seeds
        block = self.blocks[number]
        config = block.config({**point, SEED: self.seeds[0]})

        # Every run must end
        if is_endless(config):
            raise ActlabError(
                f"{EPOCHS} is {get_dotted(config, EPOCHS)}, so a run of {self.name} would never "
                f"end. Set {' or '.join(LENGTHS)}."
            )

        # The point, with the values that other blocks compare
        values = {key: get_dotted(config, key) for key in self.keys} | point
        if BLOCK in values:
            values[BLOCK] = block.name
        full_point = Point(values)

        # The activation, parsed
        activation = get_dotted(config, ACTIVATION)
        if (
            activation
            and str(class_of(config.get("model"))) in identity.ACTLAB["model"]
        ):
            set_dotted(config, ACTIVATION, Spec.of(activation))

        # Files and code
        sources = identity.sources_of(config, contents_by_text)
        digests: dict[str, str] = {}
        for text in sources:
            if text not in code:
                code[text] = contents.digests_of_code(text)
            digests |= code[text]
        sources |= opened.sources_of(
            config, sources, self.opened_files, contents_by_text
        )

        # A run for each seed
        counted, slug = identity.counted(config, sources), self._slug(full_point)
        for seed in self.seeds:
            digest = identity.identity_of({**counted, SEED: as_number(seed)}, sources)
            name = f"{slug}seed{seed}"[:_LONGEST]
            yield Run(
                id=f"{name}-{digest[: identity.DIGITS]}",
                point=full_point,
                seed=seed,
                config={**config, SEED: seed},
                keep=self.keep,
                block=number,
                sources=sources,
                identity=digest,
                code=digests,
            )

    def _slug(self, point: Mapping[str, Any]) -> str:
        """Return the readable part of the ids of a grid point's runs, up to the seed."""
        slug = ""
        for key, value in point.items():
            word = label(as_number(value))
            if key not in (self.compare, BLOCK):
                word = short(key) + word
            slug += f"{word}-"

        # All file systems accept the other characters
        for character in set(slug):
            if not (character.isalnum() or character in "._-"):
                slug = slug.replace(character, "_")
        return slug
