"""Text of ``actlab study clean`` and ``unlock``: what a study's folder no longer needs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from actlab.analysis.points import plural
from actlab.engines import cleaning
from actlab.engines.cleaning import FAILED, KINDS, LEFT_OVER, OTHERS, Item
from actlab.reports.captions import spans
from actlab.studies import locks
from actlab.studies.plan import Study

_MEANING = {
    LEFT_OVER: "files of processes that have ended",
    FAILED: "runs that the next start tries again, from their last checkpoint",
    OTHERS: "runs that this plan lacks: other seeds, settings, data or code",
}
_STEPS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B"))


def clean(study: Study, root: Path, kinds: Collection[str], sure: bool, again: str) -> None:
    """List what can be deleted in a study's folder, and delete it if ``sure``.

    Args:
        study: the study.
        root: the study's folder.
        kinds: which kinds of `actlab.engines.cleaning.KINDS` to delete; the others are counted.
        sure: whether to delete.
        again: the command without ``--yes``.

    Raises:
        ActlabError: if runs outside the plan are to be deleted, but the plan is not that of the folder.
    """
    found = cleaning.find(study, root)
    if OTHERS in kinds:
        cleaning.check_others(study, root, found)
    busy = {item.path for item in found if any(locks.is_held(root, name) for name in item.runs)}
    free = [item for item in found if item.path not in busy]
    for kind in KINDS:
        for line in _listing(kind, [item for item in free if item.kind == kind], kind in kinds, root):
            print(line)
    if busy:
        print(f"left alone: {_count(busy)} of runs that another process trains")
    chosen = [item for item in free if item.kind in kinds]
    if not chosen:
        print("nothing to delete")
    elif not sure:
        print(f"nothing has been deleted: `{again} --yes` deletes {_count(chosen)}, {_bytes(chosen)}")
    else:
        left = cleaning.delete(chosen, root)
        gone = [item for item in chosen if item not in left]
        print(f"deleted {_count(gone)}, {_bytes(gone)}")
        for item in left:
            print(f"left alone: {item.path}, which another process trains")


def _listing(kind: str, items: Sequence[Item], chosen: bool, root: Path) -> Iterator[str]:
    """Yield a line for the items of a kind, and if they are chosen one for each item or group of runs."""
    if not items:
        return
    keep = "" if chosen else f"; kept without --{kind}"
    yield f"{kind} ({_MEANING[kind]}): {_count(items)}, {_bytes(items)}{keep}"
    alike: dict[str, list[Item]] = {}
    for item in items if chosen else ():
        alike.setdefault(str(item.path) if item.seed is None else item.about, []).append(item)
    for own in alike.values():
        yield f"  {_bytes(own):>9}  {_about(own, root)}"


def _about(items: Sequence[Item], root: Path) -> str:
    first = items[0]
    if first.seed is None:
        return f"{first.path.relative_to(root)}: {first.about}"
    seeds = spans([item.seed for item in items if item.seed is not None])
    finished = sum(item.finished for item in items)
    return f"{first.about}: {plural(len(items), 'run')} with seed {seeds}, {finished} finished"


def _count(items: Collection[object]) -> str:
    return plural(len(items), "folder")


def _bytes(items: Sequence[Item]) -> str:
    """Return the size of items in words: ``12.4 MB``."""
    size = sum(item.size for item in items)
    scale, unit = next((step for step in _STEPS if size >= step[0]), _STEPS[-1])
    return f"{size / scale:.{0 if scale == 1 else 1}f} {unit}"
