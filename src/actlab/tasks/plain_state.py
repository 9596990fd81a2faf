"""What a user's module holds outside parameters and buffers, kept with the weights.

A unit may count its calls, remember a tensor in a plain attribute or in a buffer that is not persistent, or
draw from a generator of its own. Torch's state dicts leave all of this out, so a run that goes on from a
checkpoint would go on with another unit. Here it enters the state dict under `KEY`, where it has changed.

Kept are tensors, arrays, generators, numbers and words, and lists, sets, mappings, dataclasses and namespaces
of these. Objects are filled where they are, so that all who hold one see the same. Of a mapping or an object
what cannot be kept stays as it was built, and the rest is kept; a list with such a part stays as it was built.
"""

from __future__ import annotations

import copy
import dataclasses
import random
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

KEY = "_plain_state"
BARE = vars(nn.Module()).keys()  # what every module has
_CONTAINERS = (deque, set, frozenset)
_KIND = "__kind__"  # the key of a mapping that stands for a value of another kind
_STRANGE: Any = object()  # stands for a value that a checkpoint cannot hold
_LEFT_OUT = "left out"  # the kind of what stands for it where the rest is kept
_DEEPEST = 50  # values within values that are looked into
_NEW: dict[str, Callable[[], Any]] = {  # what can be made anew where a module does not hold one
    "dict": dict,
    "Counter": Counter,
    "OrderedDict": OrderedDict,
    "SimpleNamespace": SimpleNamespace,
}


def keep(network: nn.Module) -> None:
    """From now on keep the plain state of a network's modules that are neither torch's nor this package's."""
    for module in network.modules():
        if not type(module).__module__.startswith(("torch.", "actlab.")):
            keeper = _Keeper(module)
            module.register_state_dict_post_hook(keeper)  # type: ignore[no-untyped-call]
            module.register_load_state_dict_pre_hook(keeper.load)  # type: ignore[no-untyped-call]


def of(module: nn.Module) -> dict[str, Any]:
    """What has changed in a module's own plain state since it was built; empty where it is not kept."""
    keepers = (hook for hook in module._state_dict_hooks.values() if isinstance(hook, _Keeper))
    return next((keeper.changed(module) for keeper in keepers), {})


class _Keeper:
    """Hooks on a module's state dict: what has changed since the module was built is added, and loaded."""

    def __init__(self, module: nn.Module) -> None:
        self.initial = _held(module)

    def __call__(self, module: nn.Module, state: dict[str, Any], prefix: str, metadata: object) -> None:
        if changed := self.changed(module):
            state[prefix + KEY] = changed

    def changed(self, module: nn.Module) -> dict[str, Any]:
        """Copies of the values that are not what they were, by name."""
        held, initial = _held(module), self.initial
        return {name: held[name] for name in held if not _same(held[name], initial.get(name, _STRANGE))}

    def load(self, module: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
        """Give the module what the state dict holds of it; what it does not hold is as it was at first."""
        first = {name: self.initial[name] for name in self.changed(module) if name in self.initial}
        for name, value in {**first, **state.pop(prefix + KEY, {})}.items():
            _put(module, name, value)


def _held(module: nn.Module) -> dict[str, Any]:
    """A module's own attributes that a checkpoint can hold, and its buffers that are not persistent: copies."""
    own: dict[str, Any] = {name: value for name, value in vars(module).items() if name not in BARE}
    own |= {name: module._buffers[name] for name in module._non_persistent_buffers_set}
    return {name: value for name, held in own.items() if (value := _plain(held)) is not _STRANGE}


def _plain(value: Any, above: frozenset[int] = frozenset()) -> Any:
    """A copy of a value in tensors, numbers and words; of a generator its state.

    Args:
        value: of any kind.
        above: ids of the values that it is a part of; one that leads back to them cannot be kept.
    """
    if id(value) in above or len(above) > _DEEPEST:
        return _STRANGE
    part = partial(_plain, above=above | {id(value)})
    if isinstance(value, Tensor):
        return _STRANGE if value.requires_grad and value.is_leaf else value.detach().clone()
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, np.random.Generator):
        return _plain(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return _plain(value.get_state(legacy=False))
    if type(value) in _CONTAINERS:
        return _tagged(type(value), part(list(value)), maxlen=getattr(value, "maxlen", None))
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf":
        return _tagged(type(value), torch.from_numpy(np.array(value)))
    if isinstance(value, dict):
        entries = _entries(value, part)
        return entries if type(value) is dict and _KIND not in value else _tagged(type(value), entries)
    if _has_fields(value):
        return _tagged(type(value), _entries(_fields(value), part))
    if type(value) in (list, tuple):
        found = [part(v) for v in value]
        return _STRANGE if any(v is _STRANGE for v in found) else type(value)(found)
    return value if value is None or type(value) in (bool, int, float, str) else _STRANGE


def _tagged(kind: type, content: Any, **more: Any) -> Any:
    """A value of a kind that checkpoints do not know, as a mapping that says its kind."""
    return content if content is _STRANGE else {_KIND: kind.__name__, "content": content, **more}


def _entries(mapping: Mapping[Any, Any], part: Callable[[Any], Any]) -> dict[Any, Any]:
    """A copy of a mapping, in its order; what cannot be kept is replaced by a word for it."""
    found = {key: part(value) for key, value in mapping.items()}
    kept = {key: {_KIND: _LEFT_OUT} if value is _STRANGE else value for key, value in found.items()}
    return {_key(key): value for key, value in kept.items() if _key(key) is not _STRANGE}


def _key(key: Any) -> Any:
    """A mapping's key as checkpoints can hold it: a number of numpy's as the plain one that equals it."""
    if type(key) is tuple:
        found = [_key(part) for part in key]
        return _STRANGE if any(part is _STRANGE for part in found) else tuple(found)
    key = key.item() if isinstance(key, np.generic) else key
    return key if key is None or type(key) in (bool, int, float, str) else _STRANGE


def _has_fields(value: Any) -> bool:
    """Whether a value is a namespace or an instance of a dataclass, and nobody else keeps it."""
    found = isinstance(value, SimpleNamespace) or dataclasses.is_dataclass(value)
    return found and not isinstance(value, type | nn.Module | Enum)


def _fields(value: Any) -> dict[str, Any]:
    """What an object that `_has_fields` holds, by name."""
    names = [field.name for field in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else []
    return {n: getattr(value, n) for n in names if hasattr(value, n)} | getattr(value, "__dict__", {})


def _restored(held: Any, value: Any) -> Any:
    """What `_plain` has put into tensors, numbers and words; `_STRANGE` for what cannot be made anew.

    Args:
        held: what is in its place; filled and returned where it is of the same kind and can be.
        value: as `_plain` has returned it.
    """
    if isinstance(held, torch.Generator) and isinstance(value, Tensor):
        held.set_state(value)
    elif isinstance(held, random.Random) and isinstance(value, tuple):
        held.setstate(value)
    elif isinstance(held, np.random.Generator) and isinstance(value, dict):
        held.bit_generator.state = _restored(None, value)
    elif isinstance(held, np.random.RandomState) and isinstance(value, dict):
        held.set_state(_restored(None, value))
    elif isinstance(value, Tensor):
        return value.to(held.device if isinstance(held, Tensor) else value.device, copy=True)
    elif isinstance(value, list | tuple):
        return _sequence(held, value, type(value))
    elif isinstance(value, dict):
        return _of_kind(held, value, value.get(_KIND, "dict"))
    else:
        return value
    return held


def _sequence(held: Any, parts: Sequence[Any], make: Callable[[list[Any]], Any]) -> Any:
    """As `_restored`, of a list, tuple, deque or set, given its parts."""
    before = list(held) if isinstance(held, list | tuple) else []
    found: list[Any] = []
    for place in reversed(range(len(parts))):  # new parts first, so that nothing is filled where one fails
        found.append(_restored(before[place] if place < len(before) else None, parts[place]))
        if found[-1] is _STRANGE:
            return _STRANGE
    new = make(found[::-1])
    alike = type(held) is type(new) and getattr(held, "maxlen", None) == getattr(new, "maxlen", None)
    if not alike or not isinstance(new, list | deque | set):
        return new
    held.clear()
    (held.update if isinstance(new, set) else held.extend)(new)
    return held


def _of_kind(held: Any, value: dict[Any, Any], kind: str) -> Any:
    """As `_restored`, of a mapping and of what one stands for."""
    if kind == _LEFT_OUT:
        return _STRANGE
    content = value["content"] if _KIND in value else value
    if isinstance(content, Tensor):
        array = content.numpy(force=True).copy()
        return array if kind == "ndarray" else array[()]
    if isinstance(content, list):
        makers: dict[str, Callable[[list[Any]], Any]] = {"set": set, "frozenset": frozenset}
        return _sequence(held, content, makers.get(kind, lambda parts: deque(parts, value["maxlen"])))
    there = type(held).__name__ == kind and (isinstance(held, dict) or _has_fields(held))
    if not there and kind not in _NEW:
        return _STRANGE
    target = held if there else _NEW[kind]()
    if dataclasses.is_dataclass(target) and not isinstance(target, dict):
        return _with_fields(target, content)
    whole = _fill(target if isinstance(target, dict) else vars(target), content)
    return target if there or whole else _STRANGE


def _with_fields(held: Any, content: dict[str, Any]) -> Any:
    """An instance of a dataclass with what was kept of it; of a frozen one, which others may share, a copy."""
    fields, target = _fields(held), copy.copy(held) if held.__dataclass_params__.frozen else held
    _fill(fields, content)
    for name, value in fields.items():
        object.__setattr__(target, name, value)
    return target


def _fill(mapping: dict[Any, Any], content: dict[Any, Any]) -> bool:
    """Give a mapping what was kept of it, in that order, and let it keep the rest; whether that was all."""
    factory = getattr(mapping, "default_factory", None)
    kept = {key: value for key, value in mapping.items() if _key(key) is _STRANGE}
    whole = True
    for key, value in content.items():
        makes = key not in mapping and isinstance(value, dict)
        found = _restored(factory() if factory and makes else mapping.get(key), value)
        if found is not _STRANGE:
            kept[key] = found
        elif key in mapping:
            kept[key] = mapping[key]
        whole = whole and found is not _STRANGE
    mapping.clear()
    for key, value in kept.items():
        mapping[key] = value
    return whole


def _put(module: nn.Module, name: str, value: Any) -> None:
    held = getattr(module, name, None)
    found = _restored(held, value)
    if found is not _STRANGE and found is not held:
        setattr(module, name, found)


def _same(a: Any, b: Any) -> bool:
    """Whether two values are equal in all that is kept of the first."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b.to(a.device))
    if isinstance(a, dict):
        gone = {key for key, value in a.items() if isinstance(value, dict) and value.get(_KIND) == _LEFT_OUT}
        one, other = ([key for key in mapping if key not in gone] for mapping in (a, b))
        return one == other and all(_same(a[key], b[key]) for key in one)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)
