"""How much the unit natural gradient would correct the bias shift of trained layers (ELU §2, claims of §3).

Shapes: ``B`` batch, ``I`` incoming units, ``U`` units of a layer, ``K`` classes.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import torch
from annotated_types import Ge
from torch import Tensor, nn

from actlab.errors import ActlabError
from actlab.probes import theory
from actlab.probes.noise import EachRun, Metrics
from actlab.random.positions import Position
from actlab.tasks import Batch, Task
from actlab.validation import validated

BATCH = 500  # samples whose activations are in memory at the same time
QUANTILES = (0.25, 0.5, 0.75)
Several = Annotated[int, Ge(2)]


class Layer(NamedTuple):
    """Inputs and gradients of a linear layer for some samples, in float64; δ_c = ∂ log p_c / ∂ net input."""

    a: Tensor  # incoming activations, (B, I)
    weight: Tensor  # E(δ²) = Σ_c p_c δ_c² over labels drawn from the model, (B, U)
    observed: Tensor  # δ of the data's label, (B, U)


class BiasShift(EachRun):
    """Measure the correction factor k of every unit of the hidden layers, and related statistics.

    Values are yielded under ``layer=2``, ``layer=3`` and so on; the incoming units of layer 1 are
    inputs.

    Metrics over the units with a k: ``k_distance``, quartiles of |k − 1| under
    ``layer=2,quantile=0.5``; ``shift_of_gradient`` and ``shift_of_natural_gradient``, the median
    absolute bias shift by the gradient and by the unit natural gradient; ``cosine``, the median
    cosine between the two updates, bias included; ``mean_length``, the median length of E_q(a);
    ``constant_inputs``, the mean number of incoming units that are constant over a unit's samples.
    These make the unit's matrices singular and are left out.

    Metrics over all units: ``unmoved_units``, the share of units with δ = 0 for every sample, and
    ``singular_units``, the share whose Var_q is singular for another reason: fewer samples than
    incoming units, or linear dependence. Units of both kinds have no k. ``effective_samples`` is
    the median of Kish's (Σ w)² / Σ w² over the moved units, where w are the weights of a unit.
    ``correlation`` and ``absolute_correlation`` are means over pairs of incoming units.

    Memory, in float64: U (I + 1)(I + 2) / 2 numbers for each layer (8.6 MB for 128 units of 128),
    ``BATCH`` times (I + 1)(I + 2) for a batch (67 MB), and about 20 times the memory of a layer
    while its matrices are inverted (170 MB).

    Args:
        samples: number of training samples, the first in file order, at least 2; all by default.
        layers: numbers of the hidden layers, at least 2; all by default.
    """

    version = 4  # exact sum over labels, all samples, singular units reported separately from k

    @validated
    def __init__(self, samples: Several | None = None, layers: Sequence[int] | None = None) -> None:
        if layers is not None and (not layers or min(layers) < 2):
            raise ActlabError(
                f"layers {list(layers)} of bias shift: give numbers of hidden layers, at least 2"
            )
        self.samples, self.layers = samples, layers

    def _measure(self, task: Task, data: Any, device: torch.device) -> Metrics:
        sums: dict[int, Sums] = {}
        for batch in first_batches(data, self.samples, device):
            for number, layer in layers_of(task, batch, self.layers).items():
                sums.setdefault(number, Sums(layer)).add(layer)
        return {
            (metric, f"layer={number}{part}"): value
            for number, layer_sums in sums.items()
            for (metric, part), value in measure(layer_sums).items()
        }


def first_batches(
    data: Any, samples: int | None, device: torch.device, size: int = BATCH
) -> Iterator[Batch]:
    """Yield the first training samples, or all, not augmented, on a device."""
    source, number = getattr(data, "training_samples", data.train), len(data.train)
    for part in torch.split(torch.arange(min(samples or number, number)), size):
        yield tuple(x.to(device) for x in source.__getitems__(Position((0,), 0, part)))


def layers_of(task: Task, batch: Batch, wanted: Sequence[int] | None = None) -> dict[int, Layer]:
    """Return inputs and gradients of a classifier's hidden linear layers, numbered from 2 in call order."""
    network = copy.deepcopy(task.network).double()
    seen: list[tuple[Tensor, Tensor]] = []

    def note(_: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
        seen.append((given[0], output))
        return output.clone()  # a copy, because an activation may overwrite it

    sites = tuple(f"{name}." for name in task.sites)
    for name, module in network.named_modules():
        # Not those inside activations
        if isinstance(module, nn.Linear) and not name.startswith(sites):
            module.register_forward_hook(note)
    *inputs, labels = (*task.inputs(batch), batch[-1])
    device = labels.device.type
    with torch.enable_grad(), torch.autocast(device, enabled=False):
        logits = network(*(x.double() if x.is_floating_point() else x for x in inputs))
        if logits.dim() != 2 or labels.shape != logits.shape[:1]:
            raise ActlabError(
                f"bias shift requires logits (B, K) and labels (B,), not {tuple(logits.shape)}"
            )
        hidden = dict(enumerate(seen[1:-1], 2))
        if shapes := [tuple(a.shape) for a, _ in hidden.values() if a.dim() != 2]:
            raise ActlabError(
                f"bias shift requires linear layers with inputs (B, I), not {shapes[0]}"
            )
        numbers = list(hidden) if wanted is None else list(wanted)
        if absent := [number for number in numbers if number not in hidden]:
            raise ActlabError(
                f"layers {absent} of bias shift: the network has {max(1, len(seen) - 1)} hidden layers"
            )
        weights, observed = over_labels(
            logits.log_softmax(-1), labels, [hidden[n][1] for n in numbers]
        )
    return {
        n: Layer(hidden[n][0].detach(), w, o)
        for n, w, o in zip(numbers, weights, observed, strict=True)
    }


def over_labels(
    log_p: Tensor, labels: Tensor, outputs: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """Return E(δ²) over labels drawn from the model and δ of the data's label, ``(B, U)`` for each layer.

    From log probabilities ``(B, K)`` with their graph, labels ``(B,)`` and each layer's net inputs
    ``(B, U)``.
    """
    weights = [torch.zeros_like(output) for output in outputs]
    observed = [torch.zeros_like(output) for output in outputs]
    if not outputs:
        return weights, observed
    for label, p in enumerate(log_p.detach().exp().unbind(-1)):
        delta = torch.autograd.grad(log_p[:, label].sum(), outputs, retain_graph=True)
        for weight, of_data, d in zip(weights, observed, delta, strict=True):
            weight.addcmul_(p.unsqueeze(-1), d.square())
            of_data.add_(d * (labels == label).unsqueeze(-1))
    return weights, observed


class Sums:
    """Accumulate sums over the samples of one layer, shaped as any of its batches; ã is (a, 1)."""

    def __init__(self, like: Layer) -> None:
        units, incoming = like.weight.shape[1], like.a.shape[1] + 1
        pairs = incoming * (incoming + 1) // 2
        self.samples = 0
        self.pairs = like.a.new_zeros(pairs)  # Σ ã ãᵀ, its upper triangle row by row
        self.weighted = like.a.new_zeros(units, pairs)  # Σ w ã ãᵀ
        self.gradient = like.a.new_zeros(units, incoming)  # Σ δ ã of the data's labels
        self.squares = like.a.new_zeros(units)  # Σ w²
        self.moving = like.a.new_zeros(units)  # number of samples with a positive weight

    def add(self, layer: Layer) -> None:
        """Add a batch."""
        a = torch.cat([layer.a, torch.ones_like(layer.a[:, :1])], 1).T.contiguous()
        products = torch.cat([row * a[i:] for i, row in enumerate(a)])
        self.weighted.addmm_(layer.weight.T, products.T)
        self.pairs += products.sum(1)
        self.gradient.addmm_(layer.observed.T, a.T)
        self.squares += layer.weight.square().sum(0)
        self.moving += (layer.weight > 0).sum(0)
        self.samples += len(layer.a)

    def moments(self, plain: bool = False) -> theory.Moments:
        """Return the moments of every unit, or with equal weights, as those of a single unit."""
        triangles = self.pairs.unsqueeze(0) if plain else self.weighted
        size = self.gradient.shape[1]
        rows, columns = torch.triu_indices(size, size, device=triangles.device)
        full = triangles.new_empty(len(triangles), size, size)
        full[:, rows, columns] = full[:, columns, rows] = triangles / self.samples
        mean = self.pairs[columns == size - 1][:-1] / self.samples
        return theory.Moments(full[:, :-1, :-1], full[:, :-1, -1], full[:, -1, -1], mean)


def measure(sums: Sums) -> dict[tuple[str, str], float]:
    """Return the metrics of one layer by (metric, suffix of the condition); see `BiasShift`."""
    of, kept, regular = units_of(sums)
    gradient = sums.gradient[regular] / sums.samples
    g, g0 = gradient[:, :-1] * kept, gradient[:, -1]
    update, of_bias = theory.natural_update(of, g, g0)
    k = (theory.correction(of) - 1).abs()
    both = torch.cat((g, g0.unsqueeze(-1)), -1), torch.cat((update, of_bias.unsqueeze(-1)), -1)
    number, moved = len(sums.squares), sums.moving > 0
    weight = sums.moments().c[moved] * sums.samples
    correlation = correlations(sums.moments(plain=True), sums.samples)
    return {
        **{("k_distance", f",quantile={q}"): quantile(k, q) for q in QUANTILES},
        ("shift_of_gradient", ""): quantile(theory.bias_shift(of.mean, g, g0).abs()),
        ("shift_of_natural_gradient", ""): quantile(
            theory.bias_shift(of.mean, update, of_bias).abs()
        ),
        ("cosine", ""): quantile(torch.cosine_similarity(*both, dim=-1)),
        ("mean_length", ""): quantile(of.mean_q.norm(dim=-1)),
        ("constant_inputs", ""): float((~kept).sum(-1).double().mean()),
        ("unmoved_units", ""): float((~moved).double().mean()),
        ("singular_units", ""): (int(moved.sum()) - len(k)) / number,
        ("effective_samples", ""): quantile(weight.square() / sums.squares[moved]),
        ("correlation", ""): correlation[0],
        ("absolute_correlation", ""): correlation[1],
    }


def units_of(sums: Sums) -> tuple[theory.Moments, Tensor, Tensor]:
    """Return the moments of units that have a k, masks of their varying inputs, and a mask of these units."""
    moved = sums.moving > 0
    of = sums.moments().of_units(moved)
    kept = theory.varying(of, sums.samples)
    of = theory.without_constant(of, kept)
    enough = kept.any(-1) & (sums.moving[moved] > kept.sum(-1))
    regular = enough & theory.is_definite(of.variance_q)
    units = moved.clone()
    units[moved] = regular
    return of.of_units(regular), kept[regular], units


def quantile(values: Tensor, q: float = 0.5) -> float:
    """Return a quantile, by default the median; NaN for no values."""
    return float(values.quantile(q)) if len(values) else math.nan


def correlations(plain: theory.Moments, samples: int) -> tuple[float, float]:
    """Return the means of the correlation and of its absolute value, over pairs of varying incoming units."""
    kept = theory.varying(plain, samples)[0]
    covariance = plain.variance_q[0][kept][:, kept]
    spread = covariance.diagonal().sqrt()
    of = covariance / theory.outer(spread)
    number = len(of)
    pairs = number * (number - 1)
    sums = (of.sum() - of.trace(), of.abs().sum() - of.trace())
    return (float(sums[0] / pairs), float(sums[1] / pairs)) if pairs else (math.nan, math.nan)
