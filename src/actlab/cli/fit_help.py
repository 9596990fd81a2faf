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
OPTIONS = "LightningCLI lists all options:"
_USAGE = """\
actlab {command} -c CONFIG [--KEY VALUE …]

{summary} Each key of the config is an option; these are the usual ones.

config:
  -c, --config CONFIG           a YAML file, or a bundled config (below); later ones override
  --print_config                print the resolved config and run nothing
  --model.help [CLASS]          list the arguments of the model, or of CLASS; --data.help too

model and data:
  --model.activation NAME       a name (below), package.module:Name or ./file.py:Name
  --model.optimizer.lr LR       learning rate
  --data.dataset DATASET        a Hugging Face Hub id, a folder in its layout, or class folders
  --data.sample true            use the bundled sample

training:
  --trainer.max_epochs N        number of epochs
  --seed_everything N           seed of initial weights, data order and masks
  --trainer.devices N           number of devices, with --trainer.accelerator cpu | gpu
  --trainer.precision P         32-true, bf16-mixed or another precision of Lightning
  --trainer.logger false        log nothing; default: Weights & Biases, offline without an account
  --products auto               use the faster float32 matmul backend that is as accurate
  --graphs true                 replay updates on a GPU as CUDA graphs; default: on devices with \
proven graphs

checkpoint:
  --ckpt_path CHECKPOINT        last, best or a file: resume a fit, or evaluate its network
  --trust                       let a checkpoint name any class and file, which are then \
imported and run

{configs}
{activations}

examples:
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
