"""Workers: processes that train the jobs of a study side by side, one thread each; one that dies is replaced.

Two threads of one process wait for each other by spinning, several times an update; processes do not. Run
folders, locks and checkpoints are those of one process, so a worker may be killed at any moment: its job goes
on from the last epoch in the next one.
"""

from __future__ import annotations

import contextlib
import multiprocessing as mp
import os
import signal
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from actlab.engines import queue
from actlab.engines.folders import RunFolder
from actlab.engines.packing import Job
from actlab.engines.recording import LoggerFactory, Progress
from actlab.engines.settings import Settings, quiet
from actlab.errors import ActlabError
from actlab.studies.plan import Run

VISIBLE = "CUDA_VISIBLE_DEVICES"  # environment: the accelerators of a process
MOST_DEATHS = 3  # of the processes that train one job
_PRELOADED = ["actlab.engines.queue", "actlab.engines.settings", "actlab.datamodules", "actlab.callbacks"]


def start_server() -> None:
    """Begin to load the libraries in the process from which workers are forked, while this one goes on."""
    context = _context()
    if context.get_start_method() == "forkserver":
        context.set_forkserver_preload(_PRELOADED)
        from multiprocessing import forkserver

        forkserver.ensure_running()


def _context() -> Any:
    """How workers are started: forked from a clean process where there is one, for threads do not fork."""
    return mp.get_context("forkserver" if "forkserver" in mp.get_all_start_methods() else "spawn")


@dataclass
class Seat:
    """A worker and the job that it has.

    Args:
        number: of the seat, from 0; a worker that replaces another takes its seat, and accelerator.
        process: the worker.
        pipe: to it.
        job: what it trains; None while it waits.
    """

    number: int
    process: Any
    pipe: Connection
    job: Job | None = None


def work(
    jobs: Sequence[Job],
    root: Path,
    progress: Progress,
    settings: Settings,
    logger: LoggerFactory | None = None,
) -> list[Job]:
    """Train each job that no other process is training, some at a time; `queue.work` for several processes.

    Args:
        jobs: of one study.
        root: the study's folder.
        progress: called for each run after each epoch.
        settings: how many workers, and how they compute.
        logger: makes a logger for a run, in the worker.

    Returns:
        Jobs that were left to other starts of the study.

    Raises:
        ActlabError: for bad input, or files that cannot be written.
    """
    start_server()
    waiting = deque(sorted(jobs, key=_length, reverse=True))
    runs: dict[str, Run] = {run.id: run for job in jobs for run in job.runs}
    deaths: dict[str, int] = {}
    busy: list[Job] = []
    seats = [_seat(n, root, settings, logger) for n in range(min(settings.jobs, len(jobs)))]
    try:
        for seat in seats:
            _hand_out(seat, waiting)
        while working := [seat for seat in seats if seat.job is not None]:
            ready = wait([end for seat in working for end in (seat.pipe, seat.process.sentinel)])
            for seat in (s for s in working if s.pipe in ready or s.process.sentinel in ready):
                kind, *content = _heard(seat)
                if kind == "died":
                    _bury(seat, root, progress, deaths, waiting)
                    seats[seat.number] = seat = _seat(seat.number, root, settings, logger)
                elif kind == "error":
                    raise ActlabError(content[0])
                elif kind == "progress":
                    progress(runs[content[0]], content[1])
                    continue
                elif content[0] and seat.job:
                    busy.append(seat.job)
                _hand_out(seat, waiting)
    finally:
        _end(seats)
    return busy


def _length(job: Job) -> int:
    """About how long a job takes: the longest come first, so that none is left to one worker at the end."""
    return sum(run.epochs or 1 for run in job.runs)


def _seat(number: int, root: Path, settings: Settings, logger: LoggerFactory | None) -> Seat:
    ours, theirs = _context().Pipe()
    process = _context().Process(
        target=_serve, args=(theirs, root, settings, logger, number), name=f"actlab-{number}"
    )
    process.start()
    theirs.close()
    return Seat(number, process, ours)


def _hand_out(seat: Seat, waiting: deque[Job]) -> None:
    seat.job = waiting.popleft() if waiting else None
    with contextlib.suppress(OSError):  # it has died: its sentinel will say so
        seat.pipe.send(seat.job)


def _heard(seat: Seat) -> tuple[Any, ...]:
    """One message of a worker: ``progress``, ``done``, ``error``, each with its content, or that it died."""
    try:
        message: tuple[Any, ...] = seat.pipe.recv()
        return message
    except (EOFError, OSError):
        return ("died",)


def _bury(seat: Seat, root: Path, progress: Progress, deaths: dict[str, int], waiting: deque[Job]) -> None:
    """Put the job of a dead worker back, or record its runs as failed when too many have died of it."""
    job = seat.job
    assert job is not None
    seat.process.join()
    seat.pipe.close()
    deaths[job.id] = deaths.get(job.id, 0) + 1
    if deaths[job.id] < MOST_DEATHS:
        waiting.appendleft(job)
        return
    how = -seat.process.exitcode if seat.process.exitcode < 0 else seat.process.exitcode
    for folder in (RunFolder(root, run) for run in job.runs):
        if not folder.finished:
            folder.open()
            folder.fail(f"the processes that trained it died {MOST_DEATHS} times, of signal or code {how}")
            progress(folder.run, 1.0)


def _end(seats: Sequence[Seat]) -> None:
    """End all workers: those that wait by their own will, the others at once."""
    for seat in seats:
        if seat.job is not None and seat.process.is_alive():
            seat.process.terminate()
    for seat in seats:
        seat.process.join()
        seat.pipe.close()


def _serve(pipe: Connection, root: Path, settings: Settings, logger: LoggerFactory | None, seat: int) -> None:
    """A worker: train what comes through the pipe until nothing does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; the first process decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(mp.parent_process(),), daemon=True).start()
    if number := torch.accelerator.device_count():
        os.environ[VISIBLE] = device_of(seat, number, os.environ.get(VISIBLE))
    if settings.threads:
        torch.set_num_threads(settings.threads)

    def report(run: Run, fraction: float) -> None:
        pipe.send(("progress", run.id, fraction))

    with quiet():
        settings.apply()
        while (job := pipe.recv()) is not None:
            try:
                left = queue.work([job], root, report, logger)
            except ActlabError as error:
                pipe.send(("error", str(error)))
                return
            pipe.send(("done", bool(left)))


def device_of(seat: int, number: int, visible: str | None) -> str:
    """The accelerator of a worker, as the variable `VISIBLE` names it: one of those that the user left visible.

    >>> device_of(3, 2, None), device_of(1, 2, "2,3"), device_of(2, 1, "GPU-6ca1")
    ('1', '3', 'GPU-6ca1')
    """
    names = visible.split(",") if visible else list(map(str, range(number)))
    return names[seat % min(number, len(names))]


def _end_with(parent: Any) -> None:
    """End this process when the first one is gone: what nobody waits for is not trained on."""
    wait([parent.sentinel])
    os._exit(1)
