"""Runs on several devices, each in a process of its own: ``python -m actlab.engines.multi_device FILE``.

Lightning starts the command of the process again for each further device, so that command trains the one run
and nothing else. The process ends with the one that started it, with all that Lightning has started there.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

from actlab.engines import queue, sequential
from actlab.engines.devices import rank
from actlab.engines.packing import Job
from actlab.engines.processes import EndedError
from actlab.engines.recording import LoggerFactory, Progress
from actlab.engines.settings import Settings, quiet
from actlab.errors import ActlabError
from actlab.storage.files import regular


def work(
    jobs: Sequence[Job],
    root: Path,
    progress: Progress,
    settings: Settings,
    logger: LoggerFactory | None = None,
) -> list[Job]:
    """`queue.work`, with a process for each job.

    Raises:
        ActlabError: for bad input, or files that cannot be written.
    """
    for job in queue.left(jobs, root):
        _train(job, root, progress, settings, logger)
    return list(queue.left(jobs, root))


def _train(job: Job, root: Path, progress: Progress, settings: Settings, logger: LoggerFactory | None) -> None:
    """Train the run of a job; where its process ends before it says so, the run has failed."""
    (run,) = job.runs
    with TemporaryDirectory() as folder:
        file = Path(folder, "job")
        file.write_bytes(pickle.dumps((job, root, settings, logger)))
        messages, theirs = Pipe(duplex=False)
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(file), str(theirs.fileno())],
            stdin=subprocess.PIPE,  # closed by the kernel when this process ends
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        theirs.close()
        kind, content = "", None
        try:
            with suppress(EOFError):
                while True:
                    kind, content = messages.recv()
                    if kind == "progress":
                        progress(run, content)
            code = process.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if kind == "error":
        raise ActlabError(content)
    if kind != "done":
        queue.fail(run, f"the process that trained it {EndedError(code).how}", root, progress)


def _main(file: str, theirs: str) -> None:
    """Train a run as the first of its devices, or as a further one, which records nothing."""
    job, root, settings, logger = pickle.loads(regular(Path(file)).read_bytes())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with quiet():
        settings.apply()
        if rank() > 0:
            sequential.train(job.runs[0], root, lambda run, fraction: None, number=job.threads)
            return
        messages: Connection = Connection(int(theirs), readable=False)
        try:
            queue.work([job], root, lambda run, fraction: messages.send(("progress", fraction)), logger)
            messages.send(("done", None))
        except ActlabError as error:
            messages.send(("error", str(error)))


def _end_with_parent() -> None:
    """End this process and those that it has started when the first one is gone, which holds the input open."""
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    _main(*sys.argv[1:])
