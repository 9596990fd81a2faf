"""Studies from Python and notebooks; the names that `actlab` offers for them."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from pydantic import NonNegativeInt, PositiveInt

from actlab.analysis.results import Results
from actlab.analysis.study_table import Comparison, StudyTable
from actlab.errors import ActlabError
from actlab.errors.messages import reason, short_repr
from actlab.storage.spec import Activation, Spec
from actlab.studies import reading
from actlab.studies.plan import MAX_STACK, Study
from actlab.validation import validated

if TYPE_CHECKING:
    from actlab.reports.canvas import Figure

Seeds = int | str | Sequence[int] | range
"""The number of seeds, a range such as ``"5-19"``, or the seeds themselves."""
_MOST_BITS = 1024  # of a whole number; no larger one has a float


@validated
def load_study(
    study: str | Path,
    *,
    activations: Activation | Sequence[Activation] = (),
    seeds: Seeds | Mapping[str, Seeds] | None = None,
    reference: Activation | None = None,
    settings: Mapping[str, Any] | None = None,
    smoke: bool = False,
) -> Study:
    """Read a study file and apply changes to it, as the options of ``actlab study`` do.

    Args:
        study: path of a study file, or the name of one that actlab ships, such as ``demo``.
        activations: activations to add to the comparison, one or several.
        seeds: number of seeds, a range such as ``"5-19"``, or the seeds themselves; in a study with
            stages, of the last stage, or by stage: ``{"choose": 5, "compare": "5-19"}``.
        reference: the activation that the others are tested against.
        settings: values of dotted config keys or grid keys, such as ``{"trainer.max_epochs": 5}``.
            The value of a grid key may be a list: ``{"model.activation": ["gelu", Mine]}`` replaces
            the compared ones.
        smoke: run on samples, in seconds.

    Returns:
        The study: a plan of runs. Nothing is imported or trained.

    Raises:
        ActlabError: for an unknown study, key or activation, or a malformed value.

    >>> study = load_study("demo", activations=["silu"], seeds=2)
    >>> len(study.runs()), study.runs()[0].id.startswith("gelu-seed0-")
    (10, True)
    """
    # Write settings and seeds as values of a study file
    changes = {}
    for key, value in (settings or {}).items():
        changes[key] = _plain(value, f"settings: {key}")
    if seeds is not None:
        changes["seeds"] = _plain(seeds, "seeds")

    # Write activations as a study names them
    is_single = isinstance(activations, Spec | str | Mapping) or callable(activations)
    activation_list: Any = [activations] if is_single else activations
    added = [spec_of(activation) for activation in activation_list]
    spec = reference if isinstance(reference, str | None) else spec_of(reference)

    plan = reading.load(
        str(study), smoke, activations=added, reference=spec, settings=changes
    )
    # Messages suggest more seeds by this argument
    return replace(plan, more_seeds="seeds={}")


@validated
def run_study(
    study: str | Path | Study,
    *,
    runs_dir: str | Path = "runs",
    jobs: NonNegativeInt | None = None,
    max_stack: PositiveInt = MAX_STACK,
    **changes: Any,
) -> StudyResults:
    """Train the unfinished runs of a study, evaluate its probes and return the results.

    Finished runs are skipped and interrupted runs resumed, so the same call continues a study that
    was stopped. The study's folder gets ``table.json``, which `actlab report` reads. Works in any
    script, without a guard for `multiprocessing`, and in notebooks.

    Args:
        study: path or name of a study file, or what `load_study` returns.
        runs_dir: folder of runs; the study's is ``runs_dir/NAME``.
        jobs: number of training processes; by default one a core in long studies; 0 trains in this
            process.
        max_stack: most runs in one stack.
        **changes: keyword arguments of `load_study`, where ``study`` is a path or name.

    Raises:
        ActlabError: for bad input; runs that fail or diverge are counted in the results instead.

    >>> found = run_study("demo", smoke=True, seeds=1)  # doctest: +ELLIPSIS
    checking the configs …
    demo-smoke: 4 runs, 0 finished, 4 to run, in runs/demo-smoke
    ...
    >>> list(found.table["activation"]), found.failed
    (['gelu', 'elu', 'relu', 'soi'], 0)
    """
    # Imported lazily: other functions do not train
    from actlab.analysis import looks
    from actlab.engines.running import Engine, run
    from actlab.random.defaults import default_seed
    from actlab.reports.output import keep
    from actlab.stages.opening import load
    from actlab.studies.study_folder import StudyFolder

    # Train the unfinished runs
    plan = _plan(study, changes)
    folder = StudyFolder(plan, _folder(runs_dir, plan))
    with default_seed():  # with ``jobs=0`` each run sets the seed of this process
        failed = run(folder, Engine(max_stack, jobs=jobs))

    # Record the verdicts that are about to be seen, and store the table
    trained = StudyResults(tuple(load(folder)), failed)
    outcomes = [comparison.outcome for comparison in trained.verdicts]
    looks.record(trained.stages[-1].folder, outcomes)
    keep(trained.stages, trained.record, folder.path)
    return trained


@validated
def results(
    study: str | Path | Study, *, runs_dir: str | Path = "runs", **changes: Any
) -> StudyResults:
    """Read the results of the finished runs of a study; train nothing.

    Arguments and errors are the same as in `run_study`.

    >>> results("demo", runs_dir="elsewhere").stages[-1].missing
    40
    """
    from actlab.stages.opening import load
    from actlab.studies.study_folder import StudyFolder

    # The plan tells which runs of the folder belong to the study
    plan = _plan(study, changes)
    folder = StudyFolder(plan, _folder(runs_dir, plan))
    return StudyResults(tuple(load(folder)))


def spec_of(activation: Activation) -> str | dict[str, Any]:
    """Return an activation as a study names it: a text, or a mapping with its arguments.

    >>> spec_of({"name": "elu", "alpha": 0.5})
    {'name': 'elu', 'alpha': 0.5}
    >>> import torch
    >>> spec_of(torch.nn.Softplus)
    'torch.nn.modules.activation:Softplus'
    """
    spec = Spec.of(activation)
    # Arguments are stored in files, so they must be plain values
    spec = spec.with_params(_plain(spec.params, "activation"))
    if spec.source != "__main__":
        return spec.plain

    # Name the script instead, which other processes can import
    file = getattr(sys.modules["__main__"], "__file__", None)
    if file is None:
        raise ActlabError(
            f"the processes that train cannot import {spec.name}. Define it at the top level of a "
            f"file and pass './FILE.py:{spec.name}' (in a notebook, %%writefile FILE.py writes the "
            "cell)."
        )
    return Spec(file, spec.name, spec.params).plain


@dataclass(frozen=True)
class StudyResults:
    """The results of a study: its table, verdicts, values and figures, each computed on first use.

    A notebook shows table and figures; ``print`` shows the table as the shell does. The results are
    read from the study's folder. They train nothing and write nothing.

    Args:
        stages: the results of each stage that has opened; a study without stages has one.
        failed: number of runs and probes that failed when they were last run.
    """

    stages: tuple[Results, ...]
    failed: int = 0

    @property
    def study(self) -> Study:
        """The study, or its last stage that has opened."""
        return self.stages[-1].study

    @property
    def root(self) -> Path:
        """The study's folder; it holds the folder of each run in the column ``run`` of `values`."""
        return self.stages[-1].root

    @cached_property
    def record(self) -> StudyTable:
        """The comparison as ``table.json`` has it."""
        from actlab.analysis.comparison import table_of

        return table_of(self.stages[-1])

    @cached_property
    def table(self) -> pd.DataFrame:
        """The comparison: a row for each grid point at its selected settings. Errors are fractions.

        Its columns are the grid keys by their last part, ``runs`` and ``diverged``. For each
        quantity there are:

        - ``test/error@last``: the median, with its interval ``… low`` and ``… high``.
        - ``… difference``: the mean paired difference to the reference, with its interval
          ``… difference low`` and ``… difference high``.
        - ``… better``: the probability of being better than the reference.
        - ``… p``, before correction, and ``… p corrected``, by Holm and for looks.

        The last columns, ``time`` and ``memory`` of an update, are relative to the reference.
        """
        from actlab.studies.points import short_names

        lines = []
        for row in self.record.rows:
            # Name the grid point
            point = {**row.point, **row.chosen}
            names = short_names(list(point))
            line: dict[str, Any] = {}
            for key, value in point.items():
                line[names[key]] = self.record.text(key, value)

            # Add the runs and the quantities
            line["runs"] = row.finished + row.diverged
            line["diverged"] = row.diverged
            for cell in row.columns:
                name = cell.key
                interval = cell.interval
                line |= {
                    name: cell.median,
                    f"{name} low": interval and interval.low,
                    f"{name} high": interval and interval.high,
                    f"{name} difference": cell.paired.mean,
                    f"{name} difference low": cell.paired.low,
                    f"{name} difference high": cell.paired.high,
                    f"{name} better": cell.better and cell.better.probability,
                    f"{name} p": cell.p,
                    f"{name} p corrected": cell.p_holm,
                }

            # Add the costs
            cost = row.cost or {}
            line["time"] = cost.get("relative_to_reference")
            line["memory"] = cost.get("bytes_relative")
            lines.append(line)
        return pd.DataFrame(lines)

    @cached_property
    def verdicts(self) -> list[Comparison]:
        """A comparison for each activation and test quantity; smoke runs have none.

        A comparison is printed as a sentence.
        """
        return list(self.record.verdicts)

    @cached_property
    def values(self) -> pd.DataFrame:
        """Every finished run.

        Its columns: grid keys, ``seed``, ``chosen``, ``status``, quantities, ``run`` (its id).
        """
        from actlab.reports.table_files import to_csv

        text = to_csv(self.stages[-1])
        # "None" is a label.
        return pd.read_csv(io.StringIO(text), keep_default_na=False, na_values=[""])

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """The study's figures, by name."""
        from actlab.reports.figures import draw

        return draw(self.stages[-1])

    def __str__(self) -> str:
        """Return the table with its notes as ``actlab study show`` prints it."""
        from actlab.reports.terminal import print_table

        text = io.StringIO()
        print_table(self.record, text)
        return text.getvalue()

    def _repr_html_(self) -> str:
        from actlab.reports.tables import grid

        head, body = grid(self.record)
        table = pd.DataFrame(body, columns=[name.replace("\n", " ") for name in head])
        # Texts may come from a user's file
        parts = [
            f"<p><b>{escape(self.study.title)}</b></p>",
            table.to_html(index=False),
        ]
        for figure in self.figures.values():
            parts.append(f"<div>{_svg(figure)}</div>")
        return "".join(parts)


def _plan(study: str | Path | Study, changes: Mapping[str, Any]) -> Study:
    """Return a study, or read its file with changes."""
    if not isinstance(study, Study):
        return load_study(study, **changes)
    if changes:
        names = ", ".join(changes)
        raise ActlabError(
            f"a loaded study does not accept {names}. Pass them to load_study."
        )
    return study


def _plain(value: Any, place: str, levels: int = 50) -> Any:
    """Return a setting with classes and functions as the text that names them.

    Other objects are rejected.
    """
    # A list that contains itself would never end
    if levels == 0:
        raise ActlabError(
            f"{place}: expected at most 50 levels of nested values, got more."
        )

    # Go into nested values
    if isinstance(value, Mapping):
        return {key: _plain(inner, place, levels - 1) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(inner, place, levels - 1) for inner in value]

    # Convert subclasses, such as NumPy's, which YAML cannot store
    if isinstance(value, bool | None):
        return value
    if isinstance(value, int) and value.bit_length() <= _MOST_BITS:
        return int(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return float(value)

    # Other processes import classes and functions by these names
    if callable(value):
        return spec_of(value)
    raise ActlabError(
        f"{place}: expected text, a number, True, False, None, a list, a mapping, a class or a "
        f"function, got {short_repr(value)}."
    )


def _folder(runs_dir: str | Path, study: Study) -> Path:
    """Return a study's folder, or raise for a path that no file can have."""
    folder = Path(runs_dir, study.name)
    try:
        folder.stat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        message = f"runs_dir: expected a folder, got {short_repr(str(runs_dir))} ({reason(error)})."
        raise ActlabError(message) from error
    return folder


def _svg(figure: Figure) -> str:
    """Return a figure as an element of HTML."""
    file = io.StringIO()
    figure.savefig(file, format="svg")
    _, tag, content = file.getvalue().partition("<svg")
    return tag + content
