"""Check a study before it runs: names, types, activations, metrics.

Third-party classes are imported, activations are not: they are tried before a study trains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
_LIBRARIES = ("actlab", "pytorch_lightning", "lightning", "torch", "torchmetrics")


def check(study: Study) -> list[str]:
    """Check a study, with the settings of each of its stages, without training any of its runs.

    Returns:
        Lines for people: a ``test/…`` metric of the table that no callback records, so that only a
        user-defined module could record it; a folder whose files are too many to be read; a
        reference that is the other form of the requested one; replaced seeds.

    Raises:
        ActlabError: a config key, value, activation, reference, metric, column, published value or
            figure is invalid.
    """
    from actlab.config.messages import one_line_errors
    from actlab.reports import plots

    # Check the configs of each stage.
    stages = [_to_check(study, stage) for stage in study.stages] or [study]
    runs: list[Run] = []
    for stage in stages:
        runs += of_each_value(stage.runs())
    for run in runs:
        with one_line_errors(run.config):
            _check_config(run)

    # Check the table. Building a column checks it.
    folder = StudyFolder(stages[-1], Path())
    results = Results(folder, {}, {}, declared=declared(runs))
    keys = [column.key for column in results.columns]
    repeated = [key for key in keys if keys.count(key) > 1]
    if repeated:
        message = f"the table of {study.name} has two columns {repeated[0]}"
        raise ActlabError(f"{message}. Remove one of them.")
    if study.select.tune or any(stage.search for stage in study.stages):
        selection.check_selection(results)
    metrics_without_direction = undirected(study, columns_of(study))
    if metrics_without_direction:
        raise metrics.no_direction(metrics_without_direction[0])

    # Check everything that reads the table. The trials of a search have no reference.
    if study.reference:
        comparison.check_reference(study, [group.point for group in results.groups])
    published.check_published(study)
    for figure in study.figures:
        plots.checked(results, figure)
    for probe in study.probes:
        made(probe)

    # Notes for people, not errors
    return [
        *_notes_on_plan(study, runs),
        *_notes_on_tests(results, runs),
        *_notes_on_sources(runs),
    ]


def _notes_on_plan(study: Study, runs: Sequence[Run]) -> list[str]:
    """Return the notes on the reference's form, and on replaced seeds."""
    from actlab.config import sections

    notes = []
    forms = [note for _, note in OTHER_FORMS.values()]
    for note in study.notes:
        if note in forms:
            notes.append(note)

    # Runs share their notes.
    replaced_seeds: dict[str, None] = {}
    for run in runs:
        replaced_seeds |= dict.fromkeys(sections.replaced_seeds(run.config))
    return [*notes, *replaced_seeds]


def _notes_on_tests(results: Results, runs: Sequence[Run]) -> list[str]:
    """Return a line for each metric of tests, if no callback evaluates them."""
    # A third-party callback may evaluate them.
    for run in runs:
        callbacks = _callbacks(run.config)

        # A callback that evaluates tests declares its splits
        if callbacks is None or any(
            "test" in getattr(k, "splits", ()) for k in callbacks
        ):
            return []

    # Several columns may have one metric.
    notes: dict[str, None] = {}
    for column in results.columns:
        if column.metric.startswith("test/"):
            note = (
                f"{column.metric} is in the table, but no callback records it. If your module does "
                f"not record it either: {TESTED}"
            )
            notes[note] = None
    return list(notes)


def _notes_on_sources(runs: Sequence[Run]) -> list[str]:
    """Return a line for each folder whose files count by their names."""
    names = set()
    for run in runs:
        for name, content in run.sources.items():
            if contents.by_names(content):
                names.add(name)

    many = f"more than {contents.MOST_FILES:,} files"
    notes = []
    for name in sorted(names):
        reason = (
            f"{many}, so run ids depend on file names and sizes, not on the contents"
        )
        notes.append(f"{name}: {reason}")
    return notes


def _to_check(study: Study, stage: Stage) -> Study:
    """Return a stage with one seed and the first trials of its search."""
    search = stage.search
    if search is not None:
        # Trials differ only in values of the same keys
        search = replace(search, trials=min(search.trials, CHECKED_TRIALS))
    return planned(study, replace(stage, seeds=stage.seeds[:1], search=search))


def _callbacks(config: Mapping[str, Any]) -> list[Any] | None:
    """Return the classes of the callbacks; None if a third-party one may record anything."""
    from actlab.config.signatures import locate

    callbacks = get_dotted(config, "trainer.callbacks") or ()

    # Classes without arguments are named by their path alone
    paths = [str(class_of(callback)) for callback in as_list(callbacks)]
    for path in paths:
        # A bare name may be a user's class
        if "." not in path or not _is_library_class(path):
            return None
    return [locate(path) for path in paths]


def _check_config(run: Run) -> None:
    """Check the keys of a config, the types of its values and the name of its activation."""
    from actlab import activations
    from actlab.config import sections
    from actlab.config.resolved import resolved
    from actlab.tasks.building import NO_PLATEAU

    # The file or module of a user's activation exists.
    source = "" if run.activation is None else run.activation.source
    if source.endswith(".py"):
        if not Path(source).is_file():
            name = in_full(run.activation)
            message = f"activation {name!r}: there is no file {source!r}"
            raise ActlabError(f"{message}. Correct the path.")
    elif source:
        # A user's module is not imported before its activation is tried
        package = source.partition(".")[0]
        if not _is_module(package):
            raise ActlabError(
                f"{source!r} cannot be imported, because there is no module {package!r}. Install "
                "it, or add its folder to PYTHONPATH."
            )

    # Keys and values are valid.
    sections.check(run.config)
    resolved(run.config, {}, sections.linked_shapes(run.config))
    scheduler = class_of(get_dotted(run.config, "model.scheduler"))
    if str(scheduler).endswith(".ReduceLROnPlateau"):
        raise ActlabError(NO_PLATEAU)

    # A registered activation is built, a user's activation is not.
    if run.activation is not None and not source:
        activations.factory(run.activation)


def _is_module(package: str) -> bool:
    try:
        return package.isidentifier() and find_spec(package) is not None
    except ValueError:  # for a module without a spec, such as __main__
        return True


def declared(runs: list[Run]) -> frozenset[str] | None:
    """Return the metrics that the runs will record; None if a third-party class determines them."""
    names: set[str] = set()
    for run in runs:
        metrics_of_run = _metrics(run.config)
        if metrics_of_run is None:
            return None
        names |= metrics_of_run
    return frozenset(names)


def _metrics(config: Mapping[str, Any]) -> set[str] | None:
    """Return the metrics that a run will record; None if a third-party class determines them."""
    from actlab.config.signatures import locate
    from actlab.tasks import Task

    # Only classes of actlab and its libraries are imported.
    callbacks = _callbacks(config)
    is_penalised = _has_penalty(config)
    path = str(get_dotted(config, "model.class_path"))
    if (
        is_penalised is None
        or callbacks is None
        or not ("." in path and _is_library_class(path))
    ):
        return None
    task = locate(path)
    if not (isinstance(task, type) and issubclass(task, Task)):
        return None

    # Training records its losses.
    recorded = {"train/loss"}
    for name in get_dotted(config, "model.training_metrics") or ():
        recorded.add(f"train/{name}")
    if is_penalised:
        recorded.add("train/penalised_loss")
    if get_dotted(config, "model.clean_training_loss", True):
        recorded.add("train/clean_loss")

    # Each evaluated split has the metrics of the task.
    splits = ["val"]
    for callback in callbacks:
        splits += getattr(callback, "splits", ())
        recorded |= {*getattr(callback, "metrics", ())}
    arguments = get_dotted(config, "model.init_args") or {}
    names = [*task.metrics_for(arguments), *directions([config])]
    for split in splits:
        if get_dotted(config, f"trainer.limit_{split}_batches", 1) != 0:
            recorded |= {f"{split}/{name}" for name in names}

    # Activations may have learnt parameters.
    return recorded | _parameters(get_dotted(config, ACTIVATION))


def _has_penalty(config: Mapping[str, Any]) -> bool | None:
    """Return whether ``model.l2`` is a penalty; None if a third-party optimiser determines it."""
    from torch.optim import Optimizer

    from actlab.config.signatures import find
    from actlab.tasks.building import decouples

    # The default optimiser, torch's Adam, does not decouple decay, so that l2 is a
    # penalty.
    optimizer = get_dotted(config, "model.optimizer")
    has_l2 = bool(get_dotted(config, "model.l2"))
    if not has_l2 or optimizer is None:
        return has_l2

    # Only classes of actlab and its libraries are imported.
    path = str(class_of(optimizer))
    if not _is_library_class(path):
        return None
    kind = find(path, (Optimizer,), "model.optimizer")
    settings = get_dotted(config, "model.optimizer.init_args") or {}
    return not decouples(kind, settings)


def _parameters(activation: Any) -> set[str]:
    """Return the metrics of an activation's learnt parameters.

    An activation that is not imported here has only the start of their names.
    """
    from actlab import activations
    from actlab.tasks.parameters import ENDS, learnt

    if activation is None:
        return set()
    if Spec.of(activation).source:
        return {PARAMETERS}

    names = set()
    for name in learnt(activations.factory(activation)(1)):
        names |= {f"{PARAMETERS}{name}{end}" for end in ENDS}
    return names


def _is_library_class(path: str) -> bool:
    """Return whether a class belongs to actlab or its libraries.

    Importing such a class runs no code of users.
    """
    return path.partition(".")[0] in _LIBRARIES or "." not in path


def made(probe: ProbePart) -> Any:
    """Create a probe; raise an ActlabError if its class does not exist, or rejects an argument."""
    from actlab.config.signatures import find, parameters

    # The class exists and accepts the names of the arguments
    title = f"probe {probe.name!r}"
    kind = find(probe.class_path, (object,), title)
    accepted = parameters(kind)
    for name in probe.init_args:
        if accepted is not None and name not in accepted:
            raise unknown(
                "argument", name, accepted, f"Change {title} ({probe.class_path})."
            )

    # The probe checks the values.
    try:
        return kind(**probe.init_args)
    except TypeError as error:
        raise ActlabError(f"{title} cannot be created: {one_line(error)}") from error
