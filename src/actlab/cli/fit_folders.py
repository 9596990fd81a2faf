"""Where a fit leaves its files: one folder a run, named by what is trained.

::

    runs/<config>/<activation>-seed<seed>-<digest>/
        config.yaml       the resolved config
        checkpoints/      last.ckpt, and what the config's ModelCheckpoint keeps
        wandb/, …         what its loggers write
        predictions.parquet   from ``actlab predict``

The digest is of what counts of the resolved config (`actlab.config.identity`), however long it is trained. So
the same command finds its folder again, to resume with ``--ckpt_path last``, and another unit, seed or network
has a folder of its own. Whether data and code are what they were is compared with the checkpoint. A second fit
from the start gets ``…-1``, and so on: the first one's files stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from actlab.config import identity
from actlab.config.sections import SECTIONS, SEED
from actlab.errors import ActlabError
from actlab.storage.checkpoints import read

# Arguments of the Trainer that name no other run: how long it is trained, what is evaluated, and where.
_NOT_TRAINED = (
    *("max_epochs", "min_epochs", "max_steps", "min_steps", "max_time"),
    *("limit_test_batches", "limit_predict_batches", "plugins"),
)


def _only_writes(callback: Mapping[str, Any]) -> bool:
    return str(callback.get("class_path")).endswith("Checkpoint")


def name_of(config: Mapping[str, Any]) -> str:
    """The name of a run's folder, such as ``elu-seed3-5d0f1a9c2b7e4a61``.

    A model without activation gives its class.

    Args:
        config: resolved, as plain values.
    """
    trainer = {key: value for key, value in (config.get("trainer") or {}).items() if key not in _NOT_TRAINED}
    trainer["callbacks"] = [c for c in trainer.get("callbacks") or () if not _only_writes(c)]
    trained = {**{key: config[key] for key in (SEED, *SECTIONS)}, "trainer": trainer}
    digest = identity.identity_of(identity.counted(trained, {}), {})[: identity.DIGITS]
    unit = (config["model"].get("init_args") or {}).get("activation")
    label = _label(unit or config["model"]["class_path"].rpartition(".")[-1])
    return f"{label}-seed{config[SEED]}-{digest}"


def _label(value: Any) -> str:
    """A unit or class as part of a folder's name."""
    if isinstance(value, Mapping):
        rest = [f"{key}{item}" for key, item in value.items() if key != "name"]
        return "-".join([_label(value.get("name")), *map(_label, rest)])
    return re.sub(r"[^\w.=]+", "-", re.split(r"[:/]", str(value))[-1])


def folder_for(root: Path, name: str, resumed: str | None = None) -> Path:
    """The folder of a fit.

    Args:
        root: of all fits of a config.
        name: of the run.
        resumed: the checkpoint that is gone on from: ``last`` and ``best`` mean the newest run of this name, a
            path the run that it lies in.

    Returns:
        The folder of the run that goes on, or a fresh one: without checkpoints, so that none is replaced.
    """
    used = list(_used(root, name))
    if resumed in ("last", "best"):
        return used[-1] if used else root / name
    for folder in used if resumed else ():
        if folder_of(Path(str(resumed)).resolve()) == folder.resolve():
            return folder
    return _numbered(root, name, len(used))


def folder_of(checkpoint: Path) -> Path:
    """The folder of the run that a checkpoint is of."""
    return checkpoint.parent.parent if checkpoint.parent.name == "checkpoints" else checkpoint.parent


def _numbered(root: Path, name: str, number: int) -> Path:
    return root / (f"{name}-{number}" if number else name)


def _used(root: Path, name: str) -> Iterator[Path]:
    """The folders of a name that hold checkpoints, oldest first."""
    for number in count():
        folder = _numbered(root, name, number)
        if not any(folder.glob("checkpoints/*.ckpt")):
            return
        yield folder


def checkpoint_in(folder: Path, which: str) -> Path:
    """The newest ``last`` checkpoint of a run, or the ``best`` one that its ModelCheckpoint knew then.

    Raises:
        ActlabError: where there is none.
    """
    lasts = sorted(folder.glob("checkpoints/last*.ckpt"), key=lambda path: path.stat().st_mtime)
    if not lasts:
        raise ActlabError(
            f"there is no checkpoint {which!r} of this run in {str(folder)!r}: "
            "leave --ckpt_path out to start it, or give the path of one"
        )
    if which == "last":
        return lasts[-1]
    states = (state for state in read(lasts[-1]).get("callbacks", {}).values() if isinstance(state, Mapping))
    watching = (state for state in states if state.get("monitor"))  # one that watches nothing has no best
    names = [Path(state["best_model_path"]).name for state in watching if state.get("best_model_path")]
    for name in names:
        if (found := folder / "checkpoints" / name).exists():
            return found
    raise ActlabError(f"the run in {str(folder)!r} kept no best checkpoint: give last, or a path")
