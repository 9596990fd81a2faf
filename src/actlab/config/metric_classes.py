"""Classes of metrics in a config, at ``model.metrics``; only building them loads torch."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from actlab.config.class_paths import class_of
from actlab.config.paths import get_dotted, set_dotted
from actlab.errors import ActlabError
from actlab.errors.messages import not_a_class
from actlab.storage.mappings import parse

KEY = "model.metrics"
_PACKAGE = "torchmetrics"  # other classes are not imported to plan a study


def directions(configs: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return ``min`` or ``max`` for each metric that gives a number; "" without a direction."""
    modes: dict[str, str] = {}
    for config in configs:
        for name, value in _stated(config).items():
            # A class of another package is not imported, so it has no direction
            metric = None
            if str(class_of(value)).partition(".")[0] == _PACKAGE:
                metric = _built(name, json.dumps(value, default=str))
                if not gives_number(metric):
                    continue

            # Configs may disagree
            mode = _mode_of(metric)
            if modes.get(name, mode) != mode:
                mode = ""
            modes[name] = mode
    return modes


def _mode_of(metric: Any) -> str:
    higher_is_better = getattr(metric, "higher_is_better", None)
    if higher_is_better is None:
        return ""
    return "max" if higher_is_better else "min"


def gives_number(metric: Any) -> bool:
    """Return whether the result of a metric is one number."""
    with (
        warnings.catch_warnings(),
        suppress(Exception),
    ):
        # A third-party metric may raise anything.
        warnings.simplefilter("ignore")  # compute before update
        return getattr(metric.clone().compute(), "ndim", None) == 0
    return metric.higher_is_better is not None  # as curves do not say


def check(config: Mapping[str, Any]) -> None:
    """Build each metric of a config, for the errors of their constructors."""
    for name, value in _stated(config).items():
        _built(name, json.dumps(value, default=str))


def _stated(config: Mapping[str, Any]) -> Mapping[str, Any]:
    metrics = get_dotted(dict(config), KEY)
    if not isinstance(metrics, Mapping):
        return {}
    return metrics


@cache
def _built(name: str, text: str) -> Any:
    from jsonargparse import ArgumentError, ArgumentParser

    from actlab.config import messages
    from actlab.config.signatures import locate

    # The text is the key of the cache; mappings cannot be hashed
    key, value = f"{KEY}.{name}", parse(text)
    if not isinstance(value, str | dict):
        raise not_a_class(value, key)
    metric = locate(f"{_PACKAGE}.Metric")
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(metric, key, required=True)

    # Parse a copy: the parser changes values
    config: dict[str, Any] = {}
    set_dotted(config, key, copy.deepcopy(value))
    try:
        parsed = parser.parse_object(config)
    except ArgumentError as error:
        raise messages.mistake(value, metric, key) or messages.innermost(
            error, key
        ) from error
    try:
        return parser.instantiate(parsed)[key]
    except Exception as error:  # a constructor may raise anything
        raise ActlabError(f"{key}: {messages.unbuilt(error)}") from error
