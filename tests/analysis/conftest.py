"""The study of two units with all its runs finished; figures without pictures."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from actlab.analysis import results
from written_runs import curves_of, study, write


@pytest.fixture
def full(tmp_path: Path) -> results.Results:
    plan = study()
    for run in plan.runs():
        write(tmp_path, run, curves_of(run))
    return results.load(plan, tmp_path)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save figures without pictures, which take most time, where a test asks what is said."""
    monkeypatch.setattr(Figure, "savefig", lambda figure, file, **options: file.write_text("<svg/>"))
