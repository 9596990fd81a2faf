"""The metrics that finished runs recorded, or that runs will record, and checks of the names of others."""

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
    """What is known of the metrics of a study."""

    study: Study
    missing: int  # number of runs that have not ended
    # Every metric that a finished run recorded, with the conditions under which it was measured
    conditions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # That logged a metric, if the runs say so
    loops: Mapping[str, Sequence[str]] = field(default_factory=dict)
    of_actlab: bool = False  # whether a task of actlab named the metrics
    declared: frozenset[str] | None = (
        None  # metrics that runs will record, if known before any has finished
    )

    def lacks(self, column: Column) -> list[str]:
        """Return the metrics of a column that no finished run recorded and that are not awaited."""
        if not self.conditions:
            return []
        read = [column.metric]
        if of_best := watched(column, self.study):
            read.append(of_best.metric)
        return [
            metric for metric in read if metric not in self.conditions and not self.awaits(metric)
        ]

    def unrecorded(self, columns: Iterable[Column]) -> list[str]:
        """Return a line for each metric of columns that no finished run recorded, with the remedy."""
        lines: dict[str, None] = {}
        for column in columns:
            for metric in self.lacks(column):
                error = unknown_metric(metric, self.conditions, _RECORDED)
                lines[f"The table leaves out what no finished run recorded: {error}"] = None
        return list(lines)

    def awaits(self, metric: str) -> bool:
        """Return whether a metric belongs to runs that are missing, or to a probe not evaluated yet."""
        if is_parameter(metric):  # the activations that learn it may not have run yet
            return bool(self.conditions) and self.missing > 0 and metric not in self.conditions
        # probe/split/metric, or probe/metric without a split
        probe, slash, rest = metric.partition("/")
        ours = "/" in rest or any(probe == planned.name for planned in self.study.probes)
        return ours and not any(name.startswith(probe + slash) for name in self.conditions)

    def check(self, metric: str, condition: str = "") -> None:
        """Raise an ActlabError for a metric or condition that no finished run recorded or no run will."""
        if self.awaits(metric):  # accepted until its probe has been evaluated
            probe, probes = (
                metric.partition("/")[0],
                [planned.name for planned in self.study.probes],
            )
            if not self.conditions and probe not in probes:
                raise unknown("probe", probe, probes, f"In the metric {metric!r}.")
            return
        if not self.conditions:
            self._check_declared(metric, condition)
            return
        if metric not in self.conditions:
            raise unknown_metric(metric, self.conditions, _RECORDED)
        known = self.conditions[metric]
        if condition not in known:
            remedy = "Name one as 'condition'." if any(known) else "Leave 'condition' out."
            raise unknown(f"condition of {metric}", condition, filter(None, known), remedy)

    def _check_declared(self, metric: str, condition: str) -> None:
        if self.declared is None:
            return
        # The parameters of a user's activation are not known by name.
        learnt = is_parameter(metric) and PARAMETERS in self.declared
        if metric not in self.declared and not learnt:
            raise unknown_metric(metric, self.declared, "The runs record these.")
        if is_parameter(metric) and not condition:
            raise ActlabError(
                f"{metric} is recorded of each layer: give a 'condition', such as layer=1"
            )

    def check_validation(self, metric: str, what: str) -> None:
        """Raise an ActlabError, which names ``what`` selects by a metric, unless validation logs the metric."""
        # Of actlab's tasks the name says so; of other modules the loop that logged it, once it has.
        if metric.startswith("val/"):
            return
        such = "val/loss"
        if not self.of_actlab:
            loops = self.loops.get(metric) or [metrics.loop_of(metric) or "val"]
            if list(loops) == ["val"]:
                return
            logged = [name for name in self.conditions if list(self.loops.get(name, ())) == ["val"]]
            such = ", ".join(logged) or "what validation_step logs"
        raise ActlabError(f"{what} is not a validation metric: give one, such as {such}")


def unknown_metric(metric: str, recorded: Iterable[str], which: str) -> ActlabError:
    """Return the error for a metric that is not among ``recorded``; the sentence ``which`` describes these."""
    recorded = list(recorded)
    tested = any(name.startswith("test/") for name in recorded)
    remedy = f" {TESTED}" if metric.startswith("test/") and not tested else ""
    return unknown("metric", metric, recorded, which + remedy)
