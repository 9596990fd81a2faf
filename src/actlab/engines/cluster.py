"""Train the jobs of a study on a Ray cluster whose nodes share the study's folder.

Each job is one Ray task. The task holds the locks of its runs and writes their folders, as a worker
of this machine does; Ray starts it again when its node dies, and it resumes from the last epoch.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from actlab import engines
from actlab.engines import pool
from actlab.engines.jobs import Arranged, Job, LoggerFactory, longest_first
from actlab.engines.pool import MOST_DEATHS
from actlab.errors import ActlabError, LostDeviceError
from actlab.errors.imports import needing
from actlab.errors.messages import described, one_line
from actlab.runtime import signals
from actlab.runtime.interpreter import HASH_SEED, OURS, SAFE_PATH
from actlab.runtime.machine import hardware, versions
from actlab.storage.files import regular, write_atomically
from actlab.studies import locks

if TYPE_CHECKING:
    from actlab.engines.settings import Settings

ADDRESS = re.compile(r"auto|[\w.-]+:\d+|\[[0-9a-fA-F:]+\]:\d+")
# File beside the locks: a node that reads it has this folder, not another at the same
# path
_TOKEN = "home"


class Options(NamedTuple):
    """Where and with which resources jobs are trained; nothing of this affects results.

    ``address`` is ``auto`` for the cluster of this machine, or ``HOST:PORT`` of its head. Ray
    reserves cores and accelerators, of which a job may use a fraction.
    """

    address: str
    cpus: float = 1.0
    gpus: float = 0.0

    def check(self) -> None:
        """Raise an ActlabError for the first value that is not allowed."""
        if not ADDRESS.fullmatch(self.address):
            raise ActlabError(
                f"--cluster: expected auto or HOST:PORT of the cluster's head, got {self.address}"
            )
        # NaN fails this comparison, too
        for name, value in (("cpus", self.cpus), ("gpus", self.gpus)):
            if not 0 <= value < float("inf"):
                raise ActlabError(f"--{name}: expected a number from 0, got {value:g}")
        if not self.cpus and not self.gpus:
            raise ActlabError(
                "--cpus: expected a number above 0 without --gpus, got 0. Reserve cores, because a "
                "node would train all jobs at once."
            )


@contextmanager
def connected(options: Options) -> Iterator[Cluster]:
    """Yield the cluster; disconnect at the end, which ends its tasks."""
    options.check()
    ray = _ray()

    # Connect, and restore the handler that `ray.init` replaces
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            address=options.address,
            log_to_driver=False,
            logging_level="ERROR",
            include_dashboard=False,
        )
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        raise ActlabError(
            f"--cluster {options.address}: {one_line(error)}. This machine must be part of the "
            "cluster: run `ray start --head`, or `ray start --address=HOST:PORT`."
        ) from error
    finally:
        signal.signal(signal.SIGTERM, handler)

    # Yield the cluster if it can train a job
    try:
        cluster = Cluster(options)
        if not cluster.room:
            raise ActlabError(
                f"--cluster {options.address}: expected a node with {options.cpus:g} cores and "
                f"{options.gpus:g} accelerators, got none. Set smaller --cpus or --gpus."
            )
        yield cluster
    finally:
        ray.shutdown()


def _ray() -> Any:
    with needing("ray", "cluster", "--cluster"):
        import ray
    return ray


@contextmanager
def _errors_in_words() -> Iterator[None]:
    """Raise an ActlabError where the connection is lost."""
    kinds = _ray().exceptions
    try:
        yield
    except (kinds.RayError, ConnectionError) as error:
        raise ActlabError(
            f"the cluster is lost ({one_line(error)}). The same command resumes."
        ) from error


class Cluster:
    """Trains jobs on the nodes of a cluster; created by `connected`.

    It starts a Ray task for each job, reports their progress, and replaces a job whose task failed
    by smaller jobs. `Pool` does the same on one machine. Ray decides which node trains a job.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.processors = {hardware()}  # of this machine and of nodes, each named once
        self.errors: list[
            ActlabError
        ] = []  # which ended tasks, and are no failures of their runs

    @property
    def room(self) -> int:
        """Number of jobs that the nodes can train at the same time."""
        # Add up how many jobs fit on each living node
        job_needs = {"CPU": self.options.cpus, "GPU": self.options.gpus}
        room = 0
        for node in _ray().nodes():
            if not node["Alive"]:
                continue

            # The scarcest resource limits the number of jobs
            numbers = []
            for resource, amount in job_needs.items():
                if amount:
                    # The small number makes up for divisions such as 0.3 / 0.1, which
                    # is below 3.
                    numbers.append(
                        int(node["Resources"].get(resource, 0) / amount + 1e-9)
                    )
            room += min(numbers)
        return room

    @_errors_in_words()
    def train(
        self,
        arranged: Arranged,
        jobs: Sequence[Job],
        root: Path,
        logger: LoggerFactory | None = None,
    ) -> list[Job]:
        """Train jobs on the nodes, the longest first; return those that other starts are training.

        Raises the first error of a task when all are over.
        """
        if not arranged.single:
            raise ActlabError(
                "--cluster trains each run on one device. Set trainer.devices to 1."
            )
        ray = _ray()

        # Write the file by which nodes recognise the folder
        token = os.urandom(8).hex()
        write_atomically(root / locks.FOLDER / _TOKEN, token)
        folder = str(Path.cwd())
        home = Home(
            folder, [*sys.path], root.resolve(), token, facts(), arranged.settings
        )

        # Start a task for each job
        train = ray.remote(
            num_cpus=self.options.cpus,
            num_gpus=self.options.gpus,
            max_retries=MOST_DEATHS - 1,
            # With one call a process, no task sees what code of another has left in its
            # process.
            max_calls=1,
            runtime_env={"env_vars": {HASH_SEED: "0", SAFE_PATH: OURS}},
        )(_train)
        job_of_task = {}
        for job in longest_first(jobs):
            job_of_task[train.remote(home, job, logger)] = job

        # Wait for the tasks, and train parts of jobs that failed
        held = []
        while job_of_task:
            signals.check()
            ended, _ = ray.wait([*job_of_task], num_returns=1, timeout=locks.PAUSE)
            pool.show([*job_of_task.values()], root)
            for task in ended:
                job = job_of_task.pop(task)
                is_over, parts = self._finish(task, job, root)
                if not is_over:
                    held.append(job)
                for part in parts:
                    job_of_task[train.remote(home, part, logger)] = part

        # One task's error has not stopped the others
        if self.errors:
            raise self.errors[0]
        return held

    def _finish(self, task: Any, job: Job, root: Path) -> tuple[bool, list[Job]]:
        """Return whether a job whose task has ended is over, and the jobs to train in its place."""
        ray = _ray()
        kinds = ray.exceptions
        try:
            is_over, output, machine = ray.get(task)
        except kinds.RayTaskError as error:
            # The code of the task raised an error
            if isinstance(error.cause, LostDeviceError):
                return True, job.unfinished_alone(root)
            self.errors.append(ActlabError(described(error.cause)))
            print(f"{job.id} is not trained further: {self.errors[-1]}", flush=True)
            return True, []
        except (
            kinds.WorkerCrashedError,
            kinds.NodeDiedError,
            kinds.OutOfMemoryError,
        ) as error:
            # The process or node has died
            if isinstance(error, kinds.OutOfMemoryError) and len(job.runs) > 1:
                return True, job.halves(root)
            reason = (
                f"ended in {MOST_DEATHS} attempts, the last by {type(error).__name__}"
            )
            job.fail(root, f"the process or node that trained it {reason}")
            return True, []

        # Show what the task printed
        print(output, end="", flush=True)
        pool.show([job], root)
        if machine not in self.processors:
            self.processors.add(machine)
            print(f"a node has {machine}: last digits may differ", flush=True)
        return is_over, []


class Home(NamedTuple):
    """What a node must have in common with the machine that runs the study.

    ``token`` is the content of a file in the folder of the study, ``root``; ``path`` is Python's.
    """

    folder: str
    path: list[str]
    root: Path
    token: str
    facts: dict[str, str]
    settings: Settings

    def check(self) -> None:
        """Raise an ActlabError if this node has another folder or other versions."""
        host = socket.gethostname()

        # Compare the folder
        file = self.root / locks.FOLDER / _TOKEN
        if not file.exists() or regular(file).read_text(encoding="utf-8") != self.token:
            raise ActlabError(
                f"{host} does not share {self.root}. Set --runs-dir to a folder that all nodes "
                "mount at the same path."
            )

        # Compare the versions
        node_facts = facts()
        differences = []
        for name, value in self.facts.items():
            if node_facts[name] != value:
                differences.append(f"{name} {node_facts[name]}, not {value}")
        if differences:
            remedy = "Install the versions of the first machine on it."
            raise ActlabError(f"{host} has {', '.join(differences)}. {remedy}")


@cache
def facts() -> dict[str, str]:
    """Return versions, and a digest of actlab's source, by name."""
    package = Path(engines.__file__).parents[1]
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        name = str(file.relative_to(package))
        digest.update(name.encode())
        digest.update(regular(file).read_bytes())
    return {**versions(), "actlab's source": digest.hexdigest()[:12]}


def _train(home: Home, job: Job, logger: LoggerFactory | None) -> tuple[bool, str, str]:
    """Train a job as a Ray task; return whether it is over, what was printed, and the processor."""
    # Import here, because the starting process loads no torch
    from actlab.engines import training
    from actlab.runtime.denormals import flush_denormals
    from actlab.runtime.quiet import quiet

    # Make the node like the first machine
    home.check()
    os.chdir(home.folder)
    for folder in home.path:  # for the user's own modules
        if folder not in sys.path:
            sys.path.append(folder)
    flush_denormals()

    # Train the job
    output = io.StringIO()
    with quiet(), redirect_stdout(output):
        home.settings.apply()
        is_over = training.work(job, home.root, logger)
    return is_over, output.getvalue(), hardware()
