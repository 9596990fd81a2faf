"""Stages of a study: each later stage runs at the settings that the stage before it has selected.

One setting is chosen at each grid point. The first of two stages may search
(`actlab.stages.search`). The selection is made once, stored in ``selection.json`` and reused by
every later start. After a search, it is made again when the trials or their seeds have changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from actlab.analysis import results, selection
from actlab.analysis.results import Results
from actlab.errors import ActlabError
from actlab.errors.messages import unknown
from actlab.stages import search
from actlab.storage.files import DamagedError
from actlab.studies.formats import Chosen, Selected
from actlab.studies.groups import Group, groups
from actlab.studies.lengths import other_length
from actlab.studies.plan import Run, Selection, Stage, Study
from actlab.studies.points import Point
from actlab.studies.states import OVER, WAITING
from actlab.studies.study_folder import RESELECT, SELECTION, StudyFolder


@dataclass(frozen=True)
class Opened:
    """The stages of a study that can be run, each as a study of its own; without stages, the study itself."""

    folder: StudyFolder  # of the whole study
    stages: list[StudyFolder]

    def until(self, name: str) -> list[StudyFolder]:
        """Return the stages up to the stage ``name``; an error if there is none, or if it cannot be run yet."""
        study = self.folder.study
        names = [stage.name for stage in study.stages]
        if name not in names:
            remedy = "" if names else f"{study.name} has no stages: leave --stage out."
            raise unknown("stage", name, names, remedy)
        number = names.index(name) + 1
        if len(self.stages) < number:
            raise ActlabError(
                f"stage {name} cannot be run yet: {self._awaited()}, or copy {SELECTION} from a folder "
                f"where they have ended to {self.folder.path / SELECTION}"
            )
        return self.stages[:number]

    def _awaited(self) -> str:
        """Return what the first stage that has not opened waits for, with the remedy."""
        name, runs = self.folder.study.stages[len(self.stages) - 1].name, self.stages[-1].runs
        kinds = [run.state.kind for run in runs]
        if all(kind == WAITING for kind in kinds):
            return f"no run of stage {name} has begun: run it first"
        left = sum(kind not in OVER for kind in kinds)
        return f"{left} of {len(runs)} runs of stage {name} have not ended: run the study again"

    def unopened(self) -> str | None:
        """Return a message if a stage that has not opened has finished runs, as in half of an archive."""
        number, stages = len(self.stages), self.folder.study.stages
        planned = {run.id for stage in self.stages for run in stage.runs}
        there = {*self.folder.finished()} if number < len(stages) else set[str]()
        for stage in stages[number:]:
            seeds = {f"seed{seed}" for seed in stage.seeds}
            mine = [name for name in there - planned if seeds & {*name.split("-")}]
            if mine:
                missing = len({run.id for run in self.stages[-1].runs} - there)
                return (
                    f"{len(mine)} finished runs of stage {stage.name} are not shown: the stage requires "
                    f"{SELECTION} or the {missing} missing runs of stage {stages[number - 1].name}. If this is "
                    "an archive, unpack all of it."
                )
        return None


def opened(folder: StudyFolder, store: bool = True) -> Opened:
    """Return the stages that can be run.

    The first stage is the whole grid, or the trials of a search at its points. A later stage has
    one run for each grid point, at its selected settings, and each seed of the stage. It opens when
    all runs of the stages before it have ended or failed; grid points with failed runs stay
    planned, without runs. ``store`` stores selections made now.
    """
    folder = folder.with_opened_files  # planned again: code may have been edited
    study = folder.study
    if not study.stages:
        return Opened(folder, [folder])
    first, *others = study.stages
    stages, selection = [folder.of(planned(study, first))], folder.selection
    places, chosen = stages[0].groups, selection
    for stage in others:
        entries, failures = _selected(stages[-1], selection.get(stage.name, {}))
        kept = {key: entry for key, entry in entries.items() if entry["seeds"]}
        if not kept:
            break
        chosen = {**chosen, stage.name: kept}
        choices = [(place, entries[place.key]) for place in places]
        later = replace(_later(study, stages[-1].study, stage, choices), failed=failures)
        if first.search:
            later = search.compared(later, whole(study, first), choices)
        later = replace(later, notes=(*later.notes, *_other_runs(stages[-1], entries)))
        stages.append(folder.of(later))
    if store and chosen != selection and folder.path.exists():
        folder.store(SELECTION, chosen)
    return Opened(folder, stages)


def planned(study: Study, stage: Stage) -> Study:
    """Return the study of a stage without selections: the whole grid, or the trials of its search."""
    grid = whole(study, stage)
    return grid if stage.search is None else search.study_of(grid, stage.search)


def _selected(before: StudyFolder, stored: Chosen) -> tuple[Chosen, Mapping[str, str]]:
    """Return the entry of each group and why runs failed; both are empty while a run is missing."""
    places = before.groups
    known = _valid(places, stored, before.study.select)
    missing = [place for place in places if place.key not in known]
    if not missing:
        return known, {}
    loaded = results.load(before)
    waiting = {run.id for run in before.runs} - loaded.results.keys() - loaded.failures.keys()
    if any(run.id in waiting for place in missing for run in _runs_of(place)):
        return {}, {}
    made = {place.key: _entry_of(place, loaded) for place in missing}
    lost = (run.id for place in missing if _diverged(place, loaded) for run in _runs_of(place))
    return {**known, **made}, {
        **loaded.failures,
        **dict.fromkeys(lost, "all trials of a search diverged"),
    }


def _diverged(place: Group, loaded: Results) -> bool:
    """Return whether all trials of a search have diverged; those of a grid may be compared."""
    if not place.space or selection.missing_at(loaded, place):
        return False
    return all(map(math.isinf, selection.scores(loaded, place.settings)))


def _runs_of(place: Group) -> Iterator[Run]:
    return (run for setting in place.settings for run in setting.runs)


def _valid(places: Sequence[Group], stored: Chosen, rule: Selection) -> Chosen:
    """Return the stored entries of the places that runs of today's code and settings have selected.

    Raises:
        DamagedError: if another rule has selected one of them.
    """
    entries = {}
    for place in places:
        entry, runs = stored.get(place.key), {run.id for run in _runs_of(place)}
        if entry is None:
            continue
        selected_by = {*(entry.get("runs") or runs)}
        if runs.isdisjoint(selected_by) or (place.space and runs != selected_by):
            continue  # by runs of other code or settings, or by other trials
        stated = (
            entry.get("metric", rule.metric),
            entry.get("mode", rule.mode),
            entry.get("at", Selection.at),
        )
        if (used := Selection(rule.tune, *stated)) != rule:
            raise DamagedError(
                f"{SELECTION} was selected by the {used.mode} of the {used.value}, not the {rule.mode} of the "
                f"{rule.value}: {RESELECT}"
            )
        entries[place.key] = entry
    return entries


def _entry_of(place: Group, loaded: Results) -> Selected:
    """Return the setting with the best median over seeds, the first of equal ones.

    It has no seeds, and so opens no stage, if a run has failed or all trials of a search have
    diverged.
    """
    study, settings = loaded.study, place.settings
    setting = selection.chosen(loaded, place) or settings[0]
    runs = [run.id for run in _runs_of(place)]
    lost = _diverged(place, loaded) or selection.missing_at(loaded, place) > 0
    return {
        "point": dict(place.point),
        "chosen": dict(setting.tuned),
        "tried": study.tried.get(place.point, len(settings)),
        "metric": study.select.metric,
        "mode": study.select.mode,
        "at": study.select.at,
        "seeds": [] if lost else [run.seed for run in setting.runs],
        "runs": runs,
    }


def load(folder: StudyFolder, stage: str | None = None) -> list[Results]:
    """Load the results of all open stages, or of those up to the stage of a name; the last one is shown."""
    stages = opened(folder)
    first, *others = map(results.load, stages.stages if stage is None else stages.until(stage))
    study = stages.folder.study
    if len(study.stages) > 1:
        chosen = stages.folder.selection.get(study.stages[1].name, {})
        first = replace(first, chose=frozenset(_runs_that_chose(first.groups, chosen)))
    *before, last = first, *others
    if before:
        last = replace(last, chosen_in=first)
    if stage is None and (line := stages.unopened()):
        last = replace(last, damaged=(*last.damaged, line))
    return [*before, last]


def designed(folder: StudyFolder) -> Results:
    """Return the comparison that a study ends in, without values of runs.

    Until its stage has opened, each place has its first setting, and no looks after a search are
    counted: they depend on what it selects.
    """
    ready = opened(folder, store=False)
    study, stages = ready.folder.study, ready.folder.study.stages
    if len(ready.stages) >= len(stages):
        return Results(ready.stages[-1], {}, {})

    # Each place has the values that its settings would have, and the seeds of all stages that
    # select.
    first = planned(study, stages[0])
    selecting = [seed for stage in stages[:-1] for seed in stage.seeds]
    choices = [(place, _first_choice(place, selecting)) for place in groups(first)]
    return Results(folder.of(_later(study, first, stages[-1], choices)), {}, {})


def _first_choice(place: Group, seeds: Sequence[int]) -> Selected:
    """Return an entry that selects the first setting of a place."""
    first, *_ = settings = place.settings
    return {"chosen": dict(first.tuned), "tried": len(settings), "seeds": [*seeds]}


def whole(study: Study, stage: Stage) -> Study:
    """Return a study of the whole grid with the settings and seeds of any stage."""
    blocks = tuple(
        replace(block, settings={**block.settings, **stage.settings}) for block in study.blocks
    )
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


def _runs_that_chose(first: Sequence[Group], chosen: Chosen) -> Iterator[str]:
    """Yield the ids of the runs of the first stage that selected the settings of the second."""
    for group in first:
        if entry := chosen.get(group.key):
            chose = (run.id for run in _runs_of(group) if run.seed in entry["seeds"])
            yield from entry.get("runs", chose)


def _later(
    study: Study, before: Study, stage: Stage, choices: Sequence[tuple[Group, Selected]]
) -> Study:
    """Return a later stage as a study: a block for each grid point, with one value for each key."""
    of_grid, searched = whole(study, stage), study.stages[0].search
    from_blocks = search.blocks_of(of_grid, searched) if searched else of_grid.blocks
    blocks, shut, tried, edges = [], [], {}, {}
    for place, entry in choices:
        chosen, has_seeds = entry["chosen"], bool(entry["seeds"])
        run = place.run_of(chosen)
        if run is None:
            words = Point(chosen).in_words()
            raise DamagedError(
                f"{SELECTION} has chosen {words}, which the grid does not have: {RESELECT}"
            )
        block = from_blocks[run.block]
        grid = {key: [run.point[key]] for key in block.grid}
        blocks.append(replace(block, grid=grid, opened=has_seeds, trial=None))
        compared = run.point.without(study.select.tune)
        tried[compared] = entry["tried"]
        if has_seeds:
            edges[compared] = place.edges(chosen)
        else:
            shut.append(compared.in_words(study.compare))
    chosen_on = set(before.chosen_on).union(*(entry["seeds"] for _, entry in choices))
    if both := sorted(chosen_on & {*stage.seeds}):
        raise ActlabError(
            f"stage {stage.name} has seed {both[0]}, which selected its settings in {SELECTION}: give it seeds "
            f"above {max(chosen_on)}, or delete {SELECTION} to select again"
        )
    note = (
        f"Without values: {'; '.join(shut)}. Runs that select settings failed or all diverged; the comparisons "
        "stay planned, and Holm's correction counts them."
    )
    return replace(
        of_grid,
        blocks=tuple(blocks),
        tried=tried,
        edges=edges,
        chosen_on=frozenset(chosen_on),
        notes=(*of_grid.notes, *([note] if shut else [])),
    )


def _other_runs(before: StudyFolder, entries: Chosen) -> Iterator[str]:
    """Yield a note if other runs than those of ``before`` selected settings: fewer seeds or another grid."""
    known = {group.key: {run.id for run in _runs_of(group)} for group in before.groups}
    differ = [key for key, ids in known.items() if set(entries[key].get("runs", ids)) != ids]
    if differ:
        yield (
            f"{len(differ)} of {len(known)} settings were chosen by other runs than {before.study.title!r} "
            f"has, and are kept in {SELECTION}: delete it to choose again."
        )
