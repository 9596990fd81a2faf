"""``actlab study clean``: list what a study's folder no longer needs, and delete it with ``--yes``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from rich.filesize import decimal

from actlab.analysis.wording import few, plural
from actlab.errors import ActlabError
from actlab.stages import opening
from actlab.storage.files import leftovers, remove, temporary
from actlab.studies import changes, locks, stacks
from actlab.studies.run_folder import RESULT
from actlab.studies.states import OVER
from actlab.studies.study_folder import StudyFolder

_RUN = re.compile(r".+-[0-9a-f]{16}")


def clean(folder: StudyFolder, whole: bool, sure: bool, again: str) -> None:
    """List what a study's folder no longer needs, or all that it holds, and delete it if ``sure``."""
    root, ready = folder.path, opening.opened(folder, store=False).stages
    planned = {run.id: run for stage in ready for run in stage.runs}
    unfinished = {name for name, run in planned.items() if run.state.kind not in OVER}
    there = {
        path.parent.name
        for path in root.glob("[!.]*/config.yaml")
        if _RUN.fullmatch(path.parent.name)
    }
    others = there - planned.keys()
    kept = set[str]()
    if not whole and (len(ready) < len(folder.study.stages) or there.isdisjoint(planned)):
        now = changes.digests(run.run for run in planned.values())
        # Not those of earlier code
        kept = {name for name in others if not changes.changed(root / name, now)}
        unfinished, others = unfinished | kept, others - kept
    if kept:
        print(
            f"kept: {plural(len(kept), 'run')}, because no run in {root} belongs to this plan, or one of its "
            "stages has not opened: run the study first, or give the --set, --seeds and --activation of the "
            "command that trained them"
        )
    items = [*leftovers(root)]
    members = {stack.folder: stack.members for stack in stacks.begun(root)}
    for stack in sorted((root / stacks.FOLDER).glob("[!.]*/")):
        if any(stack.iterdir()) and unfinished.isdisjoint(members.get(stack, ())):
            items.append(stack)
    items += [root / name for name in sorted(others)]
    if whole and root.exists():
        items = sorted(path for path in root.iterdir() if path.name != locks.FOLDER)
    for path in items:
        print(f"  {_size([path]):>9}  {path}")
    finished = sum(len([*path.rglob(RESULT)]) for path in items)
    text = f"{plural(len(items), 'item')}, {_size(items)}"
    if finished:
        text += f", {plural(finished, 'finished run')} among them"
    if not items:
        print("nothing to delete")
    elif not sure:
        print(f"nothing has been deleted: `{again} --yes` deletes {text}")
    else:
        _delete(items, root, there)
        print(f"deleted {text}")


def _delete(paths: Iterable[Path], root: Path, runs: Iterable[str]) -> None:
    with locks.alone(root, locks.DECIDING):
        if busy := [name for name in runs if locks.is_held(root, name)]:
            raise ActlabError(
                f"another process trains {few(busy)} in {root}: wait until it has ended"
            )
        # Each is moved away first, so that a kill leaves no half of a run.
        with temporary(root, "deleted", folder=True) as gone:
            for number, path in enumerate(paths):
                with suppress(FileNotFoundError):
                    path.replace(gone / str(number))
    if all(path.name == locks.FOLDER for path in root.iterdir()):
        remove(root)


def _size(paths: Iterable[Path]) -> str:
    size = 0
    for file in (file for path in paths for file in (path, *path.rglob("*"))):
        with suppress(OSError):  # deleted meanwhile
            size += 0 if file.is_dir() else file.lstat().st_size  # links are not followed
    return decimal(size)
