"""Put another activation into an existing model; list the calls that cannot be replaced."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import activation as torch_activations
from torch.overrides import resolve_name

from actlab.activations import example_pass, plugins
from actlab.activations.example_pass import FunctionalCall
from actlab.activations.registry import Factory, create, entry, names
from actlab.errors import ActlabError
from actlab.random.streams import MemberStream, Stream, Uniform
from actlab.runtime.modules import plain_attributes, unfuse
from actlab.storage.spec import Activation, Spec
from actlab.validation import validated

_TRANSFORMERS = nn.TransformerEncoderLayer, nn.TransformerDecoderLayer
_TORCH_CLASSES = tuple(
    getattr(torch_activations, name) for name in torch_activations.__all__
)


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
        calls = "not searched for"
        if self.functional is not None:
            calls = _listed(self.functional)
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
    for part in model.modules():
        if any(
            isinstance(value, Stream | MemberStream) for value in vars(part).values()
        ):
            raise ActlabError(
                "this model is a task of actlab or part of a task, whose random numbers depend on "
                "its activations. Set model.activation in its config instead."
            )
    with _functions_as_modules(model):
        return _replaced(model, old, new, example)


def _replaced(
    model: nn.Module, old: Activation, new: Activation, example: Any
) -> Replacement:
    """Replace the old activation in a model that holds it only as modules.

    `_functions_as_modules` has made modules of the functions of torch's transformer layers.
    """
    # Find the old activation, and its functional calls, which the error of no match
    # names.
    kind, matches = _matcher(old)
    sites = dict(_outermost(model, matches))
    calls: tuple[FunctionalCall, ...] | None = None
    widths: dict[str, set[int]] = {}
    if example is not None:
        calls, widths = example_pass.run(model, kind, sites, example)
    if not sites:
        raise _no_match(model, kind, calls)
    # The model has no parent to hold the new module.
    if "" in sites:
        raise ActlabError(
            f"the model is itself a {kind.__name__}. Use actlab.create(NAME) instead."
        )

    # False also for a model without output tensors, in which a change of inputs cannot
    # be seen.
    is_checked = example is not None and example_pass.check_in_place(
        model, sites, example
    )

    # Build all new modules before the model is changed.
    modules = {}
    for path, site in sites.items():
        modules[path] = _built_for(model, path, site, new, widths.get(path))

    # What all modules of one builder share, neighbours share.
    for module, later in pairwise(modules.values()):
        fault = shared_parameter(module, later)
        if fault:
            raise ActlabError(fault)

    # Put them into the model.
    for path, module in modules.items():
        example_pass.put(model, path, module)
    unfuse(model)
    if not is_checked:
        _warn_in_place(sites)
    return Replacement(tuple(modules), calls)


@contextmanager
def _functions_as_modules(model: nn.Module) -> Iterator[None]:
    """Let torch's transformer layers hold modules instead of functions, ``F.relu`` by default."""
    # Each layer, with its function and the module instead
    layers = []
    for layer in model.modules():
        if not isinstance(layer, _TRANSFORMERS):
            continue
        function: Any = getattr(layer, "activation", None)
        kind = _class_of_function(function)
        if kind is not None:
            layer.activation = kind()
            layers.append((layer, function, layer.activation))

    try:
        yield
    finally:
        for layer, function, module in layers:
            if layer.activation is module:  # not replaced
                del layer.activation
                layer.activation = function


def _class_of_function(function: Any) -> type[nn.Module] | None:
    """Return the class of torch that has the name of a function of torch."""
    name = resolve_name(function) if callable(function) else None
    if not name:
        return None
    for kind in _TORCH_CLASSES:
        if example_pass.is_named(name.rpartition(".")[2], kind):
            return kind  # type: ignore[no-any-return]
    return None


def shared_parameter(module: nn.Module, later: nn.Module) -> str | None:
    """Return a message for a trainable parameter that two modules share; None if they share none.

    The modules come from two calls of one builder. The message names the class that should create
    the parameter.
    """
    later_ids = {id(part) for part in (*later.parameters(), *later.modules())}
    for path, parameter in module.named_parameters():
        if parameter.requires_grad and id(parameter) in later_ids:
            kind = _class_around(module, path, later_ids)
            return f"{path} is shared by all instances of {kind.__name__}: create it in `__init__`"
    return None


def _class_around(module: nn.Module, path: str, later_ids: set[int]) -> type[nn.Module]:
    """Return the class of the innermost module around a parameter that is not shared itself.

    Classes of users go before classes of torch.
    """
    kinds: list[type[nn.Module]] = []
    for name, part in module.named_modules():
        is_around = not name or path.startswith(f"{name}.")
        if is_around and id(part) not in later_ids:
            kinds.append(type(part))
    user_kinds = [kind for kind in kinds if not kind.__module__.startswith("torch.")]
    return (user_kinds or kinds or [type(module)])[-1]


def _matcher(old: Activation) -> tuple[type[nn.Module], Callable[[nn.Module], bool]]:
    """Return the class of an activation, and whether a module stands for it."""
    # A class stands for its instances.
    if callable(old):
        spec = _unresolved(old)
        target: Any = old
    else:
        spec = Spec.of(old)
        target = Factory(spec).target
    if isinstance(target, type) and issubclass(target, nn.Module) and not spec.params:
        return target, lambda module: type(module) is target

    # A function, or a name with parameters, stands for modules with equal settings.
    reference = _build(old)
    kind = type(reference)
    is_registered = not callable(old) and not spec.source
    if spec.params or not is_registered or not entry(spec.name).parameters:
        return kind, partial(_is_equal, reference)

    # A name stands for all settings of its class, except settings that have another
    # name.
    return (
        kind,
        lambda module: (
            type(module) is kind and not _has_another_name(module, spec.name)
        ),
    )


def _has_another_name(module: nn.Module, name: str) -> bool:
    """Whether another registered activation without parameters equals a module.

    An example is ``gelu_tanh``, which has the class of ``gelu``.
    """
    for registered in names():
        if registered == name or entry(registered).parameters:
            continue
        if _is_equal(create(registered), module):
            return True
    return False


def _build(activation: Activation) -> nn.Module:
    if callable(activation):
        return plugins.builder(_unresolved(activation), activation).build()
    return create(activation)


def _unresolved(target: Callable[..., Any]) -> Spec:
    """Return the name of a class or function, perhaps without an import path, for messages."""
    return Spec("", getattr(target, "__name__", repr(target)))


def _is_equal(reference: nn.Module, module: nn.Module) -> bool:
    """Whether two modules have the same class and settings."""
    if type(reference) is not type(module):
        return False
    # Random streams do not distinguish activations.
    if isinstance(reference, Uniform):
        return True

    # Compare what they hold.
    reference_children = list(reference.children())
    children = list(module.children())
    if len(reference_children) != len(children):
        return False
    if not all(map(_is_equal, reference_children, children)):
        return False
    return _settings(reference) == _settings(module)


def _settings(module: nn.Module) -> dict[str, Any]:
    """Return a module's attributes, tensors as lists.

    ``inplace`` and the registry's ``stochastic`` are left out.
    """
    settings = {}
    for name, value in plain_attributes(module).items():
        if name not in ("inplace", "stochastic"):
            settings[name] = value.tolist() if isinstance(value, Tensor) else value
    return settings


def _outermost(
    model: nn.Module, matches: Callable[[nn.Module], bool]
) -> Iterator[tuple[str, nn.Module]]:
    """Yield the first path and the module of each attribute that holds a matching module.

    Modules inside a matching module are left out.
    """
    seen: set[tuple[int, str]] = set()
    prefix: str | None = None  # of the paths inside the latest match
    # One module may be at several places.
    for path, module in model.named_modules(remove_duplicate=False):
        if prefix is not None and path.startswith(prefix):
            continue
        if not matches(module):
            continue

        # A shared parent has several paths, but one id
        prefix = f"{path}."
        parent, _, name = path.rpartition(".")
        attribute = (id(model.get_submodule(parent)), name)
        if attribute not in seen:
            seen.add(attribute)
            yield path, module


def _built_for(
    model: nn.Module,
    path: str,
    old: nn.Module,
    new: Activation,
    widths: set[int] | None,
) -> nn.Module:
    """Return a fresh activation for a site; without an example its inputs' ``widths`` are None."""
    # Build it for the site's width, if the example determines one.
    width = None
    if widths is not None and len(widths) == 1:
        (width,) = widths
    try:
        with plugins.site(width):
            module = _build(new).train(old.training)
    except plugins.WidthError as error:
        place = path
        if widths is not None:
            place += f", {_called_with(widths)} in the example"
        raise ActlabError(f"{place}: {error}") from error

    # Move it to the model's device and dtype.
    weights = _nearest_weights(model, path)
    if weights is None:
        return module
    convert = partial(_converted, weights)
    return module._apply(convert)  # type: ignore[no-untyped-call,no-any-return]


def _called_with(widths: set[int]) -> str:
    if not widths:
        return "not called"
    return f"called with {' and '.join(map(str, sorted(widths)))} features"


def _converted(weights: Tensor, tensor: Tensor) -> Tensor:
    """Return a tensor on the device of some weights, in their dtype unless it is wide or integer.

    Wide are complex numbers and float64.
    """
    is_narrow = tensor.is_floating_point() and tensor.dtype != torch.float64
    dtype = weights.dtype if is_narrow else tensor.dtype
    return tensor.to(weights.device, dtype)


def _nearest_weights(model: nn.Module, path: str) -> Tensor | None:
    """Return a floating-point parameter or buffer of a module or the nearest one around it."""
    module = model.get_submodule(path)
    for tensor in chain(module.parameters(), module.buffers()):
        if tensor.is_floating_point():
            return tensor
    if not path:
        return None
    return _nearest_weights(model, path.rpartition(".")[0])


def _warn_in_place(sites: Mapping[str, nn.Module]) -> None:
    """Warn of activations in place, whose input the model may also read elsewhere."""
    in_place = [path for path, site in sites.items() if getattr(site, "inplace", False)]
    if in_place:
        warnings.warn(
            f"{', '.join(in_place)}: replaced activations change their input in place. If the "
            "model reads this input elsewhere, or ignores the result, the replacement changes the "
            "model. Pass example=INPUT to check this.",
            stacklevel=2,
        )


def _listed(calls: tuple[FunctionalCall, ...]) -> str:
    texts = []
    for call in calls:
        place = call.path or "the model itself"
        texts.append(f"{call.function} in {place}")
    return ", ".join(texts) or "none found"


def _no_match(
    model: nn.Module, kind: type[nn.Module], calls: tuple[FunctionalCall, ...] | None
) -> ActlabError:
    """Return the error for a model without the old activation, with the activations that it has."""
    # The model calls the activation as a function.
    if calls:
        return ActlabError(
            f"the model has no matching {kind.__name__} module, and its functional calls cannot be "
            f"replaced: {_listed(calls)}. Write them as modules, such as self.act = act_layer()."
        )

    # The model has other activations.
    activations = [module for module in model.modules() if _is_activation(module)]
    texts = [
        f"{type(module).__name__}({module.extra_repr()})" for module in activations
    ]
    counted = [f"{text} × {number}" for text, number in Counter(texts).items()]
    listed = ", ".join(counted) or "none"
    hint = ""
    if calls is None:
        hint = ", or pass example=INPUT to find functional calls"
    return ActlabError(
        f"the model has no matching {kind.__name__} module. Its activation modules, and how often: "
        f"{listed}. Use the registered name or class of one of these{hint}."
    )


def _is_activation(module: nn.Module) -> bool:
    """Whether a module is an activation of torch or actlab, or third-party and holds nothing."""
    source = type(module).__module__
    if source.startswith(("torch.nn.modules.activation", "actlab.activations")):
        return not isinstance(module, nn.MultiheadAttention)
    if source.startswith(("torch.", "actlab.")):
        return False
    contents = chain(module.children(), module.parameters(), module.buffers())
    return next(contents, None) is None
