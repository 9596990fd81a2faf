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
from actlab.storage.logger_ids import id_in
from actlab.storage.paths import at_home
from actlab.studies.plan import Study

_HOST = "api.wandb.ai"
PATIENCE = 30.0  # seconds to wait for W&B before the run is kept offline
_COUNTERS = ("epoch", "trainer/global_step")
_COMPARED = {  # name → key of a run's config; dashboards group and filter by these
    "activation": "model.activation",
    "lr": "model.optimizer.lr",
    "dropout": "model.network.dropout",
    "seed": "seed_everything",
}


class RunLogger(WandbLogger):
    """Lightning's W&B logger with a separate run per instance, so that one process may have several.

    Args:
        project: where the run appears; by default ``WANDB_PROJECT``, or actlab.
        name: name of the run; by default ``WANDB_NAME``, or one that W&B generates.
        save_dir: folder in which ``wandb/`` is created.
        group: runs of one group are folded together; a study's name, for example.
        tags: words for filtering.
        offline: whether to keep the history on disk for ``wandb sync``. By default ``WANDB_MODE``
            decides if it is set; otherwise the run is online if an account is found
            (``WANDB_API_KEY``, or W&B's host in the netrc file).
        id: id of the run; a resumed run keeps its id. Offline, each start creates a folder with
            this id, and ``wandb sync`` uploads them one after the other.
        entity: user or team; by default that of the account.
        notes: a sentence about the run.
        log_model: whether to upload checkpoints, ``all`` for every checkpoint; requires ``offline``
            to be False.
        job_type: kind of run within its group.
        system_metrics: whether to log the use of processors, memory and accelerators.
        modes: ``min`` or ``max`` for metrics, by full name or without the split; by default the
            last word of the name decides. The summary has no best value of a metric of which
            neither is known.
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
            Path(str(self.save_dir)).mkdir(parents=True, exist_ok=True)
            run = self._start_run()
            run.define_metric("trainer/global_step")
            run.define_metric("*", step_metric="trainer/global_step", step_sync=True)
            self._experiment = run
            # `url` of an offline run prints a warning
            place = run.url if self._mode == "online" else run.dir
            rank_zero_info(f"W&B ({self._mode}): {place or run.dir}")
        return self._experiment

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a process that Lightning spawns, which starts or resumes the run."""
        if self._experiment is not None:
            self.finalize("success")
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
        if self._mode == "online":
            try:
                return wandb.init(**arguments, settings=settings)
            except wandb.errors.Error as error:
                self._mode = "offline"
                rank_zero_info(f"W&B cannot be used, the run is kept offline: {one_line(error)}")
        del arguments["resume"]  # has no effect offline except a warning
        return wandb.init(**arguments | {"mode": self._mode}, settings=settings)

    @rank_zero_only
    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Record the nested config, and again at top level the keys by which runs are compared."""
        nested = shareable(params)
        self.experiment.config.update({**compared(nested), **nested}, allow_val_change=True)

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Record values at a step; a table is in no summary."""
        for name, value in metrics.items():
            if not isinstance(value, wandb.Table):
                self._logged.setdefault(name, []).append(float(value))
        super().log_metrics(metrics, step)

    @rank_zero_only
    def log_summary(self, values: Mapping[str, Sequence[float]], diverged: bool = False) -> None:
        """Write the summary of the whole run: ``last/val/loss`` and ``best/val/loss`` for each metric.

        ``values`` are in the order of the steps, including those before a resume. nan counts as the
        worst value. For a diverged run, last and best are the worst value, as in tables.
        """
        self._logged, self._diverged = (
            {name: list(series) for name, series in values.items()},
            diverged,
        )
        self._write_summary()

    def _write_summary(self) -> None:
        summary, logged = self.experiment.summary, self._logged.items()
        for name, series in (
            (name, series) for name, series in logged if name not in _COUNTERS and series
        ):
            mode = mode_of(name, self._modes)
            if is_parameter(name) or not mode:  # neither good nor bad, or unknown
                summary[f"last/{name}"] = series[-1]
                continue
            high = mode == "max"
            known = [value for value in series if value == value]
            best = (max if high else min)(known, default=series[-1])
            worst = -math.inf if high else math.inf
            summary[f"last/{name}"] = worst if self._diverged else series[-1]
            summary[f"best/{name}"] = worst if self._diverged else best

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Close the run so that its files are complete; later logging resumes it under its id."""
        super().finalize(status)
        if self._experiment is not None:
            self._write_summary()
            self._id = self._wandb_init["id"] = self.experiment.id
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
    """Log a study's table and PNG pictures as a run of its group; ``stage`` is the name of an earlier stage."""
    logger = RunLogger(
        name="-".join(filter(None, (study.name, stage, "report"))),
        save_dir=str(folder),
        group=study.name,
        tags=study.tags,
        job_type="report",
        id=id_in(folder),
    )
    images = {f"figures/{path.stem}": wandb.Image(str(path)) for path in pictures}
    table = wandb.Table(columns=list(head), data=[list(row) for row in rows])
    logger.experiment.log({"table": table, **images})
    logger.finalize("success")


def compared(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what runs are compared by: activation, learning rate, dropout and seed, if the config has them."""
    values = {name: get_dotted(config, key) for name, key in _COMPARED.items()}
    known = {name: value for name, value in values.items() if value is not None}
    return {name: label(value) if name == "activation" else value for name, value in known.items()}


def mode(offline: bool | None = None) -> str:
    """Return W&B's mode: as requested, else ``WANDB_MODE``, else online if an account is found."""
    if offline is not None:
        return "offline" if offline else "online"
    if given := os.environ.get("WANDB_MODE"):
        return "offline" if given == "dryrun" else given
    return "online" if os.environ.get("WANDB_API_KEY") or _in_netrc() else "offline"


def default_entity() -> str:
    """Return the default user or team of the account that is logged in."""
    return str(wandb.Api().default_entity)


def _in_netrc() -> bool:
    path = at_home(os.environ.get("NETRC", "~/.netrc"))
    host = os.environ.get("WANDB_BASE_URL", _HOST).partition("//")[2].partition("/")[0] or _HOST
    try:
        return host in netrc.netrc(regular(path)).hosts
    except (OSError, netrc.NetrcParseError):
        return False
