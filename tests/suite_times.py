"""The suite's own time, at its end: processor seconds by folder, the slowest tests, and the budget."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

BUDGET = 300  # seconds of the default suite alone on two idle cores; nothing fails by it
SLOWEST = 10


def processor_seconds() -> float:
    """Of this process and of the children that it has waited for."""
    return sum(os.times()[:4])


class SuiteTimes:
    """A plugin, registered by ``conftest.py``, also in the workers of pytest-xdist."""

    def __init__(self, clock: Callable[[], float] = processor_seconds) -> None:
        self.clock, self.mark = clock, clock()
        self.started = time.monotonic()
        self.tests: Counter[str] = Counter()
        self.workers = 0.0  # all of theirs, also what they import and collect

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self.mark = self.clock()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[Any]:
        """Every phase carries the seconds since the phase before it, so a fixture counts for its first test."""
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

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.tests:
            return
        folders: Counter[str] = Counter()
        for name, seconds in self.tests.items():
            folder = Path(name.partition("::")[0]).parent
            folders["/".join(folder.parts[:2])] += seconds
        alone = sum(folders.values())
        folders["imports and collection"] = max(self.workers or self.clock(), alone) - alone
        terminalreporter.section("processor seconds")
        for name, seconds in folders.most_common():
            terminalreporter.write_line(f"{seconds:7.1f}  {name}")
        terminalreporter.write_line(f"the {SLOWEST} slowest of {len(self.tests)} tests:")
        for name, seconds in self.tests.most_common(SLOWEST):
            terminalreporter.write_line(f"{seconds:7.1f}  {name}")
        terminalreporter.write_line(
            f"{folders.total():.0f} processor seconds in {time.monotonic() - self.started:.0f} s; "
            f"budget of the default suite: {BUDGET} s alone on two idle cores"
        )
