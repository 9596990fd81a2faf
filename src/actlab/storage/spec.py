"""An activation as a value: its spelling is parsed once, where it is read."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from actlab.errors import ActlabError
from actlab.errors.messages import short_repr
from actlab.storage.paths import resolved


@dataclass(frozen=True)
class Spec:
    """An activation, before anything of it is imported.

    Attributes:
        source: file or module of an importable activation; empty for a registered name.
        name: registry key, or name in ``source``, with dots for an attribute of an attribute.
        params: keyword arguments, by name.
    """

    source: str
    name: str
    params: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, value: Activation) -> Spec:
        """Parse any spelling of an activation.

        Raises:
            ActlabError: the value is neither a name nor a mapping with a name, or it is a class or
                function without an import path.

        >>> Spec.of("torch.nn.Mish")
        Spec(source='torch.nn', name='Mish', params={})
        >>> Spec.of({"name": "elu", "alpha": 0.5})
        Spec(source='', name='elu', params={'alpha': 0.5})
        >>> Spec.of({"class_path": "torch.nn.ELU", "init_args": {"alpha": 0.5}}).plain
        {'name': 'torch.nn:ELU', 'alpha': 0.5}
        """
        if isinstance(value, Spec):
            return value
        # The name and the arguments
        if isinstance(value, Mapping):
            params = dict(value)
        else:
            params = {"name": value}
        # The form of classes in configs
        if {"class_path"} <= params.keys() <= {"class_path", "init_args"}:
            arguments = params.get("init_args") or {}
            if isinstance(arguments, Mapping):
                params = {**arguments, "name": params["class_path"]}
        path = params.pop("name", None)

        # A class, a function or a built layer
        if not isinstance(path, str) and (
            _is_code(path) or hasattr(type(path), "forward")
        ):
            # In a script
            return cls(*_import_path(path), params)
        if not isinstance(path, str) or not all(isinstance(key, str) for key in params):
            raise ActlabError(
                "activation: expected a name or a mapping with a name, such as {name: elu}, got "
                f"{short_repr(value)}"
            )

        # A file or module in front of the name
        source, _, name = path.rpartition(":")
        is_file = bool(source) or path.endswith(".py")
        if not is_file and all(map(str.isidentifier, path.split("."))):
            source, _, name = path.rpartition(".")
        return cls(source, name if source else path, params)

    @property
    def path(self) -> str:
        """The name without parameters: ``elu``, ``torch.nn:ELU``, ``./file.py:Name``."""
        if not self.source:
            return self.name
        return f"{self.source}:{self.name}"

    @property
    def plain(self) -> str | dict[str, Any]:
        """The spelling in files: only the path, or a mapping of ``name`` and parameters."""
        if not self.params:
            return self.path
        return {"name": self.path, **self.params}

    def with_params(self, params: Mapping[str, Any]) -> Spec:
        """Return the activation with further parameters, which override its own."""
        return Spec(self.source, self.name, {**self.params, **params})

    def located(self) -> Spec:
        """Return the activation with an absolute path of its file, valid in any folder."""
        if not self.source.endswith(".py"):
            return self
        # Workers may have another current folder
        return Spec(str(resolved(self.source)), self.name, self.params)


Activation = Spec | str | Mapping[str, Any] | Callable[..., Any]
"""``elu``, ``{name: elu, alpha: 0.5}``, or an importable name.

An importable name is ``pkg.mod:Name`` or ``./file.py:Name``.
In a script also the class or function itself, which is defined at the top level of a module. A
dotted path ``pkg.mod.Name`` and ``{class_path: pkg.mod.Name, init_args: …}`` have the same meaning.
"""


def _is_code(target: Any) -> bool:
    return isinstance(target, type) or inspect.isroutine(target)


def _import_path(target: Any) -> tuple[str, str]:
    """Return the module and the name of a class or function."""
    # Only classes and functions have an import path
    if not _is_code(target):
        source, name = _import_path(type(target))
        raise ActlabError(
            f"activation: expected a class or a name, got {short_repr(target)}, a built module, "
            f"which layers cannot share. Use its class, or {{name: {source}:{name}, …}} with its "
            "arguments."
        )

    # Functions of torch written in C do not name a module that has them
    module = getattr(target, "__module__", None) or "torch"
    name = getattr(target, "__qualname__", "")
    # The name must lead to this very object, or another process would find another one
    for source, attribute in ((module, name), ("torch", target.__name__)):
        with suppress(AttributeError):
            if reduce(getattr, attribute.split("."), sys.modules.get(source)) is target:
                return source, attribute
    raise ActlabError(
        f"the activation {name} has no import path. Define it at the top level of a module, or "
        "register it with actlab.register and use its name."
    )
