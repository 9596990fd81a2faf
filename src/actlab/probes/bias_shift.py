"""The bias shift of trained layers, and how the unit natural gradient corrects it (ELU §2, §3).

Shapes: ``B`` batch, ``I`` incoming units, ``U`` units of a layer, ``K`` classes.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
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
AtLeastTwo = Annotated[int, Ge(2)]
Call = tuple[Tensor, Tensor]  # inputs and outputs of a layer


class Layer(NamedTuple):
    """Inputs and gradients of a linear layer for some samples, in float64.

    δ_c = ∂ log p_c / ∂ net input, for class c.
    """

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
    def __init__(
        self, samples: AtLeastTwo | None = None, layers: Sequence[int] | None = None
    ) -> None:
        if layers is not None and (not layers or min(layers) < 2):
            raise ActlabError(
                "layers of bias shift: expected numbers of hidden layers from 2, got "
                f"{list(layers)}"
            )
        self.samples = samples
        self.layers = layers

    def _measure(self, task: Task, data: Any, device: torch.device) -> Metrics:
        sums: dict[int, Sums] = {}
        for batch in first_batches(data, self.samples, device):
            for number, layer in layers_of(task, batch, self.layers).items():
                sums.setdefault(number, Sums(layer)).add(layer)
        metrics = {}
        for number, layer_sums in sums.items():
            for (metric, suffix), value in measure(layer_sums).items():
                metrics[metric, f"layer={number}{suffix}"] = value
        return metrics


def first_batches(
    data: Any, samples: int | None, device: torch.device, size: int = BATCH
) -> Iterator[Batch]:
    """Yield the first training samples, or all, not augmented, on a device."""
    source = getattr(data, "training_samples", data.train)
    available = len(data.train)
    indices = torch.arange(min(samples or available, available))
    for part in torch.split(indices, size):
        batch = source.__getitems__(Position((0,), 0, part))
        yield tuple(tensor.to(device) for tensor in batch)


def layers_of(
    task: Task, batch: Batch, numbers: Sequence[int] | None = None
) -> dict[int, Layer]:
    """Return inputs and gradients of a classifier's hidden linear layers.

    Args:
        task: the classifier.
        batch: inputs and labels.
        numbers: of the layers, from 2 on in the order of calls; all by default.

    Raises:
        ActlabError: for a network with other logits or layers, and for a number without a layer.
    """
    # Record the inputs and outputs of linear layers
    network = copy.deepcopy(task.network)
    network.double()
    calls: list[Call] = []

    def record(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        calls.append((inputs[0], output))
        return output.clone()  # a copy, because an activation may overwrite it

    # Activations may contain linear layers of their own
    inside_activations = tuple(f"{name}." for name in task.sites)
    for name, module in network.named_modules():
        if isinstance(module, nn.Linear) and not name.startswith(inside_activations):
            module.register_forward_hook(record)

    # Take numbers in float64, and leave tokens
    inputs = []
    for x in task.inputs(batch):
        if x.is_floating_point():
            x = x.double()
        inputs.append(x)

    # Differentiate log probabilities by net inputs
    labels = batch[-1]
    with torch.enable_grad(), torch.autocast(labels.device.type, enabled=False):
        logits = network(*inputs)
        if logits.dim() != 2 or labels.shape != logits.shape[:1]:
            raise ActlabError(
                "bias shift: expected logits (B, K) and labels (B,), got logits "
                f"{tuple(logits.shape)} and labels {tuple(labels.shape)}"
            )
        hidden = dict(enumerate(calls[1:-1], 2))
        numbers = _checked_numbers(hidden, numbers)
        outputs = [hidden[number][1] for number in numbers]
        weights, observed = over_labels(logits.log_softmax(-1), labels, outputs)

    # Separate the layers from the graph
    layers = {}
    for number, weight, delta in zip(numbers, weights, observed, strict=True):
        a = hidden[number][0].detach()
        layers[number] = Layer(a, weight, delta)
    return layers


def _checked_numbers(
    hidden: Mapping[int, Call], numbers: Sequence[int] | None
) -> list[int]:
    """Return the numbers of the layers to measure, by default all."""
    # A unit has one value for each sample
    for inputs, _ in hidden.values():
        if inputs.dim() != 2:
            raise ActlabError(
                "bias shift: expected linear layers with inputs (B, I), got inputs "
                f"{tuple(inputs.shape)}"
            )
    if numbers is None:
        return list(hidden)

    # Layers that the network lacks
    absent = [number for number in numbers if number not in hidden]
    if absent:
        raise ActlabError(
            f"layers of bias shift: expected numbers up to {len(hidden) + 1}, the last hidden "
            f"layer, got {absent}"
        )
    return list(numbers)


def over_labels(
    log_p: Tensor, labels: Tensor, outputs: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """Return E(δ²) over labels drawn from the model, and δ of the data's label.

    Args:
        log_p: log probabilities ``(B, K)``, with their graph.
        labels: of the data, ``(B,)``.
        outputs: net inputs ``(B, U)`` of each layer.

    Returns:
        E(δ²) and δ, each as ``(B, U)`` for each layer.
    """
    # Sums over all labels, (B, U) for each layer
    weights = [torch.zeros_like(output) for output in outputs]
    observed = [torch.zeros_like(output) for output in outputs]
    if not outputs:
        return weights, observed

    # Add up label by label
    p = log_p.detach().exp()
    for label in range(p.shape[-1]):
        p_label = p[:, label].unsqueeze(-1)
        has_label = (labels == label).unsqueeze(-1)
        total = log_p[:, label].sum()
        deltas = torch.autograd.grad(total, outputs, retain_graph=True)
        for weight, observed_delta, delta in zip(
            weights, observed, deltas, strict=True
        ):
            weight.addcmul_(p_label, delta.square())
            observed_delta.add_(delta * has_label)
    return weights, observed


class Sums:
    """Sums over the samples of a layer, added batch by batch; ã is (a, 1).

    Args:
        layer: a batch, for the numbers of units.
    """

    def __init__(self, layer: Layer) -> None:
        units = layer.weight.shape[1]
        incoming = layer.a.shape[1] + 1  # with the bias
        pairs = incoming * (incoming + 1) // 2
        self.samples = 0
        self.pairs = layer.a.new_zeros(pairs)  # Σ ã ãᵀ, its upper triangle row by row
        self.weighted = layer.a.new_zeros(units, pairs)  # Σ w ã ãᵀ
        self.gradient = layer.a.new_zeros(units, incoming)  # Σ δ ã of the data's labels
        self.squares = layer.a.new_zeros(units)  # Σ w²
        # Number of samples with a positive weight.
        self.moving = layer.a.new_zeros(units)

    def add(self, layer: Layer) -> None:
        """Add a batch."""
        ones = torch.ones_like(layer.a[:, :1])
        a = torch.cat([layer.a, ones], 1).T.contiguous()

        # Products ã_i ã_j of each pair i ≤ j, (pairs, B)
        products_by_row = []
        for i, row in enumerate(a):
            products_by_row.append(row * a[i:])
        products = torch.cat(products_by_row)
        self.weighted.addmm_(layer.weight.T, products.T)
        self.pairs += products.sum(1)
        self.gradient.addmm_(layer.observed.T, a.T)
        self.squares += layer.weight.square().sum(0)
        self.moving += (layer.weight > 0).sum(0)
        self.samples += len(layer.a)

    def moments(self) -> theory.Moments:
        """Return the moments of every unit."""
        return self._moments(self.weighted)

    def equal_moments(self) -> theory.Moments:
        """Return the moments with equal weights of all samples, as moments of a single unit."""
        return self._moments(self.pairs.unsqueeze(0))

    def _moments(self, triangles: Tensor) -> theory.Moments:
        # Put the triangles into symmetric matrices
        size = self.gradient.shape[1]
        rows, columns = torch.triu_indices(size, size, device=triangles.device)
        values = triangles / self.samples
        full = triangles.new_empty(len(triangles), size, size)
        full[:, rows, columns] = values
        full[:, columns, rows] = values

        # The last row and column belong to the bias, for which ã is 1
        with_bias = columns == size - 1
        sums = self.pairs[with_bias][:-1]
        second_moments = full[:, :-1, :-1]
        first_moments = full[:, :-1, -1]
        weights = full[:, -1, -1]
        mean = sums / self.samples
        return theory.Moments(second_moments, first_moments, weights, mean)


def measure(sums: Sums) -> dict[tuple[str, str], float]:
    """Return the metrics of one layer by (metric, suffix of the condition); see `BiasShift`."""
    metrics = {}

    # Units with a k: compare the gradient with the unit natural gradient
    moments, varies, regular = regular_units(sums)
    gradient = sums.gradient[regular] / sums.samples
    g = gradient[:, :-1] * varies
    g0 = gradient[:, -1]
    update, bias = theory.natural_update(moments, g, g0)

    # The correction factor and the shifts
    distance = (theory.correction(moments) - 1).abs()
    for q in QUANTILES:
        metrics["k_distance", f",quantile={q}"] = quantile(distance, q)
    shift = theory.bias_shift(moments.mean, g, g0)
    metrics["shift_of_gradient", ""] = quantile(shift.abs())
    shift = theory.bias_shift(moments.mean, update, bias)
    metrics["shift_of_natural_gradient", ""] = quantile(shift.abs())

    # The angle between both updates, bias included
    full_gradient = torch.column_stack((g, g0))
    full_update = torch.column_stack((update, bias))
    cosine = torch.cosine_similarity(full_gradient, full_update, dim=-1)
    metrics["cosine", ""] = quantile(cosine)

    # Inputs
    lengths = moments.mean_q.norm(dim=-1)
    metrics["mean_length", ""] = quantile(lengths)
    constant = (~varies).sum(-1)
    metrics["constant_inputs", ""] = float(constant.double().mean())

    # All units
    is_moved = sums.moving > 0
    unmoved_share = (~is_moved).double().mean()
    metrics["unmoved_units", ""] = float(unmoved_share)
    singular = int(is_moved.sum()) - len(distance)
    metrics["singular_units", ""] = singular / len(is_moved)
    weight = sums.moments().c[is_moved] * sums.samples
    effective = weight.square() / sums.squares[is_moved]
    metrics["effective_samples", ""] = quantile(effective)

    # Pairs of incoming units
    mean, absolute_mean = correlations(sums.equal_moments(), sums.samples)
    metrics["correlation", ""] = mean
    metrics["absolute_correlation", ""] = absolute_mean
    return metrics


def regular_units(sums: Sums) -> tuple[theory.Moments, Tensor, Tensor]:
    """Return the moments of the units that have a k, and which inputs of them vary.

    Returns:
        Moments; bool ``(U′, I)``, for inputs that vary; bool ``(U,)``, for units with a k.
    """
    is_moved = sums.moving > 0
    moments = sums.moments().of_units(is_moved)
    varies = theory.varying(moments, sums.samples)
    moments = theory.without_constant(moments, varies)

    # Var_q is singular with too few samples, or with linearly dependent inputs
    number = varies.sum(-1)
    has_samples = (number > 0) & (sums.moving[is_moved] > number)
    is_regular = has_samples & theory.is_definite(moments.variance_q)

    # From moved units to all units
    units = is_moved.clone()
    units[is_moved] = is_regular
    return moments.of_units(is_regular), varies[is_regular], units


def quantile(values: Tensor, q: float = 0.5) -> float:
    """Return a quantile, by default the median; NaN for no values."""
    if not len(values):
        return math.nan
    return float(values.quantile(q))


def correlations(moments: theory.Moments, samples: int) -> tuple[float, float]:
    """Return the means of correlation and absolute correlation over pairs of varying inputs.

    Args:
        moments: with equal weights of all samples, as moments of a single unit.
        samples: number of samples.
    """
    varies = theory.varying(moments, samples)[0]
    covariance = moments.variance_q[0][varies][:, varies]
    spread = covariance.diagonal().sqrt()
    correlation = covariance / theory.outer(spread)

    # Leave out the diagonal
    number = len(correlation)
    pairs = number * (number - 1)
    if not pairs:
        return math.nan, math.nan
    diagonal = correlation.trace()
    total = correlation.sum() - diagonal
    absolute_total = correlation.abs().sum() - diagonal
    return float(total / pairs), float(absolute_total / pairs)
