"""Find and delete what a study's folder no longer needs; finished runs of the plan are never touched."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

from actlab.analysis.points import in_words
from actlab.config import identity
from actlab.config.keys import canonical, label
from actlab.config.places import without_replaced_dataset
from actlab.engines import stages
from actlab.errors import ActlabError
from actlab.storage.files import DamagedError, is_abandoned, read_json, regular, scratch
from actlab.storage.mappings import parse
from actlab.studies import locks, stacks
from actlab.studies.folders import RunFolder
from actlab.studies.formats import Placed
from actlab.studies.plan import SEED, Run, Study

LEFT_OVER, FAILED, OTHERS = "left over", "failed", "others"
KINDS = (LEFT_OVER, FAILED, OTHERS)
_RUN = re.compile(rf".+-[0-9a-f]{{{identity.DIGITS}}}")
_SEED = re.compile(rf"^{SEED}:.*$", re.M)
_MOST_NAMED = 3  # settings named for a run that the plan lacks


class Item(NamedTuple):
    """A file or folder that can be deleted.

    Args:
        kind: one of `KINDS`.
        path: the file or folder.
        about: what it is, in words; for a run its settings without the seed.
        size: bytes.
        runs: ids of the runs that no other process may train meanwhile.
        seed: the seed of a run that the plan lacks, else None.
        finished: whether it is a finished run, which the plan lacks.
    """

    kind: str
    path: Path
    about: str
    size: int
    runs: tuple[str, ...] = ()
    seed: int | None = None
    finished: bool = False


def find(study: Study, root: Path) -> list[Item]:
    """Return what can be deleted in a study's folder.

    ``left over`` is what no start of any study uses: files of killed processes, and states of stacks whose
    runs have ended. ``failed`` are runs of the plan that the next start would try again. ``others`` are runs
    that the plan lacks, because they have other seeds, settings, data or code.

    Args:
        study: the study with the options of the command line.
        root: the study's folder.
    """
    planned = {run.id: run for stage in stages.opened(study, root, False) for run in stage.runs()}
    others = [*_others(study, root, planned)]
    return [*_partial(root), *_stacks(root, planned), *_failed(root, planned.values()), *others]


def check_others(study: Study, root: Path, items: Iterable[Item]) -> None:
    """Check that runs outside the plan may be deleted.

    Raises:
        ActlabError: if the plan is incomplete, or contains no run of the folder, as without the options of the
            command that trained the runs.
    """
    ready = stages.opened(study, root, False)
    if len(ready) < len(study.stages):
        name = study.stages[len(ready)].name
        raise ActlabError(
            f"--others: the runs of stage {name} are not known before it opens: run the study first"
        )
    known = any((root / run.id).exists() for stage in ready for run in stage.runs())
    if not known and any(item.kind == OTHERS for item in items):
        raise ActlabError(
            f"--others: no run in {root} belongs to this plan; give the --set, --seeds and --activation of the "
            "command that trained them, or delete the folder yourself"
        )


def delete(items: Sequence[Item], root: Path) -> list[Item]:
    """Delete items; return those that were left because another process trains their runs.

    Each item is renamed before its files are deleted, so that a kill leaves no half of a run.
    """
    left = []
    with locks.alone(root, locks.DECIDING):
        for item in items:
            with locks.holding(root, item.runs) as held:
                if not held or (item.kind == FAILED and not _is_failed(item.path)):
                    left.append(item)
                    continue
                with scratch(root, item.path.name) as folder, suppress(FileNotFoundError):
                    item.path.replace(folder / "content")
    return left


def _is_failed(path: Path) -> bool:
    """Whether a run's last attempt failed; a start of the study may have tried it again meanwhile."""
    return (path / "failed.json").exists() and not (path / "result.json").exists()


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder; links are not followed."""
    total = 0
    for file in (path, *path.rglob("*")) if path.is_dir() and not path.is_symlink() else (path,):
        with suppress(OSError):  # deleted meanwhile
            total += 0 if file.is_dir() and not file.is_symlink() else file.lstat().st_size
    return total


def _partial(root: Path) -> Iterator[Item]:
    """Yield the temporary folders whose processes have ended: of the study, its runs and their checkpoints."""
    for pattern in (".*.partial", "*/.*.partial", "*/*/.*.partial"):
        for path in sorted(root.glob(pattern)):
            if is_abandoned(path):
                yield Item(LEFT_OVER, path, "half-written by a process that has ended", size_of(path))


def _stacks(root: Path, planned: Mapping[str, Run]) -> Iterator[Item]:
    """Yield the states of stacks that no unfinished run of the plan needs."""
    members = {one.folder.name: tuple(one.members) for one in stacks.begun(root)}
    for path in sorted((root / stacks.FOLDER).glob("[!.]*")):
        runs = members.get(path.name, ())
        if all((root / name / "result.json").exists() for name in runs):
            about = "state of a stack whose runs have ended" if runs else "state of a stack that is not in use"
            yield Item(LEFT_OVER, path, about, size_of(path), runs)
        elif not any(name in planned for name in runs):
            yield Item(OTHERS, path, f"state of a stack of {len(runs)} runs", size_of(path), runs)


def _failed(root: Path, runs: Iterable[Run]) -> Iterator[Item]:
    """Yield the failed runs of the plan."""
    for folder in (RunFolder(root, run) for run in runs):
        if _is_failed(folder.path):
            when = f"failed after epoch {folder.epochs}" if folder.epochs else "failed in its first epoch"
            yield Item(FAILED, folder.path, when, size_of(folder.path), (folder.run.id,))


def _others(study: Study, root: Path, planned: Mapping[str, Run]) -> Iterator[Item]:
    """Yield the runs that the plan lacks."""
    plan: dict[str, dict[int, Run]] = {}
    for run in planned.values():
        plan.setdefault(canonical(run.point), {})[run.seed] = run
    for path, found in _run_folders(root):
        if path.name not in planned:
            beside = plan.get(canonical(found["point"]), {})
            differ = _differences(path, next(iter(beside.values()), None))
            if not differ and found["seed"] in beside:
                differ = ["other data or code"]
            about = ", ".join([in_words(found["point"], study.compare), *differ])
            finished = (path / "result.json").exists()
            yield Item(OTHERS, path, about, size_of(path), (path.name,), found["seed"], finished)


def _run_folders(root: Path) -> Iterator[tuple[Path, Placed]]:
    """Yield the folders of runs, which are named by a digest and have a ``point.json``."""
    for path in sorted(root.glob("[!.]*")):
        if _RUN.fullmatch(path.name):
            with suppress(DamagedError):
                found = read_json(path / "point.json", Placed, "")
                if found["id"] == path.name:
                    yield path, found


def _differences(path: Path, planned: Run | None) -> list[str]:
    """Return in words how the config of a run differs from that of a planned run at its grid point."""
    try:
        text = regular(path / "config.yaml").read_text(encoding="utf-8")
        own = _settings(_SEED.sub("", text))
    except (OSError, ValueError, ActlabError):
        return ["without a readable config"]
    if planned is None:
        return []
    config = without_replaced_dataset(planned.config)
    plan = dict(_flat({key: value for key, value in config.items() if key != SEED}))
    differ = [key for key in {**own, **plan} if canonical(own.get(key)) != canonical(plan.get(key))]
    named = [(key, *(shorten(label(of.get(key)), 40) for of in (own, plan))) for key in differ[:_MOST_NAMED]]
    words = [f"{key} {own_value} (plan: {value})" for key, own_value, value in named]
    return [*words, f"{len(differ) - _MOST_NAMED} more"] if len(differ) > _MOST_NAMED else words


@lru_cache  # runs that differ in the seed have equal texts, and YAML is slow
def _settings(config: str) -> dict[str, Any]:
    return dict(_flat(parse(config)))


def _flat(node: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys of a config with their values; ``init_args`` is left out of keys."""
    if not isinstance(node, Mapping) or not node:
        yield before, node
        return
    for key, value in node.items():
        yield from _flat(value, before if key == "init_args" else f"{before}.{key}".strip("."))
