"""Search spaces of ``actlab tune``, and the studies that a search trains: its trials and the comparison."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from actlab.config.keys import canonical, check_order, label, plain_unit, same, short
from actlab.errors import ActlabError
from actlab.storage.mappings import parse
from actlab.studies.groups import groups
from actlab.studies.plan import SMOKE_SUFFIX, UNIT, Block, Keep, Selection, Study
from actlab.studies.seeds import seed_list

FIRST_FRESH = 100  # first fresh seed if only their number is given, unless the search uses higher seeds
_RANGE = re.compile(r"\s*(?P<low>[^\s\[{].*?)\.\.(?P<high>.+?)\s*")
_WHOLE = re.compile(r"[+-]?\d+")
_MOST = 10**15  # size of the ends of a range: exact in float64, and no difference of two overflows
_FORMS = "write KEY=LOW..HIGH, such as slope=0.1..3, or KEY=[a, b, c]"


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both included; whole numbers if both are.

    >>> print(Range(0.1, 3.0), Range(1, 4), Range(0.0, 1.0), sep="; ")
    0.1 to 3 on a log scale; whole numbers 1 to 4; 0 to 1
    """

    low: float
    high: float

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are proposed."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def log(self) -> bool:
        """Whether numbers are proposed on a logarithmic scale: positive ones over a factor of 10 or more."""
        return self.low > 0 and self.high >= 10 * self.low

    @property
    def first(self) -> float:
        """A value of the space, to check it with."""
        return self.low

    def rounded(self, value: float) -> float:
        """Return a proposal with four digits, as it is printed, so that it can be cited and typed.

        >>> Range(0.1, 3.0).rounded(0.21277034), Range(0.12344, 3.0).rounded(0.12344), Range(1, 9).rounded(7)
        (0.2128, 0.12344, 7)
        """
        return value if self.whole else min(max(float(f"{value:.4g}"), float(self.low)), float(self.high))

    def __str__(self) -> str:
        ends = f"{'whole numbers ' * self.whole}{self.low:g} to {self.high:g}"
        return ends + " on a log scale" * self.log


@dataclass(frozen=True)
class Choices:
    """Values to choose from: numbers, words, booleans or null.

    >>> print(Choices((1, "he", None)))
    one of 1, he, None
    """

    values: tuple[Any, ...]

    @property
    def first(self) -> Any:
        """A value of the space, to check it with."""
        return self.values[0]

    def __str__(self) -> str:
        return f"one of {', '.join(map(label, self.values))}"


Space = Mapping[str, Range | Choices]
"""What is searched, by key: an argument of the activation, or a dotted config key."""


def parse_space(texts: Iterable[str]) -> dict[str, Range | Choices]:
    """Return the search space of ``KEY=LOW..HIGH`` and ``KEY=[a, b, c]``.

    Raises:
        ActlabError: for a malformed text, a range without numbers between its ends, values that are not plain,
            or a key given twice.

    >>> parse_space(["slope=0.1..3", "model.optimizer.lr=[1e-3, 1e-4]"])
    {'slope': Range(low=0.1, high=3.0), 'model.optimizer.lr': Choices(values=(0.001, 0.0001))}
    """
    found: dict[str, Range | Choices] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not (key and equals and value.strip()):
            raise ActlabError(f"--search {text!r}: {_FORMS}")
        if key in found:
            raise ActlabError(f"--search {key} is given twice: give each key once")
        if "." not in key and (not key.isidentifier() or key == "name"):
            raise ActlabError(f"--search {text!r}: {key!r} cannot be an argument of an activation; {_FORMS}")
        ends = _RANGE.fullmatch(value)
        found[key] = _range(text, ends["low"], ends["high"]) if ends else _choices(text, value)
    return found


def _range(text: str, *ends: str) -> Range:
    whole = all(_WHOLE.fullmatch(end.strip()) for end in ends)
    try:
        low, high = (int(end) if whole and len(end) < 20 else float(end) for end in ends)
    except ValueError:
        raise ActlabError(f"--search {text!r}: the ends of a range are numbers; {_FORMS}") from None
    if not -_MOST <= low < high <= _MOST:
        raise ActlabError(
            f"--search {text[:80]!r}: give two numbers from -1e15 to 1e15, the lower one first, such as 0.1..3"
        )
    return Range(low, high)


def _choices(text: str, value: str) -> Choices:
    values = parse(value)
    if not isinstance(values, list) or len(values) < 2:
        raise ActlabError(f"--search {text!r}: {_FORMS}, with two values or more")
    for one in values:
        fits = abs(one) <= sys.float_info.max if isinstance(one, int | float) else isinstance(one, str | None)
        if not fits:
            raise ActlabError(
                f"--search {text[:80]!r}: {str(one)[:80]} cannot be searched; give finite numbers or words"
            )
    if len({canonical(one) for one in values}) < len(values):
        raise ActlabError(f"--search {text!r}: a value is given twice; give each value once")
    return Choices(tuple(values))


@dataclass(frozen=True)
class Side:
    """An activation of the comparison, and what is searched for it.

    Args:
        activation: the activation as given.
        space: arguments of the activation and dotted config keys; empty for an activation with one setting.
    """

    activation: Any
    space: Space

    @property
    def name(self) -> str:
        """The activation in words."""
        return label(self.activation)

    def unit(self, values: Mapping[str, Any]) -> Any:
        """Return the activation with those of the values that are its arguments."""
        own = {key: value for key, value in values.items() if not _is_config(key)}
        given = self.activation if isinstance(self.activation, Mapping) else {"name": self.activation}
        return {**given, **own} if own else plain_unit(self.activation)

    def rounded(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return proposed values with numbers of ranges rounded; see `Range.rounded`."""
        spaces = self.space.items()
        return {k: s.rounded(values[k]) if isinstance(s, Range) else values[k] for k, s in spaces}

    @property
    def first(self) -> dict[str, Any]:
        """A value for each key of the space."""
        return {key: space.first for key, space in self.space.items()}


def _is_config(key: str) -> bool:
    return "." in key


@dataclass(frozen=True)
class Tuning:
    """A search for two activations, and their comparison on fresh seeds; `plan` checks the parts.

    Args:
        study: gives base config, grid, seeds of the search and selection rule.
        key: the grid key of activations.
        mine: the tuned activation.
        reference: the activation to compare with; its config keys are searched as those of ``mine``.
        fresh: seeds of the comparison, none of which the search uses.
    """

    study: Study
    key: str
    mine: Side
    reference: Side
    fresh: tuple[int, ...]

    @property
    def sides(self) -> tuple[Side, Side]:
        """Both activations."""
        return self.mine, self.reference

    @property
    def untuned(self) -> Any:
        """The activation with its arguments as given; None if none are searched or it is the reference."""
        alone = all(map(_is_config, self.mine.space)) or same(self.mine.unit({}), self.reference.unit({}))
        return None if alone else self.mine.unit({})

    def point(self, unit: Any, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values by grid key: an activation and those of the values that belong to config keys."""
        return {self.key: unit, **{key: value for key, value in values.items() if _is_config(key)}}

    def trials(self, points: Sequence[Mapping[str, Any]]) -> Study:
        """Return the study that trains grid points with the seeds of the search."""
        return replace(self._study(points), title=f"{self.study.title}, search", reference="", keep=Keep())

    def comparison(
        self, points: Sequence[Mapping[str, Any]], tried: Sequence[int], notes: Iterable[str]
    ) -> Study:
        """Return the study that compares selected grid points on fresh seeds.

        Args:
            points: grid points; their activations differ.
            tried: number of settings tried for each of them.
            notes: sentences below the table.
        """
        tune = tuple(key for key in self.mine.space if _is_config(key))
        found = replace(
            self._study(points),
            seeds=self.fresh,
            select=replace(self.study.select, tune=tune),
            probes=self.study.probes,
            figures=({"name": "curves", "lines": self.key, "y": {self.study.select.metric: None}},),
            reference=self.reference.unit({}),
            reference_given=True,
            notes=tuple(notes),
            chosen_on=frozenset(self.study.seeds),
            more_seeds="--fresh {}",
            question=self._question(),
        )
        counts = {canonical(g.point): number for g, number in zip(groups(found), tried, strict=True)}
        return replace(found, tried=counts)

    def _question(self) -> str:
        """Return the digest of both activations, their code, the data and the settings not searched."""
        points = [self.point(side.unit({}), {}) for side in self.sides]
        asked = replace(self._study(points), seeds=(0,))
        return sha256(canonical([run.identity for run in asked.runs()]).encode()).hexdigest()

    def _study(self, points: Sequence[Mapping[str, Any]]) -> Study:
        """Return a study of grid points, without what only applies to the study file's own grid."""
        (block,) = self.study.blocks
        stem, (mine, reference) = self.study.name.removesuffix(SMOKE_SUFFIX), self.sides
        return replace(
            self.study,
            name=f"{stem}-tuned{SMOKE_SUFFIX * self.study.smoke}",
            title=f"{mine.name} tuned against {reference.name} in {stem}",
            blocks=tuple(
                Block(
                    {**block.grid, **{key: [value] for key, value in point.items()}}, block.base, block.settings
                )
                for point in points
            ),
            compare=self.key,
            select=Selection((), self.study.select.metric, self.study.select.mode),
            probes=(),
            published={},
            figures=(),
            notes=(),
            cut="",
        )


def plan(study: Study, activation: Any, reference: Any, space: Space, fresh: str) -> Tuning:
    """Return the search of a study.

    Args:
        study: a study with one grid of activations and without stages; its seeds are those of the search.
        activation: the activation to tune.
        reference: the activation to compare with.
        space: what is searched; config keys are searched for both activations.
        fresh: the number of fresh seeds, or the seeds as text, such as ``100-114``.

    Raises:
        ActlabError: for a study with several blocks, without activations or with further grid keys of several
            values, for a key that cannot be searched, or for seeds that the search uses too.
    """
    keys = [key for key in study.keys if short(key) == UNIT]
    if len(study.blocks) > 1 or len(keys) != 1:
        raise ActlabError(
            f"{study.name} cannot be tuned: give a study with one grid, one key of which is an activation"
        )
    (key,), (block,) = keys, study.blocks
    shared = {name: part for name, part in space.items() if _is_config(name)}
    for name in shared:
        if name == key or name.startswith(f"{key}."):
            raise ActlabError(
                f"--search {name}: write the name of the activation's argument alone, such as slope"
            )
    check_order({*block.settings}, [*block.grid, *shared])
    for name, values in block.grid.items():
        if len(values) > 1 and name not in (key, *shared):
            one, all_ = label(values[0]), ", ".join(map(label, values))
            raise ActlabError(
                f"{study.name} has {len(values)} values of {name}: give one with --set {name}={one}, or search "
                f"them with --search '{name}=[{all_}]'"
            )
    mine, theirs = Side(activation, space), Side(reference, shared)
    if shared.keys() == space.keys() and same(mine.unit({}), theirs.unit({})):
        raise ActlabError(f"{mine.name} is also the reference: give another one with --reference")
    return Tuning(study, key, mine, theirs, _fresh_seeds(fresh, study.seeds))


def _fresh_seeds(text: str, used: Sequence[int]) -> tuple[int, ...]:
    """Return the seeds of the comparison; a number alone counts from `FIRST_FRESH` or above the used seeds."""
    value = parse(text)
    seeds = seed_list(value)
    if isinstance(value, int):
        first = max(FIRST_FRESH, max(used) + 1)
        seeds = tuple(range(first, first + len(seeds)))
    if both := sorted(set(seeds) & set(used)):
        raise ActlabError(
            f"--fresh {text}: the search uses seed {both[0]} too; give other seeds or their number"
        )
    return seeds
