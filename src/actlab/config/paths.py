"""Dotted keys: paths to the values of a config, such as ``model.optimizer.lr``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from actlab.errors import ActlabError
from actlab.errors.messages import short_repr

# No arguments are allowed next to these keys.
SPEC = (
    "class_path",
    "init_args",
    "dict_kwargs",
)
# The activation of a task; other keys of activations end in its last part.
ACTIVATION = "model.activation"
# A mapping with one of these keys is built into an object.
OBJECT = {
    "class_path",
    "init_args",
}


def set_dotted(config: dict[str, Any], key: str, value: Any) -> None:
    """Set ``a.b.c`` in nested values, in place.

    The key may omit ``init_args`` below a ``class_path``.

    >>> config = {"model": {"class_path": "pkg.Task", "init_args": {}}}
    >>> set_dotted(config, "model.lr", 0.1)
    >>> config["model"]["init_args"]
    {'lr': 0.1}
    """
    *path, last = key.split(".")
    node = config
    for part in path:
        # Mappings on the way are created
        node = writable(node, part).setdefault(part, {})
        if not isinstance(node, dict):
            raise ActlabError(
                f"{key}: expected a mapping at {part!r}, got {short_repr(node)}."
            )

    writable(node, last)[last] = value


def get_dotted(config: Mapping[str, Any], key: str, default: Any = None) -> Any:
    """Return the value at ``a.b.c``, or ``default``."""
    node: Any = config
    for part in key.split("."):
        if not isinstance(node, dict):
            return default
        values = inside(node, part)
        if part not in values:
            return default
        node = values[part]
    return node


def inside(node: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the mapping to which a key belongs: the node, or the arguments of its class.

    Absent arguments are an empty mapping, which is not part of the node.
    """
    # Keys next to ``class_path``, or a plain mapping
    if key in SPEC or not OBJECT & node.keys():
        return node
    arguments = node.get("init_args")
    if arguments is None:
        return {}
    if not isinstance(arguments, dict):
        path = node.get("class_path")
        raise ActlabError(
            f"init_args of {path!r}: expected a mapping, got {short_repr(arguments)}."
        )
    return arguments


def writable(node: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the mapping to which a key belongs; the absent arguments of a class are created."""
    if key not in SPEC and OBJECT & node.keys() and node.get("init_args") is None:
        node["init_args"] = {}
    return inside(node, key)


def short(key: str) -> str:
    """Return the last part of a dotted key, as shown in tables and run ids."""
    return key.rpartition(".")[2]


def is_activation(key: str) -> bool:
    """Return whether the values of a dotted key are activations."""
    return short(key) == short(ACTIVATION)


def differences(
    first: Any, second: Any, key: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the differences of nested values: dotted key without ``init_args``, and both values.

    >>> [*differences({"lr": 0.1, "net": {"init_args": {"width": 1}}}, {"lr": 0.1, "net": {}})]
    [('net', {'width': 1}, 'nothing')]
    """
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        for name in dict.fromkeys([*first, *second]):  # a class before its arguments
            inner_key = key
            if name not in OBJECT:
                inner_key = f"{key}.{name}".removeprefix(".")
            values = first.get(name, "nothing"), second.get(name, "nothing")
            yield from differences(*values, inner_key)
    elif first != second:
        yield key, first, second
