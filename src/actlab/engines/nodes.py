"""What a node of a cluster does: find files of configs, train a job in a scratch folder, send changes."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, chdir, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from pytorch_lightning.loggers import Logger

from actlab.config import elsewhere
from actlab.engines import parcels, queue, shipping
from actlab.engines.jobs import Job
from actlab.engines.processes import ReportedOutput
from actlab.engines.settings import Settings, quiet
from actlab.engines.shipping import Source
from actlab.errors import ActlabError, described
from actlab.runtime import signals
from actlab.runtime.denormals import flush_denormals
from actlab.storage.files import write_atomically
from actlab.studies import stacks
from actlab.studies.plan import Run

SOON = 0.5  # seconds between messages about progress
BANDWIDTH = 50e6  # bytes per second that all nodes together send to home, on average
PROCESSOR = "processor"  # key of the processor among the facts of a node
_PACKAGES = ("actlab", "torch", "pytorch-lightning", "numpy")
Message = tuple[Any, ...]  # a kind and its content
Post = Callable[[list[Message]], None]  # sends messages to home; returns when home's mailbox has them


class Order(NamedTuple):
    """A job as home sends it to a node.

    Args:
        job: the job.
        study: name of the study's folder.
        settings: execution settings of the study.
        state: tar of the job's folders at home.
        sources: what the configs name outside actlab.
        every: fewest seconds between two parcels.
        seats: number of jobs that are trained at the same time.
        logged: whether home has loggers.
    """

    job: Job
    study: str
    settings: Settings
    state: bytes
    sources: Sequence[Source]
    every: float
    seats: int
    logged: bool


class LostError(BaseException):
    """Home cannot be reached; a BaseException, so that it is not recorded as the failure of a run."""


class Sender:
    """Sends printed text, progress, logged values and parcels to home.

    Args:
        root: the study's folder on this node.
        order: the job.
        post: sends messages to home.
    """

    def __init__(self, root: Path, order: Order, post: Post) -> None:
        self.root, self.order, self.post = root, order, post
        self.changes = parcels.Changes(root)
        self.messages: list[Message] = []
        self.ended: list[Message] = []  # progress of runs whose files home does not have yet
        self.last = time.monotonic()  # time of the last messages
        self.next = self.last + order.every  # time of the next parcel

    def report(self, kind: str, *content: Any) -> None:
        """Send a message, soon."""
        self.messages.append((kind, *content))
        if time.monotonic() - self.last > SOON:
            self.send()

    def progress(self, run: Run, fraction: float) -> None:
        """Report the progress of a run after an epoch, and send a parcel if it is time for one."""
        if fraction < 1:
            self.report("progress", run.id, fraction)
        else:
            self.ended.append(("progress", run.id, fraction))
        if time.monotonic() >= self.next:
            self.send_parcel()

    def send_parcel(self) -> None:
        """Send what has changed since the last parcel; the larger, the later the next one."""
        split = [entry["id"] for entry in stacks.read(self.root)]
        parcel = self.changes.parcel(split or None)
        self.messages += [("parcel", *parcel), *self.ended]
        self.ended = []
        self.send()
        pause = len(parcel.content) * self.order.seats / BANDWIDTH
        self.next = time.monotonic() + max(self.order.every, pause)

    def send(self) -> None:
        """Send the messages, of which there may be none."""
        messages, self.messages = self.messages, []
        try:
            self.post(messages)
        except Exception as error:  # whatever the engine raises: home, its machine or the network is gone
            raise LostError(described(error)) from error
        self.last = time.monotonic()


class SentLogger(Logger):
    """Passes what is logged to the run's logger at home.

    Args:
        run: the run.
        sender: sends messages to home.
    """

    def __init__(self, run: Run, sender: Sender) -> None:
        super().__init__()
        self.run, self.sender = run, sender

    @property
    def name(self) -> str:
        """The run's id."""
        return self.run.id

    @property
    def version(self) -> str:
        """Empty: the logger at home has one."""
        return ""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Send metrics."""
        self._pass("log_metrics", {name: float(value) for name, value in metrics.items()}, step)

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Do nothing: home logs the run's config."""

    def log_summary(self, values: Mapping[str, Sequence[float]], diverged: bool = False) -> None:
        """Send the values of the whole run."""
        self._pass("log_summary", {name: list(series) for name, series in values.items()}, diverged)

    def finalize(self, status: str) -> None:
        """Send how training ended."""
        self._pass("finalize", status)

    def _pass(self, method: str, *arguments: Any) -> None:
        self.sender.report("log", self.run.id, method, arguments)


def train(order: Order, post: Post) -> tuple[str, str]:
    """Train a job in a scratch folder on this node; called in a process of the engine.

    Returns:
        ``over``; ``stopped`` after SIGTERM; ``lost`` and the reason if this node cannot write files or reach
        home; or ``error`` and the message of an error that ends the study.
    """
    try:
        with signals.stopping(), TemporaryDirectory(prefix="actlab-") as folder, chdir(folder):
            _train(order, Path(folder, order.study), post)
    except signals.Stopped:
        return "stopped", ""
    except (OSError, LostError) as error:
        return "lost", described(error)
    except ActlabError as error:
        cause = error.__cause__
        return ("lost", described(cause)) if isinstance(cause, OSError) else ("error", str(error))
    return "over", ""


def _train(order: Order, root: Path, post: Post) -> None:
    """Train a job and send its files; after SIGTERM, those of the last whole epoch."""
    flush_denormals()
    root.mkdir()
    for name, content in parcels.unpacked(order.state, folders_of([order.job])).items():
        write_atomically(root / name, content)
    sender = Sender(root, order, post)
    sender.send()  # home counts a death from here on as one of the job
    with ExitStack() as within:
        within.enter_context(quiet())
        within.enter_context(redirect_stdout(ReportedOutput(sender.report)))
        within.enter_context(elsewhere.using(places(order.sources), dict(s[:2] for s in order.sources)))
        if reason := order.settings.apply_to_worker():
            print(f"{socket.gethostname()}: {reason}")
        logger = (lambda run: SentLogger(run, sender)) if order.logged else None
        try:
            queue.train(order.job, root, sender.progress, logger)
        except signals.Stopped:
            sender.send_parcel()
            raise
        sender.send_parcel()


def folders_of(jobs: Sequence[Job]) -> list[str]:
    """Return the names of the folders in which files of some jobs may lie."""
    runs = dict.fromkeys(run.id for job in jobs for run in job.runs)
    return [*runs, *(f"stacks/{job.id}" for job in jobs if len(job.runs) > 1)]


def places(sources: Sequence[Source]) -> dict[str, str]:
    """Return the texts by which this node finds the sources.

    Raises:
        ActlabError: if it does not have one of them.
    """
    found = {source.text: shipping.find(source) for source in sources}
    if missing := next((source for source in sources if found[source.text] is None), None):
        raise ActlabError(
            f"{socket.gethostname()} does not have {missing}: start the study again, which sends it if possible"
        )
    return {text: place for text, place in found.items() if place is not None}


def lacking(sources: Sequence[Source]) -> list[int]:
    """Return the indices of the sources that this node does not have."""
    return [n for n, source in enumerate(sources) if shipping.find(source) is None]


def take(sent: Sequence[tuple[Source, bytes]]) -> list[str]:
    """Keep sources from home; return those that this node then still does not find, in words."""
    for source, content in sent:
        shipping.receive(source, content)
    return [str(source) for source, _ in sent if shipping.find(source) is None]


def facts_anywhere() -> Callable[[], dict[str, str]]:
    """Return a function that returns versions and the processor; nested, so that it is sent by value.

    A node with another actlab, or without one, can therefore call it.
    """
    names, processor = _PACKAGES, PROCESSOR

    def facts() -> dict[str, str]:
        """Return versions and the processor of this machine, by name."""
        import hashlib
        import platform
        from importlib.metadata import PackageNotFoundError, version
        from importlib.util import find_spec
        from pathlib import Path

        found = {"Python": platform.python_version()}
        for name in names:
            try:
                found[name] = version(name)
            except PackageNotFoundError:
                found[name] = "none"
        spec, code = find_spec("actlab"), hashlib.sha256()
        for folder in [Path(spec.origin).parent] if spec and spec.origin else []:
            for file in sorted(folder.rglob("*.py")):
                code.update(str(file.relative_to(folder)).encode() + file.read_bytes())
        found["actlab's source"] = code.hexdigest()[:12]
        cpuinfo = Path("/proc/cpuinfo")
        lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
        models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        found[processor] = models[0] if models else platform.processor() or platform.machine()
        return found

    return facts
