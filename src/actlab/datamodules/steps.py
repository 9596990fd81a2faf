"""The preprocessing steps: scaling, contrast normalisation, mean subtraction and ZCA whitening.

A step computes its statistics, such as a mean or a covariance, from the training images, block by block.

Shapes: ``N`` samples, ``C H W`` of an image, ``D = C·H·W``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

Statistics = Mapping[str, Tensor]
# Each call iterates over all training images from the start, as float32 (≤ BLOCK, C, H, W).
Blocks = Callable[[], Iterator[Tensor]]
_ROUNDING = 2**-20  # relative to the largest value: float32 rounding error of a difference that is exactly zero


class Step(ABC):
    """Base class of the steps: a map of images that may depend on statistics of the training images."""

    takes_bytes: ClassVar[bool] = False  # whether the step expects pixels from 0 to 255
    statistics: ClassVar[tuple[str, ...]] = ()  # names of the statistics that `fit` returns

    def fit(self, blocks: Blocks) -> dict[str, Tensor]:
        """Return the statistics of the training images, float32 on the CPU."""
        return {}

    @abstractmethod
    def __call__(self, x: Tensor, statistics: Statistics) -> Tensor:
        """Transform images ``(N, C, H, W)`` float32; the statistics are on the same device."""


@dataclass(frozen=True)
class Unit(Step):
    """``x / 255``: pixels in [0, 1]."""

    takes_bytes = True

    def __call__(self, x: Tensor, statistics: Statistics) -> Tensor:
        """Transform the images."""
        return x / 255


@dataclass(frozen=True)
class Scale(Step):
    """``(x − 127.5) / 128``: pixels within ±1, approximately centred."""

    takes_bytes = True

    def __call__(self, x: Tensor, statistics: Statistics) -> Tensor:
        """Transform the images."""
        return (x - 127.5) / 128


@dataclass(frozen=True)
class Mean(Step):
    """Subtract the mean of the training images, per pixel and channel."""

    statistics = ("mean",)

    def fit(self, blocks: Blocks) -> dict[str, Tensor]:
        """Return the mean image ``(C, H, W)``."""
        return {"mean": mean_of(blocks)[0].float()}

    def __call__(self, x: Tensor, statistics: Statistics) -> Tensor:
        """Transform the images."""
        return x - statistics["mean"]


@dataclass(frozen=True)
class GlobalContrastNormalisation(Step):
    """Subtract each image's mean over all pixels and channels, then scale the image to a fixed norm.

    An image with a single value in all pixels and channels has no contrast and becomes 0.

    Args:
        norm: Euclidean norm of each image. Goodfellow et al. (2013), whom ELU §4.2 follows, use 55, about √D,
            so that pixels have a variance of about 1.
    """

    norm: float = 55.0

    def __call__(self, x: Tensor, statistics: Statistics) -> Tensor:
        """Transform the images."""
        largest = x.abs().amax((1, 2, 3), keepdim=True)
        x = x - x.mean((1, 2, 3), keepdim=True)
        x = x.masked_fill(x.abs().amax((1, 2, 3), keepdim=True) <= _ROUNDING * largest, 0)
        norms = x.square().sum((1, 2, 3), keepdim=True).sqrt() / self.norm
        return x / norms.masked_fill_(norms < 1e-8, 1)


@dataclass(frozen=True)
class ZCA(Step):
    """ZCA whitening: ``(x − mean)·U diag(1/√(λ + eps)) Uᵀ``.

    λ and U are the eigenvalues and eigenvectors of the training images' covariance. The whitened training
    images have covariance ``U diag(λ/(λ + eps)) Uᵀ``.

    Args:
        eps: added to the eigenvalues; 1e-5 after the step ``scale`` (GELU's script), 0.1 after the step ``gcn``
            (Goodfellow et al. 2013).
    """

    eps: float = 1e-5
    statistics = ("mean", "matrix")

    def fit(self, blocks: Blocks) -> dict[str, Tensor]:
        """Return the mean image ``(C, H, W)`` and the symmetric whitening matrix ``(D, D)``."""
        mean, count = mean_of(blocks)
        values, vectors = spectrum(blocks, mean, count)
        # Directions without variance are scaled by 1/√eps: the matrix is I/√eps plus a term per eigenvector.
        factors = (values + self.eps).rsqrt() - self.eps**-0.5
        matrix = (vectors * factors) @ vectors.T
        matrix.diagonal().add_(self.eps**-0.5)
        return {"mean": mean.float(), "matrix": matrix.float()}

    def __call__(self, x: Tensor, statistics: Statistics) -> Tensor:
        """Transform the images."""
        return ((x - statistics["mean"]).flatten(1) @ statistics["matrix"]).view(x.shape)


def mean_of(blocks: Blocks) -> tuple[Tensor, int]:
    """Return the mean image, float64 ``(C, H, W)``, and the number of images N."""
    count, total = 0, torch.zeros((), dtype=torch.float64)
    for x in blocks():
        total = total + x.sum(0, dtype=torch.float64)
        count += len(x)
    return total / count, count


def spectrum(blocks: Blocks, mean: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the eigenvalues and eigenvectors of the covariance Σ (x − mean)(x − mean)ᵀ / N.

    Everything is computed in float64: in float32, the rounding error of the largest eigenvalue, some hundreds
    for images, exceeds the smallest eigenvalue. If N < D, the N×N Gram matrix of the centred images is
    decomposed instead. It has the same nonzero eigenvalues; eigenvectors with eigenvalue zero are omitted.

    Args:
        blocks: iterates over the training images.
        mean: of the training images, float64 ``(C, H, W)``.
        count: number of training images N.

    Returns:
        Eigenvalues ``(K,)`` and eigenvectors ``(D, K)``, float64, where K = D, or the rank if N < D.
    """
    centred = ((x.double() - mean).flatten(1) for x in blocks())
    d = mean.numel()
    if count >= d:
        covariance = torch.zeros(d, d, dtype=torch.float64)
        for rows in centred:
            covariance.addmm_(rows.T, rows)
        values, vectors = torch.linalg.eigh(covariance.div_(count))
        return values.clamp_(min=0), vectors
    rows = torch.cat(list(centred))
    values, vectors = torch.linalg.eigh((rows @ rows.T).div_(count))
    some = values > values[-1] * 1e-12
    return values[some], rows.T @ vectors[:, some] / (values[some] * count).sqrt()


STEPS: dict[str, type[Step]] = {
    "unit": Unit,
    "scale": Scale,
    "mean": Mean,
    "gcn": GlobalContrastNormalisation,
    "zca": ZCA,
}
