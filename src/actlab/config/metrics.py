"""Names and directions of metrics, and those of torchmetrics in a config, which alone load torch."""

from __future__ import annotations

import copy
import json
import re
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Final

from actlab.config.keys import class_of, get_dotted, set_dotted
from actlab.errors import ActlabError
from actlab.storage.mappings import parse

KEY = "model.metrics"
PARAMETERS = "activation/"  # start of the names of activations' learnt parameters, which are metrics of a layer
LEARNT: Final = "learnt_activation"  # the curve that these parameters give
LOWEST: Final = "learnt_activation_min"  # of the channels
HIGHEST: Final = "learnt_activation_max"
INITIAL: Final = "initial_activation"
_PACKAGE = "torchmetrics"  # other classes are not imported to plan a study
ONE_BATCH = "one batch"  # condition of what training logged without ``on_epoch``: the value of the last batch
LOOPS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}  # by first word
_LOW = {"loss", "error", "perplexity", "nll", "mse", "mae", "rmse"}
_HIGH = {"accuracy", "psnr"}
_PLAIN = ("units/", PARAMETERS)
_OF_LIGHTNING = re.compile(r"(_step|_epoch)?(/dataloader_idx_\d+)?$")  # what Lightning appends to a name
_OF_LAYER = re.compile(rf"({PARAMETERS}.+)\[(layer=\d+)\]")
_WORDS = re.compile(r"[/_.-]")


def mode_of(metric: str, known: Mapping[str, str] | None = None) -> str:
    """Return whether low (``min``) or high (``max``) values of a metric are better; "" if nothing says so.

    Modes are ``known`` by name or by `quantity`. Of any other metric the last word of the name decides; of
    statistics of units and of learnt parameters, which no target is compared with, low values count as better.

    >>> mode_of("val/accuracy"), mode_of("test_f1", {"f1": "max"}), mode_of("test/error"), mode_of("val/acc")
    ('max', 'max', 'min', '')
    """
    mode = (known or {}).get(metric) or (known or {}).get(quantity(metric))
    if mode:
        return mode
    word = _WORDS.split(_OF_LIGHTNING.sub("", metric.lower()))[-1]
    low = word in _LOW or quantity(metric).endswith("bits_per_byte") or metric.startswith(_PLAIN)
    return "min" if low else "max" if word in _HIGH else ""


def quantity(metric: str) -> str:
    """Return what a metric measures: its name without loop, probe and what Lightning appends.

    >>> quantity("val_f1"), quantity("test/f1_epoch"), quantity("noise/val/f1"), quantity("f1/dataloader_idx_0")
    ('f1', 'f1', 'f1', 'f1')
    """
    last = _OF_LIGHTNING.sub("", metric).rpartition("/")[2]
    first, *rest = _WORDS.split(last, maxsplit=1)
    return rest[0] if rest and first in LOOPS else last


def loop_of(metric: str) -> str:
    """Return the loop that the name of a metric says: ``train``, ``val`` or ``test``; "" if it says none.

    >>> loop_of("noise/test/error"), loop_of("valid_acc"), loop_of("loss")
    ('test', 'val', '')
    """
    words = [*metric.split("/"), *_WORDS.split(metric)]
    return next((LOOPS[word] for word in words if word in LOOPS), "")


def is_parameter(metric: str) -> bool:
    """Return whether a metric is a learnt parameter of activations, such as ``activation/beta``."""
    return metric.startswith(PARAMETERS)


def logged(metric: str, condition: str) -> str:
    """Return the name of a metric with its condition, in loggers and files.

    >>> logged("activation/beta", "layer=3"), logged("val/loss", "")
    ('activation/beta[layer=3]', 'val/loss')
    """
    return f"{metric}[{condition}]" if condition else metric


def metric_and_condition(name: str) -> tuple[str, str]:
    """Return metric and condition of a logged name; only learnt parameters have a condition.

    >>> metric_and_condition("activation/beta[layer=3]"), metric_and_condition("val/top[k=5]")
    (('activation/beta', 'layer=3'), ('val/top[k=5]', ''))
    """
    parts = _OF_LAYER.fullmatch(name)
    return (parts[1], parts[2]) if parts else (name, "")


def no_direction(metric: str) -> ActlabError:
    """Return the error for a metric whose direction is needed and unknown."""
    return ActlabError(
        f"{metric} does not say whether low or high values are better: give mode: min or max, beside this "
        "metric in 'table' or 'select'; a column that is not to be ranked needs 'ranked: false'"
    )


def directions(configs: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return ``min`` or ``max`` for each metric that gives a number; "" if its class does not say."""
    modes: dict[str, str] = {}
    for name, value in (item for config in configs for item in _given(config).items()):
        of_torchmetrics = str(class_of(value)).partition(".")[0] == _PACKAGE
        metric = _built(name, json.dumps(value, default=str)) if of_torchmetrics else None
        if metric is None or gives_number(metric):
            better = getattr(metric, "higher_is_better", None)
            mode = "" if better is None else "max" if better else "min"
            modes[name] = mode if modes.get(name, mode) == mode else ""
    return modes


def gives_number(metric: Any) -> bool:
    """Return whether the result of a metric is one number."""
    with warnings.catch_warnings(), suppress(Exception):  # a third-party metric may raise anything
        warnings.simplefilter("ignore")  # compute before update
        return getattr(metric.clone().compute(), "ndim", None) == 0
    return metric.higher_is_better is not None  # as curves do not say


def check(config: Mapping[str, Any]) -> None:
    """Build each metric of a config, for the errors of their constructors."""
    for name, value in _given(config).items():
        _built(name, json.dumps(value, default=str))


def _given(config: Mapping[str, Any]) -> Mapping[str, Any]:
    metrics = get_dotted(dict(config), KEY)
    return metrics if isinstance(metrics, Mapping) else {}


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
