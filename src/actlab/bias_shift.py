"""How far the unit natural gradient would correct the bias shift of trained layers (ELU §2, claims of §3).

A probe of a study::

    probes:
      - {name: shift, class_path: actlab.bias_shift.BiasShift, at: [0, 1, 5]}

Shapes: ``S`` samples, ``I`` incoming units, ``U`` units of a layer.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from actlab import theory
from actlab.draws import Position, uniform_at
from actlab.errors import ActlabError
from actlab.probes import Measured, Subject
from actlab.tasks import Batch, Task

QUANTILES = (0.25, 0.5, 0.75)


class Layer(NamedTuple):
    """What a linear layer sees of some samples, in float64.

    Args:
        a: incoming activations ``(S, I)``.
        delta: derivative of the log probability of a label drawn from the model, by net input ``(S, U)``.
        observed: the same of the data's label ``(S, U)``.
    """

    a: Tensor
    delta: Tensor
    observed: Tensor


class BiasShift:
    """The correction factor k of every unit of the hidden layers, and what it depends on.

    Measured under ``layer=2``, ``layer=3`` and so on, the first being left out, whose incoming units are the
    inputs: quartiles over units of ``|k − 1|`` as ``k_distance`` under ``layer=2,quantile=0.5``; the median of
    the bias shift by the gradient and by the unit natural gradient, ``shift_of_gradient`` and
    ``shift_of_natural_gradient``, and of the cosine of the two, bias included, ``cosine``; the mean correlation
    of the incoming units, ``correlation``, and of its absolute values, ``absolute_correlation``; the median
    length of E_q(a), ``mean_length``. Incoming units that are constant for a unit's samples make its matrices
    singular: they are left out, ``constant_inputs`` is their mean number. A unit that fewer samples move than
    it has incoming ones has a singular Var_q: its k counts as infinite, and it is in nothing else; one that no
    sample moves has no k. ``units_left_out`` is the share of both.

    Args:
        samples: the first training samples in file order.

    Raises:
        ActlabError: for a number below 2.
    """

    version = 3  # units with a singular Var_q count, whatever makes it singular

    def __init__(self, samples: int = 2000) -> None:
        if samples < 2:
            raise ActlabError(f"samples {samples} of bias shift: give a whole number from 2")
        self.samples = samples

    def __call__(self, subject: Subject, data: Any) -> Iterator[Measured]:
        """Yield everything, by layer."""
        index = torch.arange(min(self.samples, len(data.train)))
        position = Position((0,), 0, index)
        source = getattr(data, "training_samples", data.train)
        batch = tuple(tensor.to(subject.device) for tensor in source.__getitems__(position))
        found: dict[tuple[str, str], list[float]] = {}
        for task in subject.apart():
            for number, layer in enumerate(layers_of(task, batch, position)[1:], 2):
                for (metric, part), value in measure(layer).items():
                    found.setdefault((metric, f"layer={number}{part}"), []).append(value)
        for (metric, condition), values in found.items():
            yield Measured("", metric, condition, torch.tensor(values))


def layers_of(task: Task, batch: Batch, position: Position) -> list[Layer]:
    """What the hidden linear layers of a classifier see, in the order in which they act.

    Args:
        task: in evaluation mode; it is left as it is.
        batch: inputs and labels.
        position: of the batch; the label that the model draws is a function of it.

    Raises:
        ActlabError: for a network whose output is not one row of logits a sample.
    """
    network = copy.deepcopy(task.network).double()
    seen: list[tuple[Tensor, Tensor]] = []

    def note(_: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
        seen.append((given[0], output))
        return output.clone()  # which a unit may overwrite

    sites = tuple(f"{name}." for name in task.sites)
    for name, module in network.named_modules():
        if isinstance(module, nn.Linear) and not name.startswith(sites):  # those of a unit are no layers
            module.register_forward_hook(note)
    *inputs, labels = (*task.inputs(batch), batch[-1])
    device = labels.device.type
    with torch.enable_grad(), torch.autocast(device, enabled=False):
        logits = network(*(x.double() if x.is_floating_point() else x for x in inputs))
        if logits.dim() != 2 or labels.shape != logits.shape[:1]:
            raise ActlabError(f"bias shift asks for logits (B, K) and labels (B,), not {tuple(logits.shape)}")
        log_p = logits.log_softmax(-1)
        below = log_p.detach().exp().cumsum(-1) < uniform_at(position, "label").to(log_p).unsqueeze(-1)
        drawn = below.sum(-1).clamp_max(logits.shape[-1] - 1)
        outputs = [output for _, output in seen[:-1]]
        delta, observed = (
            torch.autograd.grad(log_p.gather(-1, of.unsqueeze(-1)).sum(), outputs, retain_graph=True)
            for of in (drawn, labels)
        )
    return [
        Layer(a.detach().flatten(0, -2), d, o) for (a, _), d, o in zip(seen[:-1], delta, observed, strict=True)
    ]


def measure(layer: Layer) -> dict[tuple[str, str], float]:
    """What one layer shows, by metric and the rest of its condition; see `BiasShift`."""
    distances, shifts, natural, cosines, lengths, constant = [], [], [], [], [], []
    number, singular = layer.delta.shape[1], 0
    for unit in range(number):
        one = of_unit(layer, unit)
        if one is None:
            singular += int(layer.delta[:, unit].any())
            continue
        _, of, g, g0, left_out = one
        update, of_bias = theory.natural_update(of, g, g0)
        constant.append(left_out)
        distances.append(float(theory.correction(of) - 1))
        lengths.append(float(of.mean_q.norm()))
        shifts.append(float(theory.bias_shift(of.mean, g, g0)))
        natural.append(float(theory.bias_shift(of.mean, update, of_bias)))
        plain, corrected = torch.cat([g[0], g0]), torch.cat([update[0], of_bias])
        cosines.append(float(torch.cosine_similarity(plain, corrected, dim=0)))
    k = torch.tensor([*distances, *[math.inf] * singular], dtype=torch.float64).abs()
    found = {
        ("k_distance", f",quantile={q}"): float(k.quantile(q, interpolation="lower")) if len(k) else math.nan
        for q in QUANTILES
    }
    nothing = not distances
    for name, values in (
        ("shift_of_gradient", shifts),
        ("shift_of_natural_gradient", natural),
        ("mean_length", lengths),
    ):
        found[name, ""] = math.nan if nothing else float(torch.tensor(values).abs().median())
    found["cosine", ""] = math.nan if nothing else float(torch.tensor(cosines).median())
    found["correlation", ""], found["absolute_correlation", ""] = correlations(layer.a)
    found["constant_inputs", ""] = math.nan if nothing else sum(constant) / len(constant)
    found["units_left_out", ""] = 1 - len(constant) / number
    return found


def of_unit(layer: Layer, unit: int) -> tuple[Tensor, theory.Moments, Tensor, Tensor, int] | None:
    """One unit's incoming activations, moments and gradients, without what is constant for it.

    Returns:
        Activations ``(S, I)``, moments of one unit, gradients ``(1, I)`` and ``(1,)``, and how many incoming
        units were left out; None where Var_q is singular: too few samples move the unit, or its incoming ones
        are linearly dependent.
    """
    delta = layer.delta[:, unit : unit + 1]
    moving = layer.a[delta[:, 0] != 0]
    if len(moving) < 2:
        return None
    kept = theory.varying(moving)
    if not kept.any() or len(moving) <= int(kept.sum()):
        return None
    a = layer.a[:, kept]
    of = theory.moments(a, delta)
    if not theory.is_definite(of.variance_q).all():
        return None
    observed = layer.observed[:, unit]
    g, g0 = (observed @ a / len(a)).unsqueeze(0), observed.mean().unsqueeze(0)
    return a, of, g, g0, int((~kept).sum())


def correlations(a: Tensor) -> tuple[float, float]:
    """Mean correlation of two of the units that vary, and the mean of its absolute values."""
    of = torch.corrcoef(a[:, theory.varying(a)].T)
    number = len(of) if of.dim() else 1
    pairs = number * (number - 1)
    sums = (of.sum() - number, of.abs().sum() - number)
    return (float(sums[0] / pairs), float(sums[1] / pairs)) if pairs else (math.nan, math.nan)
