"""The trainable parameters of activations after training: one line for each, below the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from actlab.analysis import selection
from actlab.analysis.columns import Column
from actlab.analysis.results import Results
from actlab.analysis.statistics import median
from actlab.analysis.wording import digits
from actlab.config.metrics import PARAMETERS, is_parameter, logged
from actlab.studies.groups import Setting

TITLE = "Trainable parameters after the last epoch, medians over seeds"


def lines(results: Results) -> list[str]:
    """Return a line for each activation and parameter: ``Swish, beta: 1.50 to 1.54 by layer, started at 1.5``.

    Each range covers the layers, and the grid points of one activation.
    """
    # Collect the selected settings of each activation.
    compare = results.study.compare
    settings: dict[str, list[Setting]] = {}
    for group in results.groups:
        if setting := selection.chosen(results, group):
            name = results.text(compare, group.point.get(compare, ""))
            settings.setdefault(name, []).append(setting)

    # Describe each parameter that an activation has.
    parameters = _parameters(results.metrics.conditions)
    texts = []
    for name, of_activation in settings.items():
        for parameter in parameters:
            if text := _line(results, of_activation, parameter):
                texts.append(f"{name}, {parameter.removeprefix(PARAMETERS)}: {text}")
    return texts


def _parameters(metrics: Iterable[str]) -> list[str]:
    """Return the metrics of parameters, without the two ends of those with several values."""
    of_parameters = list(filter(is_parameter, metrics))
    ends = {f"{metric}{end}" for metric in of_parameters for end in ("_min", "_max")}
    return [metric for metric in of_parameters if metric not in ends]


def _line(results: Results, settings: Sequence[Setting], parameter: str) -> str:
    """Return what training made of a parameter; empty if no layer of these settings has it."""
    values = _medians(results, settings, parameter)
    if not values:
        return ""
    layers = _layers(results, parameter)
    text = _range(values)
    if len(values) > 1 and len(settings) > 1:
        text += " by layer and grid point"
    elif len(values) > 1:
        text += " by layer"

    # Add the range of a parameter with several values.
    low = _medians(results, settings, f"{parameter}_min")
    high = _medians(results, settings, f"{parameter}_max")
    if low and high:
        kind = "means of" if len(values) > 1 else "mean"
        text = f"{kind} {text}, single values of {_range([min(low), max(high)])}"

    # Add the values before training.
    runs = [run.id for setting in settings for run in setting.runs if run.id in results.results]
    started = [results.results[run].get("initial_parameters", {}) for run in runs]
    names = [logged(parameter, layer) for layer in layers]
    start = [initial[name] for initial in started for name in names if name in initial]
    if start:
        first, last = f"{min(start):.3g}", f"{max(start):.3g}"
        text += f", started at {first}" if first == last else f", started at {first} to {last}"
    return text


def _layers(results: Results, metric: str) -> list[str]:
    """Return the conditions of a parameter: a user's own metric may be called ``activation/…``, too."""
    conditions = results.metrics.conditions.get(metric, ())
    return [condition for condition in conditions if condition.startswith("layer=")]


def _medians(results: Results, settings: Sequence[Setting], metric: str) -> list[float]:
    """Return the median over seeds of the last value of a metric, at each setting and in each layer."""
    medians = []
    for layer in _layers(results, metric):
        column = Column(metric, mode="", condition=layer, ranked=False)
        for setting in settings:
            if values := results.values(setting, column):
                medians.append(median(values.values()))
    return medians


def _range(values: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(digits(value) for value in (min(values), max(values))))
