"""Draw the numbers of several sites of a training step at once. Shapes: ``R`` runs."""

from __future__ import annotations

import torch
from torch import Tensor

from actlab.random import masks
from actlab.random.hashing import hash_words, to_unit_interval

# Numbers: more leave the cache of a core, and outweigh an operator's start.
MOST_AT_ONCE = 2**19


class JointDraws:
    """The numbers of several sites of a training step, drawn when the first of these sites draws.

    Hashing takes 17 operators, which start more slowly than they compute unless there are many
    numbers. Sites that drew equally many numbers in the step before are expected to do so again.
    Any other site draws alone.
    """

    def __init__(self) -> None:
        self._step: int | None = None
        self._expected: dict[
            int, int
        ] = {}  # numbers of a run by site, in the step before
        self._counts: dict[int, int] = {}  # numbers of a run by site, in this step
        self._drawn: dict[int, Tensor] = {}

    def take(
        self, site: int, elements: Tensor, keys: Tensor, step: int
    ) -> list[Tensor]:
        """Return the numbers of a site in a list, which is empty if the site draws alone.

        ``keys`` are the keys of all sites, ``(sites, 2, R, 1)``.
        """
        if not _are_possible():
            return []

        # Expect of a new step what the step before drew.
        if step != self._step:
            self._step = step
            self._expected = self._counts
            self._counts = {}
            self._drawn = {}

        # Draw with the following sites.
        number = len(elements)
        is_expected = self._expected.get(site) == number
        if is_expected and site not in self._counts and site not in self._drawn:
            self._draw(site, elements, keys)
        self._counts[site] = number

        # Drop numbers that were drawn for another size
        numbers = self._drawn.pop(site, None)
        if numbers is None or not is_expected:
            return []
        return [numbers]

    def _draw(self, site: int, elements: Tensor, keys: Tensor) -> None:
        """Draw the numbers of this site and of the following sites that draw equally many."""
        number = len(elements)
        most = MOST_AT_ONCE // max(1, number * keys.shape[2])

        # Collect the sites that have not drawn yet.
        candidates = []
        for expected_site, count in self._expected.items():
            if count == number and expected_site not in self._counts:
                candidates.append(expected_site)
        begin = candidates.index(site)
        sites = candidates[begin : begin + most]
        if len(sites) < 2:
            return

        # Draw at once. Chunks have no shared version: a site overwrites its own chunk
        # while another site still needs its mask.
        first_key, second_key = torch.stack([keys[member] for member in sites], 1)
        numbers = to_unit_interval(hash_words(elements, first_key, second_key))
        chunks = numbers.unsafe_chunk(len(sites))
        self._drawn |= zip(sites, chunks, strict=True)


def _are_possible() -> bool:
    """Return whether numbers made here serve all sites: not in compiled or transformed calls."""
    if (
        torch.compiler.is_compiling()
        or masks.are_compiled()
        or torch.is_inference_mode_enabled()
    ):
        return False
    return torch._C._functorch.maybe_current_level() is None
