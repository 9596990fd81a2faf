"""Trials of stacked forms, each made once for a group of runs and stored in ``trials.json``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from typing_extensions import TypedDict

from actlab.checks import stack_trial
from actlab.runtime.machine import hardware, versions
from actlab.stacking.mapping import MappingError
from actlab.storage.json_files import stored_json, write_json
from actlab.studies.plan import Run

FILE = "trials.json"


class StackVerdict(TypedDict):
    """The verdict of a trial, and the versions and the processor that it holds for."""

    verdict: Literal["agree", "differ"]
    reason: str
    versions: dict[str, str]


def reason_against_form(root: Path, key: str, runs: Sequence[Run]) -> str:
    """Return how a stack of one differs from the plain module, in words; empty if it agrees."""
    return _reason(root, f"form {key}", lambda: stack_trial.difference(runs[0]))


def reason_against_stack(root: Path, key: str, runs: Sequence[Run], exact: bool) -> str:
    """Return how runs together differ from each alone, in words; empty if they do not."""
    return _reason(root, f"together {key}", lambda: stack_trial.dependence(runs, exact))


def are_equal(root: Path, key: str) -> bool:
    """Return whether a trial found that runs together equal each alone."""
    stored = _stored(root).get(f"together {key}")
    if stored is None or stored["versions"] != _machine():
        return False
    return stored["verdict"] == "agree"


def _reason(root: Path, name: str, trial: Callable[[], str | None]) -> str:
    """Return the reason that a trial gives, stored under its name for this machine."""
    # A stored verdict counts only for the same versions
    verdicts = _stored(root)
    machine = _machine()
    if name in verdicts and verdicts[name]["versions"] == machine:
        return verdicts[name]["reason"]

    # Try
    try:
        reason = trial() or ""
    except MappingError as error:
        reason = str(error)
    except stack_trial.TrialError as error:
        # No verdict, such as an exception: never stored.
        return str(error)

    # Store the verdict
    verdict: Literal["agree", "differ"] = "differ" if reason else "agree"
    verdicts[name] = StackVerdict(verdict=verdict, reason=reason, versions=machine)
    write_json(root / FILE, verdicts)
    return reason


def _stored(root: Path) -> dict[str, StackVerdict]:
    remedy = "Delete it. The trials of stacks are then run again."
    return stored_json(root / FILE, dict[str, StackVerdict], remedy)


def _machine() -> dict[str, str]:
    """Return what a verdict holds for: the versions and the processor."""
    return {**versions(), "processor": hardware()}
