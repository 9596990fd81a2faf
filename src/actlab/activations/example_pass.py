"""Passes of an example through a model: functional calls, widths of inputs, changes in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._pytree import tree_leaves, tree_map_only

from actlab.errors import ActlabError
from actlab.errors.messages import described
from actlab.random.seeding import own_generators
from actlab.runtime.modules import evaluating, unchanged


@dataclass(frozen=True)
class FunctionalCall:
    """A call of a function of torch in a module's ``forward``.

    Attributes:
        path: path of the module in the model; empty for the model itself.
        function: name of the function, such as ``torch.nn.functional.relu``.
    """

    path: str
    function: str


def put(model: nn.Module, path: str, module: nn.Module) -> None:
    """Put a module at a path of a model."""
    parent, _, name = path.rpartition(".")
    # `setattr` also sets elements of a Sequential, whose names are numbers
    setattr(model.get_submodule(parent), name, module)


def is_named(function: str, kind: type[nn.Module]) -> bool:
    """Whether a function has the name of a class, as leaky_relu has the name of LeakyReLU."""
    return function.replace("_", "") == kind.__name__.lower()


class _CallSearch(TorchFunctionMode):
    """Records calls of torch's functions that have the name of a class, outside its modules."""

    def __init__(
        self, model: nn.Module, kind: type[nn.Module], sites: Iterable[str]
    ) -> None:
        super().__init__()
        self.kind = kind
        # Widths of the inputs of each site
        self.widths = {path: set[int]() for path in sites if path}
        # The modules whose forward runs, from the outermost to the innermost
        self.running = [("", model)]
        self.calls: dict[FunctionalCall, None] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        path, module = self.running[-1]
        name = getattr(func, "__name__", "")
        # Modules of the class call the function themselves.
        if is_named(name, self.kind) and type(module) is not self.kind:
            self.calls[FunctionalCall(path, resolve_name(func) or name)] = None
        return func(*args, **(kwargs or {}))

    def enter(
        self,
        path: str,
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> None:
        """Note that a module's forward begins; a hook before it."""
        self.running.append((path, module))
        x = next(iter((*args, *kwargs.values())), None)
        if path in self.widths and isinstance(x, Tensor):
            # Channels are in dim 1; a bare vector has samples only
            width = x.shape[1] if x.dim() > 1 else 1
            self.widths[path].add(width)

    def leave(self, *_: object) -> None:
        """Note that a module's forward ends; a hook after it."""
        self.running.pop()


def run(
    model: nn.Module,
    kind: type[nn.Module],
    sites: Mapping[str, nn.Module],
    example: Any,
) -> tuple[tuple[FunctionalCall, ...] | None, dict[str, set[int]]]:
    """Return the functional calls in a pass of the example, and the widths of sites' inputs."""
    search = _CallSearch(model, kind, sites)
    with _as_twins(model, search.widths, sites), ExitStack() as hooks:
        # Hooks tell which module calls a function.
        for path, module in model.named_modules():
            if isinstance(module, torch.jit.ScriptModule):  # accepts no hooks
                continue
            enter = partial(search.enter, path)
            before = module.register_forward_pre_hook(enter, with_kwargs=True)
            after = module.register_forward_hook(search.leave, always_call=True)
            hooks.callback(before.remove)
            hooks.callback(after.remove)
        with search:
            _outputs(model, example)

    # Without a function of this name, there is nothing to search for.
    functions = (*dir(torch), *dir(nn.functional))
    if not any(is_named(function, kind) for function in functions):
        return None, search.widths
    return tuple(search.calls), search.widths


@contextmanager
def _as_twins(
    model: nn.Module, paths: Iterable[str], sites: Mapping[str, nn.Module]
) -> Iterator[None]:
    """Put a copy of each site's module at its path for a while, with hooks of its own.

    A copy has the tensors of its original.
    """
    with ExitStack() as originals:
        for path in paths:
            original = sites[path]
            originals.callback(put, model, path, original)
            # A shallow copy has the tensors of its original, and the same dictionaries
            twin = copy(original)
            for name, value in vars(original).items():
                if isinstance(value, dict):  # such as the dictionaries of hooks
                    vars(twin)[name] = copy(value)
            put(model, path, twin)
        yield


def _outputs(model: nn.Module, example: Any) -> Any:
    """Return the model's outputs for the example, both of which stay as they are."""
    try:
        # The model may change its input in place
        inputs = _cloned(example)
        arguments = inputs if isinstance(inputs, tuple) else (inputs,)
        with evaluating(model), unchanged(model.modules()), own_generators(0):
            return model(*arguments)
    except Exception as error:  # the user's model may raise anything
        raise ActlabError(
            f"the model cannot be run on the example: {described(error)}. Pass an input of the "
            "model, or a tuple of its positional arguments."
        ) from error


def _cloned(values: Any) -> Any:
    return tree_map_only(Tensor, torch.clone, values)


def check_in_place(
    model: nn.Module, sites: Mapping[str, nn.Module], example: Any
) -> bool:
    """Reject sites that change their input in place if the model also reads this input elsewhere.

    A new activation does not change its input, so the model would compute something else. Returns
    whether there were outputs to compare.
    """

    def outputs(isolated: Iterable[str]) -> list[Tensor]:
        """Return the output tensors if the isolated sites get copies of their inputs."""
        with ExitStack() as hooks:
            for path in sites:
                # A layer with hooks uses no fused kernel, so all sites have one.
                hook = _with_copies if path in isolated else _without_copies
                site = model.get_submodule(path)
                handle = site.register_forward_pre_hook(hook, with_kwargs=True)
                hooks.callback(handle.remove)
            values = tree_leaves(_outputs(model, example))
        return [value.clone() for value in values if isinstance(value, Tensor)]

    # `expected` is set below, with hooks at all sites
    def is_read(isolated: Iterable[str]) -> bool:
        """Whether an output changes because it is computed from the unchanged inputs of sites."""
        pairs = zip(expected, outputs(isolated), strict=True)
        return not all(
            torch.allclose(before, after, equal_nan=True) for before, after in pairs
        )

    # Isolate all sites, then each alone, to name the ones whose input is read.
    with _as_twins(model, sites, sites):
        # Both passes have hooks at all sites, so only the copies differ
        expected = outputs(())
        if is_read(sites):
            read = [path for path in sites if is_read([path])] or [*sites]
            raise ActlabError(
                f"{', '.join(read)}: the model also reads the input that the activation changes in "
                "place, or ignores its result, so a replacement would change the model. Write "
                "x = self.act(x) in its forward, and use a copy of x elsewhere."
            )
    return bool(expected)


def _without_copies(module: nn.Module, args: Any, kwargs: Any) -> None:
    pass


def _with_copies(module: nn.Module, args: Any, kwargs: Any) -> Any:
    return _cloned((args, kwargs))
