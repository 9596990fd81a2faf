"""Properties of one activation, each measured in a second or less: what `actlab check` prints.

Each row builds the activation once, with the same random numbers, and compares copies. An exception
of third-party code is the text of its row.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from actlab import activations
from actlab.activations import Activation, create
from actlab.checks import gradient_trial
from actlab.checks.activation_trial import check_call, gradient_of, state_of
from actlab.checks.cost import ROUNDS, in_parts, kept_for_backward
from actlab.checks.gradient_trial import copied, differs, wrong_share
from actlab.checks.rows import COST, NAMES, OUTPUT, REQUIRED, Property
from actlab.errors import ActlabError
from actlab.errors.messages import described
from actlab.random.seeding import own_generators
from actlab.random.seeding_hooks import SeedGlobal
from actlab.random.streams import Stream, attach
from actlab.runtime.machine import is_busy
from actlab.runtime.signals import Report
from actlab.runtime.third_party import calling
from actlab.stacking.layers import PerMember, stack
from actlab.tasks.building import fault_of_learning, fault_of_made
from actlab.tasks.randomness import drawing

WIDTH = 24  # features
SHAPES = {"vectors": (64, WIDTH), "pictures": (16, WIDTH, 6, 6), "sequences": (16, 10, WIDTH)}
WIDE = 1e4  # largest input of the wide range
COMPARED = ("relu", "gelu")
_TIMED = 2**18  # elements of the input that is timed
_STEADY = (
    2.0  # times the lowest of five ratios of times, at most, that the highest is on an idle machine
)

Make = Callable[[], nn.Module]
Row = Callable[[Make, Tensor], str]
"""Returns the text of a row, measured at inputs of a shape that the activation accepts."""


def report_rows(spec: Activation, report: Report) -> None:
    """Report the properties of an activation one by one, to the process that prints them."""
    for row in measure(spec):
        report("measured", row)


def measure(spec: Activation) -> Iterator[Property]:
    """Yield the properties of an activation, up to the first violated requirement."""
    make = partial(activations.factory(spec), WIDTH)
    inputs = {kind: _normal(*shape) for kind, shape in SHAPES.items()}
    tried = {kind: _tried(OUTPUT, _output, make, x) for kind, x in inputs.items()}
    accepted = sorted(inputs, key=lambda kind: not tried[kind].ok)  # these first
    x, texts = inputs[accepted[0]], dict[str, list[str]]()
    for kind in accepted:
        texts.setdefault(tried[kind].text, []).append(kind)
    text = "; ".join(f"{', '.join(kinds)}: {text}" for text, kinds in texts.items())
    yield (row := tried[accepted[0]]._replace(text=text))
    for name, function in ROWS.items():
        if row.required and row.ok is False:
            return  # other rows would repeat the same fault
        yield (row := _tried(name, function, make, x))
    yield from _costs(make, x)


def _tried(name: str, function: Row, make: Make, x: Tensor) -> Property:
    required = name in REQUIRED
    ok = True if required else None
    try:
        with warnings.catch_warnings(), calling(), own_generators(0):
            warnings.simplefilter("ignore")  # of third-party code
            text = function(make, x)
    except _OutcomeError as outcome:
        text, ok = outcome.args
    except ActlabError as violation:
        text, ok = str(violation), False
    except Exception as error:  # third-party code may raise anything
        text, ok = f"raises {described(error, 120)}", False
    return Property(name, text, ok, required)


class _OutcomeError(Exception):
    """Ends a row with a text and ``ok``: False for a violation, None if a measurement is impossible."""


def _require(holds: bool, text: str | None, ok: bool | None = False) -> None:
    if not holds:
        raise _OutcomeError(text, ok)


def _normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def _filled(values: Tensor, like: Tensor) -> Tensor:
    """Return values in as many rows of inputs as they need; the last value fills the last row."""
    rows = -(-len(values) // like[0].numel())
    return values[torch.arange(rows * like[0].numel()).clamp(max=len(values) - 1)].view(
        rows, *like.shape[1:]
    )


def _value(activation: nn.Module, x: Tensor) -> Tensor:
    """Return the output of a copy in evaluation, which must not be random."""
    with torch.no_grad():
        y: Tensor = copied(activation.eval())(x)
        again: Tensor = copied(activation)(x)
    _require(
        torch.equal(y.nan_to_num(), again.nan_to_num()), "not compared: random in evaluation", None
    )
    return y


# Requirements: those of `actlab.checks.activation_trial`.


def _output(make: Make, x: Tensor) -> str:
    activation = make()
    for twin in (copied(activation).train(), copied(activation).eval()):
        before = state_of(x)
        check_call(twin, x, twin(x), before)
    _require(not (fault := gradient_trial.fault_of_rows(activation, x)), fault)
    return "shape and dtype of the input, finite, as declared"


def _gradient(make: Make, x: Tensor) -> str:
    activation = make()
    known = {name for name, _ in activation.named_parameters()}
    total = activation(x).sum()
    fault = fault_of_made(activation, known) or fault_of_learning(
        total, {id(p) for p in activation.parameters()}, activation
    )
    _require(not fault, fault)
    gradient = gradient_of(activation, x)
    _require(bool(gradient.isfinite().all()), "non-finite for finite inputs")
    _require(bool(gradient.any()), "zero: the layers below cannot learn")
    return f"nonzero for {100 * float((gradient != 0).float().mean()):.0f} % of normal inputs"


def _differences(make: Make, x: Tensor) -> str:
    activation = make()
    activation(x)  # creates lazy parameters
    _require(not (fault := gradient_trial.fault_of_gradient(activation, x)), fault)
    return _compared(activation, wrong_share(activation, x))


def _compared(activation: nn.Module, share: float | None) -> str:
    _require(
        share is not None, "not compared: calls with the same random numbers differ or raise", None
    )
    surrogate = activations.has_surrogate_gradient(activation)
    if share:
        return f"declared a surrogate: {differs(share)}" if surrogate else differs(share)
    equal = "equals the difference quotient"
    return f"declared a surrogate, but {equal}" if surrogate else equal


# Information.


def _wide(make: Make, x: Tensor) -> str:
    size = torch.logspace(-8, math.log10(WIDE), 4000, dtype=torch.float32)
    x = _filled(torch.cat([torch.zeros(1), torch.stack([-size, size], 1).flatten()]), x)  # by size
    y = make().eval()(x.requires_grad_())
    (gradient,) = torch.autograd.grad(y.sum(), x)
    for name, values in (("value", y), ("gradient", gradient)):
        if (wrong := ~values.isfinite()).any():
            _require(False, f"{name} {float(values[wrong][0])} at x = {float(x[wrong][0]):.3g}")
    return f"value and gradient finite for |x| up to {WIDE:g}"


def _low(make: Make, x: Tensor, dtype: torch.dtype) -> str:
    activation = make()
    exact, y = _value(activation, x), _value(activation.to(dtype), x.to(dtype))
    _require(y.dtype == dtype, f"returns {y.dtype}")
    if (wrong := ~y.isfinite()).any():
        _require(False, f"value {float(y[wrong][0])} at x = {float(x[wrong][0]):.3g}")
    error = float((y.float() - exact).abs().max() / exact.abs().max())
    return f"largest error {error:.1g} of the largest value"


def _higher(make: Make, x: Tensor, order: int) -> str:
    activation = make().eval()
    activation(x)  # creates lazy parameters
    at = x.double()
    at.view(-1)[0] = 0
    slope = gradient_trial.derivative(copied(activation).double(), at.requires_grad_(), order)
    _require(bool(slope.isfinite().all()), "not finite")
    known = order == 2 or not wrong_share(activation, x, order - 1)
    _require(known, "not compared: the derivative of the order below differs", None)
    text = _compared(activation, share := wrong_share(activation, x, order))
    _require(not share or activations.has_surrogate_gradient(activation), text)
    return text


def _state(make: Make, x: Tensor) -> str:
    activation = make()
    before = {name: value.clone() for name, value in activation.state_dict().items()}
    learnt = sum(p.numel() for p in activation.parameters())
    text = f"{learnt} learnt parameters, {sum(b.numel() for b in activation.buffers())} numbers in buffers"
    for dtype in {value.dtype for value in before.values() if value.is_floating_point()} - {
        x.dtype
    }:
        low = torch.finfo(dtype).bits < torch.finfo(x.dtype).bits
        text += f"; tensors in {str(dtype)[6:]}{': studies raise them to float32' if low else ''}"
    activation.train()(x)
    moved = [
        name
        for name, value in activation.state_dict().items()
        if not torch.equal(value, before.get(name, value))
    ]
    return text + (f"; a forward pass in training changes {', '.join(moved)}" if moved else "")


def _stacked(make: Make, x: Tensor) -> str:
    members, many = [make().eval() for _ in range(3)], _normal(3, *x.shape)
    for number, member in enumerate(members):
        attach(member, stream := Stream(number))
        for site, part in enumerate(drawing(member)):
            SeedGlobal(stream, site).attach(part)
    alone = torch.stack(
        [copied(member)(sample) for member, sample in zip(members, many, strict=True)]
    )
    whole = stack(members, Stream(range(3))).eval()
    _require(torch.allclose(whole(many), alone, atol=1e-6), "a stack differs from single runs")
    how = "one call per run" if isinstance(whole, PerMember) else "one call for all runs"
    return f"equals single runs in evaluation; {how}"


_FUNCTIONS: tuple[Row, ...] = (
    _gradient,
    _differences,
    _wide,
    partial(_low, dtype=torch.bfloat16),
    partial(_low, dtype=torch.float16),
    partial(_higher, order=2),
    partial(_higher, order=3),
    _state,
    _stacked,
)
ROWS = dict(zip(NAMES[1:-1], _FUNCTIONS, strict=True))  # after the output, before the cost


def _costs(make: Make, like: Tensor) -> Iterator[Property]:
    """Yield time and memory of forward and backward pass, beside ReLU and GELU, timed in turns."""
    x = _normal(-(-_TIMED // like[0].numel()), *like.shape[1:])
    try:
        modules = [make().train(), *(create(name).train() for name in COMPARED)]
        seconds: list[list[float]] = [[] for _ in modules]
        begun, got = time.perf_counter(), time.process_time()
        for _ in range(ROUNDS):
            for activation, of_activation in zip(modules, seconds, strict=True):
                given = x.clone().requires_grad_()
                start = time.perf_counter()
                activation(given).sum().backward()
                of_activation.append(time.perf_counter() - start)
        share = (time.process_time() - got) / (time.perf_counter() - begun)
        kept = [
            kept_for_backward(partial(activation, x.clone().requires_grad_()))
            for activation in modules
        ]
    except Exception as error:  # third-party code may raise anything
        yield Property(COST, f"raises {described(error, 120)}", False)
        return

    # Times that other programs disturbed say nothing
    of_parts = [in_parts(of_activation) for of_activation in seconds]
    ratios = [[a / b for a, b in zip(of_parts[0], base, strict=True)] for base in of_parts[1:]]
    disturbed = any(max(parts) > _STEADY * min(parts) for parts in ratios)
    if disturbed or is_busy(os.getloadavg()[0], os.cpu_count() or 1, share):
        for name in COMPARED:
            yield Property(
                f"cost against {name}", "not measured: other programs keep the machine busy"
            )
        return

    for name, base, base_kept, parts in zip(COMPARED, seconds[1:], kept[1:], ratios, strict=True):
        text = f"{min(seconds[0]) / min(base):.2f} ({min(parts):.2f} to {max(parts):.2f}) times its time"
        if base_kept:
            text += f", {kept[0] / base_kept:.2f} times its memory for the backward pass"
        yield Property(f"cost against {name}", text)
