"""The metrics of a study's runs, recorded or to be recorded, and checks of their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from actlab.analysis.columns import Column, watched
from actlab.config import metrics
from actlab.config.metrics import PARAMETERS, is_parameter
from actlab.errors import ActlabError
from actlab.errors.messages import unknown
from actlab.studies.plan import Study

TESTED = "Add actlab.callbacks.TestEveryEpoch to trainer.callbacks to record test/…"
_RECORDED = "The finished runs recorded these."


@dataclass(frozen=True)
class Metrics:
    """The metrics that the runs of a study recorded, or will record.

    It checks the names that a study file uses. Values of metrics are read by `Results`.
    """

    study: Study
    missing: int  # number of runs that have not ended
    # Every metric that a finished run recorded, with the conditions under which it was
    # measured
    conditions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # Loops that logged a metric, if the runs say so
    loops: Mapping[str, Sequence[str]] = field(default_factory=dict)
    of_actlab: bool = False  # whether a task of actlab named the metrics
    # Metrics that runs will record, if known before any run has finished
    declared: frozenset[str] | None = None

    def lacks(self, column: Column) -> list[str]:
        """Return the metrics of a column that no finished run recorded and no run will."""
        if not self.conditions:
            return []
        names = [column.metric]
        best = watched(column, self.study)
        if best:
            names.append(best.metric)

        lacking = []
        for metric in names:
            if metric not in self.conditions and not self.awaits(metric):
                lacking.append(metric)
        return lacking

    def unrecorded(self, columns: Iterable[Column]) -> list[str]:
        """Return a line, with the remedy, for each metric of columns that no run recorded."""
        lines: dict[str, None] = {}
        for column in columns:
            for metric in self.lacks(column):
                error = unknown_metric(metric, self.conditions, _RECORDED)
                lines[
                    f"The table leaves out what no finished run recorded: {error}"
                ] = None
        return list(lines)

    def awaits(self, metric: str) -> bool:
        """Return whether missing runs may record a metric, or a probe not evaluated yet."""
        if is_parameter(metric):  # the activations that learn it may not have run yet
            return (
                bool(self.conditions)
                and self.missing > 0
                and metric not in self.conditions
            )

        # A probe's metric is probe/split/metric, or probe/metric without a split.
        probe, slash, quantity = metric.partition("/")
        if "/" not in quantity and probe not in self._probes:
            return False
        return not any(name.startswith(probe + slash) for name in self.conditions)

    def check(self, metric: str, condition: str = "") -> None:
        """Raise an ActlabError for a metric or condition that no run recorded or will record."""
        # Metrics of a probe are accepted until it has been evaluated.
        if self.awaits(metric):
            probe = metric.partition("/")[0]
            if not self.conditions and probe not in self._probes:
                raise unknown(
                    "probe", probe, self._probes, f"In the metric {metric!r}."
                )
            return

        # Nothing is recorded yet, so check the declared names
        if not self.conditions:
            self._check_declared(metric, condition)
            return

        # Check the name against the recorded names.
        if metric not in self.conditions:
            raise unknown_metric(metric, self.conditions, _RECORDED)
        recorded = self.conditions[metric]
        if condition not in recorded:
            allowed = list(filter(None, recorded))
            remedy = "Name one as 'condition'." if allowed else "Leave 'condition' out."
            raise unknown(f"condition of {metric}", condition, allowed, remedy)

    @property
    def _probes(self) -> list[str]:
        return [probe.name for probe in self.study.probes]

    def _check_declared(self, metric: str, condition: str) -> None:
        """Raise an ActlabError for a metric that runs are known not to record."""
        if self.declared is None:
            return

        # The parameters of a user's activation are not known by name.
        learnt = is_parameter(metric) and PARAMETERS in self.declared
        if metric not in self.declared and not learnt:
            raise unknown_metric(metric, self.declared, "The runs record these.")
        if is_parameter(metric) and not condition:
            raise ActlabError(
                f"{metric}: expected a 'condition', as each layer records it. Add one, such as "
                "layer=1."
            )

    def check_validation(self, metric: str, selected: str) -> None:
        """Raise an ActlabError unless validation logs a metric.

        The error names ``selected``, which the metric would select.
        """
        # Only actlab's tasks tell the loop by the name of a metric.
        if metric.startswith("val/"):
            return
        examples = "val/loss"
        if not self.of_actlab:
            loops = self.loops.get(metric) or [metrics.loop_of(metric) or "val"]
            if list(loops) == ["val"]:
                return
            logged = [
                name
                for name in self.conditions
                if list(self.loops.get(name, ())) == ["val"]
            ]
            examples = ", ".join(logged) or "what validation_step logs"
        raise ActlabError(
            f"{selected} is not a validation metric. Use one, such as {examples}."
        )


def unknown_metric(
    metric: str, recorded: Iterable[str], description: str
) -> ActlabError:
    """Return the error for a metric that is not among ``recorded``.

    The sentence ``description`` introduces the recorded metrics.
    """
    recorded = list(recorded)
    remedy = description
    if metric.startswith("test/") and not any(
        name.startswith("test/") for name in recorded
    ):
        remedy = f"{description} {TESTED}"
    return unknown("metric", metric, recorded, remedy)
