"""Properties of one activation, each measured in a second or less: what `actlab check` prints.

Each row builds the activation once, with the same random numbers, and compares copies. An exception
of third-party code is the text of its row.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
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
SHAPES = {
    "vectors": (64, WIDTH),
    "pictures": (16, WIDTH, 6, 6),
    "sequences": (16, 10, WIDTH),
}
WIDE = 1e4  # largest input of the wide range
COMPARED = ("relu", "gelu")
_TIMED = 2**18  # elements of the input that is timed
# On an idle machine, the highest of five ratios of times is at most this many times the
# lowest.
_STEADY = 2.0

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

    # Try inputs of each shape. Other rows are measured at the first accepted shape.
    inputs = {}
    outputs = {}
    for kind, shape in SHAPES.items():
        inputs[kind] = _normal(*shape)
        outputs[kind] = _tried(OUTPUT, _output, make, inputs[kind])
    kinds = sorted(inputs, key=lambda kind: not outputs[kind].ok)
    x = inputs[kinds[0]]

    # Name the shapes that have the same outcome together.
    kinds_by_text: dict[str, list[str]] = {}
    for kind in kinds:
        kinds_by_text.setdefault(outputs[kind].text, []).append(kind)
    texts = [f"{', '.join(names)}: {text}" for text, names in kinds_by_text.items()]
    row = outputs[kinds[0]]._replace(text="; ".join(texts))
    yield row

    # After a violated requirement, other rows would repeat the same fault.
    for name, function in ROWS.items():
        if row.required and row.ok is False:
            return
        row = _tried(name, function, make, x)
        yield row
    yield from _costs(make, x)


def _tried(name: str, function: Row, make: Make, x: Tensor) -> Property:
    """Return the row of a measurement, whatever the measurement raises."""
    # A row that is not required is information, unless it shows a violation.
    required = name in REQUIRED
    ok = True if required else None
    try:
        with warnings.catch_warnings(), calling(), own_generators(0):
            warnings.simplefilter("ignore")  # of third-party code
            text = function(make, x)
    except _OutcomeError as outcome:  # the measurement has ended the row itself
        text, ok = outcome.args
    except ActlabError as violation:
        text = str(violation)
        ok = False
    except Exception as error:  # third-party code may raise anything
        text = f"raises {described(error, 120)}"
        ok = False
    return Property(name, text, ok, required)


class _OutcomeError(Exception):
    """Ends a row with its text and its `Property.ok`; None where the row cannot be measured."""


def _require(holds: bool, text: str | None, ok: bool | None = False) -> None:
    if not holds:
        raise _OutcomeError(text, ok)


def _normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def _fill(values: Tensor, example: Tensor) -> Tensor:
    """Return values in as many rows as they need; the last value fills the last row."""
    size = example[0].numel()
    rows = -(-len(values) // size)
    positions = torch.arange(rows * size).clamp(max=len(values) - 1)
    return values[positions].view(rows, *example.shape[1:])


def _value(activation: nn.Module, x: Tensor) -> Tensor:
    """Return the output of a copy in evaluation, which must not be random."""
    with torch.no_grad():
        y: Tensor = copied(activation.eval())(x)
        again: Tensor = copied(activation)(x)

    is_equal = torch.equal(y.nan_to_num(), again.nan_to_num())
    _require(is_equal, "not compared: random in evaluation", None)
    return y


# Requirements, as in `actlab.checks.activation_trial`.


def _output(make: Make, x: Tensor) -> str:
    activation = make()
    for twin in (copied(activation).train(), copied(activation).eval()):
        before = state_of(x)
        check_call(twin, x, twin(x), before)

    fault = gradient_trial.fault_of_rows(activation, x)
    _require(not fault, fault)
    return "shape and dtype of the input, finite, as declared"


def _gradient(make: Make, x: Tensor) -> str:
    activation = make()
    names = {name for name, _ in activation.named_parameters()}

    # All tensors that it trains must be its parameters.
    total = activation(x).sum()
    parameters = {id(parameter) for parameter in activation.parameters()}
    fault = fault_of_made(activation, names) or fault_of_learning(
        total, parameters, activation
    )
    _require(not fault, fault)

    # The share of inputs with a gradient, in percent
    gradient = gradient_of(activation, x)
    _require(bool(gradient.isfinite().all()), "non-finite for finite inputs")
    _require(bool(gradient.any()), "zero: the layers below cannot learn")
    share = float((gradient != 0).float().mean())
    return f"nonzero for {100 * share:.0f} % of normal inputs"


def _differences(make: Make, x: Tensor) -> str:
    activation = make()
    activation(x)  # creates lazy parameters

    fault = gradient_trial.fault_of_gradient(activation, x)
    _require(not fault, fault)
    return _compared(activation, wrong_share(activation, x))


def _compared(activation: nn.Module, share: float | None) -> str:
    """Return the outcome of a comparison in words; a share of None could not be compared."""
    if share is None:
        reason = "not compared: calls with the same random numbers differ or raise"
        raise _OutcomeError(reason, None)

    surrogate = activations.has_surrogate_gradient(activation)
    if share:
        outcome = differs(share)
        return f"declared a surrogate: {outcome}" if surrogate else outcome
    outcome = "equals the difference quotient"
    return f"declared a surrogate, but {outcome}" if surrogate else outcome


# Information.


def _wide(make: Make, x: Tensor) -> str:
    # Order the inputs by size, so that a fault names the smallest.
    sizes = torch.logspace(-8, math.log10(WIDE), 4000, dtype=torch.float32)
    pairs = torch.stack([-sizes, sizes], 1).flatten()
    x = _fill(torch.cat([torch.zeros(1), pairs]), x)

    y = make().eval()(x.requires_grad_())
    (gradient,) = torch.autograd.grad(y.sum(), x)
    _require_finite("value", y, x)
    _require_finite("gradient", gradient, x)
    return f"value and gradient finite for |x| up to {WIDE:g}"


def _require_finite(name: str, values: Tensor, x: Tensor) -> None:
    wrong = ~values.isfinite()
    if wrong.any():
        value = float(values[wrong][0])
        text = f"{name} {value} at x = {float(x[wrong][0]):.3g}"
        raise _OutcomeError(text, False)


def _low(make: Make, x: Tensor, dtype: torch.dtype) -> str:
    activation = make()
    exact = _value(activation, x)
    y = _value(activation.to(dtype), x.to(dtype))
    _require(y.dtype == dtype, f"returns {y.dtype}")
    _require_finite("value", y, x)

    error = float((y.float() - exact).abs().max() / exact.abs().max())
    return f"largest error {error:.1g} of the largest value"


def _higher(make: Make, x: Tensor, order: int) -> str:
    activation = make().eval()
    activation(x)  # creates lazy parameters

    # The derivative must be finite, also at 0.
    inputs = x.double()
    inputs.view(-1)[0] = 0
    twin = copied(activation).double()
    slope = gradient_trial.derivative(twin, inputs.requires_grad_(), order)
    _require(bool(slope.isfinite().all()), "not finite")

    # A difference quotient needs a right derivative of the order below.
    is_comparable = order == 2 or not wrong_share(activation, x, order - 1)
    _require(
        is_comparable, "not compared: the derivative of the order below differs", None
    )

    # A declared surrogate gradient may differ
    share = wrong_share(activation, x, order)
    text = _compared(activation, share)
    _require(not share or activations.has_surrogate_gradient(activation), text)
    return text


def _state(make: Make, x: Tensor) -> str:
    activation = make()
    before = {name: value.clone() for name, value in activation.state_dict().items()}

    # Count the numbers of the state.
    learnt = sum(parameter.numel() for parameter in activation.parameters())
    buffered = sum(buffer.numel() for buffer in activation.buffers())
    text = f"{learnt} learnt parameters, {buffered} numbers in buffers"

    # Name the dtypes that differ from the input's.
    dtypes = {value.dtype for value in before.values() if value.is_floating_point()}
    for dtype in dtypes - {x.dtype}:
        text += f"; tensors in {str(dtype)[6:]}"
        if torch.finfo(dtype).bits < torch.finfo(x.dtype).bits:
            text += ": studies raise them to float32"

    # Name what a call in training changes.
    activation.train()(x)
    changed = []
    for name, value in activation.state_dict().items():
        if not torch.equal(value, before.get(name, value)):
            changed.append(name)
    if changed:
        text += f"; a forward pass in training changes {', '.join(changed)}"
    return text


def _stacked(make: Make, x: Tensor) -> str:
    members = [make().eval() for _ in range(3)]
    samples = _normal(3, *x.shape)

    # Give each member random numbers of its own.
    for number, member in enumerate(members):
        stream = Stream(number)
        attach(member, stream)
        for site, part in enumerate(drawing(member)):
            SeedGlobal(stream, site).attach(part)

    # Compare a stack with the members.
    outputs = []
    for member, sample in zip(members, samples, strict=True):
        outputs.append(copied(member)(sample))
    stacked = stack(members, Stream(range(3))).eval()
    is_equal = torch.allclose(stacked(samples), torch.stack(outputs), atol=1e-6)
    _require(is_equal, "a stack differs from single runs")

    # Without a stacked form, each run is called separately
    calls = (
        "one call per run"
        if isinstance(stacked, PerMember)
        else "one call for all runs"
    )
    return f"equals single runs in evaluation; {calls}"


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
# Rows after the output and before the cost.
ROWS = dict(zip(NAMES[1:-1], _FUNCTIONS, strict=True))


def _costs(make: Make, example: Tensor) -> Iterator[Property]:
    """Yield time and memory of forward and backward pass, as ratios to ReLU and GELU."""
    x = _normal(-(-_TIMED // example[0].numel()), *example.shape[1:])
    try:
        modules = [make().train()]
        for name in COMPARED:
            modules.append(create(name).train())
        seconds, cpu_per_second = _timed(modules, x)
        saved_bytes = []
        for activation in modules:
            forward = partial(activation, x.clone().requires_grad_())
            saved_bytes.append(kept_for_backward(forward))
    except Exception as error:  # third-party code may raise anything
        yield Property(COST, f"raises {described(error, 120)}", False)
        return

    # Compare the shortest times in each part of the rounds with ReLU and GELU.
    parts, *base_parts = [in_parts(durations) for durations in seconds]
    ratios_by_name = {}
    for name, base in zip(COMPARED, base_parts, strict=True):
        ratios_by_name[name] = [a / b for a, b in zip(parts, base, strict=True)]

    # Other programs disturb times.
    disturbed = any(max(r) > _STEADY * min(r) for r in ratios_by_name.values())
    if disturbed or is_busy(os.getloadavg()[0], os.cpu_count() or 1, cpu_per_second):
        for name in COMPARED:
            text = "not measured: other programs keep the machine busy"
            yield Property(f"cost against {name}", text)
        return

    # The shortest times give the ratio, the parts its range
    for number, (name, ratios) in enumerate(ratios_by_name.items(), 1):
        ratio = min(seconds[0]) / min(seconds[number])
        text = f"{ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}) times its time"
        if saved_bytes[number]:
            memory = saved_bytes[0] / saved_bytes[number]
            text += f", {memory:.2f} times its memory for the backward pass"
        yield Property(f"cost against {name}", text)


def _timed(modules: Sequence[nn.Module], x: Tensor) -> tuple[list[list[float]], float]:
    """Return the seconds of each module in each round, and the processor time per second.

    The modules are timed in turns.
    """
    seconds: list[list[float]] = [[] for _ in modules]
    wall_start = time.perf_counter()
    cpu_start = time.process_time()
    for _ in range(ROUNDS):
        for activation, durations in zip(modules, seconds, strict=True):
            inputs = x.clone().requires_grad_()
            start = time.perf_counter()
            activation(inputs).sum().backward()
            durations.append(time.perf_counter() - start)
    cpu = time.process_time() - cpu_start
    return seconds, cpu / (time.perf_counter() - wall_start)
