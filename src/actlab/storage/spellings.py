"""One spelling for the value of an activation, and for the path of its file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from actlab.storage.files import resolved


def activation_spec(value: Any) -> Any:
    """Return the value of an activation in one spelling: a name, or ``{name: …}`` with parameters.

    A class of a module has the name ``package.module:Name``. Any other value is returned unchanged.

    >>> activation_spec("torch.nn.Mish"), activation_spec({"name": "elu"}), activation_spec("./file.py:Name")
    ('torch.nn:Mish', 'elu', './file.py:Name')
    >>> activation_spec({"class_path": "torch.nn.ELU", "init_args": {"alpha": 0.5}})
    {'name': 'torch.nn:ELU', 'alpha': 0.5}
    """
    if isinstance(value, str):
        module, _, name = value.rpartition(".")
        dotted = module and all(part.isidentifier() for part in value.split(".")) and name != "py"
        return f"{module}:{name}" if dotted else value
    if not isinstance(value, Mapping):
        return value
    if "class_path" in value and not value.keys() - {"class_path", "init_args"}:
        arguments = value.get("init_args") or {}
        value = {"name": value["class_path"], **arguments} if isinstance(arguments, Mapping) else value
    if not isinstance(value.get("name"), str):
        return value
    spec = {**value, "name": activation_spec(value["name"])}
    return spec["name"] if len(spec) == 1 else spec


def absolute(value: Any) -> Any:
    """Return ``file.py:Name`` with an absolute path, valid in any folder; any other value unchanged."""
    file, colon, name = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    return f"{resolved(file)}{colon}{name}" if file.endswith(".py") else value
