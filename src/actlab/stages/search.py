"""A stage that searches: trials that Optuna proposes in batches, from the results of the batches before.

``proposals.json`` stores them, because another version of Optuna may propose others: a start that resumes reads
them and finds their runs.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from actlab.analysis import results
from actlab.analysis.points import plural
from actlab.config.keys import short
from actlab.config.values import canonical, value_key
from actlab.errors import needing
from actlab.storage.files import read_json, write_json
from actlab.studies.folders import DIVERGED, FINISHED, RunFolder
from actlab.studies.formats import Chosen, Selected
from actlab.studies.groups import groups
from actlab.studies.plan import UNIT, Keep, Study
from actlab.studies.points import Point
from actlab.studies.spaces import Choices, Search, Space
from actlab.studies.states import FAILED, state_of

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

FILE, _REMEDY = "proposals.json", "delete it; Optuna then proposes trials again"
BATCH = 5  # trials of a side that are proposed, then trained, at once


class Side(NamedTuple):
    """A grid point at which something is searched, or nothing."""

    point: Point  # its activation has its arguments as given
    block: int  # index of its block
    space: dict[str, Space]  # by config key, and by argument of the activation
    name: str  # the grid point in words, without keys that have one value in the grid

    @property
    def key(self) -> str:
        """The key of what is selected."""
        return (self.point | {"searched": [*self.space]}).text

    def edges(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the searched keys whose value lies at the end of its range or choices."""
        return tuple(key for key, value in values.items() if self.space[key].is_edge(value))

    def at(self, values: Mapping[str, Any]) -> Point:
        """Return the grid point with searched values: config keys, and arguments of the activation."""
        own = {key: value for key, value in values.items() if "." not in key}
        found = {**self.point, **{key: value for key, value in values.items() if key not in own}}
        for key in (key for key in self.point if short(key) == UNIT and own):
            given = self.point[key]
            found[key] = {**(given if isinstance(given, Mapping) else {"name": given}), **own}
        return Point(found)


class Trial(NamedTuple):
    """A setting that was or will be trained."""

    number: int  # counted from 0 for each side
    values: dict[str, Any]  # of the search space
    # Median over seeds of the selection metric; infinite if that diverged, None before the runs have ended.
    value: float | None = None
    failed: bool = False  # whether all runs have ended or failed, and one has failed


Trials = list[tuple[Side, list[Trial]]]


class StagePoint(NamedTuple):
    """A grid point of a later stage."""

    block: int  # index of its block
    values: Point  # of each key
    entry: Selected  # how these were selected
    edges: tuple[str, ...]  # keys and arguments whose value is an end of what was tried


def sides(study: Study, search: Search) -> list[Side]:
    """Return what is searched at each grid point."""
    found = []
    several = {key for block in study.blocks for key, values in block.grid.items() if len(values) > 1}
    for group in groups(study):
        point, block = group.point, group.settings[0].runs[0].block
        units = {key: value for key, value in point.items() if short(key) == UNIT}
        name = point.only({*several, *units}).in_words(next(iter(units), ""))
        own = [search.arguments[key] for key in map(value_key, units.values()) if key in search.arguments]
        found += [Side(point, block, {**arguments, **search.keys}, name) for arguments in own]
        if not own or search.as_given:
            found.append(Side(point, block, {**search.keys}, f"{name} as given" if own else name))
    return found


def study_of(study: Study, found: Trials) -> Study:
    """Return the study that trains trials: grid points with searched values."""
    blocks = []
    for side, trials in found:
        own = study.blocks[side.block]
        for trial in trials:
            point = side.at(trial.values)
            keys = dict.fromkeys([*own.grid, *(key for key in trial.values if key in point)])
            blocks.append(replace(own, grid={key: [point[key]] for key in keys}))
    select = replace(study.select, tune=())
    plain: dict[str, Any] = {"probes": (), "published": {}, "figures": (), "keep": Keep(), "reference": ""}
    return replace(study, blocks=tuple(blocks), select=select, **plain)


def at_ends(study: Study, search: Search) -> Study:
    """Return a study with the first and the last value of each space, for checks."""
    found = []
    for side in sides(study, search):
        ends = [{key: space.ends[n] for key, space in side.space.items()} for n in (0, -1)]
        found.append((side, [Trial(0, values) for values in ends]))
    return study_of(study, found)


def trials(study: Study, search: Search, root: Path, store: bool = False) -> Trials:
    """Return the trials of each side so far, and the next batch; ``store`` keeps it for later starts.

    Raises:
        ActlabError: without Optuna.
    """
    path = root / FILE
    known = read_json(path, dict[str, list[dict[str, Any]]], _REMEDY) if path.exists() else {}
    proposed, found = copy.deepcopy(known), []
    for side in sides(study, search):
        runs = study_of(study, [(side, [Trial(0, {})])]).runs()
        key = canonical([run.id for run in runs]) + canonical({key: str(s) for key, s in side.space.items()})
        found.append((side, _trials(study, search, side, root, proposed.setdefault(key, []))))
    if store and root.exists() and proposed != known and not is_over(found):
        write_json(path, proposed)
    return found


def _trials(
    study: Study, search: Search, side: Side, root: Path, proposed: list[dict[str, Any]]
) -> list[Trial]:
    """Return the trials of a side; those that are not among the ``proposed`` parameters are added to them."""
    if not side.space:
        return []
    require_optuna()
    import optuna

    asked = optuna.create_study(direction="maximize" if study.select.mode == "max" else "minimize")
    spaces = {key: _distribution(space) for key, space in side.space.items()}
    found: list[Trial] = []
    while len(found) < search.trials and all(trial.value is not None for trial in found):
        asked.sampler = _sampler(len(found))
        batch = []
        for number in range(len(found), min(len(found) + BATCH, search.trials)):
            if number < len(proposed):
                asked.enqueue_trial(proposed[number])
            batch.append(asked.ask(spaces))
            proposed[number:] = proposed[number:] or [batch[-1].params]
        for one in batch:
            trial = Trial(one.number, {key: s.rounded(one.params[key]) for key, s in side.space.items()})
            found.append(_read(trial, study_of(study, [(side, [trial])]), root))
            if (value := found[-1].value) is not None:
                asked.tell(one.number, value)
    return found


def _read(trial: Trial, study: Study, root: Path) -> Trial:
    """Return a trial with its value, or with its failure; ``study`` has its only setting."""
    kinds = {state_of(RunFolder(root, run)).kind for run in study.runs()}
    if not kinds <= {FINISHED, DIVERGED}:
        return trial._replace(failed=kinds <= {FINISHED, DIVERGED, FAILED})
    loaded = results.load(study, root)
    (group,) = loaded.groups
    return trial._replace(value=loaded.scores(group.settings)[0])


def selected(study: Study, search: Search, found: Trials, known: Chosen) -> Chosen:
    """Return the best trial of each side; before all are over what is known of as many, else nothing.

    A side with failed trials, or whose trials all diverged, has the first of them, and no seeds.
    """
    if not is_over(found):
        ids = {run.id for run in study_of(study, found).runs()}
        kept = [known.get(side.key) for side, _ in found]
        same = all(one and one.get("trials") == search.trials and not stale(one, ids) for one in kept)
        return known if same else {}
    chosen: Chosen = {}
    for side, trials in found:
        best = _chosen(study, trials)
        first = trials[0].values if trials else {}
        chosen[side.key] = {
            "point": dict(side.point),
            "chosen": best.values if best else first,
            "tried": len({Point(trial.values) for trial in trials}) or 1,
            "trials": search.trials,
            "metric": study.select.metric,
            "mode": study.select.mode,
            "at": study.select.at,
            "seeds": [*study.seeds] if best or not trials else [],
            "runs": [run.id for run in study_of(study, [(side, trials)]).runs()] if trials else [],
        }
    return chosen


def stale(entry: Selected, ids: Collection[str]) -> bool:
    """Return whether an entry was selected by runs of other code or settings: none of the ``ids``, if any."""
    chose = entry.get("runs", [])
    return bool(ids and chose) and {*ids}.isdisjoint(chose)


def _chosen(study: Study, trials: Sequence[Trial]) -> Trial | None:
    """Return the best trial that has ended, the first of equal ones; None if a run failed or all diverged."""
    if any(trial.failed for trial in trials) or diverged(trials):
        return None
    sign = -1 if study.select.mode == "max" else 1
    ended = [trial for trial in trials if trial.value is not None]
    return min(ended, key=lambda trial: sign * (trial.value or 0.0), default=None)


def diverged(trials: Sequence[Trial]) -> bool:
    """Return whether there are trials, and all have diverged."""
    return bool(trials) and all(trial.value is not None and math.isinf(trial.value) for trial in trials)


def is_over(found: Trials) -> bool:
    """Return whether no trial waits for runs: each has a value or has failed."""
    return all(trial.failed or trial.value is not None for _, trials in found for trial in trials)


def places(found: Trials, chosen: Chosen) -> list[StagePoint]:
    """Return the grid points of the next stage."""
    entries = [(side, chosen[side.key], chosen[side.key]["chosen"]) for side, _ in found]
    return [StagePoint(side.block, side.at(best), entry, side.edges(best)) for side, entry, best in entries]


def compared(study: Study, grid: Study, found: Trials, chosen: Chosen) -> Study:
    """Return the stage after a search with what its tables say of the search.

    Its `Study.question` is the digest of what is compared, its code, data and settings that are not searched.
    """
    asked = study_of(grid, [(side, [Trial(0, {})]) for side, _ in found])
    runs = replace(asked, seeds=(0,)).runs()
    tried = [f"{side.name} tried {settings(side, chosen[side.key]['tried'])}" for side, _ in found]
    seeds = f"{'seeds' if len(grid.seeds) > 1 else 'seed'} {', '.join(map(str, grid.seeds))}"
    note = (
        f"Tuned on {seeds}, which this table does not use: {', '.join(tried)}. Optuna's TPE sampler "
        f"proposed them; the median over seeds of the {grid.select.value} chose one for each."
    )
    question = sha256(canonical([run.identity for run in runs]).encode()).hexdigest()
    return replace(study, notes=(*study.notes, note), question=question)


def settings(side: Side, number: int) -> str:
    """Return a number of settings and the search space in words: ``20 settings (alpha 0.1 to 3)``."""
    space = ", ".join(f"{key} {part}" for key, part in side.space.items())
    return plural(number, "setting") + (f" ({space})" if space else "")


def lines(study: Study, found: Trials) -> Iterator[str]:
    """Yield a line for each trial that has ended, one for the best of each side, and its values at an edge."""
    for side, trials in found:
        for trial in trials:
            if trial.value is not None:
                yield f"trial {trial.number + 1}, {_text(study, side, trial)}"
    best = [(side, _chosen(study, trials)) for side, trials in found]
    said = [_text(study, side, trial) for side, trial in best if trial is not None]
    if said:
        yield f"best so far: {'; '.join(said)}"
    for side, chosen in best if is_over(found) else ():
        for key in side.edges(chosen.values) if chosen is not None else ():
            searched = f"the chosen {key} is at the edge of what was searched ({side.space[key]})"
            yield f"{side.name}: {searched}; a better one may lie beyond it"


def _text(study: Study, side: Side, trial: Trial) -> str:
    """Return a trial that has ended in words: ``elu, alpha 0.52: val/loss 0.2931``."""
    value = trial.value or 0.0
    said = "diverged" if math.isinf(value) else f"{study.select.metric} {value:.4g}"
    return f"{side.name}, {Point(trial.values).in_words()}: {said}"


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
