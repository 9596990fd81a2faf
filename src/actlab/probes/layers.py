"""Statistics of layers: gradients, correlations, net inputs and passed noise (ELU §1 to §3, GELU §3.5 and §5).

Shapes: ``B`` batch or samples, ``I`` incoming units, ``U`` units of a layer.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Annotated, Any

import torch
from annotated_types import Gt
from torch import Tensor, nn

from actlab.errors import ActlabError
from actlab.probes.bias_shift import Layer, Several, correlations, first_batches, layers_of
from actlab.probes.noise import EachRun, Metrics
from actlab.probes.theory import Moments
from actlab.random.positions import Position, uniform_at
from actlab.runtime.accidents import wide
from actlab.tasks import Batch, Task
from actlab.validation import validated

LARGEST = 0.1  # share of the components of a covariance that count as the largest


class LayerGradients(EachRun):
    """Measure the gradients of a classifier's hidden layers and what their incoming units make of them.

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
    def __init__(self, samples: Several = 5000) -> None:
        self.samples = samples

    def _measure(self, task: Task, data: Any, device: torch.device) -> Metrics:
        parts: dict[int, list[Layer]] = {}
        for batch in first_batches(data, self.samples, device):
            for number, layer in layers_of(task, batch).items():
                parts.setdefault(number, []).append(layer)
        layers = {n: Layer(*map(torch.cat, zip(*of, strict=True))) for n, of in parts.items()}
        metrics = {
            (name, f"layer={n}"): v
            for n, of in layers.items()
            for name, v in statistics(of).items()
        }
        metrics["slope", ""] = slope([metrics["gradient", f"layer={n}"] for n in layers])
        return metrics


def statistics(layer: Layer) -> dict[str, float]:
    """Return the metrics of a layer by name; see `LayerGradients`."""
    a, samples = layer.a, len(layer.a)
    mean = a.mean(0)
    plain = Moments((a.T @ a / samples)[None], mean[None], torch.ones_like(mean[:1]), mean)
    gradient, of_bias = layer.observed.T @ a / samples, layer.observed.mean(0)
    return {
        "gradient": float(layer.observed.norm(dim=-1).mean()),
        "correlation": correlations(plain, samples)[0],
        "shift": float((gradient @ mean + of_bias).abs().quantile(0.5)),
        "positive_components": positive(layer.weight.T @ (a - mean) / samples),
    }


def positive(components: Tensor) -> float:
    """Return the share of positive values among the tenth with the largest magnitude, at least one value."""
    values = components.flatten()
    largest = values.abs().topk(max(1, int(LARGEST * len(values)))).indices
    return float(wide(values[largest] > 0).mean())


def slope(gradients: Sequence[float]) -> float:
    """Return the least-squares slope of the decadic logarithms over their numbers; NaN for a single value."""
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
    def __init__(self, samples: Several = 5000) -> None:
        self.samples = samples

    def _measure(self, task: Task, data: Any, device: torch.device) -> Metrics:
        metrics: Metrics = {}
        parts = [
            [z for z, _ in _values(task, batch)]
            for batch in first_batches(data, self.samples, device)
        ]
        for number, layer in enumerate(zip(*parts, strict=True), 1):
            z = wide(torch.cat(layer))
            standardised = (z - z.mean(0)) / z.std(0, correction=0)  # NaN for a constant unit
            values = {
                "distance_of_units": kolmogorov(z).nanquantile(0.5),
                "distance_of_shapes": kolmogorov(standardised).nanquantile(0.5),
                "distance_of_layer": kolmogorov(z.reshape(-1, 1))[0],
            }
            metrics |= {(name, f"layer={number}"): float(value) for name, value in values.items()}
        return metrics


def kolmogorov(z: Tensor) -> Tensor:
    """Return the Kolmogorov distance of each column to N(0, 1): ``(B, U)`` → ``(U,)``."""
    below: Tensor = torch.special.ndtr(z.sort(0).values)
    steps = torch.arange(len(z) + 1, dtype=z.dtype, device=z.device).unsqueeze(-1) / len(z)
    return torch.maximum((below - steps[:-1]).amax(0), (steps[1:] - below).amax(0))


class PassedNoise(EachRun):
    """Measure how much noise on the inputs units pass on while they are deactivated (ELU §1, §3).

    A unit is deactivated for a sample if its net input without noise is negative. Metrics under
    ``layer=1`` and so on: ``passed``, the summed variance of the outputs of deactivated units over
    draws of the noise ÷ that of their net inputs; ``deactivated``, their share. Noise is
    Unif[−strength, strength] per input element.

    Args:
        strength: half the width of the noise.
        draws: number of draws for each sample, at least 2.
        samples: number of training samples, the first in file order.
    """

    @validated
    def __init__(
        self, strength: Annotated[float, Gt(0)] = 0.5, draws: Several = 8, samples: Several = 1000
    ) -> None:
        self.strength, self.draws, self.samples = strength, draws, samples

    def _measure(self, task: Task, data: Any, device: torch.device) -> Metrics:
        sums: dict[
            int, Tensor
        ] = {}  # variance of outputs and of net inputs, number of deactivated and of all
        first = 0
        for x, *rest in first_batches(data, self.samples, device):
            index = torch.arange(first, first + len(x), device=x.device)
            noise = (
                2 * uniform_at(Position((0,), 0, index), "passed noise", (self.draws, *x.shape[1:]))
                - 1
            )
            clean = _values(task, (x, *rest))
            noisy = [
                _values(task, (x + self.strength * noise[:, n].to(x.dtype), *rest))
                for n in range(self.draws)
            ]
            for number, (z, _) in enumerate(clean, 1):
                of = [
                    wide(torch.stack([draw[number - 1][side] for draw in noisy])) for side in (1, 0)
                ]
                low = wide(z) < 0
                variances = [values.var(0)[low].sum() for values in of]
                counts = [
                    low.sum().double(),
                    torch.tensor(float(low.numel()), device=low.device).double(),
                ]
                sums[number] = sums.get(number, 0) + torch.stack([*variances, *counts])
            first += len(x)
        metrics: Metrics = {}
        for number, (outputs, inputs, low, of_all) in ((n, of.tolist()) for n, of in sums.items()):
            metrics["passed", f"layer={number}"] = outputs / inputs if inputs else float("nan")
            metrics["deactivated", f"layer={number}"] = low / of_all
        return metrics


class BlockGradients(EachRun):
    """Measure the gradient of the loss at the input of each residual block (GELU §3.5).

    Metrics: ``gradient`` under ``block=1``, ``block=2`` and so on, the length of ∂ loss / ∂ input
    over the whole batch; ``ratio`` without a condition, that of the first block ÷ that of the last.
    The network is in training mode, so batch norm uses the statistics of the batch, as in an
    update; the network is not changed.

    Args:
        samples: number of training samples in the batch, the first in file order.
    """

    @validated
    def __init__(self, samples: Several = 128) -> None:
        self.samples = samples

    def _measure(self, task: Task, data: Any, device: torch.device) -> Metrics:
        (batch,) = first_batches(data, self.samples, device, self.samples)
        network = copy.deepcopy(task.network).train()
        blocks = getattr(network, "blocks", None)
        if not blocks:
            raise ActlabError(
                f"block gradients require a network with 'blocks', not {type(network).__name__}"
            )
        inputs: list[Tensor] = []

        def note(_: nn.Module, given: tuple[Tensor, ...]) -> None:
            inputs.append(given[0] if given[0].requires_grad else given[0].requires_grad_())

        for block in blocks:
            block.register_forward_pre_hook(note)
        with torch.enable_grad():
            loss = task.measure(network, batch)["loss"].mean()
            gradients = torch.autograd.grad(loss.sum(), inputs)
        lengths = [float(wide(of_block).norm()) for of_block in gradients]
        metrics = {("gradient", f"block={n}"): length for n, length in enumerate(lengths, 1)}
        return metrics | {("ratio", ""): lengths[0] / lengths[-1]}


def _values(task: Task, batch: Batch) -> list[tuple[Tensor, Tensor]]:
    """Return net inputs and outputs of each activation, in call order, for activations of rows per sample."""
    # copies, because what follows may overwrite them
    inputs, outputs = (
        list[Tensor](),
        list[Tensor](),
    )
    with ExitStack() as hooks:
        for site in task.sites.values():
            before = site.register_forward_pre_hook(
                lambda _, given: inputs.append(given[0].clone())
            )
            after = site.register_forward_hook(lambda _, __, output: outputs.append(output.clone()))
            hooks.enter_context(before)
            hooks.enter_context(after)
        task.observe(batch)
    seen = list(zip(inputs, outputs, strict=True))
    if shapes := [tuple(z.shape) for z, _ in seen if z.dim() != 2]:
        raise ActlabError(f"net inputs must have one row per sample, (B, U), not {shapes[0]}")
    return seen
