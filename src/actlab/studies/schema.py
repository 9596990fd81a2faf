"""Schema of study files.

`actlab.studies.reading` uses it, and it is exported as JSON schema for editors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    ValidationError,
)

from actlab.config.class_paths import import_path
from actlab.config.values import as_list
from actlab.errors import ActlabError
from actlab.errors.messages import alternatives, expectation, short_repr, unknown

# Pattern of names that become file names in the study's folder
NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"
# mean, mean 5-50, below 0.1
Over = Annotated[str, Field(pattern=r"^(mean( \d+-\d+)?|below \d+(\.\d+)?)$")]
Where = Annotated[str, Field(pattern=r"^best \S+$")]  # best val/error
At = (
    int | FiniteFloat | Literal["last", "best", "best_epoch", "selected"] | Over | Where
)
Place = int | Literal["last", "best"]
Blocks = Field(max_length=1000)  # each block copies its base config
Mode = Annotated[
    Literal["min", "max"] | None,
    Field(
        description="whether low or high values are better; default: what the last word of the "
        "name says, such as `loss` or `accuracy`, else the class of torchmetrics; required if "
        "neither says so"
    ),
]
_SEEDS: dict[str, Any] = {  # schema only; `actlab.studies.reading` checks the value
    "description": "how many, a range such as 5-19, or a list",
    "anyOf": [
        {"type": "integer"},
        {"type": "string"},
        {"type": "array", "items": {"type": "integer"}},
    ],
}


class Part(BaseModel):
    """Base class of the parts of a study file: rejects unknown keys and does not convert types."""

    # Frozen, because defaults are shared by all files
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Select(Part):
    """The rule that selects the values of tuned keys."""

    tune: list[str] | str = Field(
        default=[], description="grid keys to select rather than compare"
    )
    metric: str = Field(default="val/loss", description="a validation metric")
    at: Literal["best", "last"] = Field(
        default="best",
        description="which value of a run counts: the `best`, or the `last`, at its end",
    )
    mode: Mode = None


class BlockPart(Part):
    """A grid over its own base config."""

    grid: dict[str, Any] = Field(description="dotted config key → values")
    base: str | None = Field(
        default=None,
        description="the config of the block's runs; default: the study's config",
    )
    set: dict[str, Any] = Field(
        default={},
        description="dotted config keys set in every run of the block; they override the study's",
    )
    name: str = Field(
        default="",
        description="name in tables; required where two blocks have runs at the same grid point",
    )


class StagePart(Part):
    """A part of the study that runs at the settings that the previous stage selected."""

    name: str = Field(pattern=NAME, description="name for `--stage`, and in files")
    seeds: Any = Field(
        default=None,
        json_schema_extra={
            **_SEEDS,
            "description": f"{_SEEDS['description']}; no two stages share a seed",
        },
    )
    set: dict[str, Any] = Field(
        default={},
        description="dotted config keys set in every run of the stage; `--set` takes precedence",
    )
    search: dict[str, Any] = Field(
        default={},
        description="search instead of training the grid, in the first of two stages: dotted "
        "config key → LOW..HIGH or a list; activation of the grid → its arguments, likewise",
    )
    # Only with a search
    trials: int = Field(
        default=20,
        ge=1,
        le=10_000,
        description="settings that the search tries at each grid point",
    )
    as_given: bool = Field(
        default=False,
        description="also compare an activation whose arguments are searched with its arguments "
        "in the grid",
    )


class ProbePart(Part):
    """An evaluation of checkpoints after training."""

    name: str = Field(
        pattern=NAME,
        description="first part of the names of its metrics, and name of its files",
    )
    class_path: Annotated[
        str, AfterValidator(lambda path: import_path(path) or path)
    ] = Field(
        description="import path of the class: `actlab.probes.InputNoise`, or your own"
    )
    init_args: dict[str, Any] = Field(default={}, description="arguments of the class")
    at: list[Place] | Place = Field(
        default="last", description="checkpoints: last, best, or numbers of epochs"
    )

    @property
    def places(self) -> list[Place]:
        """The checkpoints."""
        return as_list(self.at)


class ColumnPart(Part):
    """A column of the table."""

    metric: str = Field(description="split/metric, or probe/split/metric")
    at: At = Field(
        default="last",
        description="where in a run the value is read, such as `last`, `best` or epoch `5`",
    )
    condition: str = Field(default="", description="such as noise=0.5")
    percent: bool = Field(default=False, description="print the value times 100")
    mode: Mode = None
    ranked: bool = Field(
        default=True, description="false: the column does not rank activations"
    )

    # What verdicts need
    chance: FiniteFloat | int | None = Field(
        default=None,
        description="chance level, such as 0.9; a median that is not better is at chance level",
    )
    samples: Annotated[int, Field(gt=0)] | None = Field(
        default=None,
        description="samples on which an error was measured, for runs that did not record it",
    )
    margin: FiniteFloat | int | str | None = Field(
        default=None,
        description="largest difference that counts as equivalent: in the metric's unit, or as "
        "'5 %' of the reference's median, which on the scale `log` is a ratio of 1.05",
    )
    scale: Literal["log", "decibels"] | None = Field(
        default=None,
        description="log: positive values, such as errors over decades, are compared by their "
        "ratio; decibels: values are divided as mean squared errors",
    )


class Primary(Part):
    """The column of the table that answers the study's question."""

    metric: str = Field(description="metric of a ranked column")
    at: At = Field(default="last", description="`at` of that column")
    condition: str = Field(default="", description="`condition` of that column")


class Value(Part):
    """A published value."""

    # Whose value it is, and what was measured
    where: dict[str, Any] = Field(default={}, description="grid keys and values")
    metric: str = Field(
        description="metric of the column beside which the value is printed"
    )
    at: At = Field(default="last", description="`at` of that column")
    condition: str = Field(default="", description="`condition` of that column")
    value: FiniteFloat | int = Field(
        description="the published value, as a fraction if ours is one; a mean if `sd` is set"
    )
    sd: FiniteFloat | int | None = Field(
        default=None, ge=0, description="published standard deviation over runs"
    )


class Published(Part):
    """Values published in the papers."""

    source: str = Field(default="", description="where the values are printed")
    values: list[Value] = Field(default=[], description="the values")


class Curves(Part):
    """A file of published curves."""

    file: str = Field(
        description="CSV file with the columns `panel`, `act`, `curve`, `epoch`, `value`"
    )
    names: dict[str, str] = Field(
        default={},
        description="our value of `lines` → value of the file's column `act`",
    )
    stretch: FiniteFloat = Field(
        default=1.0, gt=0, description="our epochs per published epoch"
    )


class Drawn(Part):
    """Settings that a figure sets for all panels, and a panel may override."""

    # What is drawn
    y: dict[str, str | None] | None = Field(
        default=None, description="metric → its published curve, or null"
    )
    x: str = Field(
        default="epoch", description="epoch, or a key of the metrics' conditions"
    )
    xlabel: str | None = Field(default=None, description="label of the x axis")
    at: At = Field(default="last", description="where values over a condition are read")
    condition: str = Field(
        default="", description="the condition of the drawn metrics, such as `layer=2`"
    )

    # How it is drawn
    label: str | None = Field(default=None, description="label of the y axis")
    percent: bool = Field(default=False, description="draw values times 100")
    log: bool = Field(default=False, description="a logarithmic y axis")


class PanelPart(Drawn):
    """One pair of axes."""

    title: str = Field(default="", description="title, and name in `curves.csv`")
    where: dict[str, Any] = Field(
        default={}, description="grid keys and values: draw only these grid points"
    )
    ylim: list[FiniteFloat | int] | None = Field(
        default=None,
        min_length=2,
        max_length=2,
        description="lower and upper end of the y axis",
    )
    published: str | None = Field(
        default=None,
        description="value of the column `panel` in the file of published curves",
    )


class Figure(Drawn):
    """A figure of ``study report``."""

    name: str = Field(default="curves", pattern=NAME, description="name of the files")
    lines: str | None = Field(
        default=None, description="a grid key: a line for each of its values"
    )
    fixed: dict[str, Any] = Field(
        default={}, description="tuned values to draw instead of the selected values"
    )
    panels: list[PanelPart] = Field(
        default=[],
        description="the panels; default: one panel with the figure's own keys",
    )
    published: Curves | None = Field(
        default=None, description="published curves to draw below ours"
    )
    caption: str = Field(default="", description="text to add to the figure's caption")


class File(Part):
    """A study: its runs, the selection of their settings, and its tables and figures."""

    title: str | None = Field(
        default=None, description="one line for tables and figures"
    )
    tags: list[str] = Field(
        default=[], description="tags of the runs in loggers: paper, dataset"
    )
    base: str | None = Field(
        default=None, description="the config of every run: a path, or a config's name"
    )

    # Which runs there are
    set: dict[str, Any] = Field(
        default={}, description="dotted config keys set in every run"
    )
    grid: dict[str, Any] | Annotated[list[dict[str, Any]], Blocks] | None = Field(
        default=None,
        description="dotted config key → values: a run for each combination and seed",
    )
    blocks: Annotated[list[BlockPart], Blocks] | None = Field(
        default=None,
        description="grids with base configs of their own, instead of `grid`: other networks or "
        "tasks",
    )
    seeds: Any = Field(default=5, json_schema_extra=_SEEDS)

    # What is compared, and selected before
    compare: str = Field(
        default="",
        description="the grid key that is compared, or block; default: the first key not tuned",
    )
    select: Select = Field(
        default=Select(),
        description="which grid keys are tuned rather than compared, and by what",
    )
    stages: list[StagePart] = Field(
        default=[],
        description="parts that run in order, each at what the stage before it has selected",
    )

    # What is measured after training
    probes: list[ProbePart] = Field(
        default=[], description="evaluations of checkpoints after training"
    )
    keep: list[Place] = Field(
        default=[], description="checkpoints to keep: last, best, or numbers of epochs"
    )

    # What tables and figures show
    table: list[ColumnPart] = Field(
        default=[ColumnPart(metric="test/error", percent=True)],
        description="columns of the table",
    )
    primary: Primary | None = Field(
        default=None,
        description="the column that answers the study's question; default: the first that is "
        "ranked",
    )
    published: Published = Field(
        default=Published(), description="values of a paper, printed beside ours"
    )
    figures: list[Figure] = Field(
        default=[], description="figures of `actlab study report`"
    )
    reference: str | None = Field(
        default=None,
        description="the compared value that the others are tested against",
    )
    notes: list[str] = Field(
        default=[], description="sentences printed below the table"
    )

    # How it is tried
    smoke: dict[str, Any] = Field(
        default={}, description="dotted config keys set by --smoke"
    )


def checked(values: Mapping[str, Any], path: Path) -> File:
    """Check the keys and types of a study file; raise an ActlabError for the first error."""
    try:
        file = File.model_validate(values)
    except ValidationError as error:
        raise _one_line(error, path) from error

    # Keys that depend on each other
    if (file.grid is None) == (file.blocks is None):
        got = "neither" if file.grid is None else "both"
        raise ActlabError(f"{path}: expected one of 'grid' and 'blocks', got {got}.")
    blocks = file.blocks or []
    has_base_per_block = len(blocks) > 0 and all(block.base for block in blocks)
    if file.base is None and not has_base_per_block:
        raise ActlabError(f"{path}: expected 'base' and 'grid', got no 'base'. Add it.")
    return file


def without_stages(file: File) -> File:
    """Return a study file without stages.

    It has the seeds of the first stage and the settings of the last stage.
    """
    if not file.stages:
        return file

    # The settings of the last stage
    settings = file.stages[-1].set
    blocks = []
    for block in file.blocks or ():
        blocks.append(block.model_copy(update={"set": {**block.set, **settings}}))
    changes: dict[str, Any] = {
        "set": {**file.set, **settings},
        "blocks": blocks or None,
        "stages": [],
    }

    # The seeds of the first stage
    seeds = file.stages[0].seeds
    if seeds is not None:
        changes["seeds"] = seeds
    return file.model_copy(update=changes)


def stated(part: Part) -> dict[str, Any]:
    """Return the values that a file sets explicitly in a part, without defaults."""
    return part.model_dump(exclude_unset=True)


def json_schema() -> str:
    """Return the JSON schema for editors that complete and check YAML."""
    return json.dumps(File.model_json_schema(), indent=1) + "\n"


def _one_line(error: ValidationError, path: Path) -> ActlabError:
    """Return the first error of a study file, with all types that the value may have."""
    faults = error.errors()
    location = _location(faults[0])
    # pydantic's message does not suggest a similar key
    if faults[0]["type"] == "extra_forbidden":
        return _unknown_key(location, path)

    # The value may have several types, each with a message
    expectations = []
    for fault in faults:
        if _location(fault) == location:
            expectations.append(expectation(fault["msg"]))
    expected = alternatives(expectations)

    # A missing key has no value to show
    key = ".".join(map(str, location))
    value = "none"
    if faults[0]["type"] != "missing":
        value = short_repr(faults[0]["input"])
    return ActlabError(f"{key} in {path}: expected {expected}, got {value}.")


def _unknown_key(location: list[str | int], path: Path) -> ActlabError:
    """Return the error for a key that no part of a study file has there."""
    *outer, key = location
    names = [name for name in outer if isinstance(name, str)]
    part = names[-1] if names else ""
    fields = _PARTS[part].model_fields
    # Of a figure, these are curves; of a study, values
    if part == "published" and "figures" in outer:
        fields = Curves.model_fields
    kind = f"key of '{part}'" if part else "study key"
    return unknown(kind, str(key), fields, f"Change it in {path}.")


def _location(error: Any) -> list[str | int]:
    """Return the keys and indices of an error in a file, without the names of the tried types."""
    location: list[str | int] = []
    for part in error["loc"]:
        if part in ("int", "str", "float", "finite-float"):
            continue
        # The name of a tried type, such as ``list[int]``; types of its items follow
        if isinstance(part, str) and "[" in part:
            break
        location.append(part)
    return location


_PARTS: dict[str, type[Part]] = {
    "": File,
    "select": Select,
    "blocks": BlockPart,
    "stages": StagePart,
    "probes": ProbePart,
    "table": ColumnPart,
    "primary": Primary,
    "published": Published,
    "values": Value,
    "figures": Figure,
    "panels": PanelPart,
}
