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
    """Return a line for each activation and parameter.

    For example ``Swish, beta: 1.50 to 1.54 by layer, started at 1.5``. Each range covers the
    layers, and the grid points of one activation.
    """
    # Collect the selected settings of each activation.
    compare = results.study.compare
    settings: dict[str, list[Setting]] = {}
    for group in results.groups:
        setting = selection.selected_setting(results, group)
        if setting:
            name = results.text(compare, group.point.get(compare, ""))
            settings.setdefault(name, []).append(setting)

    # Describe each parameter that an activation has.
    parameters = _parameters(results.metrics.conditions)
    texts = []
    for name, activation_settings in settings.items():
        for parameter in parameters:
            text = _line(results, activation_settings, parameter)
            if text:
                texts.append(f"{name}, {parameter.removeprefix(PARAMETERS)}: {text}")
    return texts


def _parameters(metrics: Iterable[str]) -> list[str]:
    """Return the metrics of parameters, without the two ends of those with several values."""
    parameters = list(filter(is_parameter, metrics))
    ends = set()
    for parameter in parameters:
        ends |= {f"{parameter}_min", f"{parameter}_max"}
    return [parameter for parameter in parameters if parameter not in ends]


def _line(results: Results, settings: Sequence[Setting], parameter: str) -> str:
    """Return what training made of a parameter; empty if no layer of these settings has it."""
    # Describe the values after training.
    values = _medians(results, settings, parameter)
    if not values:
        return ""
    text = _range(values)
    if len(values) > 1 and len(settings) > 1:
        text += " by layer and grid point"
    elif len(values) > 1:
        text += " by layer"

    # Add the range of a parameter with several values.
    low = _medians(results, settings, f"{parameter}_min")
    high = _medians(results, settings, f"{parameter}_max")
    if low and high:
        means = f"means of {text}" if len(values) > 1 else f"mean {text}"
        text = f"{means}, single values of {_range([min(low), max(high)])}"

    # Add the values before training.
    start = _initial_values(results, settings, parameter)
    if start:
        low_text, high_text = f"{min(start):.3g}", f"{max(start):.3g}"
        text += f", started at {low_text}"
        if high_text != low_text:
            text += f" to {high_text}"
    return text


def _initial_values(
    results: Results, settings: Sequence[Setting], parameter: str
) -> list[float]:
    """Return the values of a parameter before training, of each run and layer that has it."""
    names = [logged(parameter, layer) for layer in _layers(results, parameter)]
    values = []
    for setting in settings:
        for run in setting.runs:
            if run.id in results.results:
                initial = results.results[run.id].get("initial_parameters", {})
                values += [initial[name] for name in names if name in initial]
    return values


def _layers(results: Results, metric: str) -> list[str]:
    """Return the layers in which a parameter was recorded, as conditions."""
    # A user's metric may be called activation/…, too; it has no layer.
    conditions = results.metrics.conditions.get(metric, ())
    return [condition for condition in conditions if condition.startswith("layer=")]


def _medians(results: Results, settings: Sequence[Setting], metric: str) -> list[float]:
    """Return the median over seeds of the last value, at each setting and in each layer."""
    medians = []
    for layer in _layers(results, metric):
        column = Column(metric, mode="", condition=layer, ranked=False)
        for setting in settings:
            values = results.values(setting, column)
            if values:
                medians.append(median(values.values()))
    return medians


def _range(values: Sequence[float]) -> str:
    """Return the ends of a range, or one number if both are printed alike."""
    low, high = digits(min(values)), digits(max(values))
    return low if low == high else f"{low} to {high}"
