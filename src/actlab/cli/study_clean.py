"""``actlab study clean``: list what a study's folder no longer needs, and delete it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rich.filesize import decimal

from actlab.analysis.wording import few, plural
from actlab.errors import ActlabError
from actlab.stages import opening
from actlab.storage.files import leftovers, remove, temporary
from actlab.studies import changes, locks, stacks
from actlab.studies.run_folder import RESULT, RunFolder
from actlab.studies.states import OVER
from actlab.studies.study_folder import StudyFolder

_RUN = re.compile(r".+-[0-9a-f]{16}")


def clean(folder: StudyFolder, everything: bool, confirmed: bool, command: str) -> None:
    """List what a study's folder no longer needs, and delete it if that is confirmed.

    Args:
        folder: the study's folder.
        everything: list all that the folder holds.
        confirmed: delete what is listed.
        command: the command without ``--yes``, for the text that repeats it.
    """
    root = folder.path
    stages = opening.opened(folder, store=False).stages
    # A folder of another name is the user's own
    stored_runs = set()
    for config in root.glob("[!.]*/config.yaml"):
        name = config.parent.name
        if _RUN.fullmatch(name):
            stored_runs.add(name)

    # Find what can be deleted
    if everything:
        paths = []
        if root.exists():
            paths = sorted(path for path in root.iterdir() if path.name != locks.FOLDER)
    else:
        paths = _unneeded(folder, stages, stored_runs)

    # List them
    for path in paths:
        print(f"  {_size([path]):>9}  {path}")
    summary = f"{plural(len(paths), 'item')}, {_size(paths)}"
    # Finished runs take longest to train again
    finished = sum(len([*path.rglob(RESULT)]) for path in paths)
    if finished:
        summary += f", {plural(finished, 'finished run')} among them"

    # Delete them
    if not paths:
        print("nothing to delete")
    elif not confirmed:
        print(f"nothing has been deleted: `{command} --yes` deletes {summary}")
    else:
        _delete(paths, root, stored_runs)
        print(f"deleted {summary}")


def _unneeded(
    folder: StudyFolder, stages: Sequence[StudyFolder], stored_runs: set[str]
) -> list[Path]:
    """Return leftovers of killed processes, stacks without unfinished runs, and unplanned runs."""
    root = folder.path
    planned: dict[str, RunFolder] = {}
    for stage in stages:
        planned |= {run.id: run for run in stage.runs}
    # Unfinished runs resume from their files
    needed = {name for name, run in planned.items() if run.state.kind not in OVER}
    unplanned = stored_runs - planned.keys()

    # Keep runs that a later stage may plan, or that other options plan
    may_be_planned = len(stages) < len(folder.study.stages) or stored_runs.isdisjoint(
        planned
    )
    if may_be_planned:
        current = _of_current_code(unplanned, root, planned)
        if current:
            print(
                f"{plural(len(current), 'run')} will stay, because no run in {root} belongs to "
                "this plan, or one of its stages has not opened. Run the study first, or add "
                "the --set, --seeds and --activation of the command that trained them."
            )

        # Their stacks stay, too
        needed |= current
        unplanned -= current

    # Collect the paths
    paths = [*leftovers(root)]
    members = {stack.folder: stack.members for stack in stacks.begun(root)}
    # A stack stays while one of its runs is needed
    for stack in sorted((root / stacks.FOLDER).glob("[!.]*/")):
        if any(stack.iterdir()) and needed.isdisjoint(members.get(stack, ())):
            paths.append(stack)
    paths += [root / name for name in sorted(unplanned)]
    return paths


def _of_current_code(
    names: set[str], root: Path, planned: Mapping[str, RunFolder]
) -> set[str]:
    """Return the names of runs whose code and data are the same as now."""
    digests = changes.digests(run.run for run in planned.values())
    return {name for name in names if not changes.changed(root / name, digests)}


def _delete(paths: Iterable[Path], root: Path, runs: Iterable[str]) -> None:
    """Delete paths in a study's folder; raise if another process trains one of its runs."""
    # Hold off commands that decide which runs to train
    with locks.alone(root, locks.DECIDING):
        busy = [name for name in runs if locks.is_held(root, name)]
        if busy:
            raise ActlabError(
                f"another process trains {few(busy)} in {root}. Wait until it has ended."
            )

        # Each is moved away first, so that a kill leaves no half of a run.
        with temporary(root, "deleted", folder=True) as trash:
            for number, path in enumerate(paths):
                with suppress(FileNotFoundError):
                    path.replace(trash / str(number))

    # Only locks are left
    if all(path.name == locks.FOLDER for path in root.iterdir()):
        remove(root)


def _size(paths: Iterable[Path]) -> str:
    """Return the size of files and folders as text."""
    size = 0
    for path in paths:
        for file in (path, *path.rglob("*")):
            with suppress(OSError):  # deleted meanwhile
                if not file.is_dir():
                    # Links may lead out of the folder
                    size += file.lstat().st_size  # links are not followed
    return decimal(size)
