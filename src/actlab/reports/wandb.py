"""Weights & Biases logger that works without an account; the only module that imports wandb."""

from __future__ import annotations

import math
import netrc
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import wandb
from lightning_fabric.loggers.logger import rank_zero_experiment
from pytorch_lightning.loggers import WandbLogger
from pytorch_lightning.utilities import rank_zero_info, rank_zero_only

from actlab.config.labels import label
from actlab.config.metrics import is_parameter, mode_of
from actlab.config.paths import get_dotted
from actlab.config.values import shareable
from actlab.errors.messages import one_line
from actlab.storage.files import regular
from actlab.storage.logger_ids import ensure_id
from actlab.storage.paths import at_home
from actlab.studies.plan import Study

_HOST = "api.wandb.ai"
PATIENCE = 30.0  # seconds to wait for W&B before the run is stored offline
_COUNTERS = ("epoch", "trainer/global_step")
_COMPARED = {  # name → key of a run's config; dashboards group and filter by these
    "activation": "model.activation",
    "lr": "model.optimizer.lr",
    "dropout": "model.network.dropout",
    "seed": "seed_everything",
}


class RunLogger(WandbLogger):
    """Lightning's W&B logger with a run for each instance: a process may have several.

    Args:
        project: where the run appears; by default ``WANDB_PROJECT``, or actlab.
        name: name of the run; by default ``WANDB_NAME``, or one that W&B generates.
        save_dir: folder in which ``wandb/`` is created.
        group: runs of one group are folded together; a study's name, for example.
        tags: words for filtering.
        offline: whether to store the history on disk for ``wandb sync``. By default ``WANDB_MODE``
            decides if it is set; otherwise the run is online if an account is found
            (``WANDB_API_KEY``, or W&B's host in the netrc file).
        id: id of the run; a resumed run keeps its id. Offline, each start creates a folder with
            this id, and ``wandb sync`` uploads them one after the other.
        entity: user or team; by default the user of the account.
        notes: a sentence about the run.
        log_model: whether to upload checkpoints, ``all`` for every checkpoint; requires ``offline``
            to be False.
        job_type: kind of run within its group.
        system_metrics: whether to log the use of processors, memory and accelerators.
        modes: ``min`` or ``max`` for metrics, by full name or without the split; by default the
            last word of the name decides. The summary has no best value of a metric without a
            mode.
    """

    def __init__(
        self,
        project: str | None = None,
        name: str | None = None,
        save_dir: str = "runs",
        group: str | None = None,
        tags: Sequence[str] | None = None,
        offline: bool | None = None,
        id: str | None = None,
        entity: str | None = None,
        notes: str | None = None,
        log_model: bool | str = False,
        job_type: str | None = None,
        system_metrics: bool = False,
        modes: Mapping[str, str] | None = None,
    ) -> None:
        # What this class adds to Lightning's
        self._mode = mode(offline)
        self._system_metrics = system_metrics
        self._logged: dict[str, list[float]] = {}
        self._modes = dict(modes or {})
        self._diverged = False
        super().__init__(
            name=name or os.environ.get("WANDB_NAME"),
            # W&B's service may have another working directory
            save_dir=str(Path(save_dir).absolute()),
            id=id,
            offline=self._mode != "online",
            project=project or os.environ.get("WANDB_PROJECT", "actlab"),
            log_model="all" if log_model == "all" else bool(log_model),
            group=group,
            tags=list(tags) if tags else None,
            entity=entity,
            notes=notes,
            job_type=job_type,
        )

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """The wandb run, created on first use."""
        if self._experiment is None:
            # Start the run, with metrics over Lightning's steps
            Path(str(self.save_dir)).mkdir(parents=True, exist_ok=True)
            run = self._start_run()
            run.define_metric("trainer/global_step")
            run.define_metric("*", step_metric="trainer/global_step", step_sync=True)
            self._experiment = run

            # `url` of an offline run prints a warning
            address = run.dir
            if self._mode == "online":
                address = run.url or run.dir
            rank_zero_info(f"W&B ({self._mode}): {address}")
        return self._experiment

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a process that Lightning spawns, which starts or resumes the run."""
        # A run of W&B belongs to one process
        if self._experiment is not None:
            self.finalize("success")
        # Without a copy the spawned process would change this logger
        return self.__dict__.copy()

    def _start_run(self) -> Any:
        arguments = {**self._wandb_init, "mode": self._mode, "reinit": "create_new"}
        del arguments["anonymous"]  # deprecated by wandb

        # No console capture: it would redirect the process's own output once per run.
        # No metadata: command line, folders and host name are private to this machine.
        settings = wandb.Settings(
            silent=True,
            console="off",
            x_disable_meta=True,
            x_disable_stats=not self._system_metrics,
            init_timeout=PATIENCE,
        )

        # Without a connection, log offline from here on
        if self._mode == "online":
            try:
                return wandb.init(**arguments, settings=settings)
            except wandb.errors.Error as error:
                self._mode = "offline"
                rank_zero_info(
                    f"W&B is offline ({one_line(error)}). The run is stored locally."
                )

        arguments["mode"] = self._mode
        del arguments["resume"]  # has no effect offline except a warning
        return wandb.init(**arguments, settings=settings)

    @rank_zero_only
    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Record the nested config, and again at top level the keys by which runs are compared."""
        # Paths of this machine are private
        nested = shareable(params)
        values = {**compared(nested), **nested}
        self.experiment.config.update(values, allow_val_change=True)

    @rank_zero_only
    def log_metrics(
        self, metrics: Mapping[str, float], step: int | None = None
    ) -> None:
        """Record values at a step; a table is in no summary."""
        for name, value in metrics.items():
            if not isinstance(value, wandb.Table):
                # All values, because W&B's own summary has only the last
                self._logged.setdefault(name, []).append(float(value))
        super().log_metrics(metrics, step)

    @rank_zero_only
    def log_summary(
        self, values: Mapping[str, Sequence[float]], diverged: bool = False
    ) -> None:
        """Write the summary of the whole run, such as ``last/val/loss`` and ``best/val/loss``.

        Args:
            values: in the order of the steps, including those before a resume. NaN counts as the
                worst value.
            diverged: whether the run diverged. Its last and best values are the worst value, as in
                tables.
        """
        self._logged = {name: list(series) for name, series in values.items()}
        self._diverged = diverged
        self._write_summary()

    def _write_summary(self) -> None:
        # Counters and empty series have no summary
        summary = self.experiment.summary
        for name, series in self._logged.items():
            if name in _COUNTERS or not series:
                continue

            # A learnt parameter is neither good nor bad
            mode = mode_of(name, self._modes)
            if is_parameter(name) or not mode:
                summary[f"last/{name}"] = series[-1]
                continue

            # Values that are not numbers are no best value
            numbers = [value for value in series if not math.isnan(value)]
            if mode == "max":
                best = max(numbers, default=series[-1])
                worst = -math.inf
            else:
                best = min(numbers, default=series[-1])
                worst = math.inf

            # A diverged run counts as the worst value
            last = series[-1]
            if self._diverged:
                last = best = worst
            summary[f"last/{name}"] = last
            summary[f"best/{name}"] = best

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Close the run so that its files are complete; later logging resumes it under its id."""
        super().finalize(status)
        if self._experiment is not None:
            self._write_summary()
            self._id = self.experiment.id
            self._wandb_init["id"] = self._id
            self.experiment.finish(exit_code=0 if status == "success" else 1)
            self._experiment = None


def publish(
    study: Study,
    folder: Path,
    pictures: Iterable[Path],
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    stage: str = "",
) -> None:
    """Log a study's table and PNG pictures as a run of its group.

    Args:
        study: the study.
        folder: folder of the run.
        pictures: paths of PNG files.
        head: header of the table.
        rows: its rows.
        stage: name of an earlier stage; empty for the last one.
    """
    # Start the run
    name = f"{study.name}-{stage}-report" if stage else f"{study.name}-report"
    logger = RunLogger(
        name=name,
        save_dir=str(folder),
        group=study.name,
        tags=study.tags,
        job_type="report",
        id=ensure_id(folder),
    )

    # Log table and pictures
    table = wandb.Table(columns=list(head), data=list(map(list, rows)))
    contents: dict[str, Any] = {"table": table}
    for path in pictures:
        contents[f"figures/{path.stem}"] = wandb.Image(str(path))
    logger.experiment.log(contents)
    logger.finalize("success")


def compared(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return activation, learning rate, dropout and seed of a config, if it has them.

    Dashboards compare runs by these.
    """
    values = {}
    for name, key in _COMPARED.items():
        value = get_dotted(config, key)
        # A plain network may have no dropout, for example
        if value is None:
            continue
        if name == "activation":
            value = label(value)
        values[name] = value
    return values


def mode(offline: bool | None = None) -> str:
    """Return W&B's mode: as requested, else ``WANDB_MODE``, else online if an account is found."""
    if offline is not None:
        return "offline" if offline else "online"

    # Without a request
    environment_mode = os.environ.get("WANDB_MODE")
    if environment_mode:
        # W&B's older word
        return "offline" if environment_mode == "dryrun" else environment_mode
    if os.environ.get("WANDB_API_KEY") or _in_netrc():
        return "online"
    return "offline"


def default_entity() -> str:
    """Return the default user or team of the account that is logged in."""
    return str(wandb.Api().default_entity)


def _in_netrc() -> bool:
    """Return whether the netrc file has an account at W&B's host."""
    # A server of one's own has another host
    address = os.environ.get("WANDB_BASE_URL", "").partition("//")[2]
    host = address.partition("/")[0] or _HOST
    path = at_home(os.environ.get("NETRC", "~/.netrc"))
    try:
        return host in netrc.netrc(regular(path)).hosts
    except (OSError, netrc.NetrcParseError):
        return False
