"""Check a study before it runs: names, types, activations, metrics.

Third-party classes are imported, activations are not: they are tried before a study trains.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from actlab.analysis import comparison, published, selection
from actlab.analysis.columns import columns_of, undirected
from actlab.analysis.metrics import TESTED
from actlab.analysis.results import Results
from actlab.config import metrics
from actlab.config.class_paths import class_of
from actlab.config.labels import in_full
from actlab.config.metric_classes import directions
from actlab.config.metrics import PARAMETERS
from actlab.config.paths import ACTIVATION, get_dotted
from actlab.config.values import as_list
from actlab.errors import ActlabError
from actlab.errors.messages import one_line, unknown
from actlab.stages.opening import planned
from actlab.storage import contents
from actlab.storage.spec import Spec
from actlab.studies.groups import of_each_value
from actlab.studies.plan import Run, Stage, Study
from actlab.studies.reading import OTHER_FORMS
from actlab.studies.schema import ProbePart
from actlab.studies.study_folder import StudyFolder

CHECKED_TRIALS = 8  # of a search at each grid point; each takes 25 ms
_KNOWN = ("actlab", "pytorch_lightning", "lightning", "torch", "torchmetrics")


def check(study: Study) -> list[str]:
    """Check a study, with the settings of each of its stages, without training any of its runs.

    Returns a line for each ``test/…`` metric of the table that no callback records, so that only a
    user-defined module could record it, one for each folder whose files are too many to be read,
    and one if the reference is the other form of the one that was asked for. Raises an ActlabError
    for an invalid config key, value, activation, reference, metric, column, published value or
    figure.
    """
    from actlab.config import sections
    from actlab.config.messages import one_line_errors
    from actlab.reports import plots

    stages = [_to_check(study, stage) for stage in study.stages] or [study]
    runs = [run for stage in stages for run in of_each_value(stage.runs())]
    for run in runs:
        with one_line_errors(run.config):
            _check_config(run)
    last = Results(StudyFolder(stages[-1], Path()), {}, {}, declared=declared(runs))
    keys = [column.key for column in last.columns]  # building a column checks it
    if again := [key for key in keys if keys.count(key) > 1]:
        raise ActlabError(f"the table of {study.name} has two columns {again[0]}: leave one out")
    if study.select.tune or any(stage.search for stage in study.stages):
        selection.check_selection(last)
    if unknown := undirected(study, columns_of(study)):
        raise metrics.no_direction(unknown[0])
    if study.reference:  # the trials of a search have none
        comparison.check_reference(study, [group.point for group in last.groups])
    published.check_published(study)
    for figure in study.figures:
        plots.checked(last, figure)
    for probe in study.probes:
        made(probe)
    callbacks = [_callbacks(run.config) for run in runs]
    tested = any(
        kinds is None or any("test" in getattr(kind, "splits", ()) for kind in kinds)
        for kinds in callbacks
    )
    untested = [
        f"{metric} is in the table, but no callback records it. If your module does not record it "
        f"either: {TESTED}"
        for metric in dict.fromkeys(column.metric for column in last.columns)
        if metric.startswith("test/") and not tested
    ]
    many = {
        text for run in runs for text, content in run.sources.items() if contents.by_names(content)
    }
    which = f"more than {contents.MOST_FILES:,} files, so run ids depend on file names and sizes"
    form = {note for _, note in OTHER_FORMS.values()}
    said = [note for note in study.notes if note in form]
    said += dict.fromkeys(note for run in runs for note in sections.replaced_seeds(run.config))
    return [*said, *untested, *(f"{text}: {which}, not on the contents" for text in sorted(many))]


def _to_check(study: Study, stage: Stage) -> Study:
    """Return a stage with one seed and the first trials of its search."""
    search = stage.search
    if search is not None:
        search = replace(search, trials=min(search.trials, CHECKED_TRIALS))
    return planned(study, replace(stage, seeds=stage.seeds[:1], search=search))


def _callbacks(config: Mapping[str, Any]) -> list[Any] | None:
    """Return the classes of the callbacks; None if one is third-party, which may record anything."""
    from actlab.config.signatures import locate

    paths = [
        str(class_of(callback))
        for callback in as_list(get_dotted(config, "trainer.callbacks") or ())
    ]
    return [*map(locate, paths)] if all("." in path and is_known(path) for path in paths) else None


def _check_config(run: Run) -> None:
    """Check the keys of a config, the types of its values and the name of its activation."""
    from actlab import activations
    from actlab.config import sections
    from actlab.config.resolved import resolved
    from actlab.tasks.building import NO_PLATEAU

    source = "" if run.activation is None else run.activation.source
    head = source.partition(".")[0]
    if source.endswith(".py") and not Path(source).is_file():
        raise ActlabError(f"activation {in_full(run.activation)!r}: there is no file {source!r}")
    with suppress(ValueError):  # find_spec raises it for a module without a spec, such as __main__
        if source and not source.endswith(".py") and not (head.isidentifier() and find_spec(head)):
            raise ActlabError(
                f"{source!r}: there is no module {head!r}: install it or extend PYTHONPATH"
            )
    sections.check(run.config)
    resolved(run.config, {})
    if str(class_of(get_dotted(run.config, "model.scheduler"))).endswith(".ReduceLROnPlateau"):
        raise ActlabError(NO_PLATEAU)
    if run.activation is not None and not source:
        activations.factory(run.activation)


def declared(runs: list[Run]) -> frozenset[str] | None:
    """Return the metrics that the runs will record; None if a third-party class determines them."""
    of_runs = [_metrics(run.config) for run in runs]
    known = [metrics for metrics in of_runs if metrics is not None]
    return frozenset(itertools.chain(*known)) if len(known) == len(of_runs) else None


def _metrics(config: Mapping[str, Any]) -> set[str] | None:
    from actlab.config.signatures import locate
    from actlab.tasks import Task

    model, callbacks = str(get_dotted(config, "model.class_path")), _callbacks(config)
    penalised = _has_penalty(config)
    if penalised is None or callbacks is None or not ("." in model and is_known(model)):
        return None
    task = locate(model)
    if not (isinstance(task, type) and issubclass(task, Task)):
        return None
    splits = ["val", *(split for kind in callbacks for split in getattr(kind, "splits", ()))]
    splits = [
        split for split in splits if get_dotted(config, f"trainer.limit_{split}_batches", 1) != 0
    ]
    names = [*task.metrics_for(get_dotted(config, "model.init_args") or {}), *directions([config])]
    train = {"loss", *(get_dotted(config, "model.training_metrics") or ())}
    train |= {"penalised_loss"} if penalised else set()
    train |= {"clean_loss"} if get_dotted(config, "model.clean_training_loss", True) else set()
    return {
        *(f"{split}/{name}" for split in splits for name in names),
        *(f"train/{name}" for name in train),
        *(name for kind in callbacks for name in getattr(kind, "metrics", ())),
        *_parameters(get_dotted(config, ACTIVATION)),
    }


def _has_penalty(config: Mapping[str, Any]) -> bool | None:
    """Return whether ``model.l2`` is a penalty; None if a third-party optimiser determines it."""
    from torch.optim import Optimizer

    from actlab.config.signatures import find
    from actlab.tasks.building import decouples

    optimizer, key = get_dotted(config, "model.optimizer"), "model.optimizer"
    if not get_dotted(config, "model.l2") or optimizer is None:  # by default torch's Adam
        return bool(get_dotted(config, "model.l2"))
    if not is_known(path := str(class_of(optimizer))):
        return None
    return not decouples(
        find(path, (Optimizer,), key), get_dotted(config, f"{key}.init_args") or {}
    )


def _parameters(activation: Any) -> set[str]:
    """Return the metrics of an activation's learnt parameters; their start if it is not imported here."""
    from actlab import activations
    from actlab.tasks.parameters import ENDS, learnt

    if activation is None:
        return set()
    if Spec.of(activation).source:
        return {PARAMETERS}
    return {
        f"{PARAMETERS}{name}{end}"
        for name in learnt(activations.factory(activation)(1))
        for end in ENDS
    }


def is_known(path: str) -> bool:
    """Return whether a class belongs to actlab or its libraries, so that importing it runs no user code."""
    return path.partition(".")[0] in _KNOWN or "." not in path


def made(probe: ProbePart) -> Any:
    """Create a probe; raise an ActlabError if its class does not exist, or rejects an argument."""
    from actlab.config.signatures import find, parameters

    where = f"probe {probe.name!r}"
    kind = find(probe.class_path, (object,), where)
    takes = parameters(kind)
    for name in probe.init_args:
        if takes is not None and name not in takes:
            raise unknown("argument", name, takes, f"In {where}, {probe.class_path}.")
    try:
        return kind(**probe.init_args)
    except TypeError as error:
        raise ActlabError(f"{where} cannot be created: {one_line(error)}") from error
