"""The registry of activations, and factories that build them for networks.

`register` adds an activation under a name, with its formula, its source and whether it is
stochastic. `create` builds a module from a name and parameters. `factory` returns a `Factory`,
which a network calls at each site. `is_elementwise`, `has_surrogate_gradient` and `is_stochastic`
say what a module declares.

The registry does not define activations: `deterministic`, `gates`, `learnt`, `stochastic` and
`smooth` do. It does not import users' code: `plugins` resolves names such as
``package.module:Name`` and checks parameters. It does not change networks: `replacement` exchanges
the activations of a built network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import nn

from actlab.activations import plugins
from actlab.errors import ActlabError
from actlab.errors.messages import unknown
from actlab.random.streams import Uniform
from actlab.storage.spec import Activation, Spec
from actlab.validation import validated, validated_but

_Target = TypeVar("_Target", bound=Callable[..., Any])


@dataclass(frozen=True)
class Entry:
    """One registered activation.

    Attributes:
        name: the registry key.
        build: module class, or function that returns a fresh module.
        formula: value of the activation, as text.
        source: paper and section. ``P`` is the GELU paper, ``E`` the ELU paper.
        stochastic: whether the activation draws random numbers in training.
    """

    name: str
    build: Callable[..., Any]
    formula: str
    source: str
    stochastic: bool

    @property
    def parameters(self) -> dict[str, Any]:
        """Defaults by parameter; ``inspect.Parameter.empty`` marks a required parameter."""
        # Read when they are listed, because registering happens at import
        parameters = plugins.parameters(self.build) or {}
        return {name: parameter.default for name, parameter in parameters.items()}


_ENTRIES: dict[str, Entry] = {}
# Names of registered activations in papers and other libraries, which errors translate.
_SYNONYMS = {
    "swish": "silu",
    "quick_gelu": "gelu_sigmoid",
    "gelu_new": "gelu_tanh",
    "gelu_approx": "gelu_tanh",
    "relu2": "relu_squared",
    "squared_relu": "relu_squared",
    "lrelu": "leaky_relu",
    "linear": "identity",
    "logistic": "sigmoid",
    "sin": "sine",
    "gaussian": "gauss",
}


@validated
def register(
    name: str, *, formula: str, source: str = "user", stochastic: bool = False
) -> Callable[[_Target], _Target]:
    """Register the decorated module class, or function that returns a fresh module, under ``name``.

    Args:
        name: the registry key; not taken and without a colon.
        formula: value of the activation, as text.
        source: paper and section.
        stochastic: whether the activation draws random numbers in training.

    Raises:
        ActlabError: the name is taken or contains a colon.
    """
    # Raise at the decorator, before the class is defined
    reason = None
    if name in _ENTRIES:
        reason = "is taken"
    elif ":" in name:
        reason = "contains a colon, which marks importable names"
    if reason:
        raise ActlabError(
            f"cannot register an activation as {name!r}: the name {reason}. Use another name."
        )

    # The class or function itself stays unchanged
    def add(target: _Target) -> _Target:
        _ENTRIES[name] = Entry(name, target, formula, source, stochastic)
        return target

    return add


@validated
def names() -> tuple[str, ...]:
    """Return all registered names, in order of registration.

    >>> "gelu" in names(), "GELU" in names()
    (True, False)
    """
    return tuple(_ENTRIES)


def entry(name: str) -> Entry:
    """Return the entry of a registered name.

    Raises:
        ActlabError: the name is not registered; the message suggests similar names.

    >>> entry("elu").parameters, entry("soi").stochastic
    ({'alpha': 1.0}, True)
    """
    # A file without the name of an activation
    if name.endswith(".py"):
        raise ActlabError(
            f"activation: expected FILE:NAME, got the file {name!r}. Add the class or function in "
            f"it, as in {name}:MyActivation."
        )

    if name in _ENTRIES:
        return _ENTRIES[name]

    # Suggest the spelling of torch's class, or the general form.
    torch_names = {
        kind.lower(): f"torch.nn:{kind}" for kind in nn.modules.activation.__all__
    }
    spelling = name.lower().replace("_", "")
    example = torch_names.get(spelling, "package.module:Name or ./file.py:Name")
    remedy = f"You can also use an importable name: {example}."
    raise unknown(
        "activation",
        name,
        _ENTRIES,
        remedy,
        synonyms=_SYNONYMS,
        command="actlab activations",
    )


@validated_but("spec")
def create(spec: Activation, **params: Any) -> nn.Module:
    """Return a fresh activation module.

    Args:
        spec: a name, or a mapping of ``name`` and parameters. A name is registered (`names`) or
            importable: ``package.module:Name``, ``./file.py:Name`` (relative to the current
            folder), where ``Name`` is a module class, a function that returns a module, or a
            function tensor → tensor. In a `Factory`, required parameters such as ``channels``, and
            those set to ``width``, receive the number of features at the site.
        params: further parameters; they override parameters of the mapping.

    Raises:
        ActlabError: the name or a parameter is unknown, a parameter has the wrong type, or the
            activation cannot be imported or built.

    >>> create("relu")
    ReLU()
    >>> create({"name": "elu", "alpha": 0.5})
    ELU(alpha=0.5)
    >>> create("torch.nn:Hardtanh", max_val=6.0)
    Hardtanh(min_val=-1.0, max_val=6.0)
    """
    return Factory(Spec.of(spec).with_params(params))()


@dataclass(frozen=True)
class Factory:
    """Returns a fresh module at each call; built by `factory`.

    A factory compares, prints and pickles by its spec.
    """

    spec: Spec

    @cached_property
    def target(self) -> Any:
        """The class or function that builds the activation, imported once."""
        if self.spec.source:
            return plugins.resolve(self.spec)
        return entry(self.spec.name).build

    @cached_property
    def builder(self) -> plugins.Builder:
        """The signature of the target, read once."""
        return plugins.builder(self.spec, self.target)

    @cached_property
    def stochastic(self) -> bool | None:
        """Whether a registered activation is stochastic; None for an importable name."""
        if self.spec.source:
            return None
        return entry(self.spec.name).stochastic

    def __call__(self, width: int | None = None) -> nn.Module:
        """Return a fresh module for a site with ``width`` features.

        Only some activations need the width.
        """
        with plugins.site(width):
            module = self.builder.build()
        if self.stochastic is not None:
            # In `vars`, because a class may have a property of this name
            vars(module)["stochastic"] = self.stochastic
        return module

    def __reduce__(self) -> Any:
        return Factory, (self.spec,)  # another process imports the target itself


@validated_but("spec")
def factory(spec: Activation) -> Factory:
    """Return a picklable factory for ``spec`` (see `create`), after one trial call.

    A network calls the factory with the number of features at each site (dimension 1 of the input);
    a call without it suits activations that do not need this number. The trial leaves torch's
    global CPU generator unchanged. The path of a user's file becomes absolute.

    Raises:
        ActlabError: see `create`.

    >>> act = factory({"name": "elu", "alpha": 0.5})
    >>> act.spec.plain, act()
    ({'name': 'elu', 'alpha': 0.5}, ELU(alpha=0.5))
    >>> act() is act()
    False
    """
    build = Factory(Spec.of(spec).located())
    with torch.random.fork_rng(devices=[]):
        # Raises errors of the activation here, before a network is built
        build(24)  # features
    return build


# Of torch; ours declare it
_ELEMENTWISE = {
    nn.CELU,
    nn.ELU,
    nn.GELU,
    nn.Hardshrink,
    nn.Hardsigmoid,
    nn.Hardswish,
    nn.Hardtanh,
    nn.Identity,
    nn.LeakyReLU,
    nn.LogSigmoid,
    nn.Mish,
    nn.ReLU,
    nn.ReLU6,
    nn.SELU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Softplus,
    nn.Softshrink,
    nn.Softsign,
    nn.Tanh,
    nn.Tanhshrink,
    nn.Threshold,
}
_DETERMINISTIC = {*_ELEMENTWISE, nn.PReLU, nn.GLU, nn.Softmax, nn.Linear, nn.Flatten}


def is_elementwise(module: nn.Module) -> bool:
    """Whether an activation is known to act elementwise, without parameters or buffers.

    Such a module also accepts a tensor with an additional leading axis. The known activations are
    torch's own and classes that set ``elementwise = True``, such as this package's.

    >>> is_elementwise(create("gelu")), is_elementwise(create("prelu"))  # a learnt slope
    (True, False)
    """
    # They belong to one run, so one module cannot serve several
    if [*module.parameters(), *module.buffers()]:
        return False
    if type(module) is nn.Sequential:
        return all(is_elementwise(part) for part in module)
    return type(module) in _ELEMENTWISE or declared(module, "elementwise") is True


def declared(module: nn.Module, name: str) -> Any:
    """Return the declaration ``name``, such as ``elementwise``, of a module or its class, or None.

    A declaration describes the ``forward`` of its class: a subclass that overrides ``forward`` must
    declare the attribute again.
    """
    # An instance may declare for itself.
    if name in vars(module):
        return vars(module)[name]

    # Look at classes up to the one that defines ``forward``.
    for kind in type(module).__mro__:
        if name in vars(kind):
            return getattr(module, name)
        if "forward" in vars(kind):
            return None
    return None


def has_surrogate_gradient(module: nn.Module) -> bool:
    """Whether an activation, or a module inside it, declares ``surrogate_gradient = True``.

    A surrogate gradient is not the derivative of the output, as in a straight-through estimator.

    >>> has_surrogate_gradient(create("gelu"))
    False
    """
    return any(
        declared(part, "surrogate_gradient") is True for part in module.modules()
    )


def is_stochastic(module: nn.Module) -> bool:
    """Whether an activation may draw random numbers in training.

    True unless it is known to be deterministic. The known modules are torch's own activations and
    modules that declare ``stochastic``; this package's classes and all modules created from a
    registered name do.

    >>> is_stochastic(create("gelu")), is_stochastic(create("soi"))
    (False, True)
    """
    # Whatever a class declares
    if any(isinstance(part, Uniform) for part in module.modules()):
        return True
    # Then a declaration decides
    declaration = declared(module, "stochastic")
    if isinstance(declaration, bool):
        return declaration
    # A container draws if a part of it does
    if type(module) is nn.Sequential:
        return any(is_stochastic(part) for part in module)
    # An unknown class may draw
    return type(module) not in _DETERMINISTIC
