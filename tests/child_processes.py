"""What `conftest.py` changes in the process of the tests, for processes that actlab forks from its server."""

from multiprocessing.connection import Connection

from actlab.engines import workers
from actlab.engines.settings import Settings


def serve(pipe: Connection, settings: Settings, device: str | None) -> None:
    """Serve as a worker of actlab does, but time costs in one round: 25 take half the time of a tiny study."""
    from actlab.checks import cost

    cost.ROUNDS = 1
    workers._serve(pipe, settings, device)


def serve_untried(pipe: Connection, settings: Settings, device: str | None) -> None:
    """Serve without trials of stacks, too."""
    from actlab.checks import stack_trial

    stack_trial.difference = lambda run: None
    stack_trial.dependence = lambda *_: None
    serve(pipe, settings, device)
