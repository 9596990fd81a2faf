"""Stages of a study: each later stage runs at the settings that the stage before it has selected.

The selection is made once, stored in ``selection.json`` and reused by every later start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NotRequired

from typing_extensions import TypedDict

from actlab.analysis import results
from actlab.analysis.points import in_words
from actlab.analysis.results import Results
from actlab.config.keys import canonical
from actlab.errors import ActlabError, unknown
from actlab.storage.files import DamagedError, read_json, write_json
from actlab.studies.folders import finished_in
from actlab.studies.groups import Group, groups
from actlab.studies.plan import Selection, Stage, Study, other_length

FILE = "selection.json"
REMEDY = "delete it; the settings of later stages are then selected again"


class Selected(TypedDict):
    """The settings of a grid point in a later stage, and the runs by which they were selected."""

    point: NotRequired[dict[str, Any]]
    chosen: dict[str, Any]
    tried: int
    metric: NotRequired[str]
    mode: NotRequired[str]
    seeds: list[int]
    runs: NotRequired[list[str]]


Chosen = dict[str, Selected]  # by canonical grid point


def opened(study: Study, root: Path, store: bool = True) -> list[Study]:
    """Return the stages that can be run, each as a separate study; without stages, the study itself.

    The first stage is the whole grid. A later stage has one run for each grid point, at its selected settings,
    and each seed of the stage. It opens when all runs of the stages before it have ended.

    Args:
        study: the study as described by its file.
        root: the study's folder.
        store: whether to store selections made now.
    """
    if not study.stages:
        return [study]
    stages = [whole(study, study.stages[0])]
    for stage in study.stages[1:]:
        chosen = _selected(stages[-1], stage, root, store)
        if chosen is None:
            break
        stages.append(_later(study, stages, stage, chosen))
    return stages


def until(study: Study, root: Path, name: str, store: bool = True) -> list[Study]:
    """Return the stages up to the stage ``name``; arguments as for `opened`.

    Raises:
        ActlabError: if the study has no stage of that name, or the stage cannot be run yet.
    """
    names = [stage.name for stage in study.stages]
    if name not in names:
        remedy = "" if names else f"{study.name} has no stages: leave --stage out."
        raise unknown("stage", name, names, remedy)
    number = names.index(name) + 1
    stages = opened(study, root, store)
    if len(stages) < number:
        raise ActlabError(
            f"stage {name} cannot be run yet: its settings are selected by runs that have not ended. Run stage "
            f"{names[len(stages) - 1]}, or copy {FILE} from a folder where they have ended to {root / FILE}"
        )
    return stages[:number]


def unopened(study: Study, root: Path, opened: Sequence[Study]) -> str | None:
    """Return a message if there are finished runs of a stage that has not opened, as in half of an archive.

    Args:
        study: the study as described by its file.
        root: the study's folder.
        opened: the stages that have opened.
    """
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
    """Load the results of all open stages, or of the stages up to a given one; the last one is shown.

    Args:
        study: the study.
        root: the study's folder.
        stage: name of the last stage; None for all open stages.

    Raises:
        ActlabError: if the stage is unknown or not open.
    """
    ready = opened(study, root) if stage is None else until(study, root, stage)
    first, *others = [results.load(one, root) for one in ready]
    if len(study.stages) > 1:
        chosen = read(root).get(study.stages[1].name, {})
        first = replace(first, chose=frozenset(_runs_that_chose(first.study, chosen)))
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
        if entry := chosen.get(canonical(group.point)):
            chose = (run.id for setting in group.settings for run in setting.runs if run.seed in entry["seeds"])
            yield from entry.get("runs", chose)


def _later(study: Study, before: Sequence[Study], stage: Stage, chosen: Chosen) -> Study:
    """Return a later stage as a study: a block for each grid point, with one value for each key.

    Args:
        study: the study as described by its file, without the settings of the first stage.
        before: the stages before this one.
        stage: the settings and seeds of the stage.
        chosen: the selection for the stage.

    Raises:
        ActlabError: if the stage has a seed of the runs that selected its settings.
    """
    of_grid, blocks = whole(study, stage), []
    tried: dict[str, int] = {}
    chosen_on = set(before[-1].chosen_on)
    for group in groups(before[0]):
        entry = chosen[canonical(group.point)]
        own = of_grid.blocks[_block(group, entry["chosen"])]
        values = {**group.point, **entry["chosen"]}
        grid = {key: [values[key]] for key in own.grid}
        blocks.append(replace(own, grid=grid))
        tried[canonical(group.point)] = entry["tried"]
        chosen_on |= set(entry["seeds"])
    if both := sorted(chosen_on & {*stage.seeds}):
        raise ActlabError(
            f"stage {stage.name} has seed {both[0]}, which selected its settings in {FILE}: give it seeds "
            f"above {max(chosen_on)}, or delete {FILE} to select again"
        )
    notes = (*of_grid.notes, *_other_runs(before[-1], chosen))
    return replace(of_grid, blocks=tuple(blocks), tried=tried, chosen_on=frozenset(chosen_on), notes=notes)


def _other_runs(before: Study, chosen: Chosen) -> Iterator[str]:
    """Yield a note if other runs than those of ``before`` selected settings: fewer seeds or another grid."""
    known = {canonical(group.point): set(_ids(group)) for group in groups(before)}
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
    """Return the index of the block with the chosen setting of a group.

    Raises:
        DamagedError: if no block has the setting.
    """
    for setting in group.settings:
        if canonical(setting.tuned) == canonical(chosen):
            return setting.runs[0].block
    raise DamagedError(f"{FILE} has chosen {in_words(chosen)}, which the grid does not have: {REMEDY}")


def _selected(before: Study, stage: Stage, root: Path, store: bool) -> Chosen | None:
    """Return the selection for each grid point of a stage; None if a run before the stage has not ended."""
    stored = read(root)
    chosen = stored.setdefault(stage.name, {})
    for group in groups(before):
        _check(chosen.get(canonical(group.point)), group, before.select, root)
    missing = [group for group in groups(before) if canonical(group.point) not in chosen]
    if missing:
        loaded = results.load(before, root)
        if any(run.id not in loaded.results for g in missing for s in g.settings for run in s.runs):
            return None
        for group in missing:
            chosen[canonical(group.point)] = _entry(loaded, group)
        if store:
            write_json(root / FILE, stored)
    return chosen


def _entry(loaded: Results, group: Group) -> Selected:
    setting = loaded.chosen(group)
    assert setting is not None  # all runs of the group have ended
    tried = loaded.study.tried.get(canonical(group.point), len(group.settings))
    return {
        "point": group.point,
        "chosen": setting.tuned,
        "tried": tried,
        "metric": loaded.study.select.metric,
        "mode": loaded.study.select.mode,
        "seeds": [run.seed for run in setting.runs],
        "runs": _ids(group),
    }


def _check(entry: Selected | None, group: Group, rule: Selection, root: Path) -> None:
    """Raise a DamagedError if an entry was selected by other runs or by another rule."""
    if entry is None:
        return
    ids = set(_ids(group))
    if ids.isdisjoint(entry.get("runs", ids)):
        raise DamagedError(f"{root / FILE} was selected by runs with other settings: {REMEDY}")
    metric, mode = entry.get("metric", rule.metric), entry.get("mode", rule.mode)
    if (metric, mode) != (rule.metric, rule.mode):
        raise DamagedError(
            f"{root / FILE} was selected by the {mode} of {metric}, not the {rule.mode} of {rule.metric}: "
            + REMEDY
        )


def read(root: Path) -> dict[str, Chosen]:
    """Return the stored selections of later stages, by stage and grid point."""
    path = root / FILE
    return read_json(path, dict[str, Chosen], REMEDY) if path.exists() else {}
