"""What a network may hold that no stacked form would keep: then its runs are trained one by one."""

from __future__ import annotations

from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from actlab import streams
from actlab.networks import Dropout
from actlab.stacking import layers

# What the forms of the table keep of a layer's own tensors; those of users know their layers.
_KEPT: dict[layers.Form, set[str]] = {
    layers.StackedLinear: {"weight", "bias"},
    layers.StackedFlatten: set(),
    layers.stacked_dropout: set(),
    layers.stacked_sequential: set(),
    layers.walked: set(),
}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def reason_against_holding(network: nn.Module) -> str | None:
    """Why the parameters or layers of a network, as they are held, cannot be stacked; None where they can."""
    known: dict[int, str] = {}
    for name, parameter in network.named_parameters(remove_duplicate=False):
        if (first := known.setdefault(id(parameter), name)) != name:
            return f"{first} and {name} are one parameter"
        if not parameter.requires_grad:
            return f"{name} is not trained (requires_grad is False)"
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            return f"{name} has a hook on its gradient"
    parents: dict[int, str] = {}
    for name, module in network.named_modules(remove_duplicate=False):
        parent = name.rpartition(".")[0]
        # Two forms of it would draw equal numbers; within one parent it stays one.
        if isinstance(module, Dropout) and parents.setdefault(id(module), parent) != parent:
            return f"{name} ({type(module).__name__}) acts in two parts of the network"
        layer = f"{name or 'the network'} ({type(module).__name__})"
        if is_parametrized(module):
            return f"{layer} is parametrized"
        if module.training != network.training:
            return f"{layer} is kept in {'training' if module.training else 'evaluation'} mode"
        if "forward" in vars(module):
            return f"{layer} has been given another forward"
        hooks = [hook for kind in _HOOKS for hook in getattr(module, kind).values()]
        if any(not isinstance(hook, streams.SeedGlobal) for hook in hooks):
            return f"{layer} has a hook"
        own = {
            name for name, _ in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
        }
        form = layers.form_of(module)
        if form in _KEPT and (more := own - _KEPT[form]):
            return f"{layer} holds {min(more)!r}, which its stacked form would not keep"
    return None
