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

LIGHTNING_WORDS = ("best", "last", "hpc")  # values of ckpt_path that are not paths
# Trainer arguments that do not change the name of a run: length of training, extent of
# evaluation, plugins.
_NOT_TRAINED = (
    *("max_epochs", "min_epochs", "max_steps", "min_steps", "max_time"),
    *("limit_test_batches", "limit_predict_batches", "plugins"),
)


def name_of(config: Mapping[str, Any]) -> str:
    """Return the name of a run's folder by its resolved config.

    It is a name such as ``elu-seed3-5d0f1a9c2b7e4a61``.
    """
    # Keep the arguments of the Trainer that change the numbers
    trainer = dict(config.get("trainer") or {})
    for key in _NOT_TRAINED:
        trainer.pop(key, None)
    # Lightning accepts one callback without a list.
    callbacks = as_list(trainer.get("callbacks") or [])
    # Checkpoints change no number
    trainer["callbacks"] = [
        callback
        for callback in callbacks
        if not str(callback.get("class_path")).endswith("Checkpoint")
    ]

    # Compute their digest
    trained = {key: config[key] for key in (SEED, *SECTIONS)}
    trained["trainer"] = trainer
    counted = identity.counted(trained, {})
    digest = identity.identity_of(counted, {})[: identity.DIGITS]

    # Put the activation in front, or the class of a model without one
    model = config["model"]
    activation = (model.get("init_args") or {}).get("activation")
    label = _label(activation or model["class_path"].rpartition(".")[-1])
    return f"{label}-seed{config[SEED]}-{digest}"


def _label(value: Any) -> str:
    """Return an activation or an argument of one as part of a file name."""
    if isinstance(value, Mapping):
        parts = [_label(value.get("name"))]
        for key, item in value.items():
            if key != "name":
                parts.append(_label(f"{key}{item}"))
        return "-".join(parts)
    last_part = re.split(r"[:/]", str(value))[-1]
    return re.sub(r"[^\w.=]+", "-", last_part)


def folder_for(root: Path, name: str, resumed: str | None = None) -> Path:
    """Return the folder of the checkpoint that is ``resumed``, or a new one.

    No checkpoint is overwritten.
    """
    folders = (_numbered_folder(root, name, number) for number in count())
    used = list(takewhile(newest_first, folders))
    # The newest folder has the last checkpoint
    if resumed in ("last", "best"):
        return used[-1] if used else root / name

    # Find the folder of this file
    if resumed:
        checkpoint = Path(resumed).resolve()
        for folder in used:
            if folder_of(checkpoint) == folder.resolve():
                return folder
    # A fit without a checkpoint starts a new folder
    return _numbered_folder(root, name, len(used))


def folder_of(checkpoint: Path) -> Path:
    """Return the folder of the run that a checkpoint belongs to."""
    for parent in checkpoint.parents:
        if parent.name != "checkpoints":
            continue
        has_config = (parent.parent / "config.yaml").is_file()
        if parent == checkpoint.parent or has_config:
            return parent.parent
    return checkpoint.parent


def _numbered_folder(root: Path, name: str, number: int) -> Path:
    if number == 0:
        return root / name
    return root / f"{name}-{number}"


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


def checkpoint_at(path: str | None) -> Mapping[str, Any]:
    """Return what a checkpoint holds; an empty mapping if there is no path."""
    if path is None or path in LIGHTNING_WORDS:
        return {}
    return read(path)


def checkpoint_in(folder: Path, word: str, resumes: bool) -> Path:
    """Return the ``last`` checkpoint of a run, which is its newest, or the recorded ``best`` one.

    A fit that ``resumes`` passes over checkpoints of weights alone.
    """
    files = newest_first(folder)
    if not files:
        raise ActlabError(
            f"there is no checkpoint {word!r} of this run in {str(folder)!r}. "
            "Remove --ckpt_path to start the run, or pass the path of a checkpoint."
        )
    if word == "last":
        for file in files:
            # Weights alone have no optimiser to resume
            if not resumes or "optimizer_states" in read(file):
                return file
        return files[0]

    # A fit that resumed without -c replaced the last one and monitored nothing; each
    # best one records itself.
    for file in files:
        for state in read(file).get("callbacks", {}).values():
            # No monitor, no best checkpoint.
            if not isinstance(state, Mapping) or not state.get("monitor"):
                continue
            recorded = Path(state.get("best_model_path") or "").as_posix()
            for target in files:  # the folder may have moved since
                if recorded.endswith(f"/{target.relative_to(folder).as_posix()}"):
                    return target
    raise ActlabError(
        f"the run in {str(folder)!r} has no best checkpoint. Pass last or a path."
    )
