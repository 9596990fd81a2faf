"""The steps of preprocessing: scaling, contrast, the training mean, whitening.

What a step must know of the data, a mean or a covariance, it learns from the training images, block by block.

Shapes: ``N`` samples, ``C H W``, ``D = C·H·W``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

Statistics = Mapping[str, Tensor]
Blocks = Callable[
    [], Iterator[Tensor]
]  # gives the training images anew at each call, float32 (≤ BLOCK, C, H, W)
_ROUNDING = 2**-20  # of the largest value: what float32 may leave of a difference that is none


class Step(ABC):
    """A step: a map of images, and what it must know of the training images for that."""

    takes_bytes: ClassVar[bool] = False  # whether it is made for pixels from 0 to 255
    statistics: ClassVar[tuple[str, ...]] = ()  # names of what `fit` gives

    def fit(self, blocks: Blocks) -> dict[str, Tensor]:
        """The statistics of the training images, float32 on the CPU."""
        return {}

    @abstractmethod
    def __call__(self, x: Tensor, statistics: Statistics) -> Tensor:
        """Map images ``(N, C, H, W)`` float32, with statistics on their device."""


@dataclass(frozen=True)
class Unit(Step):
    """``x / 255``: pixels in [0, 1]."""

    takes_bytes = True

    def __call__(self, x: Tensor, statistics: Statistics) -> Tensor:
        """Map images."""
        return x / 255


@dataclass(frozen=True)
class Scale(Step):
    """``(x − 127.5) / 128``: pixels within ±1, about centred."""

    takes_bytes = True

    def __call__(self, x: Tensor, statistics: Statistics) -> Tensor:
        """Map images."""
        return (x - 127.5) / 128


@dataclass(frozen=True)
class Mean(Step):
    """Subtract the mean of the training images, pixel by pixel and channel by channel."""

    statistics = ("mean",)

    def fit(self, blocks: Blocks) -> dict[str, Tensor]:
        """Mean image ``(C, H, W)``."""
        return {"mean": mean_of(blocks)[0].float()}

    def __call__(self, x: Tensor, statistics: Statistics) -> Tensor:
        """Map images."""
        return x - statistics["mean"]


@dataclass(frozen=True)
class GlobalContrastNormalisation(Step):
    """Subtract each image's mean over all pixels and channels, then give it a norm over these.

    An image of one colour value has no contrast: it becomes 0.

    Args:
        norm: Euclidean norm of each image; Goodfellow et al. (2013), whom ELU §4.2 follows, took 55, about √D,
            so that pixels have a variance of about 1.
    """

    norm: float = 55.0

    def __call__(self, x: Tensor, statistics: Statistics) -> Tensor:
        """Map images."""
        largest = x.abs().amax((1, 2, 3), keepdim=True)
        x = x - x.mean((1, 2, 3), keepdim=True)
        x = x.masked_fill(x.abs().amax((1, 2, 3), keepdim=True) <= _ROUNDING * largest, 0)
        norms = x.square().sum((1, 2, 3), keepdim=True).sqrt() / self.norm
        return x / norms.masked_fill_(norms < 1e-8, 1)


@dataclass(frozen=True)
class ZCA(Step):
    """ZCA whitening: ``(x − mean)·U diag(1/√(λ + eps)) Uᵀ``, λ and U of the training images' covariance.

    Training images then have covariance ``U diag(λ/(λ + eps)) Uᵀ``.

    Args:
        eps: added to the eigenvalues; 1e-5 for pixels of the step ``scale`` (GELU's script), 0.1 for those of
            the step ``gcn`` (Goodfellow et al. 2013).
    """

    eps: float = 1e-5
    statistics = ("mean", "matrix")

    def fit(self, blocks: Blocks) -> dict[str, Tensor]:
        """Mean image ``(C, H, W)`` and the symmetric matrix ``(D, D)``."""
        mean, count = mean_of(blocks)
        values, vectors = spectrum(blocks, mean, count)
        # Directions without variance are stretched by 1/√eps; the others differ from that by a factor.
        factors = (values + self.eps).rsqrt() - self.eps**-0.5
        matrix = (vectors * factors) @ vectors.T
        matrix.diagonal().add_(self.eps**-0.5)
        return {"mean": mean.float(), "matrix": matrix.float()}

    def __call__(self, x: Tensor, statistics: Statistics) -> Tensor:
        """Map images."""
        return ((x - statistics["mean"]).flatten(1) @ statistics["matrix"]).view(x.shape)


def mean_of(blocks: Blocks) -> tuple[Tensor, int]:
    """The mean image, float64 ``(C, H, W)``, and N."""
    count, total = 0, torch.zeros((), dtype=torch.float64)
    for x in blocks():
        total = total + x.sum(0, dtype=torch.float64)
        count += len(x)
    return total / count, count


def spectrum(blocks: Blocks, mean: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of the covariance Σ (x − mean)(x − mean)ᵀ / N.

    All in float64: float32's error of the largest eigenvalue, some hundreds for images, exceeds the smallest.
    Of fewer images than dimensions the N×N products of images are decomposed instead, which have the same
    eigenvalues but for zeros; eigenvectors of zeros are left out.

    Args:
        blocks: of the training images.
        mean: of them, float64 ``(C, H, W)``.
        count: N.

    Returns:
        ``(K,)`` and ``(D, K)``, float64, K = D, or the rank when N < D.
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
