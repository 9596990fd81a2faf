"""The help of ``actlab fit``: ten options first, all others by part."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from actlab.config.keys import class_of
from actlab.errors import ActlabError, unknown
from actlab.storage.resources import names_in

if TYPE_CHECKING:
    from actlab.cli.arguments import Option

_WHAT = {
    "fit": "Train one network.",
    "validate": "Evaluate a network on validation data.",
    "test": "Evaluate a network on test data.",
    "predict": "Write a table of predictions, one row per sample.",
}
_BRIEF = """\
usage: actlab {command} -c CONFIG [--KEY VALUE …]

{what} A config is complete, and each of its keys is an option.

  -c, --config CONFIG           a YAML file, or a config that ships with actlab (below); later ones override
  --model.activation NAME       a registered activation (below), package.module:Name or ./file.py:Name
  --data.dataset DATASET        a hub id, a folder in the hub's layout, or class folders
  --data.sample true            use the sample that ships with actlab
  --trainer.max_epochs N        number of epochs
  --seed_everything N           the seed of initial weights, data order and masks
  --model.optimizer.lr LR       the learning rate
  --trainer.precision bf16-mixed
  --trainer.devices N           with --trainer.accelerator cpu | gpu
  --trainer.logger false        log nothing; by default Weights & Biases, offline without an account
  --ckpt_path CHECKPOINT        last, best or a file: resume a fit, or evaluate what it trained
  --trust                       let a checkpoint name any class and file, which are then imported and run
  --products auto               multiply float32 matrices by the faster library that is as accurate, measured
  --print_config                print the resolved config and run nothing

More options:
  --help=trainer                all arguments of Lightning's Trainer
  --model.help, --data.help     the arguments of the classes that -c CONFIG, --model or --data names
  --model.help CLASS            the arguments of any class

{configs}
{units}

Examples:
  actlab {command} -c mnist_classifier --data.sample true --model.activation gelu{more}
  actlab {command} -c mnist_classifier --data.dataset FOLDER --model.activation ./file.py:Name{more}
"""


def show(command: str, options: Sequence[Option]) -> str | None:
    """Print the help that the options ask for, or return the word for which LightningCLI prints it."""
    from actlab.cli.arguments import Words
    from actlab.config.parsing import parser_of

    option = next(option for option in options if option.asks_help)
    part, kind = option.value, None
    if option.name in ("--model.help", "--data.help"):
        part, kind = option.name.removeprefix("--").removesuffix(".help"), option.value
    elif option.name.endswith(".help"):
        return option.word

    if part is None:
        print(brief(command), end="")
    elif part == "trainer":
        parser = parser_of("trainer")
        parser.usage = f"actlab {command} -c CONFIG --trainer.KEY VALUE"
        parser.print_help()
    elif part in ("model", "data"):
        if kind is None:
            given = Words([other for other in options if other is not option], command).given
            kind = class_of(given.get(part))
        if kind is None:
            raise ActlabError(f"{option.word} needs a class: add -c CONFIG, or write --{part}.help CLASS")
        print_page(part, kind)
    else:
        raise unknown("part of the help", part, ("trainer", "model", "data"))
    return None


def print_page(section: str, path: str) -> None:
    """Print what a class of the model or data takes: each argument with its default and description."""
    from importlib import import_module

    from docstring_parser import parse

    from actlab.config import sections
    from actlab.config.signatures import find, parameters

    import_module(sections.PACKAGES[section])  # a bare name is one of an imported class
    owner = find(path, (sections.SECTIONS[section],), section)
    documents = [parse(vars(kind).get("__doc__") or "") for kind in reversed(owner.__mro__)]
    described = [argument for document in documents for argument in document.params]
    texts = {argument.arg_name: argument.description or "" for argument in described}
    print(f"{path}: {documents[-1].short_description or 'its arguments'}\n")
    for name, taken in (parameters(owner) or {}).items():
        print(f"  --{section}.{name} ({'required' if taken.required else f'default: {taken.default}'})")
        if name in texts:
            print(fill(texts[name], 110, initial_indent=" " * 8, subsequent_indent=" " * 8))


def brief(command: str) -> str:
    """Return the first page of the help."""
    from actlab import activations

    return _BRIEF.format(
        command=command,
        what=_WHAT[command],
        configs=fill(f"Configs: {', '.join(names_in('configs'))}.", 110, subsequent_indent="  "),
        units=fill(f"Activations: {', '.join(activations.names())}.", 110, subsequent_indent="  "),
        more="" if command == "fit" else " --ckpt_path FILE",
    )
