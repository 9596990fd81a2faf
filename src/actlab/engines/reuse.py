"""Copy runs that a sibling study has finished, instead of training them again.

The digest at the end of a run id covers everything that changes the run's numbers, in any study. The part
before the digest names the grid point within one study.
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
    """Copy finished runs from sibling studies.

    A run that has a folder in this study is not copied, but resumed. A run of a sibling study is not copied if
    its files are damaged or if it lacks a checkpoint that this study keeps.

    Args:
        runs: unfinished runs of this study.
        root: the study's folder; sibling studies are the other folders of its parent.

    Returns:
        Number of copied runs, by the name of the study that trained them.
    """
    found: dict[str, list[Path]] = {}
    for result in sorted(root.parent.glob("[!.]*/[!.]*/result.json")):
        found.setdefault(_digest(result.parent.name), []).append(result.parent)
    taken: Counter[str] = Counter()
    for run in runs:
        if not (root / run.id).exists():
            sources = (
                RunFolder(path.parent, replace(run, id=path.name)) for path in found.get(_digest(run.id), ())
            )
            taken.update(_copy_first(run, sources, root))
    return taken


def _digest(name: str) -> str:
    """Return the digest at the end of a run id."""
    return name.rpartition("-")[2]


def _copy_first(run: Run, sources: Iterable[RunFolder], root: Path) -> list[str]:
    """Copy the first complete source; return the name of its study, or an empty list."""
    for source in sources:
        if _complete(source):
            _copy(source, run, root)
            return [source.path.parent.name]
    return []


def _complete(folder: RunFolder) -> bool:
    """Whether the folder holds, undamaged, all checkpoints that its run keeps."""
    keep = folder.run.keep
    if keep.best is not None:  # best.ckpt does not record the metric by which it was selected
        return False
    try:
        found = folder.result()
        if found["last_good_epoch"]:  # otherwise there are no weights
            for name in ("last", *(f"epoch={epoch}" for epoch in keep.epochs)):
                folder.checked(folder.kept(name))
        return "files" in found and found["seed"] == folder.run.seed
    except (DamagedError, KeyError):
        return False


def _copy(source: RunFolder, run: Run, root: Path) -> None:
    """Copy the files of a run that its result lists."""
    found = source.result()
    about = {"id": run.id, "seed": run.seed, "point": run.point}
    with replacing(root / run.id) as copy:
        for name in found.get("files", {}):
            if (file := source.path / name).exists():  # units.parquet may be missing
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(regular(file), copy / name)
        write_atomically(copy / "point.json", json.dumps(about, indent=1))
        write_sealed(copy / "result.json", {**found, **about})
