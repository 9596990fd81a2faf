"""Types of the JSON files of a study, checked by `read_json`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, final

from annotated_types import Ge, Gt, Lt  # a dependency of pydantic that imports fast
from typing_extensions import TypedDict

Values = dict[str, Any]  # by dotted config key
Number = Annotated[float, Gt(-1e15), Lt(1e15)]  # no nan; ratios of two are finite
Positive = Annotated[float, Gt(1e-15), Lt(1e15)]


class Result(TypedDict):
    """``result.json``: status of a finished run and summaries of its rows."""

    status: Literal["finished", "diverged"]
    id: str
    seed: int
    point: Values  # the grid values
    # Digests of files and code outside actlab, by their text in the config.
    sources: dict[str, str]
    identity: str  # see `actlab.config.identity`
    summary: dict[str, dict[str, Summed]]  # by name, then by condition
    code: NotRequired[dict[str, str]]  # digests of the user's code, by file
    engine: NotRequired[str]  # ``stacked`` or ``sequential``
    single_updates: NotRequired[str]  # why each update was a batch of its own
    not_replayed: NotRequired[str]  # why no program replaced the updates
    surrogate_gradient: NotRequired[bool]
    last_good_epoch: NotRequired[float]  # the last epoch, or the last before divergence
    updates: NotRequired[int]  # including those of an epoch that diverged
    revisions: NotRequired[dict[str, str]]  # commits of datasets of the hub
    seconds: NotRequired[float]  # of training; a stack's divided by its members
    scored: NotRequired[dict[str, int]]  # samples of the last evaluation, by split
    sampling_errors: NotRequired[dict[str, Annotated[Number, Ge(0)]]]  # by metric
    # Learnt parameters before training.
    initial_parameters: NotRequired[dict[str, Number]]
    # The loop of each name that a module outside actlab's tasks logged
    loops: NotRequired[dict[str, Literal["train", "val", "test"]]]
    versions: dict[str, str]
    hardware: str
    matmul: NotRequired[str]  # backend of float32 products


class Summed(TypedDict):
    """An `actlab.storage.series.Summary`."""

    last: float
    lowest: float
    lowest_epoch: float
    highest: float
    highest_epoch: float


class Kept(TypedDict):
    """The curves in ``matrices.json``: x, and f(x) by the number of a layer, over channels."""

    learnt_activation: NotRequired[dict[str, list[float]]]
    learnt_activation_min: NotRequired[dict[str, list[float]]]
    learnt_activation_max: NotRequired[dict[str, list[float]]]
    initial_activation: NotRequired[dict[str, list[float]]]


class Failure(TypedDict):
    """``failed.json``: why the last attempt at a run failed."""

    error: str


class Machine(TypedDict, total=False):
    """How busy a machine was; see `actlab.checks.cost.state_of_machine`."""

    load: Annotated[Number, Ge(0)]
    cores: Annotated[int, Ge(1)]
    cpu_per_second: Annotated[Number, Ge(0)]


@final
class Timed(TypedDict):
    """An entry of ``cost.json``: time and memory of an update at a grid point.

    They were measured on ``run``.
    """

    run: str
    point: Values
    measured: NotRequired[str]  # when; entries of one measurement are equal
    compared: str  # label of the compared value
    seconds_per_update: Positive
    bytes_kept: Positive  # for the backward pass
    hardware: str
    rounds: Annotated[int, Ge(1)]
    machine: Machine
    seconds_in_parts: list[Positive]
    seconds_added: NotRequired[Number]  # by seeding the global generators
    seconds_added_in_parts: NotRequired[list[Number]]


@final
class Untimed(TypedDict):
    """An entry of ``cost.json`` for a grid point whose update could not be timed."""

    run: str
    point: Values
    measured: NotRequired[str]
    failed: Literal[True]


Cost = Timed | Untimed


class Selected(TypedDict):
    """An entry of ``selection.json``: settings of a grid point, and the runs that selected them."""

    point: NotRequired[Values]
    chosen: Values
    tried: int  # number of settings, of which one was selected
    metric: NotRequired[str]
    mode: NotRequired[str]
    at: NotRequired[str]
    seeds: list[int]
    runs: NotRequired[list[str]]


Chosen = dict[str, Selected]
