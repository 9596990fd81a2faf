"""Train a run on several devices in its own process: ``python -m actlab.engines.multi_device``.

Lightning starts the process's command again for each further device. The command therefore trains
one run and nothing else. The process, and all processes that Lightning started from it, end with
the parent process.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from actlab.engines import training
from actlab.engines.jobs import Job, LoggerFactory
from actlab.engines.settings import Settings
from actlab.engines.workers import ending, live_while_preparing
from actlab.errors import ActlabError, LostDeviceError
from actlab.runtime import signals
from actlab.runtime.denormals import flush_denormals
from actlab.runtime.devices import rank
from actlab.runtime.quiet import quiet
from actlab.storage.files import regular


def work(
    job: Job, root: Path, logger: LoggerFactory | None, locked: bool, settings: Settings
) -> bool:
    """Train the run of a job in a process of its own, unless another process trains it.

    The run has failed if its process ends without an answer. `actlab.engines.training.work`
    has the same arguments.

    Returns:
        Whether the job is over: its run has finished or failed, now or before. False only if
        another process trains it.
    """
    path = os.pathsep.join(filter(None, sys.path))
    with TemporaryDirectory() as folder:
        # Start the process
        file = Path(folder, "job")
        file.write_bytes(pickle.dumps((job, root, settings, logger, locked)))
        messages, process_end = Pipe(duplex=False)
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(file), str(process_end.fileno())],
            stdin=subprocess.PIPE,  # closed by the kernel when this process ends
            pass_fds=[process_end.fileno()],
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        # With this end open here, the pipe would not end with the process.
        process_end.close()

        # The pipe ends with the process (EOFError); its last message is the answer
        last_kind = ""
        last_content: Any = None
        try:
            with suppress(EOFError):
                while True:
                    last_kind, last_content = messages.recv()
                    signals.check()
                    if last_kind == signals.PROGRESS:
                        signals.report(last_content)
            code = process.wait()
        finally:
            with suppress(ProcessLookupError):
                # The group: Lightning has started further processes in it.
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    # Act on the answer; a process that was killed has sent none
    if last_kind == "error":
        raise ActlabError(last_content)
    if last_kind != "done":
        job.fail(root, f"the process that trained it {ending(code)}")
        return True
    return bool(last_content)


def _main(file: str, pipe: str) -> None:
    """Train a run on its first device, or as a further rank, which records nothing.

    ``file`` contains the arguments of `work`, ``pipe`` is the descriptor of the end for messages.
    """
    job, root, settings, logger, locked = pickle.loads(regular(Path(file)).read_bytes())

    # Prepare the process like a worker
    threading.Thread(target=_end_with_parent, daemon=True).start()
    flush_denormals()
    with quiet():
        settings.apply()

        # Further ranks only compute
        if rank() > 0:
            training.fit(job, root)
            return

        # Messages are sent by several threads
        messages: Connection = Connection(int(pipe), readable=False)
        one_at_a_time = threading.Lock()

        # Send progress, the result or an error
        def send(*message: Any) -> None:
            with one_at_a_time:
                messages.send(message)

        # Train the run, and send the result
        signals.tell(partial(send, signals.PROGRESS))
        live_while_preparing()
        try:
            send("done", training.work(job, root, logger, locked))
        except LostDeviceError:  # its run has failed
            send("done", True)
        except ActlabError as error:
            send("error", str(error))


def _end_with_parent() -> None:
    """End this process group when the parent process ends, which closes standard input."""
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    _main(*sys.argv[1:])
