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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from actlab.config import identity
from actlab.config.class_paths import class_of, with_import_paths
from actlab.config.metric_classes import directions
from actlab.config.metrics import mode_of, quantity
from actlab.config.paths import ACTIVATION, get_dotted, is_activation, set_dotted, short
from actlab.config.values import as_number, in_full, is_user_defined, label, named, same
from actlab.errors import ActlabError
from actlab.errors.messages import unknown
from actlab.storage import contents
from actlab.storage.spec import Spec
from actlab.studies import opened
from actlab.studies.points import Point
from actlab.studies.schema import ProbePart
from actlab.studies.spaces import Search, Space

SEED, EPOCHS = "seed_everything", "trainer.max_epochs"
_LENGTHS = {  # of a run, with the unit of one and of several
    EPOCHS: ("epoch", "epochs"),
    "trainer.max_steps": ("update", "updates"),
    "trainer.max_time": ("of time", "of time"),
}
# Runs in a study (benchmarks/large_studies.py) and in a stack. Larger stacks of 45 and 90 runs need
# as much time per update and run as stacks of 15 (benchmarks/stacks.py).
MOST_RUNS, MAX_STACK = 10_000, 15
_LONGEST = 100  # characters of the readable part of a run's id
SMOKE_SUFFIX = "-smoke"  # of the name of a study that runs on samples
BLOCK = "block"  # key of the block's name in a grid point


@dataclass(frozen=True)
class Selection:
    """Rule that selects the values of the tuned keys by the median over seeds of a validation metric.

    ``tune`` are grid keys whose values are selected rather than compared, such as the learning
    rate. Of each run the ``best`` value of the metric counts, or the ``last``, by ``at``. A study
    that knows which values of the metric are better replaces an empty ``mode`` by ``min`` or
    ``max``.
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
    After 0 of the ``epochs`` stands the initial state.
    """

    best: str | None = None
    mode: str = "min"
    epochs: tuple[int, ...] = ()


@dataclass(frozen=True)
class Run:
    """One training run: a grid point and a seed.

    The ``id`` is readable, unique within the study, and names the run's folder; it ends in the
    first digits of the ``identity``, the digest of config and ``sources``. Those are digests of
    files and code outside actlab, by path or importable name; ``code`` has those of each file of
    the user's code. The ``config`` is complete, except what the run folder provides. Runs share
    parts of it, so copy it before changing it.
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
    def unit(self) -> Any:
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

    given: Mapping[str, Any]  # the grid point, and the name of the group
    tuned: Point  # values by config key, and by argument of the activation
    space: Mapping[str, Space]  # the same keys


@dataclass(frozen=True)
class Block:
    """A grid, lists of values by dotted config key, over a base config; the runs are the Cartesian product.

    ``settings`` are values of dotted config keys for every run. The ``name`` stands in tables, to
    distinguish blocks of different networks or tasks, and may be empty. The runs of a block that is
    not ``opened`` are planned but not trained: those that select its settings have failed. A block
    of a search has one grid point, a ``trial``.
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


def other_length(blocks: Iterable[tuple[Block, Block]]) -> str:
    """Describe how the first change alters the length of runs: ``25 epochs, not 250``; else empty."""
    for before, changed in blocks:
        for key, (one, several) in _LENGTHS.items():
            stated, given = (
                b.grid.get(key) or [get_dotted(b.config({}), key)] for b in (before, changed)
            )
            words = [" or ".join(map(str, values)) for values in (given, stated)]
            unit = one if given == [1] else several
            if stated != given:
                return f"{words[0]} {unit}" + (f", not {words[1]}" if any(stated) else "")
    return ""


def is_endless(config: Mapping[str, Any]) -> bool:
    """Return whether a config trains for ever: ``max_epochs`` is negative, and nothing else limits training.

    Without ``max_epochs`` Lightning trains 1,000 epochs.
    """
    epochs, steps, time = (as_number(get_dotted(config, key)) for key in _LENGTHS)
    has_steps = isinstance(steps, float) and steps >= 0
    return isinstance(epochs, float) and epochs < 0 and not has_steps and time is None


def _check_equal(run: Run, other: Run) -> None:
    """Check that two runs of one id, from two blocks, are the same run at the same grid point."""
    if run.identity != other.identity:
        raise ActlabError(f"two different runs would both be named {run.id}: change a seed")
    for key, value in run.point.items():
        if run.point.only([key]) != other.point.only([key]):
            raise ActlabError(
                f"{key}: {in_full(value)} and {in_full(other.point[key])} have the same content and would be "
                "the same run: remove one of them"
            )


def _uses_partial_data(config: Mapping[str, Any]) -> bool:
    limits = [
        get_dotted(config, f"trainer.limit_{part}_batches") for part in ("train", "val", "test")
    ]
    limited = (limit is not None and (isinstance(limit, int) or limit != 1.0) for limit in limits)
    brief = ("data.sample", "trainer.fast_dev_run", "trainer.overfit_batches")
    return any(get_dotted(config, key) for key in brief) or any(limited)


def check_name(name: str) -> None:
    """Check the name of a study, which names its folder: letters of any script, digits, ``.``, ``_`` and ``-``.

    >>> check_name("gelu_mnist-2.1")
    """
    # Unicode categories: L letters, M their marks, N digits.
    kinds = "".join(c if c in "._-" else unicodedata.category(c)[0] for c in name)
    if not re.fullmatch(r"[LN][LMN._-]*", kinds):
        raise ActlabError(
            f"study name {name!r}: give letters, digits, '.', '_' and '-', with a letter or digit first; the "
            "name of a study is that of its file"
        )


@dataclass(frozen=True)
class Study:
    """A study as given by its file and the command line; `runs` expands it into runs."""

    name: str  # of the study's folder under the runs directory; see `check_name`
    title: str  # one line for tables and figures
    blocks: tuple[Block, ...]  # grids whose union is the study
    seeds: tuple[int, ...]  # of every grid point; with stages, those of the first
    compare: str = (
        ""  # grid key whose values are compared, or `BLOCK`; by default the first that is not tuned
    )
    select: Selection = Selection()
    stages: tuple[
        Stage, ...
    ] = ()  # in order; empty if the study runs as a whole; see `actlab.stages.opening`
    probes: tuple[ProbePart, ...] = ()  # evaluations after training
    keep: Keep = Keep()
    # Columns
    table: tuple[dict[str, Any], ...] = ({"metric": "test/error", "at": "last", "percent": True},)
    # Metric, ``at`` and condition of the column that answers the question; by default the first
    # that is ranked.
    primary: dict[str, Any] = field(default_factory=dict)
    # ``source`` and ``values``; each value has ``where`` (grid keys), ``metric``, ``at`` and
    # ``value``.
    published: dict[str, Any] = field(default_factory=dict)
    cut: str = (
        ""  # how the command line or a stage changes the length of runs: ``25 epochs, not 250``
    )
    figures: tuple[dict[str, Any], ...] = ()  # of ``report``; see `actlab.reports.plots`
    reference: Any = (
        "relu"  # compared value to which costs and significance refer, or its full text
    )
    reference_given: bool = False  # explicitly; only the default may be missing in the grid
    notes: tuple[
        str, ...
    ] = ()  # departures from the paper and hints for reading, printed below the table
    tags: tuple[str, ...] = ()  # of the runs in loggers
    # Of earlier stages, the first two by grid point.
    tried: Mapping[Point, int] = field(default_factory=dict)  # number of settings
    # Keys and arguments chosen at an end
    edges: Mapping[Point, tuple[str, ...]] = field(default_factory=dict)
    chosen_on: frozenset[int] = frozenset()  # seeds of the runs that selected settings
    failed: Mapping[str, str] = field(default_factory=dict)  # why runs failed, by their ids
    added: tuple[Any, ...] = ()  # activations that the user added to the file's grid
    # What sets ``seeds`` in the command or call that planned the study, ``{}`` for their number;
    # may be empty.
    more_seeds: str = "--seeds {}"
    question: str = (
        ""  # digest of what a search compares, without its settings and seeds; else empty
    )
    # What users' code opens, as stored
    opened_files: opened.OpenedFiles = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name(self.name)
        free = [key for key in self.keys if key not in self.select.tune]
        if self.compare and self.compare not in (free or self.keys):
            raise unknown(
                "key to compare",
                self.compare,
                free,
                "'compare' names a grid key that is not tuned.",
            )
        first = next((key for key in free if key != BLOCK), next(iter([*free, *self.keys]), ""))
        object.__setattr__(self, "compare", self.compare or first)
        reference = with_import_paths(self.reference, self.compare)
        object.__setattr__(self, "reference", named(reference, self._values(self.compare)))
        for part in ("published", "figures"):
            object.__setattr__(self, part, self._with_values(getattr(self, part)))
        if not self.select.mode and (mode := self.mode_of(self.select.metric)):
            object.__setattr__(self, "select", replace(self.select, mode=mode))
        if not self.keep.mode:
            object.__setattr__(self, "keep", replace(self.keep, mode=self.select.mode))

    def _values(self, key: str) -> list[Any]:
        if key == BLOCK:
            return [block.name for block in self.blocks]
        return [value for block in self.blocks for value in block.grid.get(key, ())]

    def _with_values(self, part: Any) -> Any:
        """Return a part of a study file with the grid values that texts name in ``where`` and ``fixed``."""
        if isinstance(part, list | tuple):
            return type(part)(map(self._with_values, part))
        if not isinstance(part, Mapping):
            return part
        return {
            name: {key: named(value, self._values(key)) for key, value in inner.items()}
            if name in ("where", "fixed")
            else self._with_values(inner)
            for name, inner in part.items()
        }

    @property
    def smoke(self) -> bool:
        """Whether this is a smoke test on samples."""
        return self.name.endswith(SMOKE_SUFFIX)

    @cached_property
    def samples(self) -> bool:
        """Whether any run uses only part of its data: samples or limited batches."""
        points = ((b, {key: value}) for b in self.blocks for key in b.grid for value in b.grid[key])
        return self.smoke or any(_uses_partial_data(block.config(point)) for block, point in points)

    @cached_property
    def modes(self) -> dict[str, str]:
        """``min`` or ``max`` by metric, from the study file or the metric's class."""
        of_class = directions(block.first for block in self.blocks)
        given = {c["metric"]: c["mode"] for c in self.table if c.get("mode")}
        given |= {self.select.metric: self.select.mode} if self.select.mode else {}
        return {**of_class, **{quantity(m): mode for m, mode in given.items()}, **given}

    def mode_of(self, metric: str) -> str:
        """Return ``min`` or ``max``, of what actlab's probes measure ``min``; "" where nothing says it."""
        first, _, rest = metric.partition("/")
        ours = (probe.name for probe in self.probes if probe.class_path.startswith("actlab."))
        return mode_of(metric, self.modes) or ("min" if first in ours and "/" not in rest else "")

    def is_own(self, key: str, value: Any) -> bool:
        """Return whether a grid value is an activation of the user: user-defined, or added to the grid.

        Figures and tables emphasise these.
        """
        return is_activation(key) and (
            is_user_defined(value) or any(same(value, unit) for unit in self.added)
        )

    def has_own(self, point: Mapping[str, Any]) -> bool:
        """Return whether a grid point has an activation of the user; see `is_own`."""
        return any(self.is_own(key, value) for key, value in point.items())

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """All grid keys in the order of the file, preceded by ``block`` if blocks have names."""
        named = [BLOCK] if any(block.name for block in self.blocks) else []
        return tuple(dict.fromkeys([*named, *(key for block in self.blocks for key in block.grid)]))

    def runs(self) -> list[Run]:
        """Return all distinct runs of the opened blocks, in the order of the file with seeds innermost."""
        return [run for run in self._runs if self.blocks[run.block].opened]

    def planned(self) -> list[Run]:
        """Return the runs of all blocks."""
        return list(self._runs)

    @cached_property
    def _runs(self) -> tuple[Run, ...]:
        number = sum(math.prod(map(len, block.grid.values())) for block in self.blocks) * len(
            self.seeds
        )
        if number > MOST_RUNS:
            raise ActlabError(
                f"{self.name} would have {number:,} runs; at most {MOST_RUNS:,} are allowed: give fewer values"
            )
        known: dict[str, str | None] = {}
        code: dict[str, dict[str, str]] = {}
        runs: dict[str, Run] = {}
        for number, block in enumerate(self.blocks):
            for values in itertools.product(*block.grid.values()):
                for run in self._runs_at(
                    number, dict(zip(block.grid, values, strict=True)), known, code
                ):
                    if (other := runs.setdefault(run.id, run)) is not run:
                        _check_equal(other, run)
        return tuple(runs.values())

    def _runs_at(
        self,
        number: int,
        point: dict[str, Any],
        known: dict[str, str | None],
        code: dict[str, dict[str, str]],
    ) -> Iterator[Run]:
        block = self.blocks[number]
        common = block.config({**point, SEED: self.seeds[0]})
        if is_endless(common):
            raise ActlabError(
                f"{EPOCHS} is {get_dotted(common, EPOCHS)}, so a run of {self.name} would train for ever: set "
                f"a limit, {' or '.join(_LENGTHS)}"
            )
        whole = {key: get_dotted(common, key) for key in self.keys} | point
        full = Point({**whole, BLOCK: block.name} if BLOCK in whole else whole)
        activation = get_dotted(common, ACTIVATION)
        if activation and str(class_of(common.get("model"))) in identity.ACTLAB["model"]:
            set_dotted(common, ACTIVATION, Spec.of(activation))
        sources = identity.sources_of(common, known)
        code |= {text: contents.digests_of_code(text) for text in sources.keys() - code.keys()}
        digests = {name: digest for text in sources for name, digest in code[text].items()}
        sources |= opened.sources_of(common, sources, self.opened_files, known)
        counted, slug = identity.counted(common, sources), self._slug(full)
        for seed in self.seeds:
            digest = identity.identity_of({**counted, SEED: as_number(seed)}, sources)
            name = f"{f'{slug}seed{seed}'[:_LONGEST]}-{digest[: identity.DIGITS]}"
            yield Run(
                name,
                full,
                seed,
                {**common, SEED: seed},
                self.keep,
                number,
                sources,
                digest,
                digests,
            )

    def _slug(self, point: Mapping[str, Any]) -> str:
        """Return the readable part of the ids of a grid point's runs, up to the seed."""
        plain = (self.compare, BLOCK)
        values = {key: label(as_number(value)) for key, value in point.items()}
        words = [text if key in plain else short(key) + text for key, text in values.items()]
        return "".join(
            c if c.isalnum() or c in "._-" else "_" for word in words for c in f"{word}-"
        )
