"""The figure of activations with learnt parameters: f(x) of each layer, at the end and start of training.

It needs neither checkpoints nor the code of an activation: the curves are in ``matrices.json`` of each run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from actlab.analysis.curves import Curve
from actlab.analysis.results import Results
from actlab.analysis.statistics import median_band
from actlab.config.metrics import INITIAL, LEARNT, is_parameter
from actlab.reports.captions import medians
from actlab.reports.panels import Line, Panel, Plot
from actlab.storage.files import read_json
from actlab.studies.folders import MATRICES, RunFolder
from actlab.studies.formats import Kept
from actlab.studies.plan import Run

NAME = "learnt_activations"
_Curves = Mapping[str, Sequence[float]]  # "x", and by the number of a layer


def read(results: Results) -> Plot | None:
    """Return the figure, with a panel for each grid point; None if no finished run has such curves."""
    panels: list[Panel] = []
    if not any(map(is_parameter, results.conditions)):
        return None
    for group in results.groups:
        setting = results.chosen(group)
        kept = [_kept(results, run) for run in setting.runs] if setting else []
        title = group.point.in_words(results.study.compare, results.text)
        if lines := [*_lines([found[LEARNT] for found in kept if LEARNT in found], LEARNT)]:
            lines += _initial([*_lines([found[INITIAL] for found in kept if INITIAL in found], INITIAL)])
            panels.append(Panel(len(panels) + 1, title, lines, xlabel="x", ylabel="f(x)"))
    if not panels:
        return None
    caption = (
        "Activations with learnt parameters, in evaluation mode: f(x) of each layer, numbered from the input, "
        "after the last epoch; dashed: before the first. Where channels have parameters of their own, the mean "
        "over channels that all have the input x. Runs that diverged are left out. "
    )
    lines = [line for panel in panels for line in panel.lines]
    return Plot(NAME, panels, caption + medians(lines, results.study.seeds))


def _kept(results: Results, run: Run) -> Kept:
    folder = RunFolder(results.root, run)
    finished = run.id in results.results and not results.has_diverged(run)
    file = folder.path / MATRICES
    return read_json(file, Kept, folder.remedy) if finished and file.exists() else {}


def _lines(runs: Sequence[_Curves], metric: str) -> Iterator[Line]:
    for layer in sorted({int(name) for found in runs for name in found if name != "x"}):
        values = [found[str(layer)] for found in runs if str(layer) in found]
        x = np.array(next(found["x"] for found in runs if str(layer) in found))
        yield Line(f"layer {layer}", metric, Curve(x, median_band(np.array(values)), len(values)), None)


def _initial(lines: Sequence[Line]) -> Sequence[Line]:
    """Return one line in place of equal ones of several layers."""
    equal = all(np.array_equal(line.ours.band[:3], lines[0].ours.band[:3]) for line in lines)
    return [Line("all layers", INITIAL, lines[0].ours, None)] if len(lines) > 1 and equal else lines
