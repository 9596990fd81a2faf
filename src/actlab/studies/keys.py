"""Dotted config keys and how values are written for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from actlab.errors import ActlabError


def set_dotted(config: dict[str, Any], key: str, value: Any) -> None:
    """Set ``a.b.c`` in nested values, in place; ``init_args`` may be left out below a ``class_path``.

    >>> config = {"model": {"class_path": "pkg.Task", "init_args": {}}}
    >>> set_dotted(config, "model.lr", 0.1)
    >>> config["model"]["init_args"]
    {'lr': 0.1}
    """
    *path, last = key.split(".")
    node = config
    for part in path:
        node = _inside(node, part).setdefault(part, {})
        if not isinstance(node, dict):
            raise ActlabError(f"config key {key!r}: {part!r} holds the value {node!r}, not further keys")
    _inside(node, last)[last] = value


def get_dotted(config: Mapping[str, Any], key: str, default: Any = None) -> Any:
    """The value at ``a.b.c``, or ``default``."""
    node: Any = config
    for part in key.split("."):
        if not isinstance(node, dict) or part not in _inside(node, part):
            return default
        node = _inside(node, part)[part]
    return node


def _inside(node: dict[str, Any], key: str) -> dict[str, Any]:
    """Where ``key`` belongs: with the arguments of a ``class_path``, or in the node itself."""
    own = "class_path" not in node or key in ("class_path", "init_args")
    arguments: dict[str, Any] = node if own else node.setdefault("init_args", {})
    return arguments


def short(key: str) -> str:
    """The last part of a dotted key, as tables and run ids show it."""
    return key.rpartition(".")[2]


def label(value: Any) -> str:
    """A grid value for people: ``elu(alpha=0.5)``, ``MyUnit``, ``0.001``.

    >>> label({"name": "elu", "alpha": 0.5})
    'elu(alpha=0.5)'
    """
    if isinstance(value, dict) and "name" in value:
        parameters = ", ".join(f"{k}={label(v)}" for k, v in value.items() if k != "name")
        return f"{label(value['name'])}({parameters})" if parameters else label(value["name"])
    if isinstance(value, dict) and "class_path" in value:
        arguments = value.get("init_args") or {}
        return label({"name": str(value["class_path"]).rpartition(".")[2], **arguments})
    if isinstance(value, str):
        return value.rpartition(":")[2] or value
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:g}" if plain and abs(value) < 1e6 else str(value)


def yaml_value(text: str) -> Any:
    """A value as YAML reads it, with ``1e-3`` a number."""
    value = yaml.safe_load(text)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return [yaml_value(v) if isinstance(v, str) else v for v in value] if isinstance(value, list) else value


def as_list(value: Any) -> list[Any]:
    """A list as it is, a single value as a list of one."""
    return list(value) if isinstance(value, list | tuple) else [value]


def identity(values: Any) -> str:
    """A text that is the same for equal grid values, nested ones too, in any order of their keys.

    >>> identity({"b": 1, "a": {"name": "elu"}}) == identity({"a": {"name": "elu"}, "b": 1})
    True
    """
    return json.dumps(values, sort_keys=True, default=str)
