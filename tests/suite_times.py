"""The suite's own time, at its end: processor seconds by folder, slowest tests, the budget."""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

BUDGET = 300  # seconds of the default suite alone on two idle cores; nothing fails by it
SLOWEST = 10


def processor_seconds() -> float:
    """Of this process and its awaited children, so without workers, which a server forks."""
    return sum(os.times()[:4])


def _largest(seconds: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(seconds.items(), key=lambda entry: -entry[1])


class SuiteTimes:
    """A plugin, registered by ``conftest.py``, also in the workers of pytest-xdist."""

    def __init__(self, clock: Callable[[], float] = processor_seconds) -> None:
        self.clock, self.mark = clock, clock()
        self.started = time.monotonic()
        self.tests: defaultdict[str, float] = defaultdict(float)
        self.workers = 0.0  # all of theirs, also what they import and collect

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self.mark = self.clock()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        """Every phase has the seconds since the last, so a fixture counts for its first test."""
        report = yield
        now = self.clock()
        report.processor_seconds, self.mark = now - self.mark, now
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.tests[report.nodeid] += report.processor_seconds

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["processor_seconds"] = self.clock()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.workers += getattr(node, "workeroutput", {}).get("processor_seconds", 0)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.tests:
            return
        folders: defaultdict[str, float] = defaultdict(float)
        for name, seconds in self.tests.items():
            folder = Path(name.partition("::")[0]).parent
            folders["/".join(folder.parts[:2])] += seconds
        alone = sum(folders.values())
        folders["imports and collection"] = max(self.workers or self.clock(), alone) - alone
        terminalreporter.section("processor seconds")
        for name, seconds in _largest(folders):
            terminalreporter.write_line(f"{seconds:7.1f}  {name}")
        terminalreporter.write_line(f"the {SLOWEST} slowest of {len(self.tests)} tests:")
        for name, seconds in _largest(self.tests)[:SLOWEST]:
            terminalreporter.write_line(f"{seconds:7.1f}  {name}")
        terminalreporter.write_line(
            f"{sum(folders.values()):.0f} processor seconds in "
            f"{time.monotonic() - self.started:.0f} s; "
            f"budget of the default suite: {BUDGET} s alone on two idle cores"
        )
