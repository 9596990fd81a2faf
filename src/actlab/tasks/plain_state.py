"""What a user's module holds outside parameters and buffers, kept with the weights.

A unit may count its calls, remember a tensor in a plain attribute or in a buffer that is not persistent, or
draw from a generator of its own. Torch's state dicts leave all of this out, so a run that goes on from a
checkpoint would go on with another unit. Here it enters the state dict under `KEY`, where it has changed.
"""

from __future__ import annotations

import copy
import random
from collections import deque
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

KEY = "_plain_state"
BARE = vars(nn.Module()).keys()  # what every module has
_CONTAINERS = (deque, set, frozenset)
_KIND = "__kind__"  # the key of a mapping that stands for a value of another kind
_STRANGE: Any = object()  # stands for a value that a checkpoint cannot hold


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


def _plain(value: Any) -> Any:
    """A copy of a value in tensors, numbers and words; of a generator its state."""
    if isinstance(value, Tensor):
        return _STRANGE if value.requires_grad else value.clone()
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, np.random.Generator):
        return _plain(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return _plain(value.get_state(legacy=False))
    if type(value) in _CONTAINERS:
        return _tagged(type(value), list(value), maxlen=getattr(value, "maxlen", None))
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf":
        return _tagged(type(value), torch.from_numpy(np.array(value)))
    if type(value) is dict:
        inner = _plain(list(value.values()))
        return inner if inner is _STRANGE else dict(zip(value, inner, strict=True))
    if type(value) in (list, tuple):
        found = [_plain(v) for v in value]
        return _STRANGE if any(v is _STRANGE for v in found) else type(value)(found)
    return value if value is None or type(value) in (bool, int, float, str) else _STRANGE


def _tagged(kind: type, content: Any, **more: Any) -> Any:
    """A value of a kind that checkpoints do not know, as a mapping that says its kind."""
    inner = _plain(content)
    return inner if inner is _STRANGE else {_KIND: kind.__name__, "content": inner, **more}


def _original(value: Any) -> Any:
    """What `_plain` has put into tensors, numbers and words."""
    if isinstance(value, dict) and _KIND in value:
        content, kind = _original(value["content"]), value[_KIND]
        if kind == "deque":
            return deque(content, value["maxlen"])
        if kind in ("set", "frozenset"):
            return set(content) if kind == "set" else frozenset(content)
        array = content.numpy()
        return array if kind == "ndarray" else array[()]
    if isinstance(value, dict):
        return {key: _original(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_original, value))
    return copy.deepcopy(value)


def _put(module: nn.Module, name: str, value: Any) -> None:
    held = getattr(module, name, None)
    if isinstance(held, torch.Generator):
        held.set_state(value)
    elif isinstance(held, random.Random):
        held.setstate(value)
    elif isinstance(held, np.random.Generator):
        held.bit_generator.state = _original(value)
    elif isinstance(held, np.random.RandomState):
        held.set_state(_original(value))
    elif isinstance(held, Tensor) and isinstance(value, Tensor):
        setattr(module, name, value.to(held.device, copy=True))
    else:
        setattr(module, name, _original(value))


def _same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b.to(a.device))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)
