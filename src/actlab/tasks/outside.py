"""State of users' objects that Lightning's checkpoints lack: generators and counters.

One walk over module, datamodule and loaders finds it. torch's generators are saved and restored. Of
all other values the checkpoint holds digests, so that a resume can name the values that have
changed.
"""

from __future__ import annotations

import hashlib
import pickle
import random
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler
from torchmetrics import Metric

OUTSIDE = "outside"  # checkpoint key
MOST_OBJECTS = 10_000  # of a walk
# Items of a collection or tensor; of a larger one only the length counts.
MOST_ITEMS = 1_000
MOST_NAMED = 3  # paths in a message
_PLAIN = bool | int | float | str | None
_GENERATORS = np.random.Generator | np.random.RandomState | random.Random
# Classes of torch whose attributes are walked, though its other objects are not
_WALKED: tuple[type, ...] = (DataLoader, Dataset, Sampler)
# Packages whose objects are not walked
_NOT_WALKED = {
    "actlab",
    "builtins",
    "lightning_fabric",
    "numpy",
    "pandas",
    "pytorch_lightning",
    "torch",
}
# Names of attributes that every module and datamodule of Lightning has
_OF_LIGHTNING = {*vars(pl.LightningModule()), *vars(pl.LightningDataModule())}


class StateOutside(Callback):
    """Saves and restores torch's generators, and names other state that no checkpoint holds.

    It covers what module, datamodule and loaders hold. It does not cover objects in processes of
    data loaders, and callbacks, which have a ``state_dict``.
    """

    stackable = True

    def __init__(self) -> None:
        self._loaded: Mapping[str, Any] | None = None  # until a resumed training starts

    def on_save_checkpoint(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        checkpoint: dict[str, Any],
    ) -> None:
        """Add the states of generators, and digests of all other values, by path."""
        reset = _reset_by_lightning(trainer)
        generators = {}
        digests = {}
        for path, value in _walked(trainer, pl_module):
            if isinstance(value, torch.Generator):
                generators[path] = value.get_state()
            elif id(value) not in reset:
                digests[path] = _digest(value)
        checkpoint[OUTSIDE] = {"generators": generators, "digests": digests}

    def on_load_checkpoint(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        checkpoint: Mapping[str, Any],
    ) -> None:
        """Keep what was added until the loaders exist."""
        self._loaded = checkpoint.get(OUTSIDE)

    def on_train_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule
    ) -> None:
        """Restore the generators, before the batches of an epoch are drawn; name what differs."""
        # Compare once, and only if training resumes
        if self._loaded is None:
            return
        saved = self._loaded
        self._loaded = None
        values = dict(_walked(trainer, pl_module))

        # Restore the generators.
        lost = []
        for path, state in saved["generators"].items():
            generator = values.get(path)
            if isinstance(generator, torch.Generator):
                generator.set_state(state.cpu())
            else:
                lost.append(path)

        # Compare the other values. Loaders may not exist yet.
        changed = []
        for path, digest in saved["digests"].items():
            if path in values:
                if _digest(values[path]) != digest:
                    changed.append(path)
            elif path.startswith(("model.", "data.")):
                lost.append(path)

        if (lost or changed) and trainer.is_global_zero:
            _print_note([*lost, *changed])


def _print_note(paths: list[str]) -> None:
    """Name the first paths whose values a resumed training lacks."""
    names = ", ".join(paths[:MOST_NAMED])
    if len(paths) > MOST_NAMED:
        names += " and others"
    print(
        f"note: the checkpoint does not hold {names}: numbers may differ from a training without a "
        "stop. Save such state with state_dict or register_buffer.",
        flush=True,
    )


def _walked(
    trainer: pl.Trainer, module: pl.LightningModule
) -> Iterator[tuple[str, Any]]:
    """Yield each generator, metric and plain value once, with its path: ``data.order``."""
    roots = {
        "model": module,
        "data": trainer.datamodule,  # type: ignore[attr-defined]
        "train_dataloader": trainer.train_dataloader,
        "val_dataloaders": trainer.val_dataloaders,
    }
    waiting: list[tuple[str, Any]] = list(reversed(roots.items()))
    seen: dict[int, Any] = {}  # holds the objects, so that no id is used again
    while waiting and len(seen) < MOST_OBJECTS:
        path, value = waiting.pop()
        if _is_leaf(value):
            if isinstance(value, _PLAIN) or id(value) not in seen:
                yield path, value
            seen[id(value)] = value
        elif id(value) not in seen:
            seen[id(value)] = value
            parts = list(_parts(value))
            waiting += [(f"{path}.{name}", part) for name, part in reversed(parts)]


def _is_leaf(value: Any) -> bool:
    """Whether a walk yields a value, and does not look inside it."""
    if isinstance(value, list | tuple | deque):
        return len(value) > MOST_ITEMS or all(
            isinstance(item, _PLAIN) for item in value
        )
    if isinstance(value, Tensor):
        return value.numel() <= MOST_ITEMS
    return isinstance(value, _PLAIN | _GENERATORS | torch.Generator | Metric)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what an object holds by name, without what Lightning's checkpoints hold."""
    # Items and children
    if isinstance(value, Mapping):
        items = list(value.items())
        for name, part in items[:MOST_ITEMS]:
            yield str(name), part
    elif isinstance(value, list | tuple | deque):
        for number, part in enumerate(value):
            yield str(number), part
    elif isinstance(value, nn.Module):
        yield from value.named_children()

    # Attributes. Lightning restores the epoch of what has `set_epoch`.
    package = type(value).__module__.partition(".")[0]
    if package not in _NOT_WALKED or isinstance(value, _WALKED):
        excluded = set(_OF_LIGHTNING)
        if hasattr(value, "set_epoch"):
            excluded.add("epoch")
        attributes = getattr(value, "__dict__", {})
        for name in list(attributes):
            if name not in excluded and not name.startswith("__pl_"):
                yield name, attributes[name]


def _reset_by_lightning(trainer: pl.Trainer) -> set[int]:
    """Return the ids of metrics that were logged as objects: Lightning resets them each epoch."""
    loop: Any = trainer.fit_loop.epoch_loop
    results = [*loop._results.values(), *loop.val_loop._results.values()]
    return {id(result.value) for result in results if not result.is_tensor}


def _digest(value: Any) -> str:
    """Return a digest of a leaf; see `_is_leaf`."""
    if isinstance(value, _GENERATORS):
        content = pickle.dumps(value)
    elif isinstance(value, Metric):
        # Lightning saves the states in its state dict.
        saved = value.state_dict()
        states = {
            name: state
            for name, state in value.metric_state.items()
            if name not in saved
        }
        content = repr(states).encode()
    elif isinstance(value, Tensor):
        content = repr(value.tolist()).encode()
    elif isinstance(value, list | tuple | deque) and len(value) > MOST_ITEMS:
        content = str(len(value)).encode()
    else:
        content = repr(value).encode()
    return hashlib.blake2b(content, digest_size=8).hexdigest()
