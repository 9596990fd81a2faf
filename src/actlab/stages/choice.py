"""Choose one of the settings that a grid or a search has tried at each grid point, for the next stage."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from actlab.analysis.results import Results
from actlab.storage.files import DamagedError
from actlab.studies.folders import RESELECT, SELECTION
from actlab.studies.formats import Chosen, Selected
from actlab.studies.groups import Group, Setting
from actlab.studies.plan import Run, Selection
from actlab.studies.points import Point


class Choice(NamedTuple):
    """What was chosen at a place."""

    place: Group  # of a grid, or a `Side` of a search
    entry: Selected  # of ``selection.json``

    @property
    def point(self) -> Point:
        """The grid point of the next stage."""
        return self.place.at(self.entry["chosen"])

    @property
    def edges(self) -> tuple[str, ...]:
        """The keys and arguments whose chosen value is an end of what was tried."""
        return self.place.edges(self.entry["chosen"])

    @property
    def block(self) -> int:
        """The index of the block of the chosen setting; a `DamagedError` if the grid does not have it."""
        if (block := self.place.block_of(self.entry["chosen"])) is None:
            words = Point(self.entry["chosen"]).in_words()
            raise DamagedError(f"{SELECTION} has chosen {words}, which the grid does not have: {RESELECT}")
        return block


def runs_of(place: Group) -> Iterator[Run]:
    """Yield the runs of a place, setting by setting."""
    return (run for setting in place.settings for run in setting.runs)


def valid(places: Sequence[Group], known: Chosen, rule: Selection) -> Chosen:
    """Return the stored entries of the places that runs of today's code and settings have selected.

    Raises:
        DamagedError: if another rule has selected one of them.
    """
    names = {place.key: {run.id for run in runs_of(place)} for place in places}
    entries = {key: known[key] for key in names if key in known and not _is_stale(known[key], names[key])}
    for entry in entries.values():
        used = replace(
            rule,
            metric=entry.get("metric", rule.metric),
            mode=entry.get("mode", rule.mode),
            at=entry.get("at", Selection.at),
        )
        if used != rule:
            raise DamagedError(
                f"{SELECTION} was selected by the {used.mode} of the {used.value}, not the {rule.mode} of the "
                f"{rule.value}: {RESELECT}"
            )
    return entries


def _is_stale(entry: Selected, names: Collection[str]) -> bool:
    """Return whether an entry was selected by runs of other code or settings: none of those named, if any."""
    chose = entry.get("runs", [])
    return bool(names and chose) and {*names}.isdisjoint(chose)


def have_ended(places: Sequence[Group], loaded: Results) -> bool:
    """Return whether each run of the places that may be trained has a result, or has failed."""
    ended = loaded.results.keys() | loaded.failures.keys()
    waiting = {run.id for run in loaded.folder.runs} - ended
    return all(run.id not in waiting for place in places for run in runs_of(place))


def entry_of(place: Group, loaded: Results, trials: int = 0) -> Selected:
    """Return the setting with the best median over seeds, the first of equal ones.

    Where a run has failed it is the first setting, without seeds: it opens no stage. So it is where all of a
    search's ``trials`` have diverged.
    """
    study, settings = loaded.study, place.settings
    setting = loaded.chosen(place) or next(iter(settings), Setting(Point({}), ()))
    runs = [*dict.fromkeys(run.id for run in runs_of(place))]
    lost = place.diverged or not loaded.results.keys() >= {*runs}
    if lost and trials:
        setting = settings[0]
    entry: Selected = {
        "point": dict(place.point),
        "chosen": dict(setting.tuned),
        "tried": study.tried.get(place.point, len({tried.tuned for tried in settings}) or 1),
        "metric": study.select.metric,
        "mode": study.select.mode,
        "at": study.select.at,
        "seeds": [] if lost else [run.seed for run in setting.runs] or [*study.seeds],
        "runs": runs,
    }
    return {**entry, "trials": trials} if trials else entry
