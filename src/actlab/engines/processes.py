"""Child processes that call functions for this one: an exit or a crash of what they call is seen from here.

A child is forked from a process that has loaded the libraries and nothing else (`start_server`). What it prints
this process prints. Ctrl-C leaves it alone, for it reaches the whole terminal and this process decides; without
this process it ends.
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

Report = Callable[..., None]  # in a child: sends a kind of message, and its content
VISIBLE = "CUDA_VISIBLE_DEVICES"  # environment: the accelerators of a process
PATIENCE = 5.0  # seconds that a child may take to end
_PRELOADED = [
    *(f"actlab.engines.{name}" for name in ("cost", "evaluation", "processes", "queue")),
    *("actlab.datamodules", "actlab.callbacks", "pandas"),
]


class EndedError(Exception):
    """A child has ended before it answered.

    Args:
        code: of its exit; below 0 the number of the signal that ended it.
    """

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code

    @property
    def how(self) -> str:
        """In words.

        >>> EndedError(0).how, EndedError(-9).how
        ('exited with code 0', 'was ended by signal 9')
        """
        return f"exited with code {self.code}" if self.code >= 0 else f"was ended by signal {-self.code}"


def start_server() -> None:
    """Begin to load the libraries in the process from which children are forked, while this one goes on."""
    context = _context()
    if context.get_start_method() == "forkserver":
        context.set_forkserver_preload(_PRELOADED)
        from multiprocessing import forkserver

        forkserver.ensure_running()


def _context() -> Any:
    """How children are started: forked from a clean process where there is one, for threads do not fork."""
    return mp.get_context("forkserver" if "forkserver" in mp.get_all_start_methods() else "spawn")


class Here:
    """Calls functions in this process; stands for a `Child` where nothing third-party is called."""

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing has to be ended."""

    def call(self, function: Callable[..., Any], *args: Any, on: Callable[..., None] = lambda *_: None) -> Any:
        """What ``function(report, *args)`` returns; see `Child.call`."""
        return function(on, *args)


class Child:
    """A process that calls functions, one at a time: started for the first call, and again when it has ended.

    Args:
        settings: how it computes.
        seat: its number among several, which have an accelerator each; None for one that has them all.
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
        """What `multiprocessing.connection.wait` waits for, until there is a message."""
        return [self.pipe, self.process.sentinel]

    def ask(self, function: Callable[..., Any], *args: Any) -> None:
        """Let it call ``function(report, *args)``; its messages come by `heard`."""
        if self.process is None:
            self.pipe, theirs = _context().Pipe()
            self.process = _context().Process(
                target=_serve, args=(theirs, self.settings, self.seat), name=f"actlab-{self.seat or 0}"
            )
            self.process.start()
            theirs.close()
        with contextlib.suppress(OSError):  # it has ended: `heard` will say so
            self.pipe.send((function, args))

    def heard(self) -> tuple[Any, ...]:
        """The next message: ``("done", result)``, ``("said",)`` for what was printed, or what is reported.

        Raises:
            ActlabError: that the function has raised.
            EndedError: where the child has ended.
        """
        while not wait(self.ends, timeout=1):
            signals.check()
        signals.check()
        try:  # of a child that has ended the last messages come first
            kind, *content = self.pipe.recv() if self.pipe.poll() else ("ended",)
        except (EOFError, OSError):
            kind, content = "ended", []
        if kind == "ended":
            raise EndedError(self._buried())
        if kind == "error":
            raise ActlabError(content[0])
        if kind == "said":
            print(content.pop(), end="", flush=True)
        return (kind, *content)

    def call(self, function: Callable[..., Any], *args: Any, on: Callable[..., None] = lambda *_: None) -> Any:
        """What ``function(report, *args)`` returns there.

        Args:
            function: of a module, by which the child finds it.
            args: are pickled.
            on: is called with what the function reports.

        Raises:
            ActlabError: that the function has raised.
            EndedError: where the child has ended.
        """
        self.ask(function, *args)
        while (message := self.heard())[0] != "done":
            if message[0] != "said":
                on(*message)
        return message[1]

    def _buried(self) -> int:
        """The exit code of a child that has ended, or closed its pipe; the next call starts another."""
        process, self.process = self.process, None
        self.pipe.close()
        _join(process)
        return int(process.exitcode)

    def end(self, at_once: bool = False) -> None:
        """End it: when it waits for a call by its own will, else at once."""
        if self.process is None:
            return
        with contextlib.suppress(OSError):
            self.pipe.send(None)
        if at_once:
            self.process.terminate()
        self._buried()


def _join(process: Any) -> None:
    """Wait for the end of a process, but not for long."""
    process.join(PATIENCE)
    if process.is_alive():
        process.kill()
        process.join()


class _Said(io.TextIOBase):
    """Takes what is printed, and reports it."""

    def __init__(self, report: Report) -> None:
        self.report, self.process = report, os.getpid()

    def write(self, text: str) -> int:
        """Report a text; a process that was forked from this one prints itself."""
        if os.getpid() == self.process:
            self.report("said", text)
        elif sys.__stdout__ is not None:
            sys.__stdout__.write(text)
        return len(text)


def _serve(pipe: Connection, settings: Settings, seat: int | None) -> None:
    """A child: call what comes through the pipe until nothing does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _die)
    threading.Thread(target=_end_with, args=(mp.parent_process(),), daemon=True).start()
    if seat is not None and (number := torch.accelerator.device_count()):
        os.environ[VISIBLE] = device_of(seat, number, os.environ.get(VISIBLE))
    if settings.threads:
        torch.set_num_threads(settings.threads)

    one_at_a_time = threading.Lock()

    def report(kind: str, *content: Any) -> None:
        with one_at_a_time:
            pipe.send((kind, *content))

    with quiet(), contextlib.redirect_stdout(_Said(report)):
        settings.apply()
        while (call := pipe.recv()) is not None:
            function, args = call
            try:
                report("done", function(report, *args))
            except ActlabError as error:
                report("error", str(error))


def _die(number: int, frame: FrameType | None) -> None:
    """End by a signal, at once: its default action is replaced by an exit with code 0 while a Trainer runs."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def device_of(seat: int, number: int, visible: str | None) -> str:
    """The accelerator of a child, as the variable `VISIBLE` names it: one of those that the user left visible.

    >>> device_of(3, 2, None), device_of(1, 2, "2,3"), device_of(2, 1, "GPU-6ca1")
    ('1', '3', 'GPU-6ca1')
    """
    names = visible.split(",") if visible else list(map(str, range(number)))
    return names[seat % min(number, len(names))]


def _end_with(parent: Any) -> None:
    """End this process when the first one is gone: what nobody waits for is not trained on."""
    wait([parent.sentinel])
    os._exit(1)
