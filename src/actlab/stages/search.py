"""A stage that searches: trials that Optuna proposes in batches, from the results of the batches before.

``proposals.json`` has them, because another version of Optuna may propose others: a start that resumes is given
them and finds their runs.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from actlab.analysis import results
from actlab.analysis.results import Results
from actlab.analysis.wording import plural
from actlab.config.keys import short
from actlab.config.values import value_key
from actlab.errors import needing
from actlab.storage.files import DamagedError
from actlab.studies.folders import PROPOSALS, REPROPOSE, StudyFolder
from actlab.studies.formats import Proposals, Selected
from actlab.studies.groups import Group, Setting, groups
from actlab.studies.plan import UNIT, Keep, Run, Study
from actlab.studies.points import Point
from actlab.studies.spaces import Choices, Search, Space

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

BATCH = 5  # trials of a side that are proposed, then trained, at once


@dataclass(frozen=True)
class Trial(Setting):
    """A setting that was or will be trained; ``tuned`` has the values of the search space."""

    number: int = 0  # counted from 0 for each side
    proposed: Mapping[str, Any] = field(default_factory=dict)  # the values before they were rounded
    # Median over seeds of the selection metric; infinite if that diverged, None before the runs have ended.
    value: float | None = None
    failed: bool = False  # whether all runs have ended or failed, and one has failed


NOTHING = Trial(Point({}), ())  # a setting of no search


@dataclass(frozen=True)
class Side(Group):
    """A grid point at which something is searched, or nothing; ``settings`` are the trials so far."""

    settings: tuple[Trial, ...]
    block: int  # index of its block
    space: Mapping[str, Space]  # by config key, and by argument of the activation
    named: Collection[str]  # the keys that have several values in the grid
    as_given: bool = False  # whether other sides search arguments of the same activation

    @property
    def name(self) -> str:
        """The grid point in words, without keys that have one value in the grid."""
        units = [key for key in self.point if short(key) == UNIT]
        words = self.point.only({*self.named, *units}).in_words(next(iter(units), ""))
        return f"{words} as given" if self.as_given else words

    @property
    def diverged(self) -> bool:
        """Whether there are trials, and all have diverged."""
        values = [trial.value for trial in self.settings]
        return bool(values) and all(value is not None and math.isinf(value) for value in values)

    def block_of(self, chosen: Mapping[str, Any]) -> int:
        """Return the index of the block, for any setting."""
        return self.block

    @property
    def key(self) -> str:
        """The key of what is selected."""
        return (self.point | {"searched": [*self.space]}).text

    def edges(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the searched keys whose value lies at the end of its range or choices."""
        return tuple(key for key, value in values.items() if self.space[key].is_edge(value))

    def at(self, values: Mapping[str, Any]) -> Point:
        """Return the grid point with searched values: config keys, and arguments of the activation."""
        arguments = {key: value for key, value in values.items() if "." not in key}
        point = {**self.point, **{key: value for key, value in values.items() if "." in key}}
        for key in (key for key in self.point if short(key) == UNIT and arguments):
            given = self.point[key]
            point[key] = {**(given if isinstance(given, Mapping) else {"name": given}), **arguments}
        return Point(point)


def sides(study: Study, groups: Iterable[Group], search: Search) -> list[Side]:
    """Return what is searched at each grid point of a study."""
    listed = []
    several = {key for block in study.blocks for key, values in block.grid.items() if len(values) > 1}
    for group in groups:
        point, block = group.point, group.settings[0].runs[0].block
        units = [value_key(value) for key, value in point.items() if short(key) == UNIT]
        searched = [search.arguments[unit] for unit in units if unit in search.arguments]
        listed += [Side(point, (), block, {**arguments, **search.keys}, several) for arguments in searched]
        if not searched or search.as_given:
            listed.append(Side(point, (), block, search.keys, several, as_given=bool(searched)))
    return listed


def study_of(study: Study, sides: Iterable[Side]) -> Study:
    """Return the study that trains trials: grid points with searched values, a block for each trial."""
    blocks = []
    for side in sides:
        block = study.blocks[side.block]
        for trial in side.settings:
            point = side.at(trial.tuned)
            grid = {key: [point[key]] for key in (*block.grid, *trial.tuned) if key in point}
            blocks.append(replace(block, grid=grid))
    select = replace(study.select, tune=())
    plain: dict[str, Any] = {"probes": (), "published": {}, "figures": (), "keep": Keep(), "reference": ""}
    return replace(study, blocks=tuple(blocks), select=select, **plain)


def at_ends(study: Study, search: Search) -> Study:
    """Return a study with the first and the last value of each space, for checks."""
    at_both = []
    for side in sides(study, groups(study), search):
        ends = [Point({key: space.ends[n] for key, space in side.space.items()}) for n in (0, -1)]
        at_both.append(replace(side, settings=tuple(Trial(values, ()) for values in ends)))
    return study_of(study, at_both)


def proposed(folder: StudyFolder, search: Search, known: Proposals) -> tuple[list[Side], Proposals]:
    """Return the sides with all trials so far and the next batch, and the proposals to store for ``known``.

    Raises:
        ActlabError: without Optuna.
    """
    proposals, extended = dict(known), []
    for side in sides(folder.study, folder.groups, search):
        runs = study_of(folder.study, [replace(side, settings=(NOTHING,))]).runs()
        space = {key: str(values) for key, values in side.space.items()}
        name = json.dumps([run.id for run in runs]) + json.dumps(space, sort_keys=True)
        of_side = proposals[name] = [*known.get(name, ())]
        side = _with_trials(folder, side, of_side[: search.trials])
        while batch := _next_batch(folder.study, search, side):
            of_side += batch
            side = _with_trials(folder, side, of_side)  # their runs may be there, without the file
        extended.append(side)
    return extended, known if is_over(extended) else proposals


def _with_trials(folder: StudyFolder, side: Side, proposals: Sequence[Mapping[str, Any]]) -> Side:
    """Return a side with a trial for each of the proposed parameters, and its value or failure if any."""
    trials = []
    for number, params in enumerate(proposals):
        try:
            values = Point({key: space.rounded(params[key]) for key, space in side.space.items()})
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedError(f"{folder.path / PROPOSALS} is damaged ({params}): {REPROPOSE}") from error
        trials.append(Trial(values, (), number, params))
    if not trials:
        return side
    trained = folder.of(study_of(folder.study, [replace(side, settings=tuple(trials))]))
    runs: dict[Point, list[Run]] = {}  # trials with equal values share them
    for run in trained.study.runs():
        runs.setdefault(trials[run.block].tuned, []).append(run)
    loaded = results.load(trained)
    return replace(side, settings=tuple(_read(trial, runs[trial.tuned], loaded) for trial in trials))


def _read(trial: Trial, runs: Sequence[Run], loaded: Results) -> Trial:
    """Return a trial with its runs, and with its value or failure if they have ended."""
    trial, names = replace(trial, runs=tuple(runs)), {run.id for run in runs}
    if not names <= loaded.results.keys():
        return replace(trial, failed=names <= loaded.results.keys() | loaded.failures.keys())
    return replace(trial, value=loaded.scores([trial])[0])


def _next_batch(study: Study, search: Search, side: Side) -> list[dict[str, Any]]:
    """Return the parameters of the next trials; none while one waits for runs or has failed."""
    number = min(BATCH, search.trials - len(side.settings)) if side.space else 0
    if number < 1 or any(trial.value is None for trial in side.settings):
        return []
    require_optuna()
    import optuna

    sampled = optuna.create_study(
        direction="maximize" if study.select.mode == "max" else "minimize", sampler=_sampler(len(side.settings))
    )
    spaces = {key: _distribution(space) for key, space in side.space.items()}
    for trial in side.settings:
        params = dict(trial.proposed)
        sampled.add_trial(optuna.create_trial(params=params, distributions=spaces, value=trial.value))
    return [sampled.ask(spaces).params for _ in range(number)]


def best_of(study: Study, side: Side) -> Trial | None:
    """Return the best trial that has ended, the first of equal ones; None if a run failed or all diverged."""
    ended = [trial for trial in side.settings if trial.value is not None]
    if any(trial.failed for trial in side.settings) or side.diverged:
        return None
    sign = -1 if study.select.mode == "max" else 1
    return min(ended, key=lambda trial: sign * (trial.value or 0.0), default=None)


def is_over(sides: Iterable[Side]) -> bool:
    """Return whether no trial waits for runs: each has a value or has failed."""
    return all(trial.failed or trial.value is not None for side in sides for trial in side.settings)


def compared(study: Study, grid: Study, choices: Iterable[tuple[Group, Selected]]) -> Study:
    """Return the stage after a search with what its tables say of the search.

    Its `Study.question` is the digest of what is compared, its code, data and settings that are not searched.
    """
    tried = []
    for side, entry in choices:
        assert isinstance(side, Side)
        space = ", ".join(f"{key} {values}" for key, values in side.space.items())
        tried.append(
            f"{side.name} tried {plural(entry['tried'], 'setting')}" + (f" ({space})" if space else "")
        )
    seeds = f"{'seeds' if len(grid.seeds) > 1 else 'seed'} {', '.join(map(str, grid.seeds))}"
    note = (
        f"Tuned on {seeds}, which this table does not use: {', '.join(tried)}. Optuna's TPE sampler "
        f"proposed them; the median over seeds of the {grid.select.value} chose one for each."
    )
    identities = [run.identity for run in replace(grid, seeds=(0,)).runs()]
    question = sha256(json.dumps(identities).encode()).hexdigest()
    return replace(study, notes=(*study.notes, note), question=question)


def lines(study: Study, sides: Sequence[Side]) -> Iterator[str]:
    """Yield a line for each trial that has ended, one for the best of each side, and its values at an edge."""
    for side in sides:
        for trial in side.settings:
            if trial.value is not None:
                yield f"trial {trial.number + 1}, {_text(study, side, trial)}"
    best = [(side, best_of(study, side)) for side in sides]
    said = [_text(study, side, trial) for side, trial in best if trial is not None]
    if said:
        yield f"best so far: {'; '.join(said)}"
    for side, chosen in best if is_over(sides) else ():
        for key in side.edges(chosen.tuned) if chosen is not None else ():
            searched = f"the chosen {key} is at the edge of what was searched ({side.space[key]})"
            yield f"{side.name}: {searched}; a better one may lie beyond it"


def _text(study: Study, side: Side, trial: Trial) -> str:
    """Return a trial that has ended in words: ``elu, alpha 0.52: val/loss 0.2931``."""
    value = trial.value or 0.0
    said = "diverged" if math.isinf(value) else f"{study.select.metric} {value:.4g}"
    return f"{side.name}, {trial.tuned.in_words()}: {said}"


def require_optuna() -> None:
    """Import Optuna, and let it print warnings only."""
    with needing("optuna", "tune", "a search"):
        import optuna
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def _sampler(trials: int) -> BaseSampler:
    """Return the sampler of a batch, seeded by the number of trials before it."""
    from optuna.exceptions import ExperimentalWarning
    from optuna.samplers import TPESampler

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)  # Optuna 4: constant_liar
        return TPESampler(seed=trials, constant_liar=True)


def _distribution(space: Space) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(space, Choices):
        return CategoricalDistribution(space.values)
    if space.whole:
        return IntDistribution(int(space.low), int(space.high), log=space.log)
    return FloatDistribution(space.low, space.high, log=space.log)
