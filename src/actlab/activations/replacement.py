"""Put another activation into an existing model, and list the functional calls that cannot be replaced."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import activation as torch_activations
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._pytree import tree_leaves, tree_map_only

from actlab.activations import plugins
from actlab.activations.registry import Factory, create, entry, names
from actlab.errors import ActlabError
from actlab.errors.messages import described
from actlab.random.seeding import own_generators
from actlab.random.streams import MemberStream, Stream, Uniform
from actlab.runtime.modules import evaluating, plain_attributes, unchanged, unfuse
from actlab.storage.spec import Activation, Spec
from actlab.validation import validated

_TRANSFORMERS = nn.TransformerEncoderLayer, nn.TransformerDecoderLayer
_KINDS = tuple(getattr(torch_activations, name) for name in torch_activations.__all__)


@dataclass(frozen=True)
class FunctionalCall:
    """A call of a function of torch in a module's ``forward``.

    Attributes:
        path: path of the module in the model; empty for the model itself.
        function: name of the function, such as ``torch.nn.functional.relu``.
    """

    path: str
    function: str


@dataclass(frozen=True)
class Replacement:
    """What `replace` changed, and what it cannot change.

    Attributes:
        paths: paths of the replaced modules, in module order.
        functional: functional calls of the old activation, each place once; None if they were not
            searched for: no example was given, or torch has no function with the name of the
            activation's class.
    """

    paths: tuple[str, ...]
    functional: tuple[FunctionalCall, ...] | None

    def __str__(self) -> str:
        """Return both lists as text, for printing."""
        calls = "not searched for" if self.functional is None else _listed(self.functional)
        return f"replaced: {', '.join(self.paths)}\nfunctional calls, not replaced: {calls}"


@validated
def replace(
    model: nn.Module, old: Activation, new: Activation, *, example: Any = None
) -> Replacement:
    """Replace the modules of one activation in a model by another activation, in place.

    Each attribute or list element that holds the old activation receives a fresh module in the old
    module's mode, on the device and in the dtype of the nearest weights; complex and float64
    tensors keep their dtype. An activation that needs the number of features at a site receives
    dimension 1 of the input that the site gets in a pass of ``example``. A module held at several
    places, such as one ReLU twice in an ``nn.Sequential``, becomes several modules; a module held
    once and called several times stays one. Other modules stay as they are, but torch's encoder
    layers use no fused kernel, which computes only ReLU and GELU; hooks of replaced modules are
    dropped. Parameters of the new activation are not in an existing optimiser, so replace first. If
    an error is raised, nothing is changed.

    Without parameters, ``old`` stands for all modules of the class that it names or that ``create``
    returns for it, except those that equal another registered activation. With parameters, or as a
    function, it stands for modules with equal settings. ``inplace`` and learnt values are not
    compared; subclasses do not count.

    A function that torch's transformer layers hold, as ``F.relu`` by default, is replaced like a
    module. Other functional calls, such as ``torch.relu(x)``, are code, which this function does
    not change. It lists those in the forward pass of ``example``, by name: for ``nn.LeakyReLU`` the
    calls of ``leaky_relu`` and ``leaky_relu_``. The pass runs in evaluation mode without gradients;
    calls on other branches and in compiled or scripted code are not seen.

    An activation that changes its input in place may also change what the model reads elsewhere,
    such as a skip connection. The new activation would not, so with ``example``, of varied numbers,
    this is an error. Without it, a warning names the places with ``inplace=True``.

    actlab's stochastic activations draw from torch's generator here (seed it by
    ``torch.manual_seed``).

    Args:
        model: any model; not a task of actlab, whose config names the activation.
        old: a name, a mapping of name and parameters, ``package.module:Name``, ``./file.py:Name``,
            a class or a function.
        new: the same; called once per place.
        example: an input of the model: a tensor, or a tuple of positional arguments.

    Raises:
        ActlabError: the model has no module of the old activation (the message names its
            activations), an activation is unknown or cannot be built, its modules share a trainable
            parameter, it needs a number of features that ``example`` does not determine, the model
            reads what an old activation changes in place, or it cannot be run on ``example``.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> found = replace(model, "relu", "gelu", example=torch.zeros(1, 4))
    >>> found.paths, found.functional
    (('1',), ())
    >>> model[1]
    GELU(approximate='none')
    """
    if any(
        isinstance(v, Stream | MemberStream)
        for part in model.modules()
        for v in vars(part).values()
    ):
        raise ActlabError(
            "this model is a task of actlab or part of one, whose random numbers are bound to its activations: "
            "set model.activation in its config instead"
        )
    with _functions_as_modules(model):
        return _replaced(model, old, new, example)


def _replaced(model: nn.Module, old: Activation, new: Activation, example: Any) -> Replacement:
    kind, matches = _matcher(old)
    sites = dict(_outermost(model, matches))
    calls, widths = (None, {}) if example is None else _run(model, kind, sites, example)
    if not sites:
        raise _no_match(model, kind, calls)
    if "" in sites:
        raise ActlabError(
            f"the model is itself a {kind.__name__}: take actlab.create(NAME) in its place"
        )
    is_checked = example is not None and _check_in_place(model, sites, example)
    fresh = {
        path: _built_for(model, path, part, new, widths.get(path)) for path, part in sites.items()
    }
    for module, later in pairwise(fresh.values()):
        if fault := shared_parameter(module, later):
            raise ActlabError(fault)
    for path, module in fresh.items():
        _put(model, path, module)
    unfuse(model)
    if not is_checked:
        _warn_in_place(sites)
    return Replacement(tuple(fresh), calls)


@contextmanager
def _functions_as_modules(model: nn.Module) -> Iterator[None]:
    """Hold modules for a while where torch's transformer layers hold functions, by default ``F.relu``."""
    held = []
    for layer in model.modules():
        function = getattr(layer, "activation", None) if isinstance(layer, _TRANSFORMERS) else None
        name = (resolve_name(function) or "").rpartition(".")[2] if callable(function) else ""
        if (
            kind := next((kind for kind in _KINDS if name and _is_named(name, kind)), None)
        ) is not None:
            layer.activation = kind()
            held.append((layer, function, layer.activation))
    try:
        yield
    finally:
        for layer, function, module in held:
            if layer.activation is module:  # not replaced
                del layer.activation
                layer.activation = function  # type: ignore[assignment]


def shared_parameter(module: nn.Module, later: nn.Module) -> str | None:
    """Return a message for a trainable parameter that is one object in two modules, which were built apart."""
    known = {id(part) for part in (*later.parameters(), *later.modules())}
    for path, parameter in module.named_parameters():
        if parameter.requires_grad and id(parameter) in known:
            around = [
                part
                for name, part in module.named_modules()
                if not name or path.startswith(f"{name}.")
            ]
            kinds = [type(part) for part in around if id(part) not in known] or [type(module)]
            users = [kind for kind in kinds if not kind.__module__.startswith("torch.")] or kinds
            return f"{path} is shared by all instances of {users[-1].__name__}: create it in `__init__`"
    return None


def _put(model: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, module)


def _matcher(old: Activation) -> tuple[type[nn.Module], Callable[[nn.Module], bool]]:
    """Return the class of an activation, and whether a module stands for it."""
    spec = _unresolved(old) if callable(old) else Spec.of(old)
    target = old if callable(old) else Factory(spec).target
    if isinstance(target, type) and issubclass(target, nn.Module) and not spec.params:
        return target, lambda module: type(module) is target
    reference = _build(old)
    kind = type(reference)
    has_parameters = not callable(old) and not spec.source and entry(spec.name).parameters
    if spec.params or not has_parameters:
        return kind, partial(_equal, reference)
    return kind, lambda module: type(module) is kind and not _has_another_name(module, spec.name)


def _has_another_name(module: nn.Module, name: str) -> bool:
    """Whether a registered activation without parameters equals a module: gelu_tanh, of the class of gelu."""
    others = (other for other in names() if other != name and not entry(other).parameters)
    return any(_equal(create(other), module) for other in others)


def _build(activation: Activation) -> nn.Module:
    if callable(activation):
        return plugins.builder(_unresolved(activation), activation).build()
    return create(activation)


def _unresolved(target: Callable[..., Any]) -> Spec:
    """Return the name of a class or function, perhaps without an import path, for messages."""
    return Spec("", getattr(target, "__name__", repr(target)))


def _equal(reference: nn.Module, module: nn.Module) -> bool:
    """Whether two modules have the same class and settings."""
    if type(reference) is not type(module):
        return False
    if isinstance(reference, Uniform):
        return True
    children = list(reference.children()), list(module.children())
    alike = len(children[0]) == len(children[1]) and all(map(_equal, *children))
    return alike and _settings(reference) == _settings(module)


def _settings(module: nn.Module) -> dict[str, Any]:
    """Return a module's attributes but ``inplace`` and the registry's ``stochastic``, tensors as lists."""
    settings = {
        key: v
        for key, v in plain_attributes(module).items()
        if key not in ("inplace", "stochastic")
    }
    return {key: v.tolist() if isinstance(v, Tensor) else v for key, v in settings.items()}


def _outermost(
    model: nn.Module, matches: Callable[[nn.Module], bool]
) -> Iterator[tuple[str, nn.Module]]:
    """Yield the first path and the module of each place with a matching module, not inside such a module."""
    seen: set[tuple[int, str]] = set()
    inside: str | None = None
    for path, module in model.named_modules(remove_duplicate=False):
        if inside is not None and path.startswith(inside):
            continue
        parent, _, name = path.rpartition(".")
        if matches(module):
            inside = f"{path}."
            place = (id(model.get_submodule(parent)), name)
            if place not in seen:
                seen.add(place)
                yield path, module


def _built_for(
    model: nn.Module, path: str, old: nn.Module, new: Activation, widths: set[int] | None
) -> nn.Module:
    """Return a fresh activation for a place; ``widths`` of its inputs are None without an example."""
    try:
        with plugins.site(next(iter(widths)) if widths and len(widths) == 1 else None):
            module = _build(new).train(old.training)
    except plugins.WidthError as error:
        given = " and ".join(map(str, sorted(widths or ())))
        called = f", {f'called with {given} features' if given else 'not called'} in the example"
        raise ActlabError(f"{path}{'' if widths is None else called}: {error}") from error
    near = _nearest_weights(model, path)
    return module if near is None else module._apply(partial(_like, near))  # type: ignore[no-untyped-call]


def _like(near: Tensor, tensor: Tensor) -> Tensor:
    """Return a tensor on the device of another one, and in its dtype unless complex, float64 or integer."""
    narrow = tensor.is_floating_point() and tensor.dtype != torch.float64
    return tensor.to(near.device, near.dtype if narrow else tensor.dtype)


def _nearest_weights(model: nn.Module, path: str) -> Tensor | None:
    """Return a floating-point parameter or buffer of a module, or of the nearest module around it."""
    owner = model.get_submodule(path)
    floating = filter(torch.is_floating_point, chain(owner.parameters(), owner.buffers()))
    if (tensor := next(floating, None)) is not None or not path:
        return tensor
    return _nearest_weights(model, path.rpartition(".")[0])


def _is_named(function: str, kind: type[nn.Module]) -> bool:
    """Whether a function has the name of a class, up to case and underscores: leaky_relu and LeakyReLU."""
    return function.replace("_", "") == kind.__name__.lower()


class _CallSearch(TorchFunctionMode):
    """Records calls of the functions of torch that have the name of a class, outside its modules."""

    def __init__(self, model: nn.Module, kind: type[nn.Module], sites: Iterable[str]) -> None:
        super().__init__()
        self.kind = kind
        self.widths = {path: set[int]() for path in sites if path}  # of the inputs of each site
        # The modules whose forward runs, from the outermost to the innermost
        self.running = [("", model)]
        self.calls: dict[FunctionalCall, None] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        path, module = self.running[-1]
        name = getattr(func, "__name__", "")
        if _is_named(name, self.kind) and type(module) is not self.kind:
            self.calls[FunctionalCall(path, resolve_name(func) or name)] = None
        return func(*args, **(kwargs or {}))

    def enter(
        self, path: str, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        self.running.append((path, module))
        x = next(iter((*args, *kwargs.values())), None)
        if path in self.widths and isinstance(x, Tensor):
            self.widths[path].add(x.shape[1] if x.dim() > 1 else 1)

    def leave(self, *_: object) -> None:
        self.running.pop()


def _run(
    model: nn.Module, kind: type[nn.Module], sites: Mapping[str, nn.Module], example: Any
) -> tuple[tuple[FunctionalCall, ...] | None, dict[str, set[int]]]:
    """Return the functional calls in a pass of the example, and the widths of each site's inputs."""
    search = _CallSearch(model, kind, sites)
    with _as_twins(model, search.widths, sites), ExitStack() as hooks:
        modules = {
            path: m
            for path, m in model.named_modules()
            if not isinstance(m, torch.jit.ScriptModule)
        }
        for path, module in modules.items():
            enter = partial(search.enter, path)
            hooks.callback(module.register_forward_pre_hook(enter, with_kwargs=True).remove)
            hooks.callback(module.register_forward_hook(search.leave, always_call=True).remove)
        with search:
            _outputs(model, example)
    has_function = any(_is_named(name, kind) for name in (*dir(torch), *dir(nn.functional)))
    return tuple(search.calls) if has_function else None, search.widths


@contextmanager
def _as_twins(
    model: nn.Module, paths: Iterable[str], sites: Mapping[str, nn.Module]
) -> Iterator[None]:
    """Make a module at several places several for a while, each with hooks of its own."""
    with ExitStack() as places:
        for path in paths:
            places.callback(_put, model, path, sites[path])
            twin, held = copy(sites[path]), vars(sites[path]).items()
            vars(twin).update(
                {name: copy(value) for name, value in held if isinstance(value, dict)}
            )
            _put(model, path, twin)
        yield


def _outputs(model: nn.Module, example: Any) -> Any:
    """Return the model's outputs for the example; both stay as they are."""
    try:
        given = _cloned(example)
        with evaluating(model), unchanged(model.modules()), own_generators(0):
            return model(*given) if isinstance(given, tuple) else model(given)
    except Exception as error:  # the user's model may raise anything
        raise ActlabError(
            f"the model cannot be run on the example: {described(error)}. Give an input of the model, or a "
            "tuple of its positional arguments"
        ) from error


def _cloned(values: Any) -> Any:
    return tree_map_only(Tensor, torch.clone, values)


def _check_in_place(model: nn.Module, sites: Mapping[str, nn.Module], example: Any) -> bool:
    """Reject sites whose change of their own input the model also reads elsewhere.

    A new activation leaves its input as it is, so the model would compute something else. Returns
    whether there were outputs to compare.
    """

    def outputs(apart: Iterable[str]) -> list[Tensor]:
        """Return the output tensors where some sites get copies of their inputs."""
        with ExitStack() as hooks:
            for path in sites:  # a layer with hooks uses no fused kernel, so all sites have one
                hook = _with_copies if path in apart else _as_given
                site = model.get_submodule(path)
                hooks.callback(site.register_forward_pre_hook(hook, with_kwargs=True).remove)
            found = _outputs(model, example)
        return [value.clone() for value in tree_leaves(found) if isinstance(value, Tensor)]

    def is_read(paths: Iterable[str]) -> bool:
        pairs = zip(right, outputs(paths), strict=True)
        return not all(torch.allclose(here, there, equal_nan=True) for here, there in pairs)

    with _as_twins(model, sites, sites):
        right = outputs(())
        if is_read(sites):
            read = [path for path in sites if is_read([path])] or [*sites]
            raise ActlabError(
                f"{', '.join(read)}: the model also reads the input that the activation changes in place, or "
                "does not take its result, so another activation would make another model. Write "
                "x = self.act(x) in its forward, with a copy of x for all else"
            )
    return bool(right)


def _as_given(module: nn.Module, args: Any, kwargs: Any) -> None:
    pass


def _with_copies(module: nn.Module, args: Any, kwargs: Any) -> Any:
    return _cloned((args, kwargs))


def _warn_in_place(sites: Mapping[str, nn.Module]) -> None:
    """Warn of activations in place, where nobody knows what the model reads."""
    if in_place := [path for path, part in sites.items() if getattr(part, "inplace", False)]:
        warnings.warn(
            f"{', '.join(in_place)}: replaced activations change their input in place. If the model reads this "
            "input elsewhere, or does not take the result, it is another model now: pass example=INPUT, which "
            "checks that",
            stacklevel=2,
        )


def _listed(calls: tuple[FunctionalCall, ...]) -> str:
    return (
        ", ".join(f"{call.function} in {call.path or 'the model itself'}" for call in calls)
        or "none found"
    )


def _no_match(
    model: nn.Module, kind: type[nn.Module], calls: tuple[FunctionalCall, ...] | None
) -> ActlabError:
    """Return the error for a model without the old activation, with the activations that it has."""
    if calls:
        return ActlabError(
            f"the model has no matching {kind.__name__} module; its functional calls are code, which cannot be "
            f"replaced: {_listed(calls)}. Write them as modules, such as self.act = act_layer()"
        )
    units = (f"{type(m).__name__}({m.extra_repr()})" for m in model.modules() if _is_activation(m))
    known = ", ".join(f"{name} × {number}" for name, number in Counter(units).items()) or "none"
    hint = "" if calls is not None else ", or example=INPUT, which finds functional calls"
    return ActlabError(
        f"the model has no matching {kind.__name__} module. Its activation modules, and how often: {known}. "
        f"Give the registered name or class of one of these{hint}"
    )


def _is_activation(module: nn.Module) -> bool:
    """Whether a module is an activation of torch or actlab, or a third-party module that holds nothing."""
    home = type(module).__module__
    if home.startswith(("torch.", "actlab.")):
        return home.startswith(
            ("torch.nn.modules.activation", "actlab.activations")
        ) and not isinstance(module, nn.MultiheadAttention)
    return not any(True for _ in chain(module.children(), module.parameters(), module.buffers()))
