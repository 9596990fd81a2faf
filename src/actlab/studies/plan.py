"""What a study is, and how it becomes runs: pure, before anything is trained.

A study is one or more grids of dotted config keys over base configs, seeds, a rule of selection and published
values. The id of a run is a function of what changes its numbers (`actlab.config.identity`), so the same
command starts, skips or resumes it. `actlab.studies.reading` makes a study from its file.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from actlab.config import identity
from actlab.config.keys import as_number, get_dotted, label, set_dotted, short
from actlab.errors import ActlabError, unknown

SEED, EPOCHS = "seed_everything", "trainer.max_epochs"
_LENGTHS = {EPOCHS: "epochs", "trainer.max_steps": "updates", "trainer.max_time": "of time"}
MOST_RUNS, MAX_STACK = 20_000, 15  # in a stack: 45 and 90 take as long an update and run (benchmarks/stacks.py)
SMOKE_SUFFIX = "-smoke"  # ends the name of a study that runs on samples
BLOCK = "block"  # the point's key for the name of a block


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
class Keep:
    """Which checkpoints of a run are kept besides the last.

    Args:
        best: metric at whose best value after an epoch one is kept; None keeps none.
        mode: ``min`` or ``max``.
        epochs: numbers of epochs after which one is kept; 0 is the start.
    """

    best: str | None = None
    mode: str = "min"
    epochs: tuple[int, ...] = ()


@dataclass(frozen=True)
class Run:
    """One training: a grid point and a seed.

    Args:
        id: readable, unique within the study, a folder name.
        point: value of each grid key.
        seed: the run's seed.
        config: the complete config, without what the run folder provides; runs share parts of it: copy it
            before changing it.
        keep: which checkpoints stay.
        block: number of the block it comes from.
        sources: digests of what it uses from outside actlab, by path or importable name.
        identity: of the config and the sources; its first digits end the id.
    """

    id: str
    point: dict[str, Any]
    seed: int
    config: dict[str, Any]
    keep: Keep = Keep()
    block: int = 0
    sources: dict[str, str] = field(default_factory=dict)
    identity: str = ""

    @property
    def unit(self) -> Any:
        """The activation as its config has it, for two that print alike are two; empty where it has none."""
        return get_dotted(self.config, "model.activation", "")

    @property
    def epochs(self) -> int | None:
        """How many epochs it trains; None when only updates limit it."""
        value = get_dotted(self.config, EPOCHS)
        return int(value) if value is not None and int(value) > 0 else None


@dataclass(frozen=True)
class Block:
    """A grid over a base config.

    Args:
        grid: values of dotted config keys; the runs are their product.
        base: the config as nested values.
        settings: dotted config keys set in every run.
        name: tells blocks of different networks or tasks apart in tables; may be empty.
    """

    grid: dict[str, list[Any]]
    base: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    name: str = ""

    def config(self, more: Mapping[str, Any]) -> dict[str, Any]:
        """The base config with the settings and ``more`` dotted keys."""
        config = copy.deepcopy(self.base)
        for key, value in {**self.settings, **more}.items():
            set_dotted(config, key, copy.deepcopy(value))
        return config


@dataclass(frozen=True)
class Stage:
    """A part of a study that is run after the one before it, at the settings which that one has selected.

    Args:
        name: in files and tables.
        seeds: of every grid point.
        settings: dotted config keys set in every run of the stage.
    """

    name: str
    seeds: tuple[int, ...]
    settings: dict[str, Any] = field(default_factory=dict)


def other_length(blocks: Iterable[tuple[Block, Block]]) -> str:
    """How much longer or shorter the runs of a block are than those of another: ``25 epochs, not 250``.

    Args:
        blocks: pairs, as they were and as they are.

    Returns:
        Words about the first pair that differs; empty where none does.
    """
    for one, other in blocks:
        for key, unit in _LENGTHS.items():
            own, given = (b.grid.get(key) or [get_dotted(b.config({}), key)] for b in (one, other))
            words = [" or ".join(map(str, values)) for values in (given, own)]
            if own != given:
                return f"{words[0]} {unit}" + (f", not {words[1]}" if any(own) else "")
    return ""


@dataclass(frozen=True)
class Probe:
    """An evaluation of checkpoints.

    Args:
        name: of its file in each run folder.
        class_path: what evaluates; see `actlab.probes`.
        init_args: its arguments.
        at: checkpoints: ``last``, ``best``, or numbers of epochs.
    """

    name: str
    class_path: str
    init_args: dict[str, Any] = field(default_factory=dict)
    at: tuple[str | int, ...] = ("last",)


def _partial(config: Mapping[str, Any]) -> bool:
    limits = [get_dotted(config, f"trainer.limit_{part}_batches") for part in ("train", "val", "test")]
    limited = (limit is not None and (isinstance(limit, int) or limit != 1.0) for limit in limits)
    brief = ("data.sample", "trainer.fast_dev_run", "trainer.overfit_batches")
    return any(get_dotted(config, key) for key in brief) or any(limited)


@dataclass(frozen=True)
class Study:
    """A study as its file and the command line give it; `runs` expands it.

    Args:
        name: names the folder under the runs directory.
        title: one line for tables and figures.
        blocks: the study is their union.
        seeds: the seeds of every grid point.
        compare: the grid key whose values are compared, or ``block``; by default the first that is not tuned.
        select: the rule of selection.
        stages: empty when everything is run at once; see `actlab.engines.stages`.
        probes: evaluations after training.
        keep: which checkpoints stay.
        table: columns of the table; see `actlab.analysis.columns`.
        published: ``source`` and ``values``: each ``where`` (grid keys), ``metric``, ``at``, ``value``.
        cut: in words, how much longer or shorter the command line makes the runs than the file has them.
        figures: what ``report`` draws; see `actlab.reports.figures`.
        reference: the compared value that costs and significance are given against, as it is or in words.
        reference_given: whether somebody asked for it; the default one may be absent.
        notes: departures from the paper and how to read the results, printed below the table.
        tags: words by which loggers find the runs.
        tried: how many settings an earlier stage tried, by grid point as text.
        chosen_on: the seeds of the runs by which an earlier stage chose.
    """

    name: str
    title: str
    blocks: tuple[Block, ...]
    seeds: tuple[int, ...]
    compare: str = ""
    select: Selection = Selection()
    stages: tuple[Stage, ...] = ()
    probes: tuple[Probe, ...] = ()
    keep: Keep = Keep()
    table: tuple[dict[str, Any], ...] = ({"metric": "test/error", "at": "last", "percent": True},)
    published: dict[str, Any] = field(default_factory=dict)
    cut: str = ""
    figures: tuple[dict[str, Any], ...] = ()
    reference: Any = "relu"
    reference_given: bool = False
    notes: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    tried: Mapping[str, int] = field(default_factory=dict)
    chosen_on: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        """Fill in what is compared.

        Raises:
            ActlabError: when ``compare`` is no key of the grid, or a tuned one.
        """
        free = [key for key in self.keys if key not in self.select.tune]
        if self.compare and self.compare not in free:
            raise unknown("key to compare", self.compare, free, "'compare' names a grid key that is not tuned.")
        first = next((key for key in free if key != BLOCK), next(iter([*free, *self.keys]), ""))
        object.__setattr__(self, "compare", self.compare or first)

    @property
    def smoke(self) -> bool:
        """Whether it runs on samples, to show that it runs."""
        return self.name.endswith(SMOKE_SUFFIX)

    @cached_property
    def samples(self) -> bool:
        """Whether runs see a part of their data alone: samples, or limited batches."""
        points = ((b, {key: value}) for b in self.blocks for key in b.grid for value in b.grid[key])
        return self.smoke or any(_partial(block.config(point)) for block, point in points)

    @property
    def modes(self) -> dict[str, str]:
        """Whether low or high values are good, as selection and columns say it and `mode_of` takes it."""
        said = {self.select.metric: self.select.mode}
        said |= {str(c["metric"]): c["mode"] for c in self.table if "metric" in c and c.get("mode")}
        return {**{metric.rpartition("/")[2]: mode for metric, mode in said.items()}, **said}

    @property
    def keys(self) -> tuple[str, ...]:
        """All grid keys, in the order of the file; the name of the block first where blocks have names."""
        named = [BLOCK] if any(block.name for block in self.blocks) else []
        return tuple(dict.fromkeys([*named, *(key for block in self.blocks for key in block.grid)]))

    def runs(self) -> list[Run]:
        """Every run of the study, each once, in the order of the file with the seeds innermost.

        Raises:
            ActlabError: when there would be far too many.
        """
        return list(self._runs)

    @cached_property
    def _runs(self) -> tuple[Run, ...]:
        number = sum(math.prod(map(len, block.grid.values())) for block in self.blocks) * len(self.seeds)
        if number > MOST_RUNS:
            raise ActlabError(
                f"{self.name} would have {number:,} runs, but at most {MOST_RUNS:,} can be: give fewer values"
            )
        known: dict[str, str | None] = {}
        runs: dict[str, Run] = {}
        for number, block in enumerate(self.blocks):
            for values in itertools.product(*block.grid.values()):
                for run in self._runs_at(number, dict(zip(block.grid, values, strict=True)), known):
                    if runs.setdefault(run.id, run).identity != run.identity:
                        raise ActlabError(f"two different runs would both be named {run.id}: change one's seed")
        return tuple(runs.values())

    def _runs_at(self, number: int, point: dict[str, Any], known: dict[str, str | None]) -> Iterator[Run]:
        """The runs of a grid point, one a seed; they share what their configs have in common."""
        block, keys = self.blocks[number], self.keys
        common = block.config({**point, SEED: self.seeds[0]})
        full = {key: point[key] if key in point else get_dotted(common, key) for key in keys}
        if BLOCK in full:
            full[BLOCK] = block.name
        sources = identity.sources_of(common, known)
        counted = identity.counted(common, sources)
        for seed in self.seeds:
            config, counts = {**common, SEED: seed}, {**counted, SEED: as_number(seed)}
            whole = identity.identity_of(counts, sources)
            name = f"{self._slug(full, seed)}-{whole[: identity.DIGITS]}"
            yield Run(name, full, seed, config, self.keep, number, sources, whole)

    def _slug(self, point: Mapping[str, Any], seed: int) -> str:
        """The readable part of a run's id."""
        plain = (self.compare, BLOCK)
        values = {key: label(as_number(value)) for key, value in point.items()}
        words = [text if key in plain else short(key) + text for key, text in values.items()]
        slug = "-".join([*words, f"seed{seed}"])
        return "".join(c if c.isalnum() or c in "._-" else "_" for c in slug)[:100]
