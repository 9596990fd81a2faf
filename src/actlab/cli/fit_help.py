"""The first page of the help of ``actlab fit``: the usual options, which LightningCLI's follow."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import fill

from actlab import activations
from actlab.storage.resources import names_in

# By command
_SUMMARIES = {
    "fit": "Train one network.",
    "validate": "Evaluate a network on validation data.",
    "test": "Evaluate a network on test data.",
    "predict": "Write a table of predictions, one row per sample.",
}
# Printed before LightningCLI's own help
_USAGE = """\
actlab {command} -c CONFIG [--KEY VALUE …]

{summary} A config is complete, and each of its keys is an option.

  -c, --config CONFIG           a YAML file, or a config that ships with actlab (below); \
later ones override
  --model.activation NAME       a registered activation (below), package.module:Name \
or ./file.py:Name
  --data.dataset DATASET        a hub id, a folder in the hub's layout, or class folders
  --data.sample true            use the sample that ships with actlab
  --trainer.max_epochs N        number of epochs
  --seed_everything N           the seed of initial weights, data order and masks
  --model.optimizer.lr LR       the learning rate
  --trainer.precision bf16-mixed
  --trainer.devices N           with --trainer.accelerator cpu | gpu
  --trainer.logger false        log nothing; by default Weights & Biases, offline without an account
  --ckpt_path CHECKPOINT        last, best or a file: resume a fit, or evaluate what it trained
  --trust                       let a checkpoint name any class and file, which are then \
imported and run
  --products auto               multiply float32 matrices by the faster library that is as \
accurate, measured
  --graphs true                 replay updates on a GPU as CUDA graphs; default: where these \
were shown right
  --print_config                print the resolved config and run nothing
  --model.help [CLASS]          list the arguments of the config's class, or of any; --data.help too

{configs}
{activations}

Examples:
  actlab {command} -c mnist_classifier --data.sample true --model.activation gelu{checkpoint}
  actlab {command} -c mnist_classifier --data.dataset FOLDER \
--model.activation ./file.py:Name{checkpoint}
"""


def usage(command: str) -> str:
    """Return the usual options of a command, with the names of configs and activations."""
    return _USAGE.format(
        command=command,
        summary=_SUMMARIES[command],
        configs=_listed("Configs", names_in("configs")),
        activations=_listed("Activations", activations.names()),
        checkpoint="" if command == "fit" else " --ckpt_path FILE",
    )


def _listed(title: str, names: Iterable[str]) -> str:
    """Return names as a paragraph of lines of at most 110 characters."""
    return fill(f"{title}: {', '.join(names)}.", 110, subsequent_indent="  ")
