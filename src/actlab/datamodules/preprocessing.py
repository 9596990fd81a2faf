"""Preprocess images once before training, by a chain of steps that the config lists.

A step is a name from `STEPS`, or a mapping with the name and the step's settings::

    preprocessing: [scale, zca]                         # GELU §3.5, CIFAR-10
    preprocessing: [unit, mean]                         # GELU §3.5, CIFAR-100
    preprocessing: [gcn, {name: zca, eps: 0.1}]         # ELU §4.2, as Goodfellow et al. (2013)

The statistics of the steps are computed from the training images and cached. The steps run on the device of the
datamodule, on one block of images at a time.

Shapes: ``N`` samples, ``C H W`` of an image, ``D = C·H·W``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from actlab.datamodules.cache import Cached, digest_of_tensors, made_once
from actlab.datamodules.steps import STEPS, Statistics, Step
from actlab.errors import ActlabError, unknown
from actlab.storage.files import cache_folder

FORMAT = 1  # version of the cache; increased when a step's statistics change
BLOCK = 1000  # images per block: 12 MB of CIFAR in float32
CPU = torch.device("cpu")


def steps_of(given: Sequence[str | Mapping[str, Any]]) -> tuple[Step, ...]:
    """Return the steps that a config lists.

    Args:
        given: for each step its name, or a mapping with ``name`` and the step's settings.

    Raises:
        ActlabError: for an unknown name or setting, a setting that is not a positive number, a step given
            twice, or a step for pixels from 0 to 255 that is not the first.
    """
    if isinstance(given, str | Mapping):
        raise ActlabError(f"data.preprocessing {given!r}: give a list of steps, such as [scale, zca]")
    steps = tuple(_parse_step(one) for one in given)
    for number, step in enumerate(steps):
        name = _name_of(step)
        if step.takes_bytes and number:
            raise ActlabError(f"data.preprocessing: {name!r} takes pixels from 0 to 255; put it first")
        if type(step) in map(type, steps[:number]):
            raise ActlabError(f"data.preprocessing: {name!r} is given twice; give it once")
    return steps


def _parse_step(given: str | Mapping[str, Any]) -> Step:
    settings = dict(given) if isinstance(given, Mapping) else {"name": given}
    name = settings.pop("name", None)
    if not isinstance(name, str) or name not in STEPS:
        raise unknown("step of data.preprocessing", str(name), STEPS, "Or {name: STEP, setting: value}.")
    fields = [field.name for field in dataclasses.fields(STEPS[name])]  # type: ignore[arg-type]  # all are
    for key, value in settings.items():
        if key not in fields:
            raise unknown(f"setting of preprocessing step {name!r}", str(key), fields)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise ActlabError(f"data.preprocessing: {key} of {name!r} is {value!r}; give a number above 0")
    return STEPS[name](**settings)


def _name_of(step: Step) -> str:
    return next(name for name, kind in STEPS.items() if type(step) is kind)


class Preprocessing(NamedTuple):
    """Steps with their statistics of the training images.

    Args:
        steps: in order.
        statistics: one mapping per step.
    """

    steps: tuple[Step, ...]
    statistics: tuple[Statistics, ...]

    def __call__(self, images: Tensor, device: torch.device = CPU) -> Tensor:
        """Apply all steps to images uint8 ``(N, C, H, W)``; return float32 on ``device``.

        Besides the result, only one block of images is in memory at a time.
        """
        known = [{name: t.to(device) for name, t in found.items()} for found in self.statistics]
        done = torch.empty(images.shape, dtype=torch.float32, device=device)
        with exact_products():
            for block, result in zip(torch.split(images, BLOCK), torch.split(done, BLOCK), strict=True):
                x = block.to(device).float()
                for step, statistics in zip(self.steps, known, strict=True):
                    x = step(x, statistics)
                result.copy_(x)
        return done


def fitted(images: Tensor, steps: Sequence[Step], cache_dir: str | None = None) -> Preprocessing:
    """Fit the steps to the training images, or load their statistics from the cache.

    Each step is fitted to the output of the steps before it. The eigendecomposition of ZCA needs about five
    float64 D×D matrices besides the images, 0.4 GB for CIFAR. The 50,000 images of CIFAR take 15 to 20 s on two
    cores, once.

    Args:
        images: the training images, uint8 ``(N, C, H, W)`` on the CPU.
        steps: from `steps_of`.
        cache_dir: see `cache_folder`; the key is a digest of the images and the steps.

    Raises:
        ActlabError: if the cache cannot be written.
    """
    names = [f"{n}.{name}" for n, step in enumerate(steps) for name in step.statistics]
    if not names:
        return Preprocessing(tuple(steps), ({},) * len(steps))
    key = repr((FORMAT, tuple(steps), digest_of_tensors({"images": images})))
    file = f"preprocessing-{hashlib.sha256(key.encode()).hexdigest()[:24]}.safetensors"
    found = made_once(cache_folder(cache_dir) / file, names, lambda: Cached(_fit(images, steps), {})).tensors
    known = ({key: found[f"{n}.{key}"] for key in step.statistics} for n, step in enumerate(steps))
    return Preprocessing(tuple(steps), tuple(known))


def _fit(images: Tensor, steps: Sequence[Step]) -> dict[str, Tensor]:
    """Return the statistics of all steps, named ``{number}.{name}``."""
    found: dict[str, Tensor] = {}
    known: list[Statistics] = []
    for number, step in enumerate(steps):
        before = Preprocessing(tuple(steps[:number]), tuple(known))
        known.append(step.fit(partial(map, before, torch.split(images, BLOCK))))
        found |= {f"{number}.{name}": t.contiguous() for name, t in known[-1].items()}
    return found


@contextmanager
def exact_products() -> Iterator[None]:
    """Run float32 matmuls at full float32 precision, because whitening cancels large terms.

    The previous precision, which the run trains with, is restored on exit.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
