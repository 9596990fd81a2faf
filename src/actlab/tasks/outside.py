"""State of users' objects that Lightning's checkpoints lack: generators and counters.

One walk over module, datamodule and loaders finds it. torch's generators are saved and restored. Of
all other values the checkpoint holds digests, so that a resume can name those that are not what
they were.
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
MOST_ITEMS = 1_000  # of a collection or tensor; of a larger collection only the length counts
MOST_NAMED = 3
_PLAIN = bool | int | float | str | None
_GENERATORS = np.random.Generator | np.random.RandomState | random.Random
# Of torch, though its other objects are not
_WALKED: tuple[type, ...] = (
    DataLoader,
    Dataset,
    Sampler,
)
_NOT_WALKED = {
    "actlab",
    "builtins",
    "lightning_fabric",
    "numpy",
    "pandas",
    "pytorch_lightning",
    "torch",
}
# Names of attributes
_OF_LIGHTNING = {
    *vars(pl.LightningModule()),
    *vars(pl.LightningDataModule()),
}


class StateOutside(Callback):
    """Saves and restores torch's generators that module, datamodule or loaders hold; names what stays outside.

    Not covered are objects in processes of data loaders, and callbacks, which have a
    ``state_dict``.
    """

    stackable = True

    def __init__(self) -> None:
        self._loaded: Mapping[str, Any] | None = None  # until a resumed training starts

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Add the states of generators, and digests of all other values, by path."""
        reset = _reset_by_lightning(trainer)
        found = {
            path: value for path, value in _walked(trainer, pl_module) if id(value) not in reset
        }
        generators = {
            path: v.get_state() for path, v in found.items() if isinstance(v, torch.Generator)
        }
        digests = {path: _digest(value) for path, value in found.items() if path not in generators}
        checkpoint[OUTSIDE] = {"generators": generators, "digests": digests}

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: Mapping[str, Any]
    ) -> None:
        """Keep what was added until the loaders exist."""
        self._loaded = checkpoint.get(OUTSIDE)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Restore the generators, before the batches of an epoch are drawn; name what differs."""
        if self._loaded is None:
            return
        generators, digests = self._loaded["generators"], self._loaded["digests"]
        self._loaded = None

        # Restore the generators
        now = dict(_walked(trainer, pl_module))
        lost = [path for path in generators if not isinstance(now.get(path), torch.Generator)]
        for path in generators.keys() - {*lost}:
            now[path].set_state(generators[path].cpu())

        # Name what differs
        lost += [
            path for path in digests if path not in now and path.startswith(("model.", "data."))
        ]
        lost += [path for path in digests if path in now and _digest(now[path]) != digests[path]]
        if lost and trainer.is_global_zero:
            names = ", ".join(lost[:MOST_NAMED]) + (" and others" if len(lost) > MOST_NAMED else "")
            print(
                f"note: the checkpoint does not hold {names}: numbers may differ from those of a training "
                "without a stop. Save such state by state_dict or register_buffer",
                flush=True,
            )


def _walked(trainer: pl.Trainer, module: pl.LightningModule) -> Iterator[tuple[str, Any]]:
    """Yield each generator, metric and plain value once, with its path: ``data.order``."""
    roots = {
        "model": module,
        "data": trainer.datamodule,  # type: ignore[attr-defined]
        "train_dataloader": trainer.train_dataloader,
        "val_dataloaders": trainer.val_dataloaders,
    }
    waiting: list[tuple[str, Any]] = list(reversed(roots.items()))
    seen = dict[int, Any]()  # the objects, which keep their ids
    while waiting and len(seen) < MOST_OBJECTS:
        path, value = waiting.pop()
        if _is_leaf(value):
            if isinstance(value, _PLAIN) or id(value) not in seen:
                yield path, value
            seen[id(value)] = value
        elif id(value) not in seen:
            seen[id(value)] = value
            waiting += [(f"{path}.{name}", part) for name, part in reversed([*_parts(value)])]


def _is_leaf(value: Any) -> bool:
    if isinstance(value, list | tuple | deque):
        return len(value) > MOST_ITEMS or all(isinstance(item, _PLAIN) for item in value)
    if isinstance(value, Tensor):
        return value.numel() <= MOST_ITEMS
    return isinstance(value, _PLAIN | _GENERATORS | torch.Generator | Metric)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what an object holds by name, without what Lightning's checkpoints hold."""
    if isinstance(value, Mapping):
        yield from ((str(name), part) for name, part in [*value.items()][:MOST_ITEMS])
    elif isinstance(value, list | tuple | deque):
        yield from ((str(number), part) for number, part in enumerate(value))
    elif isinstance(value, nn.Module):
        yield from value.named_children()
    package = type(value).__module__.partition(".")[0]
    if package not in _NOT_WALKED or isinstance(value, _WALKED):
        own = getattr(value, "__dict__", {})
        of_lightning = {*_OF_LIGHTNING, "epoch"} if hasattr(value, "set_epoch") else _OF_LIGHTNING
        names = [name for name in own if name not in of_lightning and not name.startswith("__pl_")]
        yield from ((name, own[name]) for name in names)


def _reset_by_lightning(trainer: pl.Trainer) -> set[int]:
    """Return the ids of metrics that were logged as objects, which Lightning resets after each epoch."""
    loop: Any = trainer.fit_loop.epoch_loop
    results = [*loop._results.values(), *loop.val_loop._results.values()]
    return {id(result.value) for result in results if not result.is_tensor}


def _digest(value: Any) -> str:
    if isinstance(value, _GENERATORS):
        content = pickle.dumps(value)
    elif isinstance(value, Metric):
        kept = value.state_dict()
        states = {name: state for name, state in value.metric_state.items() if name not in kept}
        content = repr(states).encode()
    elif isinstance(value, Tensor):
        content = repr(value.tolist()).encode()
    elif isinstance(value, list | tuple | deque) and len(value) > MOST_ITEMS:
        content = str(len(value)).encode()
    else:
        content = repr(value).encode()
    return hashlib.blake2b(content, digest_size=8).hexdigest()
