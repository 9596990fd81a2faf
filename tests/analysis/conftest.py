"""The study of two activations with all its runs finished."""

from pathlib import Path

import pytest

from actlab.analysis import results
from written_runs import finished, study


@pytest.fixture
def full(tmp_path: Path) -> results.Results:
    return finished(tmp_path, study())
