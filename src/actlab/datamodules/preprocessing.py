"""What happens to images once, before training: a chain of steps that a config names.

Each step is named, or given with settings of its own; `STEPS` holds them all::

    preprocessing: [scale, zca]                         # GELU §3.5, CIFAR-10
    preprocessing: [unit, mean]                         # GELU §3.5, CIFAR-100
    preprocessing: [gcn, {name: zca, eps: 0.1}]         # ELU §4.2, as Goodfellow et al. (2013)

What steps learn from the images that are trained on is cached; it is applied on the device of the data, a block
of images at a time.

Shapes: ``N`` samples, ``C H W``, ``D = C·H·W``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from actlab.datamodules.cache import Cached, digest_of_tensors, made_once
from actlab.datamodules.steps import STEPS, Statistics, Step
from actlab.errors import ActlabError, unknown
from actlab.storage.files import cache_folder

FORMAT = 1  # of the cache: raised when a step's statistics change
BLOCK = 1000  # images that are worked on at once: 12 MB of CIFAR in float32
CPU = torch.device("cpu")


def steps_of(given: Sequence[str | Mapping[str, Any]]) -> tuple[Step, ...]:
    """The chain of steps that a config names.

    Args:
        given: each a name, or a mapping with ``name`` and the step's settings.

    Raises:
        ActlabError: for an unknown name or setting, a value that is no positive number, a step that stands
            twice, or one for bytes that is not the first.
    """
    if isinstance(given, str | Mapping):
        raise ActlabError(f"data.preprocessing {given!r}: give a list of steps, such as [scale, zca]")
    steps = tuple(_step(one) for one in given)
    for number, step in enumerate(steps):
        name = _name_of(step)
        if step.takes_bytes and number:
            raise ActlabError(f"data.preprocessing: {name!r} takes pixels from 0 to 255; put it first")
        if type(step) in map(type, steps[:number]):
            raise ActlabError(f"data.preprocessing: {name!r} stands twice; give it once")
    return steps


def _step(given: str | Mapping[str, Any]) -> Step:
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
    """Steps that know their training images.

    Args:
        steps: in order.
        statistics: of each step.
    """

    steps: tuple[Step, ...]
    statistics: tuple[Statistics, ...]

    def __call__(self, images: Tensor, device: torch.device = CPU) -> Tensor:
        """Images uint8 ``(N, C, H, W)`` through all steps, float32 on a device.

        Beside the result there is one block at a time.
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
    """Steps that know the training images, from the cache when they were fitted before.

    A step is fitted to what the steps before it give. Memory beside the images: what ZCA's eigenvectors need,
    some five float64 matrices D×D, 0.4 GB for CIFAR. Its 50,000 images take 15 to 20 s on two cores, once.

    Args:
        images: those that are trained on, uint8 ``(N, C, H, W)`` on the CPU.
        steps: of `steps_of`.
        cache_dir: as of `cache_folder`; the key is a digest of the images and of the steps.

    Raises:
        ActlabError: when the cache cannot be written.
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
    """Statistics ``{number}.{name}`` of every step."""
    found: dict[str, Tensor] = {}
    known: list[Statistics] = []
    for number, step in enumerate(steps):
        before = Preprocessing(tuple(steps[:number]), tuple(known))

        def blocks(before: Preprocessing = before) -> Iterator[Tensor]:
            return (before(block) for block in torch.split(images, BLOCK))

        known.append(step.fit(blocks))
        found |= {f"{number}.{name}": t.contiguous() for name, t in known[-1].items()}
    return found


@contextmanager
def exact_products() -> Iterator[None]:
    """Float32 products at float32 accuracy, whatever the run trains with: whitening cancels large terms."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
