"""Child processes that call functions for this process, which reports their exits and crashes.

A child is forked from a server process that has only loaded the libraries (`start_server`). This process prints
the child's output. Children ignore Ctrl-C, which reaches every process of the terminal; this process handles
the signal. Children exit when this process ends.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing as mp
import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from types import FrameType, TracebackType
from typing import Any

import torch

from actlab.engines.settings import Settings, quiet
from actlab.errors import ActlabError
from actlab.runtime import signals
from actlab.runtime.denormals import flush_denormals

Report = Callable[..., None]  # in a child: sends the kind of a message and its content
VISIBLE = "CUDA_VISIBLE_DEVICES"  # environment variable: the accelerators that a process sees
PATIENCE = 5.0  # seconds that a child may take to end
_PRELOADED = [
    *(f"actlab.engines.{name}" for name in ("cost", "evaluation", "processes", "queue")),
    *("actlab.datamodules", "actlab.callbacks", "pandas"),
]


class EndedError(Exception):
    """A child process ended before it returned a result.

    Args:
        code: exit code of the process; ``-n`` if signal ``n`` ended it.
    """

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code

    @property
    def how(self) -> str:
        """How the process ended, in words.

        >>> EndedError(0).how, EndedError(-9).how
        ('exited with code 0', 'was ended by signal 9')
        """
        return f"exited with code {self.code}" if self.code >= 0 else f"was ended by signal {-self.code}"


def start_server() -> None:
    """Start loading the libraries in the process from which children are forked; return immediately."""
    context = _context()
    if context.get_start_method() == "forkserver":
        context.set_forkserver_preload(_PRELOADED)
        from multiprocessing import forkserver

        forkserver.ensure_running()


def _context() -> Any:
    """Return the start method: fork from a server if supported, because forking does not copy threads."""
    return mp.get_context("forkserver" if "forkserver" in mp.get_all_start_methods() else "spawn")


class Here:
    """Calls functions in this process, with the interface of `Child`; for studies without third-party code."""

    def __enter__(self) -> Here:
        flush_denormals()
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def call(self, function: Callable[..., Any], *args: Any, on: Callable[..., None] = lambda *_: None) -> Any:
        """Return the result of ``function(report, *args)``; see `Child.call`."""
        return function(on, *args)


class Child:
    """A process that calls functions, one at a time. It starts on the first call, and again after it has ended.

    Args:
        settings: execution settings of the process.
        seat: index of the process among several, which selects its accelerator; None for all accelerators.
    """

    def __init__(self, settings: Settings | None = None, seat: int | None = None) -> None:
        self.settings, self.seat = settings or Settings(), seat
        self.process: Any = None
        start_server()

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(at_once=kind is not None)

    @property
    def ends(self) -> list[Any]:
        """Handles for `multiprocessing.connection.wait`: ready on a message or when the child has ended."""
        return [self.pipe, self.process.sentinel]

    def ask(self, function: Callable[..., Any], *args: Any) -> None:
        """Start ``function(report, *args)`` in the child; `heard` returns its messages."""
        if self.process is None:
            self.pipe, theirs = _context().Pipe()
            self.process = _context().Process(
                target=_serve, args=(theirs, self.settings, self.seat), name=f"actlab-{self.seat or 0}"
            )
            self.process.start()
            theirs.close()
        with contextlib.suppress(OSError):  # the child has ended: `heard` raises the error
            self.pipe.send((function, args))

    def heard(self) -> tuple[Any, ...]:
        """Wait for the next message of the child and return it; print the child's output.

        Returns:
            ``("done", result)``, ``("said",)`` for output, or the kind and content that the function reports.

        Raises:
            ActlabError: if the function has raised it.
            EndedError: if the child has ended.
        """
        while not wait(self.ends, timeout=1):
            signals.check()
        signals.check()
        try:  # read the last messages of a child before its end
            kind, *content = self.pipe.recv() if self.pipe.poll() else ("ended",)
        except (EOFError, OSError):
            kind, content = "ended", []
        if kind == "ended":
            raise EndedError(self._close())
        if kind == "error":
            raise ActlabError(content[0])
        if kind == "said":
            print(content.pop(), end="", flush=True)
        return (kind, *content)

    def call(self, function: Callable[..., Any], *args: Any, on: Callable[..., None] = lambda *_: None) -> Any:
        """Call ``function(report, *args)`` in the child and return its result.

        Args:
            function: a function at the top level of a module, so that it can be pickled.
            args: its arguments; they are pickled.
            on: called with the kind and content of each message that the function reports.

        Raises:
            ActlabError: if the function has raised it.
            EndedError: if the child has ended.
        """
        self.ask(function, *args)
        while (message := self.heard())[0] != "done":
            if message[0] != "said":
                on(*message)
        return message[1]

    def _close(self) -> int:
        """Close the pipe, wait for the child and return its exit code; the next call starts another child."""
        process, self.process = self.process, None
        self.pipe.close()
        _join(process)
        return int(process.exitcode)

    def end(self, at_once: bool = False) -> None:
        """End the child process, if there is one.

        Args:
            at_once: terminate it; otherwise it exits after its current call. It is killed after `PATIENCE`.
        """
        if self.process is None:
            return
        with contextlib.suppress(OSError):
            self.pipe.send(None)
        if at_once:
            self.process.terminate()
        self._close()


def _join(process: Any) -> None:
    """Wait for a process to end; kill it after `PATIENCE` seconds."""
    process.join(PATIENCE)
    if process.is_alive():
        process.kill()
        process.join()


class ReportedOutput(io.TextIOBase):
    """Standard output of a child: reports what is printed to the parent process."""

    def __init__(self, report: Report) -> None:
        self.report, self.process = report, os.getpid()

    def write(self, text: str) -> int:
        """Report a text; print it in a process that was forked from the child."""
        if os.getpid() == self.process:
            self.report("said", text)
        elif sys.__stdout__ is not None:
            sys.__stdout__.write(text)
        return len(text)


def _serve(pipe: Connection, settings: Settings, seat: int | None) -> None:
    """Run a child: call the functions received through the pipe, until None is received."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end_by_signal)
    threading.Thread(target=_exit_with, args=(mp.parent_process(),), daemon=True).start()
    if seat is not None and (number := torch.accelerator.device_count()):
        os.environ[VISIBLE] = device_of(seat, number, os.environ.get(VISIBLE))
    one_at_a_time = threading.Lock()

    def report(kind: str, *content: Any) -> None:
        with one_at_a_time:
            pipe.send((kind, *content))

    flush_denormals()
    with quiet(), contextlib.redirect_stdout(ReportedOutput(report)):
        settings.apply_to_worker()
        while (call := pipe.recv()) is not None:
            function, args = call
            try:
                report("done", function(report, *args))
            except ActlabError as error:
                report("error", str(error))


def _end_by_signal(number: int, frame: FrameType | None) -> None:
    """End by the signal's default action; Lightning's handler would exit with code 0 while a Trainer runs."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def device_of(seat: int, number: int, visible: str | None) -> str:
    """Return the accelerator of a child, as a value of `VISIBLE`.

    Args:
        seat: index of the child.
        number: number of accelerators.
        visible: value of `VISIBLE` set by the user; None if it is not set.

    >>> device_of(3, 2, None), device_of(1, 2, "2,3"), device_of(2, 1, "GPU-6ca1")
    ('1', '3', 'GPU-6ca1')
    """
    names = visible.split(",") if visible else list(map(str, range(number)))
    return names[seat % min(number, len(names))]


def _exit_with(parent: Any) -> None:
    """Exit when the parent process has ended: nothing would read the results."""
    wait([parent.sentinel])
    os._exit(1)
