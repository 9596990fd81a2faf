"""A run that another study beside this one has finished is copied, not trained again.

The digest at the end of a run's id says all that changes its numbers, whichever study asks for it; what stands
before it names the grid point of one study.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from actlab.storage.files import DamagedError, regular, replacing, write_atomically, write_sealed
from actlab.studies.folders import RunFolder
from actlab.studies.plan import Run


def take(runs: Sequence[Run], root: Path) -> Mapping[str, int]:
    """Copy finished runs from the studies beside this one.

    A run that has begun here goes on here; one whose files are damaged there, or that lacks a checkpoint which
    this study keeps, is not copied.

    Args:
        runs: unfinished runs.
        root: the study's folder; the others lie beside it.

    Returns:
        How many were copied, by the name of the study that had trained them.
    """
    found: dict[str, list[Path]] = {}
    for result in sorted(root.parent.glob("[!.]*/[!.]*/result.json")):
        found.setdefault(_content(result.parent.name), []).append(result.parent)
    taken: Counter[str] = Counter()
    for run in runs:
        if not (root / run.id).exists():
            sources = (
                RunFolder(path.parent, replace(run, id=path.name)) for path in found.get(_content(run.id), ())
            )
            taken.update(_copied(run, sources, root))
    return taken


def _content(name: str) -> str:
    """The digest at the end of a run's id."""
    return name.rpartition("-")[2]


def _copied(run: Run, sources: Iterable[RunFolder], root: Path) -> list[str]:
    """Copy the first source that is complete; the name of its study."""
    for source in sources:
        if _complete(source):
            _copy(source, run, root)
            return [source.path.parent.name]
    return []


def _complete(folder: RunFolder) -> bool:
    """Whether a run has left all that it is asked to keep, undamaged."""
    keep = folder.run.keep
    if keep.best is not None:  # best.ckpt does not say by which metric it was the best
        return False
    try:
        found = folder.result()
        if found["last_good_epoch"]:  # else there are no weights
            for name in ("last", *(f"epoch={epoch}" for epoch in keep.epochs)):
                folder.checked(folder.kept(name))
        return "files" in found and found["seed"] == folder.run.seed
    except (DamagedError, KeyError):
        return False


def _copy(source: RunFolder, run: Run, root: Path) -> None:
    """Copy what the run itself has left, as its result names it."""
    found = source.result()
    about = {"id": run.id, "seed": run.seed, "point": run.point}
    with replacing(root / run.id) as copy:
        for name in found.get("files", {}):
            if (file := source.path / name).exists():  # the table of all units may be left out
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(regular(file), copy / name)
        write_atomically(copy / "point.json", json.dumps(about, indent=1))
        write_sealed(copy / "result.json", {**found, **about})
