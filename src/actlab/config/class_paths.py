"""Class paths: how a config names classes, and what it means by a bare name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from actlab.config.paths import short
from actlab.errors import ActlabError
from actlab.storage.paths import resolved

# Keys that may hold the import path of a class in place of a mapping with
# ``class_path``.
CLASSES = {
    "model",
    "data",
    "model.network",
    "model.optimizer",
    "model.scheduler",
    "trainer.callbacks",
    "trainer.logger",
    "trainer.plugins",
    "trainer.profiler",
    "trainer.strategy",
}
# Bare names that several installed classes may have, where ours or Lightning's is
# meant: torchvision has an MLP, too. A test compares the networks with
# `actlab.networks`.
NETWORKS = (
    "Autoencoder",
    "ConvNet",
    "ConvStacks",
    "CoordinateMLP",
    "GPT",
    "MLP",
    "PyramidNet",
    "ResNet",
    "ResidualMLP",
    "WideResNet",
)
_PLATEAU = "pytorch_lightning.cli.ReduceLROnPlateau"
_BARE = {
    **{("model.network", name): f"actlab.networks.{name}" for name in NETWORKS},
    **{
        (key, "ReduceLROnPlateau"): _PLATEAU
        for key in ("model.scheduler", "lr_scheduler")
    },
}


def class_of(value: Any) -> Any:
    """Return the class path in a section of a config: an entry, or the value itself."""
    if isinstance(value, Mapping):
        return value.get("class_path")
    return value


def import_path(text: str) -> str | None:
    """Return the import path of a class that is named as an activation is.

    It is None for any other text.

    >>> import_path("./nets/mine.py:Net"), import_path("nets.mine:Net"), import_path("cuda:0")
    ('nets.mine.Net', 'nets.mine.Net', None)
    """
    source, colon, name = text.rpartition(":")
    module = source
    if source.endswith(".py"):
        # Relative to the current folder, from which classes are imported
        file = Path(os.path.relpath(resolved(source)))
        module = ".".join(file.with_suffix("").parts)
    dotted = f"{module}.{name}"
    if not colon or not all(map(str.isidentifier, dotted.split("."))):
        return None
    return dotted


def with_import_paths(value: Any, key: str = "") -> Any:
    """Return nested values with the import path of each class that is named as an activation is.

    A class is named at ``class_path`` and, without arguments, at the keys in `CLASSES`; ``key`` is
    the dotted config key of the value. Identities and records of runs therefore do not depend on
    the spelling.

    >>> with_import_paths({"class_path": "nets.mine:Net", "init_args": {"activation": "nn:ELU"}})
    {'class_path': 'nets.mine.Net', 'init_args': {'activation': 'nn:ELU'}}
    >>> with_import_paths({"model.network": "./mine.py:Net"})
    {'model.network': 'mine.Net'}
    """
    # Nested values
    if isinstance(value, Mapping):
        changed = {}
        for name, inner in value.items():
            if isinstance(inner, str | Mapping | list | tuple):
                # ``init_args`` is not a part of dotted keys
                inner_key = key
                if name != "init_args":
                    inner_key = f"{key}.{name}".removeprefix(".")
                inner = with_import_paths(inner, inner_key)
            changed[name] = inner
        return changed
    if isinstance(value, list | tuple):
        return [with_import_paths(inner, key) for inner in value]
    if not isinstance(value, str):
        return value

    # A bare name
    bare = _BARE.get((key.removesuffix(".class_path"), value))
    if bare is not None:
        return bare

    # A class, named as an activation is
    if short(key) != "class_path" and key.rstrip("+") not in CLASSES:
        return value

    # A file outside the current folder has no import path
    dotted = import_path(value)
    if dotted is None and value.rpartition(":")[0].endswith(".py"):
        raise ActlabError(
            f"{key}: expected a file in or below the current folder, named with letters, digits "
            f"and _, got {value!r}. Move or rename the file."
        )
    return dotted or value
