"""Stages of a study: each later stage runs at the settings that the stage before it has selected.

One setting is selected at each grid point. The first of two stages may search
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
from actlab.studies.plan import Block, Run, Selection, Stage, Study
from actlab.studies.points import Point
from actlab.studies.states import OVER, WAITING
from actlab.studies.study_folder import RESELECT, SELECTION, StudyFolder


@dataclass(frozen=True)
class Opened:
    """The stages of a study that can be run, each as a study of its own.

    A study without stages has one entry, the study itself. The class starts no run and selects
    nothing: `opened` makes the selections.

    Attributes:
        folder: the folder of the whole study.
        stages: the stages that can be run, in order, all with the same folder.
    """

    folder: StudyFolder
    stages: list[StudyFolder]

    def until(self, name: str) -> list[StudyFolder]:
        """Return the stages up to the stage of this name.

        Raises:
            ActlabError: the study has no such stage, or the stage cannot be run yet.
        """
        # The name
        study = self.folder.study
        names = [stage.name for stage in study.stages]
        if name not in names:
            remedy = (
                "" if names else f"Remove --stage, because {study.name} has no stages."
            )
            raise unknown("stage", name, names, remedy)

        # The stages before it
        number = names.index(name) + 1
        if len(self.stages) < number:
            raise ActlabError(
                f"stage {name} cannot be run yet, because {self._obstacle()}, or copy {SELECTION} "
                f"from a folder where they have ended to {self.folder.path / SELECTION}."
            )
        return self.stages[:number]

    def _obstacle(self) -> str:
        """Return what the next stage waits for, with the remedy."""
        name = self.folder.study.stages[len(self.stages) - 1].name
        kinds = [run.state.kind for run in self.stages[-1].runs]
        if all(kind == WAITING for kind in kinds):
            return f"no run of stage {name} has begun. Run it first"

        running = [kind for kind in kinds if kind not in OVER]
        return (
            f"{len(running)} of {len(kinds)} runs of stage {name} have not ended. "
            "Run the study again"
        )

    def unopened(self) -> str | None:
        """Return a message if a stage that has not opened has finished runs.

        A part of an archive has such runs.
        """
        stages = self.folder.study.stages
        number = len(self.stages)
        # All stages have opened
        if number >= len(stages):
            return None

        # Finished runs that no open stage has
        finished = set(self.folder.finished())
        planned_ids: set[str] = set()
        for open_stage in self.stages:
            planned_ids.update(run.id for run in open_stage.runs)

        for stage in stages[number:]:
            # Runs of an unopened stage are recognised by their seeds
            seeds = {f"seed{seed}" for seed in stage.seeds}
            runs_of_stage = []
            for name in finished - planned_ids:
                if not seeds.isdisjoint(name.split("-")):
                    runs_of_stage.append(name)
            if runs_of_stage:
                missing = {run.id for run in self.stages[-1].runs} - finished
                return (
                    f"{len(runs_of_stage)} finished runs of stage {stage.name} are not shown: the "
                    f"stage requires {SELECTION} or the {len(missing)} missing runs of stage "
                    f"{stages[number - 1].name}. If this is an archive, unpack all of it."
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

    first_stage, *later_stages = study.stages
    stages = [folder.with_study(planned(study, first_stage))]
    stored = folder.selection
    selections = dict(stored)
    for stage in later_stages:
        # Select a setting at each grid point. Entries of failed points have no seeds
        # and are not stored, so a later start selects again.
        previous = stages[-1]
        entries, failures = _select(previous, stored.get(stage.name, {}))
        entries_with_seeds = {
            key: entry for key, entry in entries.items() if entry["seeds"]
        }
        if not entries_with_seeds:
            break
        selections[stage.name] = entries_with_seeds

        # Plan the stage at these settings
        choices = [(group, entries[group.key]) for group in stages[0].groups]
        later = replace(
            _later_study(study, previous.study, stage, choices), failed=failures
        )
        if first_stage.search:
            later = search.compared(later, grid_of(study, first_stage), choices)
        notes = (*later.notes, *_notes_on_other_runs(previous, entries))
        stages.append(folder.with_study(replace(later, notes=notes)))

    # A later start then uses the same settings
    if store and selections != stored and folder.path.exists():
        folder.store(SELECTION, selections)
    return Opened(folder, stages)


def planned(study: Study, stage: Stage) -> Study:
    """Return the study of a stage without selections: the whole grid, or trials of a search."""
    grid = grid_of(study, stage)
    if stage.search is None:
        return grid
    return search.study_of(grid, stage.search)


def _select(previous: StudyFolder, stored: Chosen) -> tuple[Chosen, Mapping[str, str]]:
    """Return the entry of each group, and why runs of the previous stage failed.

    Both are empty while a run of a group without a stored entry is missing.
    """
    # Groups without a valid entry need a selection
    entries = _valid_entries(previous, stored)
    new_groups = []
    for group in previous.groups:
        if group.key not in entries:
            new_groups.append(group)

    # Entries of groups with failed runs are never stored, so no failure prevented a
    # selection
    if not new_groups:
        return entries, {}

    # Wait for all runs of the groups without an entry
    loaded = results.load(previous)
    ended = loaded.results.keys() | loaded.failures.keys()
    running = {run.id for run in previous.runs} - ended
    for group in new_groups:
        if not running.isdisjoint(group.run_ids):
            return {}, {}

    # Select a setting for each of these groups
    failures = dict(loaded.failures)
    for group in new_groups:
        entries[group.key] = _entry_of(group, loaded)
        if _all_trials_diverged(group, loaded):
            failures |= dict.fromkeys(group.run_ids, "all trials of a search diverged")
    return entries, failures


def _all_trials_diverged(group: Group, loaded: Results) -> bool:
    """Return whether a search has only diverged trials; trials of a grid may be compared."""
    if not group.space or selection.missing_at(loaded, group):
        return False
    return all(map(math.isinf, selection.scores(loaded, group.settings)))


def _valid_entries(previous: StudyFolder, stored: Chosen) -> Chosen:
    """Return the stored entries that runs of the previous stage, as planned now, have selected.

    Raises:
        DamagedError: if another rule has selected an entry.
    """
    # Entries have to follow the rule of the study
    rule = previous.study.select
    entries = {}
    for group in previous.groups:
        entry = stored.get(group.key)
        if entry is None:
            continue

        # Leave out entries by runs of other code or settings, or by other trials. Seeds
        # that were added to a grid since leave an entry valid.
        runs = set(group.run_ids)
        selecting_runs = set(entry.get("runs") or runs)
        if runs.isdisjoint(selecting_runs) or (group.space and runs != selecting_runs):
            continue

        # Compare the rules
        metric = entry.get("metric", rule.metric)
        mode = entry.get("mode", rule.mode)
        stored_rule = Selection(rule.tune, metric, mode, entry.get("at", Selection.at))
        if stored_rule != rule:
            raise DamagedError(
                f"{SELECTION} was selected by the {stored_rule.mode} of the {stored_rule.value}, "
                f"not the {rule.mode} of the {rule.value}. {RESELECT}"
            )
        entries[group.key] = entry
    return entries


def _entry_of(group: Group, loaded: Results) -> Selected:
    """Return the setting with the best median over seeds, the first of equal ones.

    It has no seeds, and so opens no stage, if a run has failed or all trials of a search have
    diverged.
    """
    study = loaded.study
    setting = selection.selected_setting(loaded, group) or group.settings[0]

    # The seeds that selected it
    seeds = [run.seed for run in setting.runs]
    if _all_trials_diverged(group, loaded) or selection.missing_at(loaded, group) > 0:
        seeds = []

    # The rule and the runs later show whether the entry is valid
    return {
        "point": dict(group.point),
        "chosen": dict(setting.tuned),
        "tried": study.tried.get(group.point, len(group.settings)),
        "metric": study.select.metric,
        "mode": study.select.mode,
        "at": study.select.at,
        "seeds": seeds,
        "runs": group.run_ids,
    }


def load(folder: StudyFolder, stage: str | None = None) -> list[Results]:
    """Load the results of all open stages, or up to the stage of a name; the last one is shown."""
    ready = opened(folder)
    stages = ready.stages
    if stage is not None:
        stages = ready.until(stage)
    # Earlier stages say how the settings were selected
    loaded = list(map(results.load, stages))

    # The first stage has selected the settings of the second
    study = ready.folder.study
    if len(study.stages) > 1:
        entries = ready.folder.selection.get(study.stages[1].name, {})
        selecting_runs = _runs_that_selected(loaded[0].groups, entries)
        loaded[0] = replace(loaded[0], chose=frozenset(selecting_runs))
    # The table tells on which seeds its settings were selected
    if len(loaded) > 1:
        loaded[-1] = replace(loaded[-1], chosen_in=loaded[0])

    # Results that are not shown
    if stage is None:
        message = ready.unopened()
        if message:
            loaded[-1] = replace(loaded[-1], damaged=(*loaded[-1].damaged, message))
    return loaded


def designed(folder: StudyFolder) -> Results:
    """Return the comparison that a study ends in, without values of runs.

    Until its stage has opened, each group has its first setting, and verdicts seen earlier are not
    counted. After a search they are counted by `Study.question`, which follows from the selection.
    """
    # Store nothing, because the design is only read
    ready = opened(folder, store=False)
    study = ready.folder.study
    stages = study.stages

    # If all stages have opened, the last one compares
    if len(ready.stages) >= len(stages):
        return Results(ready.stages[-1], {}, {})

    # Collect the seeds of all stages that select
    seeds: list[int] = []
    for stage in stages[:-1]:
        seeds += stage.seeds

    # Take the first setting of each group
    first_stage_study = planned(study, stages[0])
    choices: list[tuple[Group, Selected]] = []
    for group in groups(first_stage_study):
        settings = group.settings
        chosen = dict(settings[0].tuned)
        choices.append(
            (group, {"chosen": chosen, "tried": len(settings), "seeds": seeds})
        )

    # The entries state all selecting seeds, so the first stage can serve as the
    # previous one
    last_study = _later_study(study, first_stage_study, stages[-1], choices)
    return Results(folder.with_study(last_study), {}, {})


def grid_of(study: Study, stage: Stage) -> Study:
    """Return a study of the whole grid with the settings and seeds of any stage."""
    blocks = []
    for block in study.blocks:
        # Settings of the stage win over the block's settings
        blocks.append(replace(block, settings={**block.settings, **stage.settings}))

    is_last = stage.name == study.stages[-1].name  # whose seeds `more_seeds` sets
    return replace(
        study,
        blocks=tuple(blocks),
        other_length=study.other_length
        or other_length(zip(study.blocks, blocks, strict=True)),
        seeds=stage.seeds,
        more_seeds=study.more_seeds if is_last else "",
        title=f"{study.title}, stage {stage.name}",
    )


def _runs_that_selected(
    first_groups: Sequence[Group], entries: Chosen
) -> Iterator[str]:
    """Yield the ids of the runs of the first stage that selected the settings of the second."""
    for group in first_groups:
        entry = entries.get(group.key)
        if entry is None:
            continue
        # Entries of older versions have only the seeds
        if "runs" in entry:
            yield from entry["runs"]
            continue
        for run in group.runs:
            if run.seed in entry["seeds"]:
                yield run.id


def _later_study(
    study: Study,
    previous: Study,
    stage: Stage,
    choices: Sequence[tuple[Group, Selected]],
) -> Study:
    """Return a later stage as a study: a block for each grid point, with one value for each key."""
    grid = grid_of(study, stage)
    grid_blocks = grid.blocks
    # Trials have blocks of their own
    if study.stages[0].search:
        grid_blocks = search.blocks_of(grid, study.stages[0].search)

    blocks: list[Block] = []
    tried: dict[Point, int] = {}
    edges: dict[Point, tuple[str, ...]] = {}
    without_values: list[str] = []
    for group, entry in choices:
        # A block of one point, at the selected setting
        run = _run_of(group, entry)
        block = grid_blocks[run.block]
        values = {key: [run.point[key]] for key in block.grid}
        has_seeds = bool(entry["seeds"])
        blocks.append(replace(block, grid=values, opened=has_seeds, trial=None))

        # How it was selected
        compared = run.point.without(study.select.tune)
        tried[compared] = entry["tried"]
        if has_seeds:
            edges[compared] = group.edges(entry["chosen"])
        else:
            without_values.append(compared.in_words(study.compare))

    # Name the comparisons without values
    notes = list(grid.notes)
    if without_values:
        notes.append(
            f"Without values: {'; '.join(without_values)}. Runs that select settings failed or all "
            "diverged; the comparisons stay planned, and Holm's correction counts them."
        )

    # State how the settings were selected
    return replace(
        grid,
        blocks=tuple(blocks),
        tried=tried,
        edges=edges,
        chosen_on=_selecting_seeds(previous, stage, choices),
        notes=tuple(notes),
    )


def _run_of(group: Group, entry: Selected) -> Run:
    """Return the first run at the selected setting."""
    run = group.run_of(entry["chosen"])
    if run is None:
        words = Point(entry["chosen"]).in_words()
        raise DamagedError(
            f"{SELECTION} has selected {words}, which the grid does not have. {RESELECT}"
        )
    return run


def _selecting_seeds(
    previous: Study, stage: Stage, choices: Sequence[tuple[Group, Selected]]
) -> frozenset[int]:
    """Return the seeds that selected the settings of a stage, which may not have them again."""
    seeds = set(previous.chosen_on)
    for _, entry in choices:
        seeds.update(entry["seeds"])

    # A seed that selected a setting would make it look too good
    shared = sorted(seeds & set(stage.seeds))
    if shared:
        raise ActlabError(
            f"stage {stage.name} has seed {shared[0]}, which selected its settings in {SELECTION}. "
            f"Use seeds above {max(seeds)}, or delete {SELECTION} to select again."
        )
    return frozenset(seeds)


def _notes_on_other_runs(previous: StudyFolder, entries: Chosen) -> list[str]:
    """Return a note if the runs that selected settings are not the runs that are planned now.

    Since then, seeds may have been added or the grid may have changed.
    """
    # Count the groups whose setting other runs selected
    number = 0
    for group in previous.groups:
        planned_ids = set(group.run_ids)
        selecting_runs = entries[group.key].get("runs", planned_ids)
        if set(selecting_runs) != planned_ids:
            number += 1

    if number == 0:
        return []
    return [
        f"{number} of {len(previous.groups)} settings were selected by other runs than "
        f"{previous.study.title!r} has. Delete {SELECTION} to select again."
    ]
