"""A Ray cluster: connect to it, check its nodes, send them the files that configs name.

Nodes need not share a folder with this machine. `actlab.engines.home` trains jobs on them.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from actlab.engines import nodes, shipping
from actlab.engines.shipping import Source
from actlab.errors import ActlabError, described, one_line

ADDRESS = re.compile(r"auto|[\w.-]+:\d+|\[[0-9a-fA-F:]+\]:\d+")
_PATIENCE = 300.0  # seconds in which a node must answer; loading torch from a slow disk takes a minute


class Options(NamedTuple):
    """Where and with which resources jobs are trained; nothing of this affects results.

    Args:
        address: ``auto`` for the cluster of this machine, or ``HOST:PORT`` of its head.
        cpus: cores that Ray reserves for a job.
        gpus: accelerators that Ray reserves for a job; may be a fraction.
        send_every: fewest seconds after which a node sends what has changed.
    """

    address: str
    cpus: float = 1.0
    gpus: float = 0.0
    send_every: float = 60.0

    def check(self) -> None:
        """Check the values.

        Raises:
            ActlabError: for the first value that is not allowed.
        """
        if self.address.startswith("ray://"):
            raise ActlabError(
                f"--cluster {self.address}: Ray's client is not supported: run the study on a machine of the "
                "cluster (`ray start --address=HOST:PORT`) with --cluster auto or HOST:PORT"
            )
        if not ADDRESS.fullmatch(self.address):
            raise ActlabError(f"--cluster {self.address}: give auto, or HOST:PORT of the cluster's head")
        for name, value, least in (
            ("cpus", self.cpus, 0),
            ("gpus", self.gpus, 0),
            ("send-every", self.send_every, 0),
        ):
            if not least <= value < float("inf"):
                raise ActlabError(f"--{name} {value:g}: give a number from {least}")
        if not self.cpus and not self.gpus:
            raise ActlabError(
                "--cpus 0: without --gpus a job must reserve cores, else a node trains all jobs at once"
            )


def require_ray() -> Any:
    """Return the package ray.

    Raises:
        ActlabError: if it is not installed.
    """
    try:
        import ray
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "ray":
            raise
        raise ActlabError(
            "--cluster requires Ray, which is not installed: pip install 'actlab[cluster]'"
        ) from error
    return ray


@contextmanager
def connected(options: Options) -> Iterator[Cluster]:
    """Yield the cluster, after checking that its nodes have this machine's versions; disconnect at the end.

    Raises:
        ActlabError: if an option is invalid, there is no cluster, no node can train a job or answers, or a node
            has other versions.
    """
    options.check()
    ray = require_ray()
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=options.address, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        raise ActlabError(
            f"--cluster {options.address}: {one_line(error)}. This machine must be part of the cluster: "
            "run `ray start --head`, or `ray start --address=HOST:PORT`"
        ) from error
    finally:
        signal.signal(signal.SIGTERM, before)  # `ray.init` replaces our handler
    try:
        found = Cluster(options)
        found.look(strict=True)
        if not found.seats:
            found.require_nodes()
            wanted = f"{options.cpus:g} cores and {options.gpus:g} accelerators"
            raise ActlabError(f"--cluster {options.address}: no node has {wanted}: give fewer")
        yield found
    finally:
        ray.shutdown()


@dataclass
class Node:
    """A node that may train jobs.

    Args:
        id: Ray's id.
        name: host name and address.
        seats: number of jobs that it may train at the same time.
    """

    id: str
    name: str
    seats: int


class Cluster:
    """The nodes of a cluster; created by `connected`.

    Args:
        options: where and with which resources jobs are trained.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.nodes: dict[str, Node] = {}  # alive, and checked
        self.rejected: dict[str, str] = {}  # ids of nodes that train no jobs, with the reasons
        self.sources: Sequence[Source] = ()

    @property
    def seats(self) -> int:
        """Number of jobs that are trained at the same time."""
        return sum(node.seats for node in self.nodes.values())

    def look(self, strict: bool = False) -> None:
        """Update which nodes there are, and check new ones; do without nodes that do not answer.

        Args:
            strict: whether to raise for a node that is rejected; otherwise print why and do without it.

        Raises:
            ActlabError: if ``strict`` and a node has other versions, or lacks a source that home cannot send.
        """
        alive = {entry["NodeID"]: entry for entry in require_ray().nodes() if entry["Alive"]}
        self.rejected = {name: reason for name, reason in self.rejected.items() if name in alive}
        found: dict[str, Node] = {}
        for name in alive.keys() - self.rejected.keys():
            entry = alive[name]
            if seats := self._seats(entry["Resources"]):
                place = f"{entry['NodeManagerHostname']} ({entry['NodeManagerAddress']})"
                found[name] = Node(name, place, seats)
        new = [node for name, node in found.items() if name not in self.nodes]
        faults = _faults(self, new) if new else {}
        if strict and faults:
            raise ActlabError("; ".join(f"{found[name].name} {fault}" for name, fault in faults.items()))
        for name, fault in faults.items():
            self.reject(found[name], fault)
        self.nodes = {name: node for name, node in found.items() if name not in self.rejected}

    def reject(self, node: Node, reason: str) -> None:
        """Send no job to a node any more, and print why the first time."""
        if node.id in self.rejected:
            return
        print(f"{node.name} {reason}; no job is sent there", flush=True)
        self.rejected[node.id] = f"{node.name} {reason}"
        self.nodes.pop(node.id, None)

    def is_gone(self, node: Node) -> bool:
        """Return whether Ray declared a node dead before the last look."""
        return node.id not in self.nodes and node.id not in self.rejected

    def require_nodes(self) -> None:
        """Check that nodes are not missing because they were rejected.

        Raises:
            ActlabError: with the reasons, if there is no node and some were rejected.
        """
        if not self.nodes and self.rejected:
            raise ActlabError(f"no node is left: {'; '.join(self.rejected.values())}")

    def provide(self, sources: Sequence[Source]) -> None:
        """Send each node what configs name outside actlab and the node lacks.

        Args:
            sources: what the configs of all jobs name.

        Raises:
            ActlabError: if a node lacks something that home cannot send.
        """
        self.sources, self.nodes = sources, {}
        self.look(strict=True)

    def _seats(self, resources: Mapping[str, float]) -> int:
        wanted = {"CPU": self.options.cpus, "GPU": self.options.gpus}
        return min(int(resources.get(name, 0) / share + 1e-9) for name, share in wanted.items() if share)

    def on(self, node: Node, function: Callable[..., Any], *args: Any, share: bool = False) -> Any:
        """Start a function on a node; return Ray's reference to its result."""
        ray = require_ray()
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = NodeAffinitySchedulingStrategy(node.id, soft=False)
        amount = {"num_cpus": self.options.cpus, "num_gpus": self.options.gpus} if share else {"num_cpus": 0}
        return ray.remote(max_retries=0, scheduling_strategy=there, **amount)(function).remote(*args)


def _faults(cluster: Cluster, new: Sequence[Node]) -> dict[str, str]:
    """Return why nodes that answer cannot train jobs, by their ids; send them the files that they lack."""
    found: dict[str, str] = {}
    facts = nodes.facts_anywhere()
    home, answers = facts(), _answers(cluster, new, facts)
    for node, answer in answers:
        if isinstance(answer, str):
            found[node.id] = answer
            continue
        other = {key: f"{key} {answer[key]}, not {home[key]}" for key in home if answer[key] != home[key]}
        processor = other.pop(nodes.PROCESSOR, None)
        if other:
            found[node.id] = f"has {', '.join(other.values())}: install the versions of this machine there"
        elif processor and not cluster.sources:
            print(f"{node.name} has {processor}: last digits may differ", flush=True)
    if cluster.sources:
        found |= _send_sources(cluster, [node for node, _ in answers if node.id not in found])
    return found


def _send_sources(cluster: Cluster, new: Sequence[Node]) -> dict[str, str]:
    """Send to each node the sources that it lacks; return why nodes cannot get them, by their ids."""
    ray, found, parcels_of = require_ray(), {}, cache(shipping.parcel)
    for node, lacks in _answers(cluster, new, nodes.lacking, cluster.sources):
        if isinstance(lacks, str):
            found[node.id] = lacks
        elif lacks:
            try:
                sent = [(cluster.sources[n], parcels_of(cluster.sources[n])) for n in lacks]
                if (size := sum(len(content) for _, content in sent)) > shipping.MOST_BYTES:
                    raise ActlabError(
                        f"{', '.join(str(source) for source, _ in sent)} have {size / 2**20:,.0f} MB"
                    )
            except ActlabError as error:
                found[node.id] = f"lacks {error}"
                continue
            for _, left in _answers(cluster, [node], nodes.take, ray.put(sent)):
                if left:
                    found[node.id] = f"cannot use {left if isinstance(left, str) else ', '.join(left)}"
    return found


def _answers(
    cluster: Cluster, new: Sequence[Node], function: Callable[..., Any], *args: Any
) -> list[tuple[Node, Any]]:
    """Return each node that answers with what a function returns there; where it fails, the reason."""
    ray = require_ray()
    tasks = [(node, cluster.on(node, function, *args)) for node in new]
    found: list[tuple[Node, Any]] = []
    for node, task in tasks:
        try:
            found.append((node, ray.get(task, timeout=_PATIENCE)))
        except ray.exceptions.RayTaskError as error:
            found.append((node, f"has failed: {message_of(error)}"))
        except ray.exceptions.RayError as error:  # a node that has just died is listed for up to a minute
            cluster.reject(node, f"does not answer ({type(error).__name__})")
    return found


def message_of(error: BaseException) -> str:
    """Return the message of an error on a node without its traceback."""
    cause = getattr(error, "cause", None)
    return described(cause if isinstance(cause, BaseException) else error)
