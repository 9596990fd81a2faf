"""Preprocess images once before training, by a chain of steps that the config lists.

A step is a name from `STEPS`, or a mapping with the name and the step's settings::

    preprocessing: [scale, zca]                         # GELU §3.5, CIFAR-10
    preprocessing: [unit, mean]                         # GELU §3.5, CIFAR-100
    preprocessing: [gcn, {name: zca, eps: 0.1}]         # ELU §4.2, as Goodfellow et al. (2013)

Their statistics of the training images are cached. Shapes: ``N`` images, ``D = C·H·W``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from actlab.datamodules.cache import digest_of_tensors, made_once
from actlab.errors import ActlabError
from actlab.errors.messages import unknown

FORMAT = 2  # version of the cache; increased when a step's statistics change
BLOCK = 1000  # images per block: 12 MB of CIFAR in float32
CPU = torch.device("cpu")
# Relative to the largest value: float32 rounding error of a difference that is exactly
# zero
_ROUNDING = 2**-20

Statistics = dict[str, Tensor]
# Each call iterates over all training images from the start, as float32 (≤ BLOCK, C, H,
# W).
Blocks = Callable[[], Iterator[Tensor]]


class Step(NamedTuple):
    """A step of a chain: its name in `STEPS`, and its settings."""

    name: str
    settings: tuple[tuple[str, float], ...] = ()


def contrast_normalised(x: Tensor, norm: float) -> Tensor:
    """Subtract each image's mean over all pixels and channels, then scale it to a Euclidean norm.

    An image with a single value in all pixels and channels has no contrast and becomes 0.
    """
    # Centre each image.
    axes = (1, 2, 3)
    largest = x.abs().amax(axes, keepdim=True)
    x = x - x.mean(axes, keepdim=True)
    x = x.masked_fill(x.abs().amax(axes, keepdim=True) <= _ROUNDING * largest, 0)

    # Scale it.
    norms = x.square().sum(axes, keepdim=True).sqrt() / norm
    return x / norms.masked_fill_(norms < 1e-8, 1)


def whitened(x: Tensor, mean: Tensor, matrix: Tensor, eps: float) -> Tensor:
    """ZCA whitening: ``(x − mean)·U diag(1/√(λ + eps)) Uᵀ``, with the matrix of `whitening`."""
    return ((x - mean).flatten(1) @ matrix).view(x.shape)


def whitening(blocks: Blocks, eps: float) -> Statistics:
    """Return the mean ``(C, H, W)`` and the whitening matrix ``(D, D)`` of the training images.

    λ and U are the eigenvalues and eigenvectors of their covariance. The matrix is symmetric. The
    whitened training images have covariance ``U diag(λ/(λ + eps)) Uᵀ``.
    """
    mean, count = mean_of(blocks)
    values, vectors = spectrum(blocks, mean, count)

    # Directions without variance are scaled by 1/√eps: the matrix is I/√eps plus a term
    # per eigenvector.
    factors = (values + eps).rsqrt() - eps**-0.5
    matrix = (vectors * factors) @ vectors.T
    matrix.diagonal().add_(eps**-0.5)
    return {"mean": mean.float(), "matrix": matrix.float()}


def mean_of(blocks: Blocks) -> tuple[Tensor, int]:
    """Return the mean image, float64 ``(C, H, W)``, and the number of images N."""
    count = 0
    total = torch.zeros((), dtype=torch.float64)
    for x in blocks():
        total = total + x.sum(0, dtype=torch.float64)
        count += len(x)
    return total / count, count


def spectrum(blocks: Blocks, mean: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return eigenvalues ``(K,)`` and eigenvectors ``(D, K)`` of the images' covariance, float64.

    The covariance is Σ (x − mean)(x − mean)ᵀ / N.
    """
    # In float32, the rounding error of the largest eigenvalue exceeds the smallest
    # eigenvalue.
    centred = ((x.double() - mean).flatten(1) for x in blocks())

    # Decompose the covariance.
    d = mean.numel()
    if count >= d:
        covariance = torch.zeros(d, d, dtype=torch.float64)
        for rows in centred:
            covariance.addmm_(rows.T, rows)
        values, vectors = torch.linalg.eigh(covariance.div_(count))
        return values.clamp_(min=0), vectors

    # For fewer images than values, the N×N Gram matrix has the same nonzero
    # eigenvalues; K is the rank.
    rows = torch.cat(list(centred))
    values, vectors = torch.linalg.eigh((rows @ rows.T).div_(count))
    is_nonzero = values > values[-1] * 1e-12
    values = values[is_nonzero]
    return values, rows.T @ vectors[:, is_nonzero] / (values * count).sqrt()


def mean_statistics(blocks: Blocks) -> Statistics:
    """Return the mean ``(C, H, W)`` of the training images."""
    mean, _ = mean_of(blocks)
    return {"mean": mean.float()}


class Kind(NamedTuple):
    """A kind of step, with the functions that compute its statistics and apply it.

    Images are float32 ``(N, C, H, W)``, statistics float32 on the CPU.

    Attributes:
        apply: ``apply(images, **settings, **statistics)`` returns the changed images.
        takes_bytes: whether it expects pixels from 0 to 255.
        settings: with their defaults.
        fit: ``fit(blocks, **settings)`` returns the statistics of the training images; None for a
            step without statistics.
    """

    apply: Callable[..., Tensor]
    takes_bytes: bool = False
    settings: Mapping[str, float] = {}
    fit: Callable[..., Statistics] | None = None


STEPS = {
    "unit": Kind(lambda x: x / 255, takes_bytes=True),  # in [0, 1]
    # Within ±1, approximately centred
    "scale": Kind(lambda x: (x - 127.5) / 128, takes_bytes=True),
    # Per pixel and channel
    "mean": Kind(lambda x, mean: x - mean, fit=mean_statistics),
    # Goodfellow et al. (2013), whom ELU §4.2 follows: about √D, so that pixels have a
    # variance of about 1.
    "gcn": Kind(contrast_normalised, settings={"norm": 55.0}),
    # 1e-5 after "scale" (GELU's script), 0.1 after "gcn" (Goodfellow et al. 2013).
    "zca": Kind(whitened, settings={"eps": 1e-5}, fit=whitening),
}


def steps_of(entries: Sequence[str | Mapping[str, Any]]) -> tuple[Step, ...]:
    """Return the steps that a config lists.

    Args:
        entries: for each step its name, or a mapping with ``name`` and its settings.

    Raises:
        ActlabError: for an unknown step or setting, an invalid value, or a step that takes bytes
            after another step.
    """
    # A name alone means default settings
    steps: list[Step] = []
    for entry in entries:
        settings: dict[str, Any] = {"name": entry}
        if isinstance(entry, Mapping):
            settings = dict(entry)

        # Find the step.
        name = settings.pop("name", None)
        if not isinstance(name, str) or name not in STEPS:
            raise unknown(
                "step of data.preprocessing",
                str(name),
                STEPS,
                "Use a name or {name: STEP, setting: value}.",
            )
        if steps and STEPS[name].takes_bytes:
            raise ActlabError(
                f"data.preprocessing: {name!r} requires pixels from 0 to 255. Put it first."
            )

        # Complete its settings by the defaults.
        _check_settings(name, settings)
        settings = {**STEPS[name].settings, **settings}
        steps.append(Step(name, tuple(settings.items())))
    return tuple(steps)


def _check_settings(name: str, settings: Mapping[str, Any]) -> None:
    for key, value in settings.items():
        if key not in STEPS[name].settings:
            raise unknown(
                f"setting of preprocessing step {name!r}",
                str(key),
                STEPS[name].settings,
            )
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < value < math.inf:
            raise ActlabError(
                f"data.preprocessing: {key} of {name!r}: expected a number above 0, got {value!r}"
            )


class Preprocessing(NamedTuple):
    """Steps in order, each with its statistics of the training images."""

    steps: tuple[Step, ...]
    statistics: tuple[Statistics, ...]

    def __call__(self, images: Tensor, device: torch.device = CPU) -> Tensor:
        """Apply all steps to images, block by block.

        Args:
            images: uint8 ``(N, C, H, W)``.
            device: where the steps are computed.

        Returns:
            The changed images, float32 on ``device``.
        """
        # Move the statistics.
        statistics: list[Statistics] = []
        for tensors in self.statistics:
            statistics.append(
                {name: tensor.to(device) for name, tensor in tensors.items()}
            )

        # Write the blocks into one tensor.
        result = torch.empty(images.shape, dtype=torch.float32, device=device)
        blocks = zip(
            torch.split(images, BLOCK), torch.split(result, BLOCK), strict=True
        )
        with _exact_matmuls():
            for images_block, result_block in blocks:
                x = images_block.to(device).float()
                for step, tensors in zip(self.steps, statistics, strict=True):
                    x = STEPS[step.name].apply(x, **dict(step.settings), **tensors)
                result_block.copy_(x)
        return result


@contextmanager
def _exact_matmuls() -> Iterator[None]:
    """Compute matmuls in full float32 within a block, because whitening cancels large terms."""
    # Set each backend: torch's getter for all of them raises where their precisions
    # differ.
    backends: list[Any] = [
        torch.backends.mkldnn.matmul,  # type: ignore[attr-defined]
        torch.backends.cuda.matmul,
    ]
    precisions = [backend.fp32_precision for backend in backends]
    try:
        for backend in backends:
            backend.fp32_precision = "ieee"
        yield
    finally:
        for backend, precision in zip(backends, precisions, strict=True):
            backend.fp32_precision = precision


def fitted(
    images: Tensor, steps: tuple[Step, ...], cache_dir: str | None = None
) -> Preprocessing:
    """Fit the steps to training images uint8 ``(N, C, H, W)``, or load their cached statistics."""
    # Steps without statistics need no fit
    statistics: list[Statistics] = [{} for _ in steps]
    if any(STEPS[step.name].fit for step in steps):
        content = (
            FORMAT,
            tuple(map(tuple, steps)),
            digest_of_tensors({"images": images}),
        )
        tensors = made_once(
            "preprocessing", content, cache_dir, partial(_fit, images, steps)
        )

        # Assign the statistics to their steps.
        for key, tensor in tensors.items():
            number, _, name = key.partition(".")
            statistics[int(number)][name] = tensor
    return Preprocessing(steps, tuple(statistics))


def _fit(images: Tensor, steps: tuple[Step, ...]) -> dict[str, Tensor]:
    """Return the statistics of all steps, named ``{number}.{name}``, for the cache."""
    tensors: dict[str, Tensor] = {}
    statistics: list[Statistics] = []
    for number, step in enumerate(steps):
        # A step sees the images as the steps before it leave them.
        preceding = Preprocessing(steps[:number], tuple(statistics))
        blocks = partial(map, preceding, torch.split(images, BLOCK))
        fit = STEPS[step.name].fit
        statistics.append(fit(blocks, **dict(step.settings)) if fit else {})

        for name, tensor in statistics[number].items():
            tensors[f"{number}.{name}"] = tensor.contiguous()
    return tensors
