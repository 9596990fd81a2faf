"""Dotted config keys, and comparison and display of grid values."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from actlab.errors import ActlabError
from actlab.storage.files import at_home, resolved
from actlab.storage.mappings import read_word

SPEC = ("class_path", "init_args", "dict_kwargs")  # no arguments are allowed next to these keys
OBJECT = {"class_path", "init_args"}  # a mapping with one of these keys is built into an object
PARAMETERS = "activation/"  # start of the names of activations' learnt parameters, which are metrics of a layer
LEARNT: Final = "learnt_activation"  # the curve that these parameters give
INITIAL: Final = "initial_activation"
_OF_LAYER = re.compile(rf"({PARAMETERS}.+)\[(layer=\d+)\]")
# Keys that may hold the import path of a class in place of a mapping with ``class_path``.
CLASSES = {
    *("model", "data", "model.network", "model.optimizer", "model.scheduler"),
    *("trainer.callbacks", "trainer.logger", "trainer.plugins", "trainer.profiler", "trainer.strategy"),
}
# Arguments that in all of actlab's classes and the Trainer take text and no numbers or booleans: words of the
# command line stay text there, and no class is imported. A test compares the names with the signatures.
TEXT_ARGUMENTS = {
    *("accelerator", "activation", "block", "by", "cache_dir", "ckpt_path", "column", "dataset"),
    *("default_root_dir", "flip", "gradient_clip_algorithm", "head", "image", "label", "max_time"),
    *("metric", "mode", "model_registry", "name", "profiler", "revision", "scheduler_interval"),
    *("setting", "strategy", "test_set", "test_split", "train_split", "val_split", "variant", "vectors"),
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
_UNIT_OF = re.compile(r"(?:.*\.py|[^\W\d][\w.]*):([^\W\d][\w.]*)")  # file.py:Unit, package.module:Name


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
    """Reject keys that a later key would overwrite.

    The keys of the grid are set after the settings, in order. A later key may contain an earlier one.

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
    found = f"{module}.{name}"
    return found if colon and all(part.isidentifier() for part in found.split(".")) else None


def with_import_paths(value: Any, key: str = "") -> Any:
    """Return nested values with the import path of each class that is named as an activation is.

    A class is named at ``class_path`` and, without arguments, at the keys in `CLASSES`. Identities and records
    of runs therefore do not depend on the spelling. Ambiguous bare names get the path in `_BARE`. ``key`` is
    the dotted config key of the value; empty for a config.

    >>> with_import_paths({"class_path": "nets.mine:Net", "init_args": {"activation": "torch.nn:ELU"}})
    {'class_path': 'nets.mine.Net', 'init_args': {'activation': 'torch.nn:ELU'}}
    >>> with_import_paths({"model.network": "./mine.py:Net"})
    {'model.network': 'mine.Net'}
    """
    if isinstance(value, Mapping):
        keys = {name: key if name == "init_args" else f"{key}.{name}".removeprefix(".") for name in value}
        return {name: with_import_paths(inner, keys[name]) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [with_import_paths(inner, key) for inner in value]
    if isinstance(value, str) and (bare := _BARE.get((key.removesuffix(".class_path"), value))):
        return bare
    if not isinstance(value, str) or (short(key) != "class_path" and key.rstrip("+") not in CLASSES):
        return value
    if (found := import_path(value)) is None and value.rpartition(":")[0].endswith(".py"):
        raise ActlabError(
            f"{key} {value!r}: the file of a class is imported, so it must be in the current folder or below "
            "it, with a name of letters, digits and _"
        )
    return found or value


def label(value: Any) -> str:
    """Format a grid value for display: ``elu(alpha=0.5)``, ``MyActivation``, ``0.001``.

    >>> label({"name": "elu", "alpha": 0.5})
    'elu(alpha=0.5)'
    """
    if isinstance(value, dict) and "name" in value:
        parameters = ", ".join(f"{k}={label(v)}" for k, v in value.items() if k != "name")
        return f"{label(value['name'])}({parameters})" if parameters else label(value["name"])
    if isinstance(value, dict) and "class_path" in value:
        return label({"name": str(value["class_path"]).rpartition(".")[2], **_arguments(value)})
    if isinstance(value, str):
        return found[1] if (found := _UNIT_OF.fullmatch(value)) else value
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:g}" if plain and abs(value) < 1e6 else str(value)


def _arguments(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``init_args`` of a class specification; empty if malformed, since values may be unchecked."""
    found = value.get("init_args")
    return {str(key): inner for key, inner in found.items()} if isinstance(found, Mapping) else {}


def in_full(value: Any) -> str:
    """Format a grid value unambiguously: unlike `label`, with an activation's path and every digit.

    >>> in_full("./mine.py:relu"), in_full({"name": "elu", "alpha": 2.0}), in_full(1 / 3)
    ('./mine.py:relu', 'elu(alpha=2)', '0.3333333333333333')
    """
    if isinstance(value, Mapping) and "class_path" in value:
        return in_full({"name": value["class_path"], **_arguments(value)})
    if isinstance(value, Mapping) and "name" in value:
        parameters = ", ".join(f"{k}={in_full(v)}" for k, v in value.items() if k != "name")
        return f"{value['name']}({parameters})" if parameters else str(value["name"])
    return label(value) if isinstance(value, float) and float(label(value)) == value else str(value)


def is_parameter(metric: str) -> bool:
    """Return whether a metric is a learnt parameter of activations, such as ``activation/beta``."""
    return metric.startswith(PARAMETERS)


def logged(metric: str, condition: str) -> str:
    """Return the name of a metric with its condition, in loggers and files.

    >>> logged("activation/beta", "layer=3"), logged("val/loss", "")
    ('activation/beta[layer=3]', 'val/loss')
    """
    return f"{metric}[{condition}]" if condition else metric


def metric_and_condition(name: str) -> tuple[str, str]:
    """Return metric and condition of a logged name; only learnt parameters have a condition.

    >>> metric_and_condition("activation/beta[layer=3]"), metric_and_condition("val/top[k=5]")
    (('activation/beta', 'layer=3'), ('val/top[k=5]', ''))
    """
    found = _OF_LAYER.fullmatch(name)
    return (found[1], found[2]) if found else (name, "")


def same(one: Any, other: Any) -> bool:
    """Return whether two grid values are equal by type and value; see `value_key`.

    >>> same(1, 1.0), same("0.50", 0.5), same("1.10", "1.1"), same("relu", "./mine.py:relu")
    (True, False, False, False)
    """
    return value_key(one) == value_key(other)


def value_key(value: Any) -> str:
    """Return a text that is the same for equal grid values: an integer equals its float, text only itself.

    Activations are equal if name and arguments are, however they and the path of their file are written.
    """
    return canonical(located(plain_unit(value)))


def named(text: Any, values: Iterable[Any]) -> Any:
    """Return the grid value that a text in a study file or a command names.

    A text names the value that is equal, else the first one with this text as its `in_full` text, else the
    first one that YAML reads in it. Any other value, and a text that names none, is returned unchanged.

    >>> named("elu(alpha=2)", ["relu", {"name": "elu", "alpha": 2}]), named("0.50", [0.0, 0.5]), named("a", [1])
    ({'name': 'elu', 'alpha': 2}, 0.5, 'a')
    """
    listed = [*values]
    if not isinstance(text, str) or any(same(text, value) for value in listed):
        return text
    full, read = located(text), read_word(text, lambda: False)
    alike = [value for value in listed if in_full(located(value)) == full]
    return next(iter([*alike, *(value for value in listed if same(value, read))]), text)


def plain_unit(value: Any) -> Any:
    """Return the name of an activation if the value is ``{name: …}`` without parameters, else the value.

    >>> plain_unit({"name": "elu"}), plain_unit({"name": "elu", "alpha": 2})
    ('elu', {'name': 'elu', 'alpha': 2})
    """
    alone = isinstance(value, Mapping) and [*value] == ["name"] and isinstance(value["name"], str)
    return value["name"] if alone else value


def is_imported(value: Any) -> bool:
    """Return whether an activation is given by ``file.py:Name`` or a class path, not by a registered name.

    >>> [is_imported(value) for value in ("gelu", "./mine.py:Mine", {"name": "torch.nn:ELU", "alpha": 2.0})]
    [False, True, True]
    """
    name = value.get("name") if isinstance(value, Mapping) else value
    by_class = isinstance(value, Mapping) and "class_path" in value
    return by_class or (isinstance(name, str) and _UNIT_OF.fullmatch(name) is not None)


def located(value: Any) -> Any:
    """Make the paths of ``file.py:Name`` absolute, also in nested values."""

    def absolute(leaf: Any) -> Any:
        file, colon, unit = leaf.rpartition(":") if isinstance(leaf, str) else ("", "", "")
        return f"{resolved(file)}{colon}{unit}" if file.endswith(".py") else leaf

    return mapped(value, absolute)


def as_list(value: Any) -> list[Any]:
    """Return a list unchanged, and any other value as a list with one element."""
    return list(value) if isinstance(value, list | tuple) else [value]


def as_number(value: Any) -> Any:
    """Return the float that equals an integer or a float; any other value, text too, unchanged.

    An integer that no float equals stays an integer.

    >>> as_number(3), as_number(-0.0), as_number("1e-3"), as_number(True), as_number(2**53 + 1)
    (3.0, 0.0, '1e-3', True, 9007199254740993)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    try:
        number = float(value)
    except OverflowError:
        return value
    return number + 0.0 if number == value or number != number else value


def priced(tuned: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tuned values that may affect the cost of an update: all but learning rates.

    >>> priced({"model.optimizer.lr": 0.1, "model.network.dropout": 0.5})
    {'model.network.dropout': 0.5}
    """
    return {key: value for key, value in tuned.items() if short(key) != "lr"}


def canonical(values: Any) -> str:
    """Return a text that is the same for equal grid values, including nested ones, in any order of keys.

    >>> canonical({"b": 0, "a": {"name": "elu"}}) == canonical({"a": {"name": "elu"}, "b": 0.0})
    True
    """
    return json.dumps(mapped(values, as_number), sort_keys=True, default=str)


def mapped(values: Any, change: Callable[[Any], Any]) -> Any:
    """Return nested mappings and lists with ``change`` applied to every other value in them."""
    if isinstance(values, Mapping):
        return {str(key): mapped(inner, change) for key, inner in values.items()}
    return [mapped(inner, change) for inner in values] if isinstance(values, list | tuple) else change(values)


def shareable(values: Any) -> Any:
    """Return nested values as plain ones for other people: of a path that is absolute only the last part."""

    def shown(value: Any) -> Any:
        if isinstance(value, bool | int | float | None):
            return value
        if hasattr(value, "__dict__") and not callable(value):
            return shareable(vars(value))
        return Path(str(value)).name if at_home(str(value)).is_absolute() else str(value)

    return mapped(values, shown)


def without(point: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """Return a grid point without the given keys.

    >>> without({"model.activation": "elu", "model.optimizer.lr": 0.1}, ["model.optimizer.lr"])
    {'model.activation': 'elu'}
    """
    return {key: value for key, value in point.items() if key not in keys}
