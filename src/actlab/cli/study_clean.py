"""``actlab study clean``: list what a study's folder no longer needs, and delete it with ``--yes``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rich.filesize import decimal

from actlab.analysis.points import plural
from actlab.engines import stages
from actlab.errors import ActlabError
from actlab.storage.files import leftovers, temporary
from actlab.studies import changes, locks, stacks
from actlab.studies.folders import RunFolder
from actlab.studies.plan import Run, Study
from actlab.studies.states import FAILED, OVER, state_of

LEFT_OVER, OTHERS = "left over", "others"
_MEANING = {
    LEFT_OVER: "files of processes that have ended",
    FAILED: "runs that the next start tries again, from their last checkpoint",
    OTHERS: "runs that this plan lacks: other seeds, settings, data or code",
}
_RUN = re.compile(r".+-[0-9a-f]{16}")


class Item(NamedTuple):
    """A file or folder that can be deleted, and the runs that no process may train meanwhile."""

    kind: str
    path: Path
    runs: tuple[str, ...] = ()


def clean(study: Study, root: Path, kinds: Collection[str], sure: bool, again: str) -> None:
    """List what can be deleted in a study's folder, and delete items of some kinds if ``sure``."""
    ready = stages.opened(study, root, False)
    planned = {run.id: run for stage in ready for run in stage.runs()}
    found = [*_found(root, planned)]
    known = len(ready) >= len(study.stages) and any((root / name).exists() for name in planned)
    if OTHERS in kinds and not known and any(item.kind == OTHERS for item in found):
        now = changes.digests(planned.values())  # runs of earlier code are of no plan
        found = [item for item in found if item.kind != OTHERS or changes.changed(item.path, now)]
        if not any(item.kind == OTHERS for item in found):
            raise ActlabError(
                f"--others: no run in {root} belongs to this plan, or one of its stages has not opened: run "
                "the study first, or give the --set, --seeds and --activation of the command that trained them"
            )
    for kind, meaning in _MEANING.items():
        if items := [item for item in found if item.kind == kind]:
            print(f"{kind} ({meaning}): {_in_words(items)}", end="")
            print("" if kind in kinds else f"; kept without --{kind}")
        for item in items if kind in kinds else ():
            print(f"  {_bytes([item]):>9}  {item.path.relative_to(root)}")
    chosen = [item for item in found if item.kind in kinds]
    if not chosen:
        print("nothing to delete")
    elif not sure:
        print(f"nothing has been deleted: `{again} --yes` deletes {_in_words(chosen)}")
    else:
        for path in (left := _delete(chosen, root, planned)):
            print(f"left alone: {path}, which another process trains")
        print(f"deleted {plural(len(chosen) - len(left), 'item')}")


def _found(root: Path, planned: Mapping[str, Run]) -> Iterator[Item]:
    for pattern in ("*", "*/*", "*/*/*"):  # of the study, its runs and their checkpoints
        yield from (Item(LEFT_OVER, path) for path in sorted(leftovers(root, pattern)))
    over = {name: state_of(RunFolder(root, run)).kind for name, run in planned.items()}
    members = {one.folder.name: tuple(one.members) for one in stacks.begun(root)}
    for path in sorted((root / "stacks").glob("[!.]*/")):
        runs = members.get(path.name, ())
        ended = all((root / name / "result.json").exists() for name in runs)
        if any(path.iterdir()) and not any(over.get(name, OVER[0]) not in OVER for name in runs):
            yield Item(LEFT_OVER if ended else OTHERS, path, runs)
    yield from (Item(FAILED, root / name, (name,)) for name, kind in over.items() if kind == FAILED)
    for path in sorted(root.glob("[!.]*/config.yaml")):
        name = path.parent.name
        if _RUN.fullmatch(name) and name not in planned:
            yield Item(OTHERS, path.parent, (name,))


def _delete(items: Sequence[Item], root: Path, planned: Mapping[str, Run]) -> list[Path]:
    """Delete items, each moved away first, so that a kill leaves no half; return those that are trained now."""
    left = []
    with locks.alone(root, locks.DECIDING):
        for kind, path, runs in items:
            with locks.holding(root, runs) as held:
                if not held or (kind == FAILED and state_of(RunFolder(root, planned[runs[0]])).kind != FAILED):
                    left.append(path)
                    continue
                with temporary(root, path.name, folder=True) as gone, suppress(FileNotFoundError):
                    path.replace(gone / path.name)
    return left


def _in_words(items: Sequence[Item]) -> str:
    finished = sum(item.kind == OTHERS and (item.path / "result.json").exists() for item in items)
    some = f", {plural(finished, 'finished run')} among them" if finished else ""
    return f"{plural(len(items), 'item')}, {_bytes(items)}{some}"


def _bytes(items: Sequence[Item]) -> str:
    size = 0
    for file in (file for item in items for file in (item.path, *item.path.rglob("*"))):
        with suppress(OSError):  # deleted meanwhile
            size += 0 if file.is_dir() else file.lstat().st_size  # links are not followed
    return decimal(size)
