"""What checks and packing need to know of a grid point, from one build of one of its runs."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from actlab.config.paths import get_dotted, set_dotted
from actlab.studies.plan import SEED, Run

if TYPE_CHECKING:
    from actlab.experiments import Experiment


class Facts(NamedTuple):
    """What a build shows of a run, and of runs that differ only in seed and `stackable` keys."""

    stackable: tuple[str, ...]  # config keys in which the members of a stack may differ
    layers: str  # types and parameter shapes of the layers, as text
    on_cpu: bool
    single_device: bool
    has_forms: bool  # whether all layers have a stacked form
    reason: str | None  # why the run cannot be a member of a stack


class BuiltFacts:
    """The facts of the runs that were built.

    They hold for runs that differ from these only in `stackable` keys. A process that has built
    runs hands them on to others, which then build fewer.
    """

    def __init__(self) -> None:
        self._stackable: dict[
            str, tuple[str, ...]
        ] = {}  # by the classes of a model, as text
        self._facts: dict[
            str, Facts
        ] = {}  # by the settings that may change them, as text
        self._updates: dict[
            str, int | None
        ] = {}  # per epoch, by the settings of all but the model

    def of(self, run: Run, experiment: Experiment | None = None) -> Facts:
        """Return the facts of a run, from its ``experiment`` if it was built."""
        # Runs that differ only in stackable keys share facts
        classes = as_text(_classes(run.config["model"]))
        if experiment is None and classes in self._stackable:
            facts = self._facts.get(_settings(run, self._stackable[classes]))
            if facts is not None:
                return facts

        # Imported lazily: the process that plans a study hands on facts, and loads no
        # torch.
        from actlab import experiments
        from actlab.checks.forms import facts_of

        # Store the facts for later runs
        facts = facts_of(experiment or experiments.build(run.config))
        self._stackable[classes] = facts.stackable
        self._facts[_settings(run, facts.stackable)] = facts
        return facts

    def updates_of(self, run: Run, experiment: Experiment | None = None) -> int | None:
        """Return the number of updates per epoch of a run; None if its data have no length."""
        settings = as_text(without({**run.config, "model": None}, [SEED]))
        if settings not in self._updates:
            from actlab import experiments

            built = experiment or experiments.build(run.config)
            self._updates[settings] = built.updates_per_epoch()
        return self._updates[settings]


def _settings(run: Run, stackable: Sequence[str]) -> str:
    """Return the settings that may change the facts of a run."""
    # Arguments of the network may add layers.
    keys = [key for key in stackable if not key.startswith("model.network.")]
    return as_text([without(run.config, keys), run.sources])


def _classes(value: Any) -> Any:
    """Return the class paths among nested values, in their places."""
    if not isinstance(value, dict):
        return None

    classes = {}
    for key, inner in value.items():
        inner_classes = inner if key == "class_path" else _classes(inner)
        if inner_classes:
            classes[key] = inner_classes
    return classes or None


def without(config: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """Return a config with the values of some keys replaced by 0, and objects by class paths."""
    copied = copy.deepcopy(dict(config))
    for key in keys:
        value = get_dotted(copied, key)
        if value is None:
            continue

        # Members of a stack may differ in the settings of their optimiser, but not in
        # its class.
        if isinstance(value, dict):
            value = value.get("class_path", 0)
        if not isinstance(value, str):
            value = 0
        set_dotted(copied, key, value)
    return copied


def as_text(value: Any) -> str:
    """Return nested values as text; equal values give equal text."""
    return json.dumps(value, sort_keys=True, default=str)
