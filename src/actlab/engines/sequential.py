"""Train one run with its own Trainer and record it in its folder."""

from __future__ import annotations

from pathlib import Path

from actlab import experiments
from actlab.engines.recording import LoggerFactory, Progress, Recorder
from actlab.runtime import signals
from actlab.runtime.devices import SMALL, rank, threads, threads_for
from actlab.storage.checkpoints import AtomicCheckpointIO, read
from actlab.studies.folders import RunFolder
from actlab.studies.plan import Run


def train(
    run: Run, root: Path, progress: Progress, logger: LoggerFactory | None = None, number: int = 0
) -> None:
    """Train one run to completion, resuming from its last checkpoint; a diverged run is recorded as such.

    ``number`` is that of torch's threads; 0 chooses it by the batch size.
    """
    folder = RunFolder(root, run)
    if rank() == 0:
        folder.open()
    made = logger(run) if logger else None  # before the run is built, which leaves the generators seeded
    recorder = Recorder([folder], folder.checkpoint, progress, folder.remedy)
    trainer, task, data = experiments.build(run.config, callbacks=[recorder], default_root_dir=str(folder.path))
    if made is not None:
        trainer.logger = made
    if isinstance(writer := trainer.strategy.checkpoint_io, AtomicCheckpointIO):
        writer.remedy = folder.remedy
    resume = folder.checkpoint if not folder.finished and folder.checkpoint.exists() else None
    if resume and "optimizer_states" not in read(resume, remedy=folder.remedy):
        resume = None  # weights of a run whose result was deleted
    number = number or threads_for(getattr(data, "batch_size", None) or SMALL)
    with threads(number), signals.measured(lambda: recorder.parts(trainer)):
        trainer.fit(task, datamodule=data, ckpt_path=resume)
    if trainer.is_global_zero:
        recorder.close(trainer)
