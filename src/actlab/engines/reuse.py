"""Copy runs that a sibling study has finished, instead of training them again.

The digest at the end of a run id covers everything that changes the run's numbers, in any study.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from actlab.config.identity import DIGITS
from actlab.errors import ActlabError
from actlab.storage import series
from actlab.storage.files import damaged_part, regular, temporary, write_json
from actlab.studies.folders import RunFolder
from actlab.studies.plan import Run


def take(runs: Sequence[Run], root: Path) -> Mapping[str, int]:
    """Copy finished runs from sibling studies, the other folders beside ``root``; count them by study.

    A run that has a folder in this study is not copied, but resumed. A run of a sibling study is not copied if
    its files are damaged or if it lacks a checkpoint that this study keeps.
    """
    found: dict[str, list[Path]] = {}
    for result in sorted(root.parent.glob("[!.]*/[!.]*/result.json")):
        found.setdefault(_digest(result.parent.name), []).append(result.parent)
    taken: Counter[str] = Counter()
    for run in (run for run in runs if not (root / run.id).exists()):
        versions = dict.fromkeys((run.identity, run.former))
        found_by = [(whole, path) for whole in versions for path in found.get(whole[:DIGITS], ())]
        sources = (RunFolder(at.parent, replace(run, id=at.name, identity=whole)) for whole, at in found_by)
        if source := next(filter(_complete, sources), None):
            _copy(source, run, root)
            taken[source.path.parent.name] += 1
    return taken


def _digest(name: str) -> str:
    return name.rpartition("-")[2]


def _complete(folder: RunFolder) -> bool:
    """Whether the folder holds, undamaged, the rows and all checkpoints that its run keeps."""
    keep = folder.run.keep
    if keep.best is not None:  # best.ckpt does not record the metric by which it was selected
        return False
    try:
        found = folder.result()
        series.read(folder.metrics)
        kept: tuple[str | int, ...] = ("last", *keep.epochs) if found["last_good_epoch"] else ()
        return found["seed"] == folder.run.seed and not any(damaged_part(folder.kept(at)) for at in kept)
    except (ActlabError, KeyError):
        return False


def _copy(source: RunFolder, run: Run, root: Path) -> None:
    about = {"id": run.id, "seed": run.seed, "point": dict(run.point), "identity": run.identity}
    with temporary(root, run.id, folder=True) as copy:
        for file in filter(Path.is_file, source.parts()):  # there may be no units.parquet
            target = copy / file.relative_to(source.path)
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(regular(file), target)
        write_json(copy / "result.json", {**source.result(), **about})
        copy.replace(root / run.id)
