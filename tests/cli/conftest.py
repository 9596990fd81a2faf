"""Commands run in the test's folder, from which modules can be imported."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.fixture
def succeed(cli: Callable[..., Any]) -> Callable[..., Any]:
    """Run ``actlab`` as `cli` does; the command must succeed."""

    def run(*words: object) -> Any:
        outcome = cli(*words)
        assert outcome.code == 0, outcome.err
        return outcome

    return run
