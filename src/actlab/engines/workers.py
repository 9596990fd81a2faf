"""Worker processes: they train, try, measure and evaluate for this process, which stays light.

A worker is forked from a server that has only loaded the libraries (`start_server`), and never
imports the program that uses actlab. It answers one request at a time, a call of a function. Ctrl-C
reaches every process of a terminal, so workers ignore it. A worker exits with this process.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing as mp
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from multiprocessing.connection import Connection, wait
from types import FrameType, ModuleType
from typing import Any

from actlab.engines.settings import Settings
from actlab.errors import ActlabError, LostDeviceError
from actlab.errors.messages import described, last_line
from actlab.runtime import signals
from actlab.runtime.interpreter import started_alike
from actlab.runtime.quiet import quiet
from actlab.runtime.signals import Report

# Of the top level of a module, or ``module:function``.
Function = Callable[..., Any] | str
LOST = 70  # exit code of a worker whose accelerator has failed
SILENT = 1.0  # seconds after which a first start says what it waits for
_loading_printed = threading.Event()
PATIENCE = 5.0  # seconds that a worker may take to end
STALLED = 600.0  # least seconds without progress after which a worker is ended, and …
GAPS = 10.0  # … as a multiple of its longest pause so far
_PRELOADED = [
    "actlab.checks.cost",
    "actlab.engines.evaluation",
    "actlab.engines.packing",
    "actlab.engines.training",
    "actlab.datamodules",
    "actlab.callbacks",
    "pandas",
]


class EndedError(ActlabError):
    """A worker ended before it answered, with an exit code, ``-n`` for signal ``n``.

    ``stalled`` is the time without progress, in seconds, after which this process ended it; 0 if it
    ended by itself.
    """

    def __init__(self, code: int, stalled: float = 0.0) -> None:
        self.code = code
        self.stalled = stalled
        self.ending = ending(code, stalled)
        super().__init__(f"a process of actlab {self.ending} before it answered")


def ending(code: int, stalled: float = 0.0) -> str:
    """Return how a process ended, in words; see `EndedError` for the arguments.

    >>> ending(0), ending(-9), ending(-9, 600.0)
    ('exited with code 0', 'was ended by signal 9', 'made no progress for 600 s')
    """
    if stalled:
        return f"made no progress for {stalled:.0f} s"
    if code == LOST:
        return "lost its accelerator"
    if code < 0:
        return f"was ended by signal {-code}"
    return f"exited with code {code}"


def _print_loading() -> None:
    """Print what a first start waits for, once in a process."""
    if not _loading_printed.is_set():
        _loading_printed.set()
        print("loading torch and Lightning …", file=sys.stderr, flush=True)


def start_server() -> None:
    """Start to load the libraries in the process from which workers are forked; return at once."""
    context = _context()
    if context.get_start_method() != "forkserver":
        return
    from multiprocessing import forkserver

    context.set_forkserver_preload(_PRELOADED)
    # The server outlives the current folder, without which oneMKL ends the process. A
    # worker moves to the folder of the process that asks.
    with started_alike(), _without_main(), contextlib.chdir("/"):
        forkserver.ensure_running()


def _context() -> Any:
    """Return the start method: fork from a server where there is one, because it has no threads."""
    if "forkserver" in mp.get_all_start_methods():
        return mp.get_context("forkserver")
    return mp.get_context("spawn")


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Hide the program from `multiprocessing`, whose new processes would import, and so run, it."""
    program = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = program


def _imported(function: Function) -> Callable[..., Any]:
    if not isinstance(function, str):
        return function
    # A name, because the process that asks must not import what loads torch.
    module, _, name = function.partition(":")
    target: Callable[..., Any] = getattr(import_module(module), name)
    return target


class Inline(contextlib.AbstractContextManager["Inline"]):
    """Answers requests in this process, with the interface of `Worker`: for a debugger."""

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def call(self, function: Function, *args: Any, on: Report | None = None) -> Any:
        """Return the result of a function; see `Worker.call`."""
        from actlab.runtime.denormals import flush_denormals

        if on is not None:
            args = (*args, on)
        flush_denormals()
        with quiet():
            return _imported(function)(*args)


class Worker(contextlib.AbstractContextManager["Worker"]):
    """A process that answers requests, one at a time.

    It starts with the first request, and again with the first request after it has ended. It
    answers, prints what the process prints, and notices that the process has died or stalled. It
    does not repeat a request: `Pool` decides what happens to a job whose worker has ended.

    Args:
        settings: settings of the process, applied at each start.
        device: the accelerator that the process sees, None for all of them.
        stalled: least seconds without progress after which the process is ended.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        device: str | None = None,
        stalled: float = STALLED,
    ) -> None:
        self.settings = settings or Settings()
        self.device = device
        self.stalled = stalled
        self.process: Any = None
        start_server()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.end(at_once=kind is not None)

    @property
    def ends(self) -> list[Any]:
        """Handles for `multiprocessing.connection.wait`, ready on a message or the worker's end."""
        return [self.pipe, self.process.sentinel]

    def ask(self, function: Function, *args: Any, reports: bool = False) -> None:
        """Start a function in the worker; `receive` returns its messages. See `call`."""
        if self.process is None:
            self._start()
        self._last_message = time.monotonic()
        self._longest_pause = 0.0
        with contextlib.suppress(OSError):
            # The worker has ended: `receive` raises the error.
            self.pipe.send((function, args, reports))

    def _start(self) -> None:
        """Start the process, and after `SILENT` seconds print what this waits for."""
        # The worker receives requests through its end of the pipe
        context = _context()
        self.pipe, worker_end = context.Pipe()
        process = context.Process(
            target=_serve,
            args=(worker_end, self.settings, self.device),
            name=f"actlab-{self.device or 0}",
        )

        # A thread, because `start` waits for the server.
        self._loading = threading.Timer(SILENT, _print_loading)
        self._loading.daemon = True
        self._loading.start()
        with started_alike(), _without_main():
            process.start()
        self.process = process

        # With this end open here, the pipe would not end with the worker.
        worker_end.close()

    def receive(self) -> tuple[Any, ...] | None:
        """Return the next message of the worker, None without a new one; print the worker's output.

        A message is ``("done", result)``, or the kind and content that the function reports.

        Raises:
            EndedError: if the worker has ended.
            ActlabError: if the function has raised it.
        """
        signals.check()

        # Read the last messages of a worker before its end
        try:
            if not self.pipe.poll():
                self._check()
                return None
            kind, *content = self.pipe.recv()
        except (EOFError, OSError):
            raise EndedError(self._close()) from None
        self._loading.cancel()

        # Note how long the worker was silent
        now = time.monotonic()
        self._longest_pause = max(self._longest_pause, now - self._last_message)
        self._last_message = now

        # Act on the message, or return it
        if kind == "last":
            self._close()
            return "done", *content
        if kind == "error":
            raise ActlabError(content[0])
        if kind == "output":
            print(content[0], end="", flush=True)
            return None
        if kind == signals.PROGRESS and not content[0]:  # only a sign of life
            return None
        return kind, *content

    def _check(self) -> None:
        """Raise if the worker has ended; end it if it makes no progress."""
        if not self.process.is_alive() and not self.pipe.poll():
            raise EOFError

        limit = max(self.stalled, GAPS * self._longest_pause)
        pause = time.monotonic() - self._last_message
        if pause > limit:
            self.process.kill()
            raise EndedError(self._close(), stalled=limit)

    def call(self, function: Function, *args: Any, on: Report | None = None) -> Any:
        """Call a function in the worker and return its result; the arguments are pickled.

        With ``on`` its last argument is a ``report`` for messages, and ``on`` is called with the
        kind and content of each. Raises as `receive` does.
        """
        self.ask(function, *args, reports=on is not None)
        return self.answer(on)

    def answer(self, on: Report | None = None) -> Any:
        """Return the result of the function that was asked last; see `call`."""
        while True:
            message = self.receive()
            if message is None:
                wait(self.ends, timeout=1)
            elif message[0] == "done":
                return message[1]
            elif on is not None:
                on(*message)

    def _close(self) -> int:
        """Close the pipe, wait for the worker and return its exit code."""
        process = self.process
        self.process = None
        self._loading.cancel()
        self.pipe.close()
        process.join(PATIENCE)
        if process.is_alive():
            process.kill()
            process.join()
        return int(process.exitcode)

    def end(self, at_once: bool = False) -> None:
        """End the worker, after its request or ``at_once``; kill it after `PATIENCE`."""
        if self.process is None:
            return
        with contextlib.suppress(OSError):
            self.pipe.send(None)
        if at_once:
            self.process.terminate()
        self._close()


class ReportedOutput(io.TextIOBase):
    """Standard output of a worker: sends what is printed to the main process."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.process = os.getpid()

    def write(self, text: str) -> int:
        """Report a text; print it in a process that was forked from the worker."""
        if os.getpid() == self.process:
            self.report("output", text)
        elif sys.__stdout__ is not None:
            sys.__stdout__.write(text)
        return len(text)


def _serve(pipe: Connection, settings: Settings, device: str | None) -> None:
    """Run a worker: answer the requests received through the pipe, until None is received.

    A worker that a request has harmed answers it and ends; the next request starts another.
    """
    from actlab.runtime.denormals import flush_denormals
    from actlab.runtime.devices import VISIBLE

    if device is not None:
        os.environ[VISIBLE] = device  # before anything asks for devices

    # End as the main process ends, and only then
    # Processes of data loaders start as in a script.
    mp.set_start_method(None, force=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end_by_signal)
    parent = mp.parent_process()
    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()

    # Messages are sent by several threads
    one_at_a_time = threading.Lock()

    # Send one message, such as progress or printed output
    def report(kind: str, *content: Any) -> None:
        with one_at_a_time:
            pipe.send((kind, *content))

    # Answer requests
    flush_denormals()
    signals.tell(lambda parts: report(signals.PROGRESS, parts))
    with quiet(), contextlib.redirect_stdout(ReportedOutput(report)):
        settings.apply()
        live_while_preparing()
        while True:
            request = pipe.recv()
            if request is None:
                return
            is_last = _answer(request, report)
            if is_last:
                return


def _answer(request: tuple[Function, tuple[Any, ...], bool], report: Report) -> bool:
    """Report the result or the error of a request; return whether the request harmed the worker."""
    from actlab.runtime import accidents

    function, args, reports = request
    try:
        if reports:
            args = (*args, report)
        result = _imported(function)(*args)
        report("last" if accidents.harmed else "done", result)
        return bool(accidents.harmed)
    except LostDeviceError as error:
        print(error)
        # At once, because handlers of the exit would call the lost accelerator.
        os._exit(LOST)
    except ActlabError as error:
        report("error", str(error))
    except Exception as error:
        if not last_line(error):  # a fault of actlab: its traceback is printed
            raise
        report("error", described(error))
    return False


def live_while_preparing() -> None:
    """Report progress while a Trainer prepares data, which may wait for a network or a lock."""
    from pytorch_lightning.trainer.connectors.data_connector import _DataConnector

    prepare_data = signals.preparing()(_DataConnector.prepare_data)
    _DataConnector.prepare_data = prepare_data  # type: ignore[method-assign]


def _end_by_signal(number: int, frame: FrameType | None) -> None:
    """End by the signal's default action: Lightning's handler would exit with code 0."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _exit_with(parent: Any) -> None:
    """Exit when the main process has ended: nothing would read the results."""
    wait([parent.sentinel])
    os._exit(1)
