"""Stages of a study: each later stage runs at the settings that the stage before it has selected.

The selection is made once, stored in ``selection.json`` and reused by every later start. The first of two
stages may search (`actlab.stages.search`); its selection is made again after further trials.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from actlab.analysis import results
from actlab.analysis.results import Results
from actlab.errors import ActlabError, unknown
from actlab.stages import search
from actlab.stages.search import StagePoint, Trials
from actlab.storage.files import DamagedError, read_json, write_json
from actlab.studies.folders import DIRECTIONS, RunFolder, finished_in
from actlab.studies.formats import Chosen, Selected
from actlab.studies.groups import Group, groups
from actlab.studies.plan import Selection, Stage, Study, other_length
from actlab.studies.points import Point
from actlab.studies.spaces import Search
from actlab.studies.states import OVER, WAITING, state_of

FILE = "selection.json"
REMEDY = "delete it; the settings of later stages are then selected again"


def directed(study: Study, root: Path) -> Study:
    """Return a study with the directions of metrics that its folder stores."""
    return replace(study, directions=study.directions or directions(root))


def directions(root: Path) -> dict[str, Literal["min", "max"]]:
    """Return ``min`` or ``max`` by metric; empty without the file, which few studies need."""
    file, remedy = root / DIRECTIONS, "delete it; the next start of the study writes it again"
    return read_json(file, dict[str, Literal["min", "max"]], remedy) if file.exists() else {}


def opened(study: Study, root: Path, store: bool = True) -> list[Study]:
    """Return the stages that can be run, each as a separate study; without stages, the study itself.

    The first stage is the whole grid, or the trials that a search has proposed so far. A later stage has one
    run for each grid point, at its selected settings, and each seed of the stage. It opens when all runs of the
    stages before it have ended or failed; grid points with failed runs stay planned, without runs. ``store``
    stores selections made now.
    """
    study = directed(study, root)
    if not study.stages:
        return [study]
    first, *others = study.stages
    grid, trials = searched(study, root, store)
    stages = [search.study_of(grid, trials) if first.search else whole(study, first)]
    for stage in others:
        known = read(root)
        before = known.get(stage.name, {})
        if first.search:
            chosen, failures = _best_trials(grid, first.search, trials, before, root)
        else:
            chosen, failures = _selected(stages[-1], before, root)
        kept = {point: entry for point, entry in chosen.items() if entry["seeds"]}
        if not kept:
            break
        if store and kept != before:
            write_json(root / FILE, {**known, stage.name: kept})
        places = search.places(trials, chosen) if first.search else _places(stages[0], chosen)
        later = replace(_later(study, stages, stage, places), failed=failures)
        if first.search:
            later = search.compared(later, grid, trials, chosen)
        else:
            later = replace(later, notes=(*later.notes, *_other_runs(stages[-1], chosen)))
        stages.append(later)
    return stages


def _best_trials(
    grid: Study, asked: Search, trials: Trials, known: Chosen, root: Path
) -> tuple[Chosen, Mapping[str, str]]:
    """Return the best trial of each side, and why runs failed; empty while a trial is missing."""
    chosen = search.selected(grid, asked, trials, known)
    lost = any(not entry["seeds"] for entry in chosen.values())
    failures = {**results.load(search.study_of(grid, trials), root).failures} if lost else {}
    for side, tried in trials:
        if search.diverged(tried):
            runs = search.study_of(grid, [(side, tried)]).runs()
            failures |= dict.fromkeys((run.id for run in runs), "all trials of a search diverged")
    return chosen, failures


def in_turn(study: Study, root: Path) -> Iterator[tuple[str, Study]]:
    """Yield the name of each stage and the stage, once those before it have ended; a search for each batch."""
    names, number, known = [stage.name for stage in study.stages] or [""], 0, 0
    while number < len(ready := opened(study, root)):
        runs = len(ready[number].runs())
        if runs > known:
            yield names[number], ready[number]
            known = runs
        else:
            number, known = number + 1, 0


def searched(study: Study, root: Path, store: bool = False) -> tuple[Study, Trials]:
    """Return the grid of a study that searches, and its trials so far; no trials where it does not search."""
    if not study.stages or not study.stages[0].search:
        return study, []
    grid = whole(directed(study, root), study.stages[0])
    return grid, search.trials(grid, study.stages[0].search, root, store)


def until(study: Study, root: Path, name: str, store: bool = True) -> list[Study]:
    """Return the stages up to the stage ``name``; an error if there is none, or if it cannot be run yet."""
    names = [stage.name for stage in study.stages]
    if name not in names:
        remedy = "" if names else f"{study.name} has no stages: leave --stage out."
        raise unknown("stage", name, names, remedy)
    number = names.index(name) + 1
    stages = opened(study, root, store)
    if len(stages) < number:
        raise ActlabError(
            f"stage {name} cannot be run yet: {awaited(study, root, stages)}, or copy {FILE} from a folder "
            f"where they have ended to {root / FILE}"
        )
    return stages[:number]


def awaited(study: Study, root: Path, opened: Sequence[Study]) -> str:
    """Return what the first stage that has not opened waits for, with the remedy."""
    name, runs = study.stages[len(opened) - 1].name, opened[-1].runs()
    kinds = [state_of(RunFolder(root, run)).kind for run in runs]
    if all(kind == WAITING for kind in kinds):
        return f"no run of stage {name} has begun: run it first"
    left = sum(kind not in OVER for kind in kinds)
    return f"{left} of {len(runs)} runs of stage {name} have not ended: run the study again"


def unopened(study: Study, root: Path, opened: Sequence[Study]) -> str | None:
    """Return a message if there are finished runs of a stage that has not opened, as in half of an archive."""
    if len(opened) >= len(study.stages):
        return None
    planned = {run.id for stage in opened for run in stage.runs()}
    there = set(finished_in(root))
    for stage in study.stages[len(opened) :]:
        seeds = {f"seed{seed}" for seed in stage.seeds}
        mine = [name for name in there - planned if seeds & set(name.split("-"))]
        if mine:
            before = study.stages[len(opened) - 1].name
            missing = len({run.id for run in opened[-1].runs()} - there)
            return (
                f"{len(mine)} finished runs of stage {stage.name} are not shown: the stage requires {FILE} "
                f"or the {missing} missing runs of stage {before}. If this is an archive, unpack all of it."
            )
    return None


def load(study: Study, root: Path, stage: str | None = None) -> list[Results]:
    """Load the results of all open stages, or of those up to the stage of a name; the last one is shown."""
    ready = opened(study, root) if stage is None else until(study, root, stage)
    first, *others = [results.load(one, root) for one in ready]
    study = directed(study, root)
    if len(study.stages) > 1:
        chosen = read(root).get(study.stages[1].name, {})
        first = replace(first, chose=frozenset(_runs_that_chose(whole(study, study.stages[0]), chosen)))
    *before, last = first, *others
    if stage is None and (line := unopened(study, root, ready)):
        last = replace(last, left_out=(*last.left_out, line))
    return [*before, last]


def whole(study: Study, stage: Stage) -> Study:
    """Return a study of the whole grid, as the first stage is, with the settings and seeds of any stage."""
    blocks = tuple(replace(block, settings={**block.settings, **stage.settings}) for block in study.blocks)
    cut = study.cut or other_length(zip(study.blocks, blocks, strict=True))
    is_last = stage.name == study.stages[-1].name  # whose seeds `more_seeds` sets
    return replace(
        study,
        blocks=blocks,
        cut=cut,
        seeds=stage.seeds,
        more_seeds=study.more_seeds if is_last else "",
        title=f"{study.title}, stage {stage.name}",
    )


def _runs_that_chose(first: Study, chosen: Chosen) -> Iterator[str]:
    """Yield the ids of the runs of the first stage that selected the settings of the second."""
    for group in groups(first):
        if entry := chosen.get(group.point.text):
            chose = (run.id for setting in group.settings for run in setting.runs if run.seed in entry["seeds"])
            yield from entry.get("runs", chose)


def _places(first: Study, selected: Chosen) -> list[StagePoint]:
    """Return the grid points of a stage after one that trained the whole grid."""
    found = []
    for group in groups(first):
        entry = selected[group.point.text]
        chosen = entry["chosen"]
        block, edges = _block(group, chosen), group.edges(chosen)
        found.append(StagePoint(block, group.point | chosen, entry, edges))
    return found


def _later(study: Study, before: Sequence[Study], stage: Stage, places: Sequence[StagePoint]) -> Study:
    """Return a later stage as a study: a block for each grid point, with one value for each key."""
    of_grid, blocks = whole(study, stage), []
    for place in places:
        own = of_grid.blocks[place.block]
        keys = dict.fromkeys([*own.grid, *(key for key in place.entry["chosen"] if key in place.values)])
        grid = {key: [place.values[key]] for key in keys}
        blocks.append(replace(own, grid=grid, opened=bool(place.entry["seeds"])))
    chosen_on = set(before[-1].chosen_on).union(*(place.entry["seeds"] for place in places))
    if both := sorted(chosen_on & {*stage.seeds}):
        raise ActlabError(
            f"stage {stage.name} has seed {both[0]}, which selected its settings in {FILE}: give it seeds "
            f"above {max(chosen_on)}, or delete {FILE} to select again"
        )
    points = [place.values.without(study.select.tune) for place in places]
    shut = [point.in_words(study.compare) for point, b in zip(points, blocks, strict=True) if not b.opened]
    note = (
        f"Without values: {'; '.join(shut)}. Runs that select settings failed or all diverged; the comparisons "
        "stay planned, and Holm's correction counts them."
    )
    return replace(
        of_grid,
        blocks=tuple(blocks),
        tried={point: place.entry["tried"] for point, place in zip(points, places, strict=True)},
        edges={point: p.edges for point, p in zip(points, places, strict=True) if p.entry["seeds"]},
        chosen_on=frozenset(chosen_on),
        notes=(*of_grid.notes, *([note] if shut else [])),
    )


def _other_runs(before: Study, chosen: Chosen) -> Iterator[str]:
    """Yield a note if other runs than those of ``before`` selected settings: fewer seeds or another grid."""
    known = {group.point.text: set(_ids(group)) for group in groups(before)}
    differ = [point for point, ids in known.items() if set(chosen[point].get("runs", ids)) != ids]
    if differ:
        yield (
            f"{len(differ)} of {len(known)} settings were chosen by other runs than {before.title!r} has, and "
            f"are kept in {FILE}: delete it to choose again."
        )


def _ids(group: Group) -> list[str]:
    """Return the ids of a group's runs, setting by setting."""
    return [run.id for setting in group.settings for run in setting.runs]


def _block(group: Group, chosen: Mapping[str, Any]) -> int:
    """Return the index of the block with the chosen setting of a group."""
    for setting in group.settings:
        if setting.tuned == chosen:
            return setting.runs[0].block
    raise DamagedError(f"{FILE} has chosen {Point(chosen).in_words()}, which the grid does not have: {REMEDY}")


def _selected(before: Study, chosen: Chosen, root: Path) -> tuple[Chosen, Mapping[str, str]]:
    """Return the selection at each grid point, and why runs failed; empty while a run is missing."""
    found = groups(before)
    ids = {group.point.text: {*_ids(group)} for group in found}
    chosen = {point: one for point, one in chosen.items() if not search.stale(one, ids.get(point, set()))}
    for entry in (chosen[point] for point in ids if point in chosen):
        _check(entry, before.select, root)
    missing = [group for group in found if group.point.text not in chosen]
    if not missing:
        return chosen, {}
    loaded = results.load(before, root)
    waiting = {run.id for run in before.runs()} - loaded.results.keys() - loaded.failures.keys()
    if any(name in waiting for group in missing for name in _ids(group)):
        return {}, {}
    return {**chosen, **{group.point.text: _entry(loaded, group) for group in missing}}, loaded.failures


def _entry(loaded: Results, group: Group) -> Selected:
    setting = loaded.chosen(group) or group.settings[0]
    tried = loaded.study.tried.get(group.point, len(group.settings))
    return {
        "point": dict(group.point),
        "chosen": dict(setting.tuned),
        "tried": tried,
        "metric": loaded.study.select.metric,
        "mode": loaded.study.select.mode,
        "at": loaded.study.select.at,
        "seeds": [run.seed for run in setting.runs if loaded.results.keys() >= {*_ids(group)}],
        "runs": _ids(group),
    }


def _check(entry: Selected, rule: Selection, root: Path) -> None:
    """Raise a DamagedError if an entry was selected by another rule."""
    used = replace(
        rule,
        metric=entry.get("metric", rule.metric),
        mode=entry.get("mode", rule.mode),
        at=entry.get("at", Selection.at),
    )
    if used != rule:
        raise DamagedError(
            f"{root / FILE} was selected by the {used.mode} of the {used.value}, not the {rule.mode} of the "
            f"{rule.value}: {REMEDY}"
        )


def read(root: Path) -> dict[str, Chosen]:
    """Return the stored selections of later stages, by stage and grid point."""
    path = root / FILE
    return read_json(path, dict[str, Chosen], REMEDY) if path.exists() else {}
