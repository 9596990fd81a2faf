"""How long the runs of a study train: epochs, updates and time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from actlab.config.paths import get_dotted
from actlab.config.values import as_number

if TYPE_CHECKING:
    from actlab.studies.plan import Block

EPOCHS = "trainer.max_epochs"
LENGTHS = {  # of a run, with the singular and the plural of the unit
    EPOCHS: ("epoch", "epochs"),
    "trainer.max_steps": ("update", "updates"),
    "trainer.max_time": ("of time", "of time"),
}


def other_length(blocks: Iterable[tuple[Block, Block]]) -> str:
    """Describe the first change of the length of runs: ``25 epochs, not 250``; else empty."""
    for block, changed in blocks:
        for key, (singular, plural) in LENGTHS.items():
            values, changed_values = _values_at(block, key), _values_at(changed, key)
            if values == changed_values:
                continue

            # Write the new length, then the old one
            unit = singular if changed_values == [1] else plural
            new_text = " or ".join(map(str, changed_values))
            old_text = " or ".join(map(str, values))
            if any(values):
                return f"{new_text} {unit}, not {old_text}"
            return f"{new_text} {unit}"
    return ""


def _values_at(block: Block, key: str) -> list[Any]:
    """Return the values of a dotted key in the grid of a block, or else in its config."""
    return block.grid.get(key) or [get_dotted(block.config({}), key)]


def is_endless(config: Mapping[str, Any]) -> bool:
    """Return whether a config trains for ever.

    Then ``max_epochs`` is negative, and nothing else limits training. Without ``max_epochs``
    Lightning trains 1,000 epochs.
    """
    epochs, steps, time = (as_number(get_dotted(config, key)) for key in LENGTHS)
    has_steps = isinstance(steps, float) and steps >= 0
    return isinstance(epochs, float) and epochs < 0 and not has_steps and time is None
