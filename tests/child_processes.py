"""What `conftest.py` changes in the process of the tests, for processes that actlab forks from its server."""

from multiprocessing.connection import Connection

from actlab.engines import stack_trial, workers
from actlab.engines.settings import Settings


def serve_untried(pipe: Connection, settings: Settings, seat: int | None) -> None:
    """Serve as a worker of actlab does, without trials of stacks."""
    stack_trial.difference = lambda runs: None
    workers._serve(pipe, settings, seat)
