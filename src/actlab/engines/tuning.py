"""Search settings with Optuna on validation data: batches of trials, proposed from results of runs alone."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from actlab.analysis import results
from actlab.config.keys import canonical
from actlab.engines.running import Engine, run, unfinished
from actlab.engines.workers import EndedError, Report, Worker
from actlab.errors import ActlabError
from actlab.studies.folders import DIVERGED, FINISHED, RunFolder
from actlab.studies.plan import Study
from actlab.studies.states import state_of
from actlab.studies.tuning import Choices, Range, Side, Tuning

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

BATCH = 5  # trials of an activation that are proposed, then trained, at once


class Trial(NamedTuple):
    """A setting that was or will be trained.

    Args:
        side: the activation.
        number: counted from 0 for each activation.
        values: of the activation's search space.
        value: median over seeds of the best value of the selection metric; infinite if that diverged, nan
            before the runs have ended.
    """

    side: Side
    number: int
    values: Mapping[str, Any]
    value: float = math.nan


def require_optuna() -> None:
    """Import Optuna, and let it print warnings only.

    Raises:
        ActlabError: if it is not installed.
    """
    try:
        import optuna
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "optuna":
            raise
        raise ActlabError(
            "`actlab tune` requires the package optuna, which is not installed. Install the extra `tune`: "
            "pip install 'actlab[tune]'."
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)


class Search:
    """The trials of one activation, proposed by Optuna's TPE sampler from the results of the batches before.

    Nothing is stored: a start that resumes proposes the same trials again, whose runs it finds.

    Args:
        tuning: the search of both activations.
        side: the activation.
    """

    def __init__(self, tuning: Tuning, side: Side) -> None:
        import optuna

        self.side = side
        self._study = optuna.create_study(
            direction="maximize" if tuning.study.select.mode == "max" else "minimize"
        )

    @property
    def finished(self) -> int:
        """Number of finished trials."""
        return len(self._study.trials)

    @property
    def tried(self) -> int:
        """Number of different settings of the finished trials; 1 if nothing is searched."""
        return len({canonical(self.side.rounded(trial.params)) for trial in self._study.trials}) or 1

    def propose(self, number: int) -> list[Trial]:
        """Return ``number`` trials to train; `tell` expects the value of each."""
        self._study.sampler = _sampler(self.finished)
        distributions = {key: _distribution(space) for key, space in self.side.space.items()}
        asked = [self._study.ask(distributions) for _ in range(number)]
        return [self._trial(trial.number, trial.params) for trial in asked]

    def tell(self, trial: Trial, value: float) -> Trial:
        """Record the value of a trial and return the trial with it."""
        self._study.tell(trial.number, value)
        return trial._replace(value=value)

    @property
    def best(self) -> Trial:
        """The best of the finished trials; the only setting, without a value, if nothing is searched."""
        if not self.finished:
            return Trial(self.side, 0, {})
        best = self._study.best_trial
        return self._trial(best.number, best.params)._replace(value=self._study.best_value)

    def _trial(self, number: int, params: Mapping[str, Any]) -> Trial:
        return Trial(self.side, number, self.side.rounded(params))


def _sampler(trials: int) -> BaseSampler:
    """Return the sampler of a batch, seeded by the number of trials before it."""
    from optuna.exceptions import ExperimentalWarning
    from optuna.samplers import TPESampler

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)  # Optuna 4: constant_liar
        return TPESampler(seed=trials, constant_liar=True)


def _distribution(space: Range | Choices) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(space, Choices):
        return CategoricalDistribution(space.values)
    if space.whole:
        return IntDistribution(int(space.low), int(space.high), log=space.log)
    return FloatDistribution(space.low, space.high, log=space.log)


def train(tuning: Tuning, searches: Sequence[Search], trials: int, root: Path) -> Iterator[list[Trial]]:
    """Train the missing trials of all searches, some of each at once, and yield them after each batch.

    Args:
        tuning: the search of both activations.
        searches: their searches.
        trials: number of trials that each search will have.
        root: the study's folder.

    Raises:
        ActlabError: if a run fails, or is being trained by another process.
    """
    while batch := [(s, t) for s in searches for t in s.propose(max(0, min(BATCH, trials - s.finished)))]:
        points = [tuning.point(trial.side.unit(trial.values), trial.values) for _, trial in batch]
        study = tuning.trials(points)
        if unfinished(study.runs(), root):
            run(study, root, Engine())
        values = [_value(tuning.trials([point]), root) for point in points]
        yield [search.tell(trial, value) for (search, trial), value in zip(batch, values, strict=True)]


def _value(study: Study, root: Path) -> float:
    """Return the median over seeds of the best value of the selection metric at the only setting of a study."""
    for one in study.runs():
        state = state_of(RunFolder(root, one))
        if state.kind not in (FINISHED, DIVERGED):
            raise ActlabError(
                state.reason
                or f"{one.id} is being trained by another process: repeat the command when it has ended"
            )
    loaded = results.load(study, root)
    (group,) = loaded.groups
    return loaded.scores(group.settings)[0]


def faults_of_creation(tuning: Tuning) -> tuple[str | None, str | None]:
    """Return why the activation cannot be created with searched values, and why not as given.

    Returns:
        None in place of each fault that it does not have.
    """
    units = [tuning.mine.unit(tuning.mine.first), tuning.mine.unit({})]
    tuning.trials([tuning.point(units[0], tuning.mine.first)])
    with Worker() as helper:
        try:
            first, given = helper.call(_try_to_create, units)
        except EndedError as ended:
            raise ActlabError(
                f"activation {tuning.mine.name} cannot be tried: the process {ended.how}"
            ) from ended
    return first, given


def _try_to_create(report: Report, units: Sequence[Any]) -> list[str | None]:
    """Called in a helper by `faults_of_creation`."""
    from actlab.engines.activation_trial import fault_of_creation

    return [fault_of_creation(unit) for unit in units]
