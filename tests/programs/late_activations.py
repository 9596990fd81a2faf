"""Activations that act after the first calls in training, once actlab has tried them."""

import contextlib
import multiprocessing
import os
import signal
import time
from pathlib import Path

from torch import nn


class Counting(nn.Module):
    """Does `act` in its calls in training, but for the first ones."""

    first = 6

    def __init__(self):
        super().__init__()
        self.calls = 0

    def act(self):
        raise NotImplementedError

    def forward(self, x):
        self.calls += self.training
        if self.calls > self.first:
            self.act()
        return x.relu()


class Later(Counting):
    """Fails in the second epoch."""

    def act(self):
        raise RuntimeError("tired")


class Quits(Counting):
    def act(self):
        os._exit(0)


class Ends(Counting):
    def act(self):
        raise StopIteration


def interrupt_once():
    """Send SIGTERM to this process unless it was sent, and wait for its handler's exception."""
    if not Path("mark").exists():
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(10_000):
            pass


class Swallows(Counting):
    """Lets a signal arrive where its exception is swallowed, in the second epoch, once."""

    def act(self):
        with contextlib.suppress(BaseException):
            interrupt_once()
        with Path("mark").open("a") as file:
            file.write("x")


class Replaces(Counting):
    """Lets a signal arrive where another exception replaces its own."""

    def act(self):
        try:
            interrupt_once()
        except BaseException as error:
            raise ImportError("not loaded") from error


class Interrupts(Counting):
    """Sends a signal to the study that started this process, once."""

    first = 8

    def act(self):
        if not Path("mark").exists():
            Path("mark").touch()
            parent = multiprocessing.parent_process()
            assert parent
            assert parent.pid
            os.kill(parent.pid, signal.SIGTERM)
            time.sleep(100)
