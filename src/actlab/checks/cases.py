"""The cases that are tried before a study trains: each activation in each network."""

from __future__ import annotations

from actlab.config.class_paths import class_of
from actlab.config.paths import get_dotted
from actlab.config.values import canonical
from actlab.studies.plan import Run

Faults = dict[str, str | None]
"""The fault of each case, an activation in a network, by its key; None if it has none."""


def key_of(run: Run) -> str:
    """Return the key of a run's case: equal for runs with one activation in one network."""
    # Shapes come from the data, the loss from the model
    model, data = class_of(run.config["model"]), class_of(run.config.get("data"))
    return canonical(
        [run.activation, model, get_dotted(run.config, "model.network"), data]
    )
