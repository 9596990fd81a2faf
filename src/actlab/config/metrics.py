"""Metrics of torchmetrics in a config; torch is loaded only for configs that name such metrics."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from actlab.config.keys import class_of, get_dotted, set_dotted
from actlab.errors import ActlabError
from actlab.storage.mappings import parse

KEY = "model.metrics"
_PACKAGE = "torchmetrics"  # other classes are not imported to plan a study


def directions(configs: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return ``min`` or ``max`` for each metric that gives a number; "" if its class does not say."""
    found: dict[str, str] = {}
    for name, value in (item for config in configs for item in _given(config).items()):
        of_torchmetrics = str(class_of(value)).partition(".")[0] == _PACKAGE
        metric = _built(name, json.dumps(value, default=str)) if of_torchmetrics else None
        if metric is None or gives_number(metric):
            better = getattr(metric, "higher_is_better", None)
            mode = "" if better is None else "max" if better else "min"
            found[name] = mode if found.get(name, mode) == mode else ""
    return found


def gives_number(metric: Any) -> bool:
    """Return whether the result of a metric is one number.

    A metric that cannot be computed before an update is one if it says which values are better: curves do not.
    """
    with warnings.catch_warnings(), suppress(Exception):  # a third-party metric may raise anything
        warnings.simplefilter("ignore")  # compute before update
        return getattr(metric.clone().compute(), "ndim", None) == 0
    return metric.higher_is_better is not None


def check(config: Mapping[str, Any]) -> None:
    """Build each metric of a config, for the errors of their constructors."""
    for name, value in _given(config).items():
        _built(name, json.dumps(value, default=str))


def _given(config: Mapping[str, Any]) -> Mapping[str, Any]:
    found = get_dotted(dict(config), KEY)
    return found if isinstance(found, Mapping) else {}


@cache
def _built(name: str, text: str) -> Any:
    from jsonargparse import ArgumentError, ArgumentParser

    from actlab.config import messages
    from actlab.config.signatures import locate

    parser, key, value = ArgumentParser(exit_on_error=False), f"{KEY}.{name}", parse(text)
    metric = locate(f"{_PACKAGE}.Metric")
    if not isinstance(value, str | dict):
        raise ActlabError(f"{key} {value!r}: give a class_path with its init_args")
    parser.add_subclass_arguments(metric, key, required=True)
    given: dict[str, Any] = {}
    set_dotted(given, key, value)
    try:
        parsed = parser.parse_object(copy.deepcopy(given))
    except ArgumentError as error:
        raise messages.mistake(value, metric, key) or messages.innermost(error) from error
    try:
        return parser.instantiate(parsed)[key]
    except Exception as error:  # a constructor may raise anything
        raise ActlabError(f"{key}: {messages.unbuilt(error)}") from error
