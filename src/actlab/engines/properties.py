"""Properties of one activation, each measured in a second or less: what `actlab check` prints.

An exception of third-party code is the text of its row.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from actlab import activations
from actlab.activations import Spec, create
from actlab.engines.activation_trial import Input, check_call, gradient_of
from actlab.engines.cost import ROUNDS, in_parts, kept_for_backward
from actlab.engines.gradient_trial import differs, fault_of_gradient, wrong_share
from actlab.errors import ActlabError, described
from actlab.random.seeding import own_generators
from actlab.random.streams import Stream, attach
from actlab.runtime.third_party import calling
from actlab.stacking.layers import stack
from actlab.tasks.building import fault_of_learning

SHAPE = (64, 24)
WIDE = 1e4  # largest input of the wide range
DEPTH = 20  # layers
COMPARED = ("relu", "gelu")
COST = "time and memory"
_NODES = 200  # of the Gauss-Hermite quadrature
_RARE = 1e-12  # probability of inputs whose values are not finite, up to which they are left out
_SMOOTH = 1e-3  # relative jump of the slope between neighbouring points that counts as a kink

Make = Callable[[], nn.Module]


class Property(NamedTuple):
    """One row of the table.

    ``ok`` is False if a requirement or an expectation is violated, and None for information. Studies reject an
    activation that violates what is ``required``.
    """

    name: str
    text: str
    ok: bool | None = None
    required: bool = False


def measure(spec: Spec) -> Iterator[Property]:
    """Yield the properties of an activation, up to the first violated requirement."""
    make = activations.factory(spec)
    make()
    for name, function in REQUIRED.items():
        yield (found := _tried(name, function, make, required=True))
        if not found.ok:
            return  # other rows would repeat the same fault
    for name, function in INFORMATION.items():
        yield _tried(name, function, make)
    yield from _costs(make)


def _tried(name: str, function: Callable[[Make], Any], make: Make, required: bool = False) -> Property:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch.compile and torch.export
            text = _call(function, make)
    except (_ViolationError, ActlabError) as violation:
        return Property(name, str(violation), False, required)
    except Exception as error:  # third-party code may raise anything
        return Property(name, f"raises {described(error, 120)}", False, required)
    return Property(name, text, True if required else None, required)


@calling()
def _call(function: Callable[[Make], Any], make: Make) -> str:
    with own_generators(0):
        return str(function(make))


class _ViolationError(Exception):
    """A measurement that violates an expectation."""


def _require(holds: bool, text: str) -> None:
    if not holds:
        raise _ViolationError(text)


def _normal(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*(shape or SHAPE), generator=generator, dtype=dtype)


def _evaluated(make: Make) -> nn.Module:
    return make().to(torch.float64).eval()


# Requirements: those of `actlab.engines.activation_trial`.


def _output(make: Make) -> str:
    x = _normal()
    for unit in (make().train(), make().eval()):
        before = Input.of(x)
        check_call(unit, x, unit(x), before)
    return "shape and dtype of the input, finite, as declared"


def _gradient(make: Make) -> str:
    unit, x = make(), _normal()
    if fault := fault_of_learning(unit(x).sum(), {id(parameter) for parameter in unit.parameters()}, unit):
        raise _ViolationError(fault)
    gradient = gradient_of(unit, x)
    _require(bool(gradient.isfinite().all()), "non-finite for finite inputs")
    _require(bool(gradient.any()), "zero: the layers below cannot learn")
    return f"nonzero for {100 * float((gradient != 0).float().mean()):.0f} % of normal inputs"


def _differences(make: Make) -> str:
    unit, x = make(), _normal()
    unit(x)  # creates lazy parameters
    if fault := fault_of_gradient(unit, x):
        raise _ViolationError(fault)
    share = wrong_share(unit, x)
    if share is None:
        return "not compared: calls with the same random numbers differ or raise"
    declared = "declared a surrogate" * activations.has_surrogate_gradient(unit)
    if share:
        return f"{declared}: {differs(share)}"
    return f"{declared}{', but ' * bool(declared)}equals the difference quotient"


# Information.


def _wide(make: Make) -> str:
    size = torch.logspace(-8, math.log10(WIDE), 4000, dtype=torch.float32)
    x = torch.cat([torch.zeros(1), torch.stack([-size, size], 1).flatten()]).requires_grad_()  # by size
    y = make().eval()(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    for name, found in (("value", y), ("gradient", gradient)):
        if (wrong := ~found.isfinite()).any():
            raise _ViolationError(f"{name} {float(found[wrong][0])} at x = {float(x[wrong][0]):.3g}")
    return f"value and gradient finite for |x| up to {WIDE:g}"


def _low(make: Make, dtype: torch.dtype) -> str:
    x = _normal()
    y = make().to(dtype).eval()(x.to(dtype))
    exact = make().eval()(x)
    _require(y.dtype == dtype, f"returns {y.dtype}")
    if (wrong := ~y.isfinite()).any():
        raise _ViolationError(f"value {float(y[wrong][0])} at x = {float(x[wrong][0]):.3g}")
    error = float((y.float() - exact).abs().max() / exact.abs().max())
    return f"largest error {error:.1g} of the largest value"


def _second(make: Make) -> str:
    x = _normal(dtype=torch.float64).requires_grad_()
    (first,) = torch.autograd.grad(_evaluated(make)(x).sum(), x, create_graph=True)
    if first.grad_fn is None:
        return "zero: the gradient is constant in pieces"
    (second,) = torch.autograd.grad(first.sum(), x, allow_unused=True)
    if second is None or not second.any():
        return "zero: the gradient is constant in pieces"
    _require(bool(second.isfinite().all()), "not finite")
    return f"finite, from {float(second.min()):.3g} to {float(second.max()):.3g}"


def _forward_mode(make: Make) -> str:
    unit, x = _evaluated(make), _normal(dtype=torch.float64)
    tangent = torch.func.jvp(unit, (x,), (torch.ones_like(x),))[1]
    copy = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(unit(copy).sum(), copy)
    return "works, equals the gradient" if torch.allclose(tangent, gradient) else "works (elements are mixed)"


def _compile(make: Make) -> str:
    torch.compiler.reset()
    unit, x = make().eval(), _normal()
    compiled = torch.compile(unit, backend="aot_eager", fullgraph=True)
    return _same(compiled(x), unit(x), "one graph, same values")


def _vmap(make: Make) -> str:
    unit, x = make().eval(), _normal(3, *SHAPE)
    return _same(torch.func.vmap(unit)(x), torch.stack([unit(one) for one in x]), "works, same values")


def _export(make: Make) -> str:
    unit, x = make().eval(), _normal()
    return _same(torch.export.export(unit, (x,)).module()(x), unit(x), "works, same values")


def _same(y: Tensor, expected: Tensor, text: str) -> str:
    _require(torch.allclose(y, expected, atol=1e-6), "other values than a plain call")
    return text


def _state(make: Make) -> str:
    unit = make()
    before = {name: value.clone() for name, value in unit.state_dict().items()}
    learnt = sum(p.numel() for p in unit.parameters())
    unit.train()(_normal()).sum()
    moved = [
        name for name, value in unit.state_dict().items() if not torch.equal(value, before.get(name, value))
    ]
    text = f"{learnt} learnt parameters, {sum(b.numel() for b in unit.buffers())} numbers in buffers"
    return text + (f"; a forward pass in training changes {', '.join(moved)}" if moved else "")


def _randomness(make: Make) -> str:
    unit, x = make(), _normal()
    first, second = unit.train()(x), unit.train()(x)
    still = torch.equal(unit.eval()(x), unit.eval()(x))
    if torch.equal(first, second):
        return "none" if still else "only in evaluation"
    return "in training; evaluation is deterministic" if still else "in training and in evaluation"


def _stacked(make: Make) -> str:
    members = [make() for _ in range(3)]
    x = _normal(3, *SHAPE)
    alone = []
    for number, member in enumerate(members):
        attach(member, Stream(number))
        alone.append(member.eval()(x[number]))
    together = stack([make() for _ in range(3)], Stream(range(3))).eval()(x)
    _require(torch.allclose(together, torch.stack(alone), atol=1e-6), "a stack differs from single runs")
    one = activations.is_elementwise(members[0])
    how = "one call for all runs" if one else "one call per run (not declared elementwise)"
    return f"equals single runs in evaluation; {how}"


def _grid(make: Make) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return inputs and values of an activation that acts on each element, in evaluation, as float64.

    The inputs are the longest part of [-30, 30] with finite values; "wide inputs" names others.
    """
    x = torch.arange(-30_000, 30_001, dtype=torch.float64) / 1000
    unit = _evaluated(make)
    if any(p.numel() > 1 for p in unit.parameters()):
        raise _ViolationError("not a function of one number: it has parameters for several channels")
    with torch.no_grad():
        y, again, some = unit(x), unit(x), unit(x[::7].unsqueeze(1)).squeeze(1)
    if not torch.equal(y.nan_to_num(), again.nan_to_num()):
        raise _ViolationError("not a function of one number: random in evaluation")
    if not torch.allclose(y[::7], some, equal_nan=True):
        raise _ViolationError("not a function of one number: elements influence each other")
    ends = np.flatnonzero(np.concatenate([[True], ~y.isfinite().numpy(), [True]]))
    longest = int(np.diff(ends).argmax())
    finite = slice(ends[longest], ends[longest + 1] - 1)
    return x.numpy()[finite], y.numpy()[finite]


def _course(make: Make) -> str:
    x, y = _grid(make)
    rises, falls = (np.diff(y) >= -1e-12).all(), (np.diff(y) <= 1e-12).all()
    course = "increasing" if rises else "decreasing" if falls else "neither increasing nor decreasing"
    where = {
        (True, True): "bounded",
        (True, False): "bounded on the left",
        (False, True): "bounded on the right",
        (False, False): "unbounded",
    }[bool(abs(y[0] - y[1000]) < 1e-2), bool(abs(y[-1] - y[-1001]) < 1e-2)]
    zero = f", f(0) = {float(np.interp(0.0, x, y)):.3g}" if x[0] <= 0 <= x[-1] else ""
    return f"{course}, {where}, from {y.min():.3g} to {y.max():.3g} on [{x[0]:.3g}, {x[-1]:.3g}]{zero}"


def _kinks(make: Make) -> str:
    x, y = _grid(make)
    slope = np.diff(y) / np.diff(x)
    jumps = np.abs(np.diff(slope))
    step = x[1] - x[0]
    places = x[1:-1][jumps > max(_SMOOTH, 20 * step * np.abs(slope).max())]
    if not places.size:
        return "smooth"
    others = f" and {places.size - 1} neighbours" if places.size > 1 else ""
    return f"kink or jump near x = {places[0]:.3g}{others}"


def _moments(make: Make) -> str:
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    weights = weights / weights.sum()
    unit = _evaluated(make)
    _grid(make)  # raises if it is not a function of one number

    def second_moment(variance: float) -> tuple[float, float]:
        with torch.no_grad():
            y = unit(torch.from_numpy(math.sqrt(variance) * nodes)).numpy()
        finite = np.isfinite(y)
        if weights[~finite].sum() > _RARE:
            return math.inf, math.inf
        return float(weights[finite] @ y[finite]), float(weights[finite] @ y[finite] ** 2)

    mean, square = second_moment(1.0)
    _require(math.isfinite(square), "undefined: values at normal inputs are not finite, see wide inputs")
    signal = 1.0
    for _ in range(DEPTH):
        signal = 2 * second_moment(signal)[1]
        if not 1e-12 < signal < 1e12:
            break
    end = f"{signal:.3g}" if 1e-12 < signal < 1e12 else "0" if signal < 1 else "∞"
    return (
        f"mean {mean:.3g}, variance {square - mean**2:.3g} under a normal input; {DEPTH} wide layers with He's "
        f"initial weights change the variance of inputs by {end}"
    )


REQUIRED: dict[str, Callable[[Make], str]] = {
    "output": _output,
    "gradient": _gradient,
    "gradient against differences": _differences,
}
INFORMATION: dict[str, Callable[[Make], str]] = {
    "wide inputs": _wide,
    "bfloat16": partial(_low, dtype=torch.bfloat16),
    "float16": partial(_low, dtype=torch.float16),
    "second derivative": _second,
    "forward-mode derivative": _forward_mode,
    "torch.compile": _compile,
    "vmap": _vmap,
    "torch.export": _export,
    "state": _state,
    "randomness": _randomness,
    "in stacks": _stacked,
    "course": _course,
    "smoothness": _kinks,
    "signals": _moments,
}


def _costs(make: Make) -> Iterator[Property]:
    """Yield time and memory of forward and backward pass, beside ReLU and GELU."""
    x = _normal(512, 512)
    try:
        mine, *others = _timed([make, *(partial(create, name) for name in COMPARED)], x)
    except Exception as error:  # third-party code may raise anything
        yield Property(COST, f"raises {described(error, 120)}", False)
        return
    seconds, kept = mine
    for name, (their_seconds, their_kept) in zip(COMPARED, others, strict=True):
        ratio = min(seconds) / min(their_seconds)
        parts = [a / b for a, b in zip(in_parts(seconds), in_parts(their_seconds), strict=True)]
        text = f"{ratio:.2f} ({min(parts):.2f} to {max(parts):.2f}) times its time"
        if their_kept:
            text += f", {kept / their_kept:.2f} times its memory for the backward pass"
        yield Property(f"cost against {name}", text)


def _timed(makers: list[Make], x: Tensor) -> list[tuple[list[float], int]]:
    """Return for some activations, timed in turns, the seconds of passes and the bytes kept between them."""
    units = [make().train() for make in makers]
    seconds: list[list[float]] = [[] for _ in units]
    for _ in range(ROUNDS):
        for unit, of_unit in zip(units, seconds, strict=True):
            given = x.clone().requires_grad_()
            start = time.perf_counter()
            unit(given).sum().backward()
            of_unit.append(time.perf_counter() - start)
    kept = [kept_for_backward(partial(unit, x.clone().requires_grad_())) for unit in units]
    return [*zip(seconds, kept, strict=True)]


def failures(properties: list[Property]) -> list[str]:
    """Return the names of violated requirements."""
    return [one.name for one in properties if one.required and one.ok is False]
