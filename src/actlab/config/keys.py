"""Dotted config keys, the classes that are named there, and values grouped by key."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from actlab.errors import ActlabError
from actlab.storage.files import resolved

K = TypeVar("K")
V = TypeVar("V")

SPEC = ("class_path", "init_args", "dict_kwargs")  # no arguments are allowed next to these keys
ACTIVATION = "model.activation"  # of a task; other keys of activations end in its last part
OBJECT = {"class_path", "init_args"}  # a mapping with one of these keys is built into an object
# Keys that may hold the import path of a class in place of a mapping with ``class_path``.
CLASSES = {
    *("model", "data", "model.network", "model.optimizer", "model.scheduler"),
    *("trainer.callbacks", "trainer.logger", "trainer.plugins", "trainer.profiler", "trainer.strategy"),
}
# Arguments that in all of actlab's classes and the Trainer take text and no numbers or booleans: words of the
# command line stay text there, and no class is imported. A test compares the names with the signatures.
TEXT_ARGUMENTS = {
    *("accelerator", "activation", "block", "by", "cache_dir", "ckpt_path", "column", "dataset"),
    *("default_root_dir", "fit", "flip", "gradient_clip_algorithm", "head", "image", "label"),
    *("max_time", "metric", "mode", "model_registry", "name", "profiler"),
    *("revision", "scheduler_interval", "setting", "strategy", "test_set", "test_split"),
    *("train_split", "val_split", "variant", "vectors"),
}
# Bare names that several installed classes may have, where ours or Lightning's is meant: torchvision has an MLP
# too. A test compares the networks with `actlab.networks`.
NETWORKS = (
    *("Autoencoder", "ConvNet", "ConvStacks", "CoordinateMLP", "GPT", "MLP", "PyramidNet", "ResNet"),
    "WideResNet",
)
_PLATEAU = "pytorch_lightning.cli.ReduceLROnPlateau"
_BARE = {
    **{("model.network", name): f"actlab.networks.{name}" for name in NETWORKS},
    **{(key, "ReduceLROnPlateau"): _PLATEAU for key in ("model.scheduler", "lr_scheduler")},
}


def set_dotted(config: dict[str, Any], key: str, value: Any) -> None:
    """Set ``a.b.c`` in nested values, in place; ``init_args`` may be omitted below a ``class_path``.

    >>> config = {"model": {"class_path": "pkg.Task", "init_args": {}}}
    >>> set_dotted(config, "model.lr", 0.1)
    >>> config["model"]["init_args"]
    {'lr': 0.1}
    """
    *path, last = key.split(".")
    node = config
    for part in path:
        node = inside(node, part).setdefault(part, {})
        if not isinstance(node, dict):
            raise ActlabError(f"config key {key!r}: {part!r} holds the value {node!r}, not a mapping")
    inside(node, last)[last] = value


def get_dotted(config: Mapping[str, Any], key: str, default: Any = None) -> Any:
    """Return the value at ``a.b.c``, or ``default``."""
    node: Any = config
    for part in key.split("."):
        if not isinstance(node, dict) or part not in inside(node, part):
            return default
        node = inside(node, part)[part]
    return node


def inside(node: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the mapping to which a key belongs: the node, or its arguments of a class, created if absent."""
    if key in SPEC or not OBJECT & node.keys():
        return node
    arguments = node.get("init_args")
    if arguments is None:
        arguments = node["init_args"] = {}
    if not isinstance(arguments, dict):
        raise ActlabError(f"init_args of {node.get('class_path')!r}: give a mapping, not {arguments!r}")
    return arguments


def check_order(settings: Iterable[str], grid: Iterable[str]) -> None:
    """Reject keys that a later key would overwrite; those of the grid are set after the settings, in order.

    >>> check_order(["model.optimizer"], ["model.optimizer.lr"])
    """
    before: list[str] = []
    for wider, of_grid in [*((key, False) for key in settings), *((key, True) for key in grid)]:
        if _parts(wider) == ["seed_everything"]:
            raise ActlabError(f"{wider} is set by a study for each of its runs: give 'seeds'")
        for key in before if of_grid else ():
            if key != wider and _parts(key)[: len(_parts(wider))] == _parts(wider):
                raise ActlabError(
                    f"{key} would be lost, as {wider} is set after it and contains it: give {wider} first, or "
                    f"{key} within the values of {wider}"
                )
        before.append(wider)


def _parts(key: str) -> list[str]:
    return [part for part in key.split(".") if part != "init_args"]


def short(key: str) -> str:
    """Return the last part of a dotted key, as shown in tables and run ids."""
    return key.rpartition(".")[2]


def is_activation(key: str) -> bool:
    """Return whether the values of a dotted key are activations."""
    return short(key) == short(ACTIVATION)


def class_of(value: Any) -> Any:
    """Return the class path in a section of a config: an entry of a mapping, or the value itself."""
    return value.get("class_path") if isinstance(value, Mapping) else value


def import_path(text: str) -> str | None:
    """Return the import path of a class that is named as an activation is; None for any other text.

    >>> import_path("./nets/mine.py:Net"), import_path("nets.mine:Net"), import_path("cuda:0")
    ('nets.mine.Net', 'nets.mine.Net', None)
    """
    source, colon, name = text.rpartition(":")
    module = source
    if source.endswith(".py"):
        file = Path(os.path.relpath(resolved(source)))
        module = ".".join(file.with_suffix("").parts)
    dotted = f"{module}.{name}"
    return dotted if colon and all(map(str.isidentifier, dotted.split("."))) else None


def differences(first: Any, second: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield where nested values differ: the dotted key without ``init_args``, and both values.

    >>> [*differences({"lr": 0.1, "net": {"init_args": {"width": 1}}}, {"lr": 0.1, "net": {}})]
    [('net', {'width': 1}, 'nothing')]
    """
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        for name in dict.fromkeys([*first, *second]):  # a class before its arguments
            below = key if name in ("class_path", "init_args") else f"{key}.{name}".removeprefix(".")
            yield from differences(first.get(name, "nothing"), second.get(name, "nothing"), below)
    elif first != second:
        yield key, first, second


def with_import_paths(value: Any, key: str = "") -> Any:
    """Return nested values with the import path of each class that is named as an activation is.

    A class is named at ``class_path`` and, without arguments, at the keys in `CLASSES`; ``key`` is the dotted
    config key of the value. Identities and records of runs therefore do not depend on the spelling.

    >>> with_import_paths({"class_path": "nets.mine:Net", "init_args": {"activation": "torch.nn:ELU"}})
    {'class_path': 'nets.mine.Net', 'init_args': {'activation': 'torch.nn:ELU'}}
    >>> with_import_paths({"model.network": "./mine.py:Net"})
    {'model.network': 'mine.Net'}
    """
    if isinstance(value, Mapping):
        named = {}
        for name, inner in value.items():
            below = key if name == "init_args" else f"{key}.{name}".removeprefix(".")
            named[name] = with_import_paths(inner, below)
        return named
    if isinstance(value, list | tuple):
        return [with_import_paths(inner, key) for inner in value]
    if isinstance(value, str) and (bare := _BARE.get((key.removesuffix(".class_path"), value))):
        return bare
    if not isinstance(value, str) or (short(key) != "class_path" and key.rstrip("+") not in CLASSES):
        return value
    if (dotted := import_path(value)) is None and value.rpartition(":")[0].endswith(".py"):
        raise ActlabError(
            f"{key} {value!r}: the file of a class is imported, so it must be in the current folder or below "
            "it, with a name of letters, digits and _"
        )
    return dotted or value


def by_key(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of pairs by their key, both in the order in which they come.

    >>> by_key([("a", 1), ("b", 2), ("a", 3)])
    {'a': [1, 3], 'b': [2]}
    """
    values: dict[K, list[V]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return values
