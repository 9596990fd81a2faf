"""An activation in a network, and what two processes that build it in opposite orders may see.

Nothing here imports torch: the process of a command compares what its workers report.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from actlab.config.keys import canonical, class_of, get_dotted, label
from actlab.errors import ActlabError
from actlab.studies.plan import Run


class Case(NamedTuple):
    """An activation in a network.

    Args:
        run: a run of both.
        batch: some samples, pickled; empty for a module that is no task of actlab, of which only weights are
            compared.
    """

    run: Run
    batch: bytes = b""

    @property
    def name(self) -> str:
        """The activation in messages."""
        return f"activation {label(self.run.unit)}"


class Tried(NamedTuple):
    """What a trial has found.

    Args:
        faults: the fault of each case, an activation in a network, by its key; None if it has none.
        cases: the cases without a fault, by key.
    """

    faults: dict[str, str | None]
    cases: dict[str, Case]


class Part(NamedTuple):
    """What is compared: of an activation, by its path in the task, or of the network."""

    site: str  # empty: outside the activations
    text: str


class Builds(NamedTuple):
    """What one process has seen of a case.

    Args:
        seen: digests of the state of a build and of what its calls return, by seed, in the order of the calls.
        shared: the first trainable parameter that is one object in two builds, in a sentence.
        forgotten: what a build with the state dict of another computes otherwise, and its class.
    """

    seen: dict[int, dict[Part, str]]
    shared: Part | None
    forgotten: tuple[Part, str] | None


def key_of(run: Run) -> str:
    """Return the key of a run's case: equal for runs with one activation in one network."""
    data = class_of(run.config.get("data"))
    return canonical([run.unit, class_of(run.config["model"]), get_dotted(run.config, "model.network"), data])


def first_difference(one: Mapping[Part, str], other: Mapping[Part, str]) -> Part | None:
    """Return the first part whose digests differ, or that one build lacks."""
    return next((part for part in {**one, **other} if one.get(part) != other.get(part)), None)


def fault_of(case: Case, one: Builds, other: Builds) -> str | None:
    """Return how the builds of a case depend on those before them, in one line; None if they do not.

    Raises:
        ActlabError: if the network does so outside the activations.
    """
    differ = (first_difference(one.seen[seed], other.seen[seed]) for seed in one.seen)
    part = one.shared or next(filter(None, differ), None)
    if part is None:
        return None
    said = (
        f": {part.text}"
        if part is one.shared
        else f" computes something else after other builds in the process ({part.text}), so a run would depend "
        "on more than its config and seed: create in `__init__` what changes, and draw random numbers from "
        "torch, numpy or random"
    )
    if not part.site:
        raise ActlabError(f"the network{said}. Nothing is trained")
    return f"{case.name}{said}"


def hint_of(one: Builds) -> str:
    """Return a line if a resumed run would compute other values, else nothing."""
    if one.forgotten is None:
        return ""
    part, holder = one.forgotten
    where = f" ({part.site})" if part.site else ""
    return (
        f"{holder}{where} changes in a training step what no checkpoint keeps: a resumed run computes other "
        "values. Register it as a buffer (register_buffer) or return it from get_extra_state."
    )
