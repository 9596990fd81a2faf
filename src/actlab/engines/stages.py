"""Stages of a study: a later one is run at what the one before it has selected.

What was selected is stored once, in ``selection.json``, and kept by every later start.
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
from actlab.storage.files import DamagedError, read_json, write_sealed
from actlab.studies.groups import Group, groups
from actlab.studies.plan import Selection, Stage, Study, other_length

FILE = "selection.json"
REMEDY = "delete it; later stages are then selected for anew"


class Selected(TypedDict):
    """What a grid point is run at in a later stage, and by which runs that was selected."""

    point: NotRequired[dict[str, Any]]
    chosen: dict[str, Any]
    tried: int
    metric: NotRequired[str]
    mode: NotRequired[str]
    seeds: list[int]
    runs: NotRequired[list[str]]


Chosen = dict[str, Selected]  # by grid point as text


def opened(study: Study, root: Path) -> list[Study]:
    """The stages that can be run by now, each as a study of its own; a study without stages is its only one.

    The first stage is the whole grid. A later one has a run for each grid point at its chosen settings and for
    each of its seeds; it opens when everything before it has ended.

    Args:
        study: as its file describes it.
        root: the study's folder.
    """
    if not study.stages:
        return [study]
    stages = [_first(study, study.stages[0])]
    for stage in study.stages[1:]:
        chosen = _selected(stages[-1], stage, root)
        if chosen is None:
            break
        stages.append(_later(study, stages, stage, chosen))
    return stages


def until(study: Study, root: Path, name: str) -> list[Study]:
    """The stages that can be run by now, up to the one of a name.

    Raises:
        ActlabError: when the study has no stage of that name, or it cannot be run yet.
    """
    names = [stage.name for stage in study.stages]
    if name not in names:
        remedy = "" if names else f"{study.name} has no stages: leave --stage out."
        raise unknown("stage", name, names, remedy)
    number = names.index(name) + 1
    stages = opened(study, root)
    if len(stages) < number:
        raise ActlabError(
            f"stage {name} opens when the runs that its settings are selected by have ended: run stage "
            f"{names[len(stages) - 1]}, or copy the {FILE} of a folder where they have to {root / FILE}"
        )
    return stages[:number]


def unopened(study: Study, root: Path, opened: Sequence[Study]) -> str | None:
    """What to say where finished runs of a stage are there that has not opened, as in half of an archive.

    Args:
        study: as its file describes it.
        root: the study's folder.
        opened: its stages that have opened.
    """
    planned = {run.id for stage in opened for run in stage.runs()}
    there = {path.parent.name for path in root.glob("*/result.json")}
    for stage in study.stages[len(opened) :]:
        seeds = {f"seed{seed}" for seed in stage.seeds}
        mine = [name for name in there - planned if seeds & set(name.split("-"))]
        if mine:
            before = study.stages[len(opened) - 1].name
            missing = len({run.id for run in opened[-1].runs()} - there)
            return (
                f"{len(mine)} finished runs of stage {stage.name} are not shown: it opens by {FILE}, "
                f"or when the {missing} missing runs of stage {before} have ended. Of an archive, unpack all."
            )
    return None


def _first(study: Study, stage: Stage) -> Study:
    """The stage as a study: the whole grid, with what the stage sets."""
    blocks = tuple(replace(block, settings={**block.settings, **stage.settings}) for block in study.blocks)
    cut = study.cut or other_length(zip(study.blocks, blocks, strict=True))
    return replace(study, blocks=blocks, cut=cut, seeds=stage.seeds, title=f"{study.title}, stage {stage.name}")


def _later(study: Study, before: Sequence[Study], stage: Stage, chosen: Chosen) -> Study:
    """The stage as a study: a block for each grid point, with one value for each key.

    Args:
        study: as its file describes it; what the first stage alone sets is not in it.
        before: the stages before this one.
        stage: what it sets, and its seeds.
        chosen: for it.
    """
    whole, blocks = _first(study, stage), []
    tried: dict[str, int] = {}
    chosen_on = set(before[-1].chosen_on)
    for group in groups(before[0]):
        entry = chosen[canonical(group.point)]
        own = whole.blocks[_block(group, entry["chosen"])]
        values = {**group.point, **entry["chosen"]}
        grid = {key: [values[key]] for key in own.grid}
        blocks.append(replace(own, grid=grid))
        tried[canonical(group.point)] = entry["tried"]
        chosen_on |= set(entry["seeds"])
    notes = (*whole.notes, *_other_runs(before[-1], chosen))
    return replace(whole, blocks=tuple(blocks), tried=tried, chosen_on=frozenset(chosen_on), notes=notes)


def _other_runs(before: Study, chosen: Chosen) -> Iterator[str]:
    """What to say where settings were chosen by other runs than a stage has now: fewer seeds, another grid."""
    known = {canonical(group.point): set(_ids(group)) for group in groups(before)}
    differ = [point for point, ids in known.items() if set(chosen[point].get("runs", ids)) != ids]
    if differ:
        yield (
            f"{len(differ)} of {len(known)} settings were chosen by other runs than {before.title!r} has, and "
            f"are kept in {FILE}: delete it to choose anew."
        )


def _ids(group: Group) -> list[str]:
    """The runs of a group, by setting."""
    return [run.id for setting in group.settings for run in setting.runs]


def _block(group: Group, chosen: Mapping[str, Any]) -> int:
    """The number of the block that the chosen setting of a group is in.

    Raises:
        DamagedError: where none has it.
    """
    for setting in group.settings:
        if canonical(setting.tuned) == canonical(chosen):
            return setting.runs[0].block
    raise DamagedError(f"{FILE} has chosen {in_words(chosen)}, which the grid does not have: {REMEDY}")


def _selected(before: Study, stage: Stage, root: Path) -> Chosen | None:
    """What each grid point is run at in a stage; None while something before it has not ended."""
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
        write_sealed(root / FILE, stored)
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
    """Raise a DamagedError for an entry that was chosen by other runs or by another rule."""
    if entry is None:
        return
    ids = set(_ids(group))
    if ids.isdisjoint(entry.get("runs", ids)):
        raise DamagedError(f"{root / FILE} was selected by runs of other settings: {REMEDY}")
    metric, mode = entry.get("metric", rule.metric), entry.get("mode", rule.mode)
    if (metric, mode) != (rule.metric, rule.mode):
        raise DamagedError(
            f"{root / FILE} was selected by the {mode} of {metric}, not the {rule.mode} of {rule.metric}: "
            + REMEDY
        )


def read(root: Path) -> dict[str, Chosen]:
    """What later stages have been given so far, by stage and grid point."""
    path = root / FILE
    return read_json(path, dict[str, Chosen], REMEDY) if path.exists() else {}
