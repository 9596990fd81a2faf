"""A study of two units, and run folders written as engines and probes write them, by hand."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from actlab.analysis.results import Results, load
from actlab.studies import probe_files
from actlab.studies.plan import Block, Run, Selection, Study
from actlab.studies.rows import Row
from actlab.studies.run_folder import RunFolder
from actlab.studies.states import DIVERGED, FINISHED
from actlab.studies.study_folder import StudyFolder

ACT, LR, DROP = "model.activation", "model.lr", "model.dropout"
Curves = dict[str, list[float]]
COST: dict[str, Any] = {  # what a study records of each update that it times, without its run
    **{"compared": "?", "seconds_per_update": 1.0, "bytes_kept": 1, "hardware": "this machine"},
    **{"rounds": 25, "seconds_in_parts": [], "machine": {}},
}


def study(**changes: Any) -> Study:
    """Two units, two learning rates, two seeds unless changed."""
    given: dict[str, Any] = {
        "name": "s",
        "title": "S",
        "seeds": (0, 1),
        "select": Selection((LR,)),
        "grids": ({ACT: ["gelu", "relu"], LR: [0.1, 0.01]},),
        "table": ({"metric": "test/error", "at": "last", "percent": True},),
    }
    given |= changes
    blocks = tuple(map(Block, given.pop("grids")))
    return Study(blocks=blocks, **given)


def one_unit(seeds: int = 1, **changes: Any) -> Study:
    """ReLU alone, without anything to tune."""
    return study(grids=({ACT: ["relu"]},), select=Selection(), seeds=tuple(range(seeds)), **changes)


def curves_of(run: Run) -> Curves:
    """gelu is best at 0.1, relu at 0.01; the test error contradicts the validation."""
    good = run.point[LR] == (0.1 if run.point[ACT] == "gelu" else 0.01)
    low = (0.2 if good else 0.4) + 0.01 * run.seed
    return {"val/loss": [1.0, low, 0.5], "test/error": [0.9, 0.5, 0.3 if good else 0.1]}


_KEPT: dict[
    str, dict[str, bytes]
] = {}  # what was written → its files, as writing takes ten times as long


def write(
    root: Path,
    run: Run,
    curves: Curves,
    status: str = FINISHED,
    rows: Sequence[Row] = (),
    **facts: Any,
) -> None:
    """A run folder with each metric's values at epochs 1, 2, …, and rows; or a copy of one."""
    folder = RunFolder(root, run)
    asked, is_new = repr((run, curves, status, rows, facts)), not folder.path.exists()
    if is_new and asked in _KEPT:
        folder.path.mkdir(parents=True)
        for name, content in _KEPT[asked].items():
            (folder.path / name).write_bytes(content)
        return
    folder.open()
    measured = [
        Row(float(epoch), 10 * epoch, split, metric, "", value)
        for name, values in curves.items()
        for split, metric in [name.rpartition("/")[::2]]
        for epoch, value in enumerate(values, 1)
    ]
    folder.finish(status, [*rows, *measured], seconds=1.0, **facts)
    if is_new:
        _KEPT[asked] = {file.name: file.read_bytes() for file in folder.path.iterdir()}


def finished(
    root: Path,
    plan: Study,
    curves: Curves | Callable[[Run], Curves] = curves_of,
    bad: Callable[[Run], bool] = lambda run: False,
    **facts: Any,
) -> Results:
    """The results of a study whose runs have recorded these curves; ``bad`` ones have diverged."""
    for run in plan.runs():
        status = DIVERGED if bad(run) else FINISHED
        write(root, run, curves(run) if callable(curves) else curves, status, **facts)
    return load(StudyFolder(plan, root))


def probe(
    root: Path, run: Run, name: str, values: dict[tuple[str, str], float], epoch: float = 3.0
) -> Path:
    """A probe's file: values by ``split/metric`` and condition, at one epoch."""
    rows = [
        Row(epoch, 10 * int(epoch), *metric.rpartition("/")[::2], condition, value)
        for (metric, condition), value in values.items()
    ]
    file = probe_files.file_of(root / run.id, name, [])
    probe_files.write(file, rows)
    return file
