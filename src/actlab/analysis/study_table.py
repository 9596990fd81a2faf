"""The comparison of a study as a record: rows, cells, verdicts and the facts below the table.

`actlab.analysis.comparison.table_of` makes it from results. Everything that shows a comparison
reads it, and ``table.json`` has its fields: a number that is not finite is null there, and a path
has its last part only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from annotated_types import MinLen  # a dependency of pydantic; imports fast

from actlab.analysis.choice import Choice
from actlab.analysis.columns import Column
from actlab.analysis.differences import Difference, Superiority
from actlab.analysis.looks import factor
from actlab.analysis.statistics import Interval, Number
from actlab.analysis.wording import joined, plural
from actlab.config.labels import in_full, printers
from actlab.config.values import mapped, shareable
from actlab.storage.json_files import read_json
from actlab.studies.groups import by_key
from actlab.studies.plan import SMOKE_SUFFIX
from actlab.studies.points import Point

NAME = "table.json"
REMEDY = "delete it, and let `actlab study report` write it again"

Family = Literal["primary", "secondary", ""]
FAMILIES: tuple[Family, ...] = ("primary", "secondary")
Outcome = Literal["better", "worse", "equivalent", "undecided", "too few pairs", "unfinished"]


class Correction(NamedTuple):
    """What the p-values of a comparison are corrected for: the others of its family, and earlier looks."""

    family: Family = ""
    comparisons: int = 0  # in the family, finished or not
    with_margin: int = 0  # how many of them have a margin of equivalence
    looks: int = 0  # verdicts seen before

    def strictness(self, more: int = 0) -> int:
        """Return by how much the smallest p-value is multiplied, after so many looks more."""
        return max(1, self.comparisons) * factor(self.looks + more)

    def text(self, more: int = 0, margin: bool = False) -> str:
        """Return ``3 comparisons``, ``3 comparisons and 2 looks``; with ``margin`` of tests of equivalence."""
        number, looks = self.with_margin if margin else self.comparisons, self.looks + more
        count = plural(max(1, number), "comparison")
        return f"{count} and {looks + 1} looks" if looks else count


@dataclass(frozen=True, kw_only=True)
class Cell(Column):
    """A column of one row, at the row's selected setting.

    Of its column, ``percent`` is `Column.in_percent`, ``samples`` is the number that the runs
    recorded, and ``margin`` is in the unit of the values.

    A comparison with the reference has p-values and intervals when all planned runs of both sides
    have ended. It has none where the values are the best of several (``biased``): no fair sample of
    what they measure.
    """

    mode: Literal["min", "max", ""]
    n: int  # number of values
    diverged: bool  # whether any run did; if none, an infinite value was measured
    median: float | None  # of the values; None without any
    interval: Interval | None
    mean: float | None = (
        None  # mean and standard deviation, if the paper published a standard deviation
    )
    sd: float | None = None
    published: float | None = None  # a mean over runs if the paper gives a standard deviation
    published_sd: float | None = None
    difference: float | None = None  # ours minus the published value, on the column's scale
    sampling_error: float | None = (
        None  # standard error that the median has from the samples alone, if known
    )
    at_chance: bool = False  # whether a run with the median counts as failed
    reference_at_chance: bool = False
    primary: bool
    learnt: bool = False  # whether it is a learnt parameter that the study's file does not list
    biased: bool = False
    family: Family = (
        ""  # empty: not tested against the reference, or not ranked and so not corrected
    )
    pairs: int = 0  # seeds that both sides have
    missing: int = 0  # planned runs of both sides that have not ended
    # Runs of each side that failed, see `Column.failed`, of those paired
    failures: tuple[int, int] = (
        0,
        0,
    )
    paired: Difference = field(default_factory=Difference)
    better: Superiority | None = None  # None without values of both sides
    decides: Literal["mean", "probability"] = (
        "mean"  # the probability where a run of either side failed
    )
    p: float | None = None  # of what decides
    p_holm: float | None = None  # corrected over its family, and for earlier looks
    has_margin: bool = False  # whether the study states a margin
    p_equivalent: float | None = None  # two one-sided tests against the margin
    p_equivalent_holm: float | None = None  # corrected over the cells of the family with a margin
    values: Mapping[int, Number]  # by seed, infinite where a run diverged

    def __post_init__(self) -> None:
        # Put the worst value in place of what a file could not hold
        values = {
            seed: self.worst if math.isnan(value) else value for seed, value in self.values.items()
        }
        object.__setattr__(self, "values", values)
        if self.values and self.median is None:
            object.__setattr__(self, "median", self.worst)
        if self.interval:
            low, high = (self.worst if math.isnan(end) else end for end in self.interval[:2])
            object.__setattr__(self, "interval", self.interval._replace(low=low, high=high))

    @property
    def by_probability(self) -> bool:
        """Whether the probability decides, and not the mean."""
        return self.decides == "probability"

    @property
    def identical(self) -> bool:
        """Whether each pair of runs has the same value on both sides."""
        mean, sd = self.paired.mean, self.paired.sd
        return mean == 0 and (sd == 0 or (sd is None and self.pairs == 1))

    @property
    def within_margin(self) -> bool:
        """Whether the mean difference is smaller than the margin; of shares, in counts of samples."""
        mean, number = self.paired.mean, (self.samples or 0) * self.pairs
        if self.margin is None or mean is None:
            return False
        counted = round(abs(mean) * number) / number if number else abs(mean)
        return counted < self.margin and not math.isclose(counted, self.margin)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A grid point, without its tuned values."""

    point: Point
    chosen: Point  # the selected tuned values; empty until a run has ended
    edges: tuple[str, ...]  # keys and arguments whose selected value is an end of what was tried
    choice: Choice | None = (
        None  # how far the selection depends on its seeds; None without one, or if unknown
    )
    settings: int = 1  # number of settings that were tried
    reference_settings: int | None = None  # of its reference; None without a reference
    planned: int = 0  # number of runs at the selected setting
    finished: int = 0  # how many of these finished without diverging
    diverged: int = 0
    provisional: bool = (
        False  # whether the setting was selected while runs of the group were missing
    )
    cost: Mapping[str, Any] | None = None  # the entry of ``cost.json`` for the group
    columns: tuple[Cell, ...]

    @property
    def primary(self) -> Cell:
        """The cell of the primary column; the first one of a study without a primary column."""
        return next((cell for cell in self.columns if cell.primary), self.columns[0])


@dataclass(frozen=True)
class Comparison:
    """How one activation differs from the reference in one test quantity; printed, it is its sentence."""

    name: str  # the activation, with whatever else the table distinguishes
    column: str  # its key
    family: Family
    # ``too few pairs`` for any p below 0.05, ``unfinished`` while planned runs are missing
    outcome: Outcome
    text: str  # the verdict with its evidence, or why it is not decided yet
    difference: Difference = field(default_factory=Difference)  # paired
    superiority: Superiority = field(default_factory=Superiority)
    correction: Correction = field(default_factory=Correction)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, kw_only=True)
class StudyTable:
    """The comparison of a study."""

    study: str  # its name
    title: str
    compare: str  # the compared grid key
    reference: str  # in full
    own: tuple[str, ...]  # activations of the user, in full
    sources: Mapping[str, str]  # digests of the code of users' activations
    looks: int = 0  # verdicts seen before the study was extended
    planned: int  # number of runs
    finished: int  # without diverging
    diverged: int
    seeds: tuple[int, ...]
    versions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    hardware: tuple[str, ...] = ()
    published: str | None = None  # source of published values
    cut: str  # how long the runs are, if that is not what the study's file states
    samples: bool  # whether the runs used only a part of their data
    tuned: tuple[str, ...] = ()  # keys whose values were selected
    tried: bool = (
        False  # whether several settings may have been tried, in this stage or an earlier one
    )
    verdicts: tuple[Comparison, ...]
    summary: tuple[
        str, ...
    ] = ()  # sentences below the table: the verdicts, with those that lack runs in one
    parameters: tuple[
        str, ...
    ] = ()  # trainable parameters of activations after training, a line each
    remarks: tuple[
        str, ...
    ] = ()  # state of the study, how to read the values and where they come from
    rows: Annotated[tuple[Row, ...], MinLen(1)]
    notes: tuple[str, ...] = ()  # of the study's file

    @property
    def smoke(self) -> bool:
        """Whether the study ran with ``--smoke``; its values say nothing about activations."""
        return self.study.endswith(SMOKE_SUFFIX)

    @property
    def on_samples(self) -> bool:
        """Whether the runs used only a part of their data."""
        return self.smoke or self.samples

    @property
    def ended(self) -> int:
        """Number of runs that finished or diverged."""
        return self.finished + self.diverged

    @cached_property
    def text(self) -> Callable[[str, Any], str]:
        """Formats the value of a grid key for people; values with equal labels are written in full."""
        return printers(row.point | row.chosen for row in self.rows)

    @property
    def values(self) -> list[Any]:
        """The compared value of each row that has one."""
        return [row.point[self.compare] for row in self.rows if self.compare in row.point]

    @cached_property
    def reference_text(self) -> str:
        """The reference as the table writes it."""
        fits = [value for value in self.values if in_full(shareable(value)) == self.reference]
        return self.text(self.compare, fits[0]) if fits else self.reference

    @property
    def footnotes(self) -> tuple[str, ...]:
        """All notes below the table: the remarks, then the study's own."""
        return (*self.remarks, *self.notes)

    def label(self, row: Row) -> str:
        """Return the compared value of a row as text; empty without one."""
        return self.text(self.compare, row.point.get(self.compare, ""))

    def is_own(self, row: Row) -> bool:
        """Return whether a row is of an activation of the user, which is emphasised."""
        return any(in_full(shareable(value)) in self.own for value in row.point.values())

    @property
    def points(self) -> list[tuple[str, list[Row]]]:
        """The rows that differ only in the compared value, with what they share in words."""
        by_rest = by_key((row.point.without([self.compare]), row) for row in self.rows)
        return [
            (joined(rest.in_words(text=self.text), self.cut), rows)
            for rest, rows in by_rest.items()
        ]

    @property
    def shown(self) -> list[int]:
        """The indices of the columns that have a value in any row; all before a run has ended."""
        return [
            number
            for number, cell in enumerate(self.rows[0].columns)
            if not cell.learnt
            if not self.ended or any(row.columns[number].median is not None for row in self.rows)
        ]

    @property
    def compared(self) -> Iterator[tuple[Row, Cell]]:
        """The cells that are compared with the reference in a test quantity, in the order of the table."""
        for row in self.rows:
            for cell in row.columns:
                if cell.family and cell.tests:
                    yield row, cell

    def correction(self, family: Family) -> Correction:
        """Return what the comparisons of a family are corrected for."""
        cells = [cell for row in self.rows for cell in row.columns if cell.family == family]
        with_margin = sum(cell.has_margin for cell in cells)
        return Correction(family, len(cells), with_margin, self.looks)

    def to_json(self) -> str:
        """Return the contents of ``table.json``."""
        return json.dumps(_plain(self), indent=1, allow_nan=False, default=str) + "\n"


def read(path: Path, remedy: str = REMEDY) -> StudyTable:
    """Read a ``table.json``; a DamagedError ends with the remedy."""
    return read_json(path, StudyTable, remedy)


def _plain(value: Any) -> Any:
    """Return a record as nested values for JSON."""
    if isinstance(value, Point):
        return mapped(shareable(value), lambda leaf: leaf if _is_finite(leaf) else str(leaf))
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if is_dataclass(value):
        named = {"name": value.name} if isinstance(value, Cell) else {}
        return named | {of.name: _plain(getattr(value, of.name)) for of in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value if _is_finite(value) else None


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)
