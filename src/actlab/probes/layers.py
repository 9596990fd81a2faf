"""Statistics of layers: gradients, correlations, net inputs and passed noise.

Claims of ELU §1 to §3 and of GELU §3.5 and §5. Shapes: ``B`` batch or samples, ``I`` incoming
units, ``U`` units of a layer.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Annotated, Any

import torch
from annotated_types import Gt
from torch import Tensor, nn

from actlab.errors import ActlabError
from actlab.probes.bias_shift import (
    AtLeastTwo,
    Layer,
    correlations,
    first_batches,
    layers_of,
)
from actlab.probes.noise import EachRun, Metrics
from actlab.probes.theory import Moments
from actlab.random.positions import Position, uniform_at
from actlab.runtime.accidents import wide
from actlab.tasks import Batch, Task
from actlab.validation import validated

LARGEST = 0.1  # share of the components of a covariance that count as the largest


class LayerGradients(EachRun):
    """Measure the gradients of a classifier's hidden layers, and statistics of their inputs.

    Metrics under ``layer=2``, ``layer=3`` and so on (the incoming units of layer 1 are inputs):
    ``gradient``, the mean over samples of the length of ∂ log p(label) / ∂ net inputs;
    ``correlation``, the mean over pairs of incoming units; ``shift``, the median over units of the
    absolute bias shift by the gradient (ELU §2); ``positive_components``, the share of positive
    ones among the tenth of the components of Cov(δ², a) with the largest magnitude, over all units.
    Without a condition: ``slope``, the decadic logarithm of the factor by which ``gradient`` grows
    from layer to layer towards the output.

    Args:
        samples: number of training samples, the first in file order.
    """

    @validated
    def __init__(self, samples: AtLeastTwo = 5000) -> None:
        self.samples = samples

    def _measure(self, task: Task, data: Any, device: torch.device) -> Metrics:
        # Inputs and gradients of each layer, batch by batch
        parts: dict[int, list[Layer]] = {}
        for batch in first_batches(data, self.samples, device):
            for number, layer in layers_of(task, batch).items():
                parts.setdefault(number, []).append(layer)

        # Statistics of each layer
        metrics: Metrics = {}
        gradients = []
        for number, batches in parts.items():
            layer = Layer(*map(torch.cat, zip(*batches, strict=True)))
            for name, value in statistics(layer).items():
                metrics[name, f"layer={number}"] = value
            gradients.append(metrics["gradient", f"layer={number}"])
        metrics["slope", ""] = slope(gradients)
        return metrics


def statistics(layer: Layer) -> dict[str, float]:
    """Return the metrics of a layer by name; see `LayerGradients`."""
    # Incoming activations (B, I), and their means over samples
    a = layer.a
    samples = len(a)
    mean = a.mean(0)

    # Moments with equal weights of all samples
    second = a.T @ a / samples
    moments = Moments(second[None], mean[None], torch.ones_like(mean[:1]), mean)

    # The gradient of weights and bias, and the shift of net inputs by it
    gradient = layer.observed.T @ a / samples
    bias_gradient = layer.observed.mean(0)
    shift = gradient @ mean + bias_gradient
    covariance = layer.weight.T @ (a - mean) / samples
    return {
        "gradient": float(layer.observed.norm(dim=-1).mean()),
        "correlation": correlations(moments, samples)[0],
        "shift": float(shift.abs().quantile(0.5)),
        "positive_components": positive_share(covariance),
    }


def positive_share(components: Tensor) -> float:
    """Return the share of positive values among the tenth with the largest magnitude."""
    values = components.flatten()
    number = max(1, int(LARGEST * len(values)))
    largest = values.abs().topk(number).indices
    is_positive = values[largest] > 0
    return float(wide(is_positive).mean())


def slope(gradients: Sequence[float]) -> float:
    """Return the slope of the decadic logarithms by least squares; NaN for a single value."""
    y = torch.tensor(gradients, dtype=torch.float64).log10()
    x = torch.arange(len(y), dtype=torch.float64)
    x -= x.mean()
    return float((x @ y) / (x @ x))


class NetInputs(EachRun):
    """Measure how far the net inputs of units are from the standard normal distribution (GELU §5).

    Metrics under ``layer=1``, ``layer=2`` and so on, in call order of the activations, as
    Kolmogorov distances: ``distance_of_units``, the median over units to N(0, 1);
    ``distance_of_shapes``, the same after each unit is standardised by its own mean and deviation;
    ``distance_of_layer``, of all values of the layer together. Networks are in evaluation mode.

    Args:
        samples: number of training samples, the first in file order.
    """

    @validated
    def __init__(self, samples: AtLeastTwo = 5000) -> None:
        self.samples = samples

    def _measure(self, task: Task, data: Any, device: torch.device) -> Metrics:
        # Net inputs of each layer, batch by batch
        parts = []
        for batch in first_batches(data, self.samples, device):
            inputs, _ = _observed(task, batch)
            parts.append(inputs)

        # Distances of each layer
        metrics: Metrics = {}
        for number, batches in enumerate(zip(*parts, strict=True), 1):
            z = wide(torch.cat(batches))
            # NaN for a constant unit.
            standardised = (z - z.mean(0)) / z.std(0, correction=0)
            distance = kolmogorov(z).nanquantile(0.5)
            shape_distance = kolmogorov(standardised).nanquantile(0.5)
            layer_distance = kolmogorov(z.reshape(-1, 1))[0]

            # The first two are medians over units
            condition = f"layer={number}"
            metrics["distance_of_units", condition] = float(distance)
            metrics["distance_of_shapes", condition] = float(shape_distance)
            metrics["distance_of_layer", condition] = float(layer_distance)
        return metrics


def kolmogorov(z: Tensor) -> Tensor:
    """Return the Kolmogorov distance of each column to N(0, 1): ``(B, U)`` → ``(U,)``."""
    expected: Tensor = torch.special.ndtr(z.sort(0).values)

    # The empirical distribution before and after each value
    counts = torch.arange(len(z) + 1, dtype=z.dtype, device=z.device)
    steps = counts.unsqueeze(-1) / len(z)
    above = (expected - steps[:-1]).amax(0)
    below = (steps[1:] - expected).amax(0)
    return torch.maximum(above, below)


class PassedNoise(EachRun):
    """Measure how much noise on the inputs units pass on while they are deactivated (ELU §1, §3).

    A unit is deactivated for a sample if its net input without noise is negative. Metrics under
    ``layer=1`` and so on: ``passed``, the summed variance of the outputs of deactivated units over
    draws of the noise ÷ the variance of their net inputs; ``deactivated``, their share. Noise is
    Unif[−strength, strength] per input element.

    Args:
        strength: half the width of the noise.
        draws: number of draws for each sample, at least 2.
        samples: number of training samples, the first in file order.
    """

    @validated
    def __init__(
        self,
        strength: Annotated[float, Gt(0)] = 0.5,
        draws: AtLeastTwo = 8,
        samples: AtLeastTwo = 1000,
    ) -> None:
        self.strength = strength
        self.draws = draws
        self.samples = samples

    def _measure(self, task: Task, data: Any, device: torch.device) -> Metrics:
        # By layer: variances of outputs and of net inputs, numbers of deactivated and
        # of all units
        sums: dict[int, Tensor] = {}
        start = 0
        for x, *targets in first_batches(data, self.samples, device):
            # Run the network on each draw of the noise
            position = Position(
                (0,), 0, torch.arange(start, start + len(x), device=x.device)
            )
            noise = (
                2 * uniform_at(position, "passed noise", (self.draws, *x.shape[1:])) - 1
            )
            start += len(x)
            clean_inputs, _ = _observed(task, (x, *targets))
            draws = []
            for n in range(self.draws):
                noisy = x + self.strength * noise[:, n].to(x.dtype)
                draws.append(_observed(task, (noisy, *targets)))

            # Add up the variances of deactivated units
            for index, z in enumerate(clean_inputs):
                low = wide(z) < 0  # deactivated without noise
                inputs = wide(torch.stack([inputs[index] for inputs, _ in draws]))
                outputs = wide(torch.stack([outputs[index] for _, outputs in draws]))
                total = torch.tensor(float(low.numel()), device=low.device).double()
                values = [
                    outputs.var(0)[low].sum(),
                    inputs.var(0)[low].sum(),
                    low.sum().double(),
                    total,
                ]
                sums[index + 1] = sums.get(index + 1, 0) + torch.stack(values)

        # Shares
        metrics: Metrics = {}
        for number, layer_sums in sums.items():
            output_variance, input_variance, low_count, count = layer_sums.tolist()
            passed = math.nan
            if input_variance:
                passed = output_variance / input_variance
            metrics["passed", f"layer={number}"] = passed
            metrics["deactivated", f"layer={number}"] = low_count / count
        return metrics


class BlockGradients(EachRun):
    """Measure the gradient of the loss at the input of each residual block (GELU §3.5).

    Metrics: ``gradient`` under ``block=1``, ``block=2`` and so on, the length of ∂ loss / ∂ input
    over the whole batch; ``ratio`` without a condition, the length at the first block ÷ the length
    at the last. The network is in training mode, so batch norm uses the statistics of the batch, as
    in an update; the network is not changed.

    Args:
        samples: number of training samples in the batch, the first in file order.
    """

    @validated
    def __init__(self, samples: AtLeastTwo = 128) -> None:
        self.samples = samples

    def _measure(self, task: Task, data: Any, device: torch.device) -> Metrics:
        # A single batch of all samples
        (batch,) = first_batches(data, self.samples, device, self.samples)

        # Copy the network, because the hooks stay
        network = copy.deepcopy(task.network).train()
        blocks = getattr(network, "blocks", None)
        if not blocks:
            raise ActlabError(
                f"block gradients: expected a network with 'blocks', got {type(network).__name__}"
            )

        # Record the inputs of the blocks
        block_inputs: list[Tensor] = []

        def record(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            x = inputs[0]
            # The first block's input may not require gradients
            if not x.requires_grad:
                x.requires_grad_()
            block_inputs.append(x)

        for block in blocks:
            block.register_forward_pre_hook(record)

        # Differentiate the loss by them
        with torch.enable_grad():
            loss = task.measure(network, batch)["loss"].mean()
            gradients = torch.autograd.grad(loss.sum(), block_inputs)

        # Norms over the whole batch, numbered from 1
        lengths = [float(wide(gradient).norm()) for gradient in gradients]
        metrics = {
            ("gradient", f"block={n}"): length for n, length in enumerate(lengths, 1)
        }
        metrics["ratio", ""] = lengths[0] / lengths[-1]
        return metrics


def _observed(task: Task, batch: Batch) -> tuple[list[Tensor], list[Tensor]]:
    """Return net inputs and outputs ``(B, U)`` of each call of an activation, in call order."""
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []

    # Record copies, because what follows in the network may overwrite them
    def record_input(module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        inputs.append(arguments[0].clone())

    def record_output(
        module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor
    ) -> None:
        outputs.append(output.clone())

    # The hooks last for one forward pass
    with ExitStack() as hooks:
        for site in task.sites.values():
            hooks.enter_context(site.register_forward_pre_hook(record_input))
            hooks.enter_context(site.register_forward_hook(record_output))
        task.observe(batch)

    # Net inputs of images and sequences have more dimensions
    for z in inputs:
        if z.dim() != 2:
            raise ActlabError(
                f"net inputs: expected one row per sample, (B, U), got {tuple(z.shape)}"
            )
    return inputs, outputs
