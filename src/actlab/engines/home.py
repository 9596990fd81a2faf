"""Train the jobs of a study on a Ray cluster, and write what its nodes send.

This process, home, alone plans, holds locks and writes run folders. Each job is one Ray task, placed on a node
with a free seat. The node trains it in a scratch folder (`actlab.engines.nodes`) and sends what changed to a
queue on home's machine. Home writes the files in the order of training, so it may be killed at any time, as a
local study may. A job whose node dies starts again from the files that home has.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actlab.engines import nodes, packing, parcels, queue, shipping
from actlab.engines.cluster import Cluster, Node, message_of, require_ray
from actlab.engines.jobs import Job
from actlab.engines.nodes import Order
from actlab.engines.parcels import Parcel
from actlab.engines.recording import LoggerFactory, Progress
from actlab.engines.settings import Settings
from actlab.engines.workers import MOST_DEATHS, duration
from actlab.errors import ActlabError, one_line
from actlab.runtime import signals
from actlab.studies.locks import holding

if TYPE_CHECKING:
    from actlab.engines.preparation import Arranged

_WAITING = 4  # lists of messages in the queue; a node waits while it is full, which bounds home's memory
_LOOK = 5.0  # seconds between looks at which nodes there are


def work(
    cluster: Cluster, found: Arranged, root: Path, progress: Progress, logger: LoggerFactory | None = None
) -> list[Job]:
    """Train each job that no other process is training, on the nodes of a cluster; see `queue.work`.

    Args:
        cluster: the nodes.
        found: the jobs and their execution settings.
        root: the study's folder.
        progress: called for each run after each epoch.
        logger: creates a logger for a run, in this process.

    Returns:
        The jobs that are not over, because other processes are training them.

    Raises:
        ActlabError: if a run uses several devices, the input is invalid, files cannot be written, a node lacks
            a file that home cannot send, or no node is left.
    """
    if not found.single:
        raise ActlabError("--cluster trains each run on one device: set trainer.devices to 1, or leave it out")
    cluster.provide(shipping.sources_of(run for job in found.jobs for run in job.runs))
    with Home(cluster, root, progress, found.settings, logger) as home:
        home.train(found.jobs)
    return list(queue.left(found.jobs, root))


@dataclass
class Attempt:
    """One attempt to train a job on a node.

    Args:
        number: of the attempt in this process; messages carry it.
        job: the job.
        node: where it is trained.
        task: Ray's reference to the result.
        locks: released when the attempt ends.
        parts: the job, or the jobs into which it has been split.
        folders: names of the folders that the node may write.
        began: whether the node has sent a message.
    """

    number: int
    job: Job
    node: Node
    task: Any
    locks: ExitStack
    parts: list[Job] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    began: bool = False


class Home:
    """Submits jobs, and writes what their nodes send.

    Args:
        cluster: the nodes.
        root: the study's folder.
        progress: called for each run after each epoch.
        settings: execution settings of the study.
        logger: creates a logger for a run.
    """

    def __init__(
        self, cluster: Cluster, root: Path, progress: Progress, settings: Settings, logger: LoggerFactory | None
    ) -> None:
        ray = require_ray()
        from ray.util.queue import Queue
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        options = {"num_cpus": 0, "scheduling_strategy": here}  # another node may die, and its actors with it
        self.mailbox = Queue(_WAITING, actor_options=options)
        self.cluster, self.root, self.progress = cluster, root, progress
        self.settings, self.logger = settings, logger
        self.attempts: dict[int, Attempt] = {}
        self.left: list[Job] = []
        self.deaths: Counter[str] = Counter()  # by job
        self.false_starts: Counter[str] = Counter()  # by node
        self.loggers: dict[str, Any] = {}  # by run id
        self.submitted = 0
        self.waits = False
        self.look_at = 0.0  # time of the next look at which nodes there are

    def __enter__(self) -> Home:
        return self

    def __exit__(self, *_: object) -> None:
        """Release the locks and close the loggers of unfinished runs; the tasks end with the connection."""
        for attempt in self.attempts.values():
            attempt.locks.close()
        for logger in self.loggers.values():
            logger.finalize("failed")

    def train(self, jobs: Sequence[Job]) -> None:
        """Train jobs, the longest first, until each is over or left to another process.

        Raises:
            ActlabError: if the connection to the cluster is lost; also as in `work`.
        """
        try:
            self._train(jobs)
        except (require_ray().exceptions.RayError, ConnectionError) as error:
            raise ActlabError(f"the cluster is lost ({one_line(error)}); the same command resumes") from error

    def _train(self, jobs: Sequence[Job]) -> None:
        self.left = sorted(jobs, key=duration, reverse=True)
        while self.left or self.attempts:
            signals.check()
            if time.monotonic() > self.look_at:
                self.cluster.look()
                self.look_at = time.monotonic() + _LOOK
            self._submit()
            self._read(wait=True)
            self._conclude()

    def _submit(self) -> None:
        """Start jobs on the nodes that have free seats."""
        busy = Counter(attempt.node.id for attempt in self.attempts.values())
        free = [node for node in self.cluster.nodes.values() for _ in range(node.seats - busy[node.id])]
        if not (free or self.attempts or self.waits):
            self.cluster.require_nodes()
            print("all nodes are gone: waiting for nodes", flush=True)
        self.waits = not free and not self.attempts
        free.sort(key=lambda node: busy[node.id])
        while self.left and free:
            job = self.left.pop(0)
            locks, names = ExitStack(), [run.id for run in job.runs]
            if not queue.is_over(job, self.root) and locks.enter_context(holding(self.root, names)):
                queue.check_sources(job)
                self._start(job, free.pop(0), locks)
            else:
                locks.close()

    def _start(self, job: Job, node: Node, locks: ExitStack) -> None:
        folders = nodes.folders_of([job])
        state = parcels.packed({name: self.root / name for name in parcels.files_in(self.root, folders)})
        self.submitted += 1
        number, seats = self.submitted, self.cluster.seats
        order = Order(
            *(job, self.root.name, self.settings, state, self.cluster.sources),
            *(self.cluster.options.send_every, seats, self.logger is not None),
        )
        task = self.cluster.on(node, _train, order, self.mailbox, number, share=True)
        self.attempts[number] = Attempt(number, job, node, task, locks, [job], folders)

    def _read(self, wait: bool = False) -> None:
        """Act on all messages in the mailbox; if there are none, wait for a moment."""
        ray = require_ray()
        from ray.util.queue import Empty

        try:
            while wait or self.mailbox.qsize():
                number, messages = self.mailbox.get(timeout=0.5)
                wait = False
                if number in self.attempts:  # else of an attempt that is thought dead
                    self.attempts[number].began = True
                    for kind, *content in messages:
                        self._act(self.attempts[number], kind, content)
        except Empty:
            pass
        except ray.exceptions.RayActorError as error:
            raise ActlabError(
                f"the queue on this machine has ended ({one_line(error)}); the same command resumes"
            ) from error

    def _act(self, attempt: Attempt, kind: str, content: list[Any]) -> None:
        """Act on a message of a node."""
        runs = {run.id: run for run in attempt.job.runs}
        if kind == "said":
            print(content[0], end="", flush=True)
        elif kind == "progress" and content[0] in runs:
            self.progress(runs[content[0]], content[1])
        elif kind == "log" and self.logger and content[0] in runs:
            name, method, arguments = content
            logger = self.loggers.get(name) or self.loggers.setdefault(name, self.logger(runs[name]))
            if callable(function := getattr(logger, method, None)):
                function(*arguments)
            if method == "finalize":
                del self.loggers[name]
        elif kind == "parcel":
            self._write(attempt, Parcel(*content))

    def _write(self, attempt: Attempt, parcel: Parcel) -> None:
        """Split the job as its node has done, and write the parcel."""
        if parcel.stacks is not None:
            attempt.parts = _split(attempt.parts, parcel.stacks, self.root)
            attempt.folders += nodes.folders_of(attempt.parts)
        try:
            parcels.write(parcel, self.root, list(dict.fromkeys(attempt.folders)))
        except ActlabError as error:
            raise ActlabError(f"{attempt.node.name}: {error}") from error

    def _conclude(self) -> None:
        """Handle the tasks that have ended, after their last messages, and those of nodes that are gone.

        A task on a frozen node, or behind a split network, ends minutes after its node was declared dead.
        """
        ray = require_ray()
        tasks = {attempt.task: attempt for attempt in self.attempts.values()}
        ended, running = ray.wait(list(tasks), num_returns=len(tasks), timeout=0) if tasks else ([], [])
        if ended:
            self._read()
        gone = [task for task in running if self.cluster.is_gone(tasks[task].node)]
        for task in [*ended, *gone]:
            attempt = tasks[task]
            try:
                how, reason = ray.get(task) if task in ended else ("NodeDiedError", "")
            except ray.exceptions.RayTaskError as error:
                raise ActlabError(f"{attempt.node.name}: {message_of(error)}") from error
            except ray.exceptions.RayError as error:
                how, reason = type(error).__name__, message_of(error)
            del self.attempts[attempt.number]
            attempt.locks.close()
            if how == "error":
                raise ActlabError(f"{attempt.node.name}: {reason}")
            if how == "lost":
                self.cluster.reject(attempt.node, f"cannot write files or reach this machine: {reason}")
            elif how not in ("over", "stopped"):
                self.look_at = 0.0
                if attempt.began:
                    self._count_death(attempt, how)
                else:
                    self._count_false_start(attempt.node, reason)
            self.left[:0] = [
                part for part in attempt.parts if how != "over" and not queue.is_over(part, self.root)
            ]

    def _count_false_start(self, node: Node, reason: str) -> None:
        """Do without a node on which several jobs ended before they began; it may have died unnoticed."""
        self.false_starts[node.id] += 1
        if self.false_starts[node.id] == MOST_DEATHS:
            self.cluster.reject(node, f"does not begin a job: {reason}")

    def _count_death(self, attempt: Attempt, how: str) -> None:
        """Record the runs of a job as failed after several deaths; halve a stack that ran out of memory."""
        self.deaths[attempt.job.id] += 1
        times = self.deaths[attempt.job.id]
        print(f"{attempt.node.name}: {how} while {attempt.job.id} was trained, attempt {times}", flush=True)
        if times < MOST_DEATHS:
            return
        if how == "OutOfMemoryError" and attempt.parts == [attempt.job] and len(attempt.job.runs) > 1:
            attempt.parts = packing.halve(attempt.job, self.root)
            return
        for run in attempt.job.runs:
            reason = f"the process or node that trained it ended in {times} attempts, the last by {how}"
            queue.fail(run, reason, self.root, self.progress)


def _train(order: Order, mailbox: Any, number: int) -> tuple[str, str]:
    """Train a job on a node; a Ray task."""
    return nodes.train(order, lambda messages: mailbox.put((number, messages)))


def _split(parts: Sequence[Job], stacks: Sequence[str], root: Path) -> list[Job]:
    """Return jobs after halving those that a node has halved, which are not among its ``stacks``."""
    waiting, found = list(parts), list[Job]()
    while waiting:
        part = waiting.pop(0)
        if len(part.runs) > 1 and part.id not in stacks:
            waiting += packing.halve(part, root)
        else:
            found.append(part)
    return found
