"""The comparison of a study as a record: rows, cells, verdicts and the notes below the table.

`actlab.analysis.comparison.table_of` makes it from results. Everything that shows a comparison
reads it. ``table.json`` has its fields: a number that is not finite is null there, and a path has
its last part only.
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
from actlab.analysis.differences import Difference, Quantity, Superiority
from actlab.analysis.looks import factor
from actlab.analysis.statistics import INSIDE, LEVEL, Interval, Number
from actlab.analysis.wording import joined, plural
from actlab.config.labels import in_full, printers
from actlab.config.values import mapped, shareable
from actlab.storage.json_files import read_json
from actlab.studies.plan import SMOKE_SUFFIX
from actlab.studies.points import Point

NAME = "table.json"
REMEDY = "Delete it, and let `actlab study report` write it again."

Family = Literal["primary", "secondary", ""]
FAMILIES: tuple[Family, ...] = ("primary", "secondary")
Outcome = Literal[
    "better", "worse", "equivalent", "undecided", "too few pairs", "unfinished"
]


class Correction(NamedTuple):
    """What the p-values of a comparison are corrected for: its family, and earlier looks."""

    family: Family = ""
    comparisons: int = 0  # in the family, finished or not
    with_margin: int = 0  # how many of them have a margin of equivalence
    looks: int = 0  # verdicts seen before

    def strictness(self, further_looks: int = 0) -> int:
        """Return what the smallest p-value is multiplied by, after some further looks."""
        return max(1, self.comparisons) * factor(self.looks + further_looks)

    def text(self, further_looks: int = 0, margin: bool = False) -> str:
        """Return ``3 comparisons``, ``3 comparisons and 2 looks``.

        Args:
            further_looks: number of looks that are still to come.
            margin: whether to count tests of equivalence.
        """
        tests = self.comparisons
        if margin:
            tests = self.with_margin
        text = plural(max(1, tests), "comparison")

        looks = self.looks + further_looks
        if looks:
            text += f" and {looks + 1} looks"
        return text


@dataclass(frozen=True, kw_only=True)
class Cell(Column):
    """A column of one row, at the row's selected setting.

    A cell has the fields of its column, with three differences: ``percent`` is `Column.in_percent`,
    ``samples`` is the number that the runs recorded, and ``margin`` is in the unit of the values.

    A comparison with the reference has p-values and intervals when all planned runs of both sides
    have ended. It has none if the values are the best of several (``biased``), because these are
    not a fair sample of what they measure.
    """

    mode: Literal["min", "max", ""]
    n: int  # number of values
    diverged: bool  # whether any run did; if none did, an infinite value was measured
    median: float | None  # None without values
    interval: Interval | None

    # Mean and standard deviation, if the paper published a standard deviation
    mean: float | None = None
    sd: float | None = None

    # Published values; a mean over runs if there is a standard deviation
    published: float | None = None
    published_sd: float | None = None
    # Ours minus the published value, on the column's scale.
    difference: float | None = None

    # Standard error that the median has from the samples alone, if known
    sampling_error: float | None = None
    at_chance: bool = False  # whether a run with the median counts as failed
    reference_at_chance: bool = False
    primary: bool
    # Whether it is a learnt parameter that the study's file does not list.
    learnt: bool = False
    biased: bool = False

    # Empty: not compared with the reference, or not ranked and so not corrected
    family: Family = ""
    pairs: int = 0  # seeds that both sides have
    missing: int = 0  # planned runs of both sides that have not ended

    # Runs of each side that failed, see `Column.failed`, among the paired ones
    failures: tuple[int, int] = (0, 0)
    paired: Difference = field(default_factory=Difference)
    better: Superiority | None = None  # None without values of both sides

    decides: Quantity = "mean"  # see `deciding`
    p: float | None = None  # of the quantity that decides
    p_holm: float | None = None  # corrected over its family, and for earlier looks
    has_margin: bool = False  # whether the study states a margin
    p_equivalent: float | None = None  # two one-sided tests against the margin
    # Corrected over the cells of the family with a margin.
    p_equivalent_holm: float | None = None
    values: Mapping[int, Number]  # by seed, infinite where a run diverged

    def __post_init__(self) -> None:
        # A file has null where a number was not finite. It is read as nan, which
        # becomes the worst value.
        values = {seed: self._or_worst(value) for seed, value in self.values.items()}
        object.__setattr__(self, "values", values)
        if self.values and self.median is None:
            object.__setattr__(self, "median", self.worst)
        if self.interval:
            low = self._or_worst(self.interval.low)
            high = self._or_worst(self.interval.high)
            object.__setattr__(
                self, "interval", self.interval._replace(low=low, high=high)
            )

    def _or_worst(self, value: float) -> float:
        return self.worst if math.isnan(value) else value

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
    def is_equivalent(self) -> bool:
        """Whether the mean difference lies within the margin, by two one-sided tests.

        After correction both are significant. Alone they are at a quarter of the level: the 97.5 %
        interval is inside the margin. At the level itself, skewed differences are equivalent too
        often.
        """
        if self.p_equivalent is None or self.p_equivalent_holm is None:
            return False
        return self.p_equivalent <= INSIDE and self.p_equivalent_holm < LEVEL

    @property
    def within_margin(self) -> bool:
        """Whether the mean difference is smaller than the margin.

        Differences of shares are compared in counts of samples.
        """
        mean = self.paired.mean
        if self.margin is None or mean is None:
            return False

        size = abs(mean)
        samples = (self.samples or 0) * self.pairs
        if samples:
            size = round(size * samples) / samples
        return size < self.margin and not math.isclose(size, self.margin)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A grid point, without its tuned values."""

    point: Point
    chosen: Point  # the selected tuned values; empty until a run has ended
    # Keys and arguments whose selected value is an end of what was tried.
    edges: tuple[str, ...]

    # How far the selection depends on its seeds; None without a selection, or if
    # unknown
    choice: Choice | None = None
    settings: int = 1  # number of settings that were tried
    reference_settings: int | None = None  # of its reference; None without a reference
    planned: int = 0  # number of runs at the selected setting
    finished: int = 0  # how many of these finished without diverging
    diverged: int = 0

    # Whether the setting was selected while runs of the group were missing
    provisional: bool = False
    cost: Mapping[str, Any] | None = None  # the entry of ``cost.json`` for the group
    columns: tuple[Cell, ...]

    @property
    def primary(self) -> Cell:
        """The cell of the primary column; the first cell of a study without a primary column."""
        return next((cell for cell in self.columns if cell.primary), self.columns[0])


@dataclass(frozen=True)
class Comparison:
    """How one activation differs from the reference in one test quantity.

    It is printed as its sentence.
    """

    name: str  # the activation, with its other grid values
    column: str  # its key
    family: Family

    # ``too few pairs`` for any p below 0.05, ``unfinished`` while planned runs are
    # missing
    outcome: Outcome
    text: str  # the verdict with its evidence, or why it is not decided yet
    difference: Difference = field(default_factory=Difference)  # paired
    superiority: Superiority = field(default_factory=Superiority)
    correction: Correction = field(default_factory=Correction)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, kw_only=True)
class StudyTable:
    """The comparison of a study.

    The table has a row for each grid point at its selected setting, and in each row a cell for each
    column. It has all verdicts and notes as sentences. Terminal, files, pages, figures of a
    scoreboard and the API read their numbers and sentences from it, so that they agree.

    The table does not have the values of each epoch (`actlab.analysis.curves`) or of settings that
    were not selected. It neither computes statistics (`actlab.analysis.comparison`) nor lays out
    text (`actlab.reports.tables`).
    """

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
    cut: str  # how long the runs are, if the study's file states another length
    samples: bool  # whether the runs used only a part of their data
    tuned: tuple[str, ...] = ()  # keys whose values were selected

    # Whether several settings may have been tried, in this stage or an earlier one
    tried: bool = False
    verdicts: tuple[Comparison, ...]

    # Sentences below the table: the verdicts, with those that lack runs in one
    summary: tuple[str, ...] = ()

    # Trainable parameters of activations after training, a line each
    parameters: tuple[str, ...] = ()

    # State of the study, how to read the values and where they come from
    remarks: tuple[str, ...] = ()
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
        """Formats the value of a grid key; values with equal labels are written in full."""
        return printers(row.point | row.chosen for row in self.rows)

    @property
    def values(self) -> list[Any]:
        """The compared value of each row that has one."""
        return [
            row.point[self.compare] for row in self.rows if self.compare in row.point
        ]

    @cached_property
    def reference_text(self) -> str:
        """The reference as the table writes it."""
        for value in self.values:
            if in_full(shareable(value)) == self.reference:
                return self.text(self.compare, value)
        return self.reference

    @property
    def footnotes(self) -> tuple[str, ...]:
        """All notes below the table: the remarks, then the notes of the study's file."""
        return (*self.remarks, *self.notes)

    def label(self, row: Row) -> str:
        """Return the compared value of a row as text; empty without one."""
        return self.text(self.compare, row.point.get(self.compare, ""))

    def is_own(self, row: Row) -> bool:
        """Return whether a row has an activation of the user, which is emphasised."""
        return any(
            in_full(shareable(value)) in self.own for value in row.point.values()
        )

    @property
    def points(self) -> list[tuple[str, list[Row]]]:
        """Rows that differ only in the compared value, with a description of what they share."""
        # Group the rows by all settings but the compared one.
        rows_by_setting: dict[Point, list[Row]] = {}
        for row in self.rows:
            setting = row.point.without([self.compare])
            rows_by_setting.setdefault(setting, []).append(row)

        # Describe each group.
        groups = []
        for setting, rows in rows_by_setting.items():
            words = setting.in_words(text=self.text)
            groups.append((joined(words, self.cut), rows))
        return groups

    @property
    def shown(self) -> list[int]:
        """The indices of the columns with a value in any row; all before a run has ended."""
        numbers = []
        for number, column in enumerate(self.rows[0].columns):
            has_value = any(row.columns[number].median is not None for row in self.rows)
            if not column.learnt and (has_value or not self.ended):
                numbers.append(number)
        return numbers

    @property
    def compared(self) -> Iterator[tuple[Row, Cell]]:
        """The cells that are compared with the reference in a test quantity, by row."""
        for row in self.rows:
            for cell in row.columns:
                if cell.family and cell.tests:
                    yield row, cell

    def correction(self, family: Family) -> Correction:
        """Return what the comparisons of a family are corrected for."""
        comparisons = with_margin = 0
        for row in self.rows:
            for cell in row.columns:
                if cell.family == family:
                    comparisons += 1
                    if cell.has_margin:
                        with_margin += 1
        return Correction(family, comparisons, with_margin, self.looks)

    def to_json(self) -> str:
        """Return the contents of ``table.json``."""
        return json.dumps(_plain(self), indent=1, allow_nan=False, default=str) + "\n"


def read(path: Path, remedy: str = REMEDY) -> StudyTable:
    """Read a ``table.json``; a DamagedError ends with the remedy."""
    return read_json(path, StudyTable, remedy)


def _plain(value: Any) -> Any:
    """Return a record as nested values for JSON."""
    if isinstance(value, Point):
        return mapped(shareable(value), _finite_or_text)

    # Records become mappings; the cell of a column also has its name.
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if is_dataclass(value):
        entries: dict[str, Any] = {}
        if isinstance(value, Cell):
            entries["name"] = value.name
        for record_field in fields(value):
            entries[record_field.name] = _plain(getattr(value, record_field.name))
        return entries

    # Nested values
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value if _is_finite(value) else None


def _finite_or_text(value: Any) -> Any:
    """Return a value of a grid point, which JSON cannot hold if it is an infinite number."""
    return value if _is_finite(value) else str(value)


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)
