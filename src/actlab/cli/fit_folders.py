"""Folders of ``actlab fit``, one per run: ``runs/<config>/<activation>-seed<seed>-<digest>``.

The digest is of what changes the numbers, without the length of training: the same command finds
its folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from actlab.config import identity
from actlab.config.sections import SECTIONS, SEED
from actlab.config.values import as_list
from actlab.errors import ActlabError
from actlab.storage.checkpoints import read

# Trainer arguments that do not change the name of a run: length of training, extent of evaluation,
# plugins.
_NOT_TRAINED = (
    *("max_epochs", "min_epochs", "max_steps", "min_steps", "max_time"),
    *("limit_test_batches", "limit_predict_batches", "plugins"),
)


def name_of(config: Mapping[str, Any]) -> str:
    """Return the name of a run's folder by its resolved config, such as ``elu-seed3-5d0f1a9c2b7e4a61``."""
    trainer = {
        key: value
        for key, value in (config.get("trainer") or {}).items()
        if key not in _NOT_TRAINED
    }
    callbacks = as_list(trainer.get("callbacks") or [])  # Lightning takes one without a list
    trainer["callbacks"] = [
        c for c in callbacks if not str(c.get("class_path")).endswith("Checkpoint")
    ]
    trained = {**{key: config[key] for key in (SEED, *SECTIONS)}, "trainer": trainer}
    digest = identity.identity_of(identity.counted(trained, {}), {})[: identity.DIGITS]
    activation = (config["model"].get("init_args") or {}).get("activation")
    label = _label(activation or config["model"]["class_path"].rpartition(".")[-1])
    return f"{label}-seed{config[SEED]}-{digest}"


def _label(value: Any) -> str:
    if isinstance(value, Mapping):
        rest = [f"{key}{item}" for key, item in value.items() if key != "name"]
        return "-".join([_label(value.get("name")), *map(_label, rest)])
    return re.sub(r"[^\w.=]+", "-", re.split(r"[:/]", str(value))[-1])


def folder_for(root: Path, name: str, resumed: str | None = None) -> Path:
    """Return the folder of the checkpoint that is ``resumed``, or a new one: no checkpoint is overwritten."""
    folders = (_numbered_folder(root, name, number) for number in count())
    used = list(takewhile(newest_first, folders))
    if resumed in ("last", "best"):
        return used[-1] if used else root / name
    for folder in used if resumed else ():
        if folder_of(Path(str(resumed)).resolve()) == folder.resolve():
            return folder
    return _numbered_folder(root, name, len(used))


def folder_of(checkpoint: Path) -> Path:
    """Return the folder of the run that a checkpoint belongs to."""
    for parent in checkpoint.parents:
        if parent.name == "checkpoints" and (
            parent == checkpoint.parent or _has_config(parent.parent)
        ):
            return parent.parent
    return checkpoint.parent


def _has_config(folder: Path) -> bool:
    return (folder / "config.yaml").is_file()


def _numbered_folder(root: Path, name: str, number: int) -> Path:
    return root / (f"{name}-{number}" if number else name)


def newest_first(folder: Path) -> list[Path]:
    """Return the checkpoints of a run, the newest first.

    A slash in a name, as in ``{val/loss:.2f}``, makes a folder below ``checkpoints``.
    """
    return by_age(folder.glob("checkpoints/**/*.ckpt"))


def by_age(files: Iterable[Path]) -> list[Path]:
    """Return checkpoints, the newest first; of equally old ones ``last`` comes first."""
    return sorted(
        files,
        key=lambda path: (path.stat().st_mtime_ns, path.name.startswith("last")),
        reverse=True,
    )


def checkpoint_in(folder: Path, which: str, resumes: bool) -> Path:
    """Return the ``last`` checkpoint of a run, which is its newest, or the ``best`` one that is recorded in it.

    A fit that ``resumes`` passes over checkpoints of weights alone.
    """
    files = newest_first(folder)
    if not files:
        raise ActlabError(
            f"there is no checkpoint {which!r} of this run in {str(folder)!r}: "
            "omit --ckpt_path to start the run, or give the path of a checkpoint"
        )
    if which == "last":
        usable = (file for file in files if not resumes or "optimizer_states" in read(file))
        return next(usable, files[0])
    # A fit that resumed without -c replaced the last one and monitored nothing; each best one
    # records itself.
    for file in files:
        for state in read(file).get("callbacks", {}).values():
            # No monitor, no best checkpoint.
            if not isinstance(state, Mapping) or not state.get("monitor"):
                continue
            path = Path(state.get("best_model_path") or "")
            for target in files:  # the folder may have moved since
                if path.as_posix().endswith(f"/{target.relative_to(folder).as_posix()}"):
                    return target
    raise ActlabError(f"the run in {str(folder)!r} kept no best checkpoint: give last or a path")
