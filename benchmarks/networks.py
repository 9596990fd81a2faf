"""Memory of a training step of the large networks: weights, and what a batch stores.

    python benchmarks/networks.py [CONFIG ...] [--batch 8]

Each network as its config has it, at the paper's widths, on pictures of the sample and in float32
on the CPU (the last layer has as many units as the sample has classes). One real step (forward,
backward, optimiser) is taken by the Trainer in a process of its own. ``weights_mib`` are the
parameters, their gradients and the optimiser's state; ``kept_mib_an_image`` is what the forward
pass keeps for the backward pass; ``peak_mib`` what the process took at most, Python and torch
included.
"""

from __future__ import annotations

import argparse
import logging
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch
from figures import show

from actlab import experiments
from actlab.checks.cost import first_batch, kept_for_backward
from actlab.config.paths import set_dotted
from actlab.storage.mappings import read_mapping
from actlab.storage.resources import config_file

NAMES = ("cifar10_convnet", "cifar100_wrn", "cifar100_elu11", "cifar100_elu18", "imagenet_elu15")
BATCH = 8
MIB = 2**20
CHANGES = {
    "data.init_args.sample": True,
    "trainer.max_epochs": 1,
    "trainer.limit_train_batches": 1,
    "trainer.limit_val_batches": 0,
    "trainer.logger": False,
    "trainer.callbacks": [],
    "trainer.enable_progress_bar": False,
    "trainer.enable_model_summary": False,
    "trainer.enable_checkpointing": False,
    "trainer.accelerator": "cpu",
}


def measure(name: str, batch: int = BATCH) -> dict[str, float]:
    """All figures of one config; to be called once in a process, whose peak it takes.

    Returns:
        ``parameters``, ``weights_mib``, ``kept_mib_an_image``, ``peak_mib`` and ``seconds`` of the
        step.
    """
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    config = read_mapping(config_file(name))
    for key, value in (CHANGES | {"data.init_args.batch_size": batch}).items():
        set_dotted(config, key, value)
    built = experiments.build(config)
    batch = first_batch(built)
    kept = kept_for_backward(lambda: built.task.loss(batch), built.task.parameters())
    start = time.perf_counter()
    built.trainer.fit(built.task, datamodule=built.data)
    seconds = time.perf_counter() - start
    held = list(built.task.parameters())
    state = [
        s
        for of in built.trainer.optimizers[0].state.values()
        for s in of.values()
        if torch.is_tensor(s)
    ]
    size = sum(t.nbytes for t in (*held, *(p.grad for p in held if p.grad is not None), *state))
    return {
        "parameters": sum(p.numel() for p in held),
        "weights_mib": size / MIB,
        "kept_mib_an_image": kept / batch / MIB,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB,
        "seconds": seconds,
    }


def main() -> None:
    """Measure and print, one figure a line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", nargs="*", default=NAMES, help="a name in configs/, or a path")
    parser.add_argument("--batch", type=int, default=BATCH)
    given = parser.parse_args()
    for name in given.config:
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            print(f"{name}, a batch of {given.batch}")
            show(process.submit(measure, name, given.batch).result())


if __name__ == "__main__":
    main()
