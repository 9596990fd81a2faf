"""The study of two units with all its runs finished."""

from pathlib import Path

import pytest

from actlab.analysis import results
from written_runs import curves_of, study, write


@pytest.fixture
def full(tmp_path: Path) -> results.Results:
    plan = study()
    for run in plan.runs():
        write(tmp_path, run, curves_of(run))
    return results.load(plan, tmp_path)
