"""``actlab completion bash | zsh | fish``: print a shell script that completes commands, options and names."""

from __future__ import annotations

from argparse import Action, ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import shtab

from actlab.cli.commands import COMMANDS, FITS
from actlab.errors import Parser
from actlab.storage.mappings import read_mapping
from actlab.storage.resources import names_in, resource

SHELLS = ("bash", "zsh", "fish")
# Common Trainer arguments, in addition to those that configs set.
_TRAINER = (
    *("accelerator", "accumulate_grad_batches", "default_root_dir", "devices", "fast_dev_run"),
    *("gradient_clip_val", "limit_train_batches", "limit_val_batches", "max_steps", "num_nodes", "precision"),
    "strategy",
)


def main(argv: Sequence[str]) -> None:
    """Print the completion script of a shell."""
    print(shtab.complete(everything(), parser().parse_args(argv).shell))


def parser() -> Parser:
    """Return the argument parser of ``actlab completion``."""
    found = Parser(
        prog="actlab completion",
        description="Print a shell script that completes commands, options and names.",
        examples=[
            "actlab completion bash > ~/.local/share/bash-completion/completions/actlab",
            "actlab completion zsh > ~/.zfunc/_actlab      # with ~/.zfunc in fpath",
            "actlab completion fish > ~/.config/fish/completions/actlab.fish",
        ],
    )
    found.add_argument("shell", choices=SHELLS)
    return found


def everything() -> ArgumentParser:
    """Return one parser with all commands, for completion only."""
    from actlab.activations import names
    from actlab.cli.data import DATA

    top = ArgumentParser(prog="actlab")
    commands, fit = top.add_subparsers(), _fit()
    offered = {
        "FILE": _words_or_files("studies", names_in("configs/studies"), "*.yaml"),
        "CONFIG": _words_or_files("configs", names_in("configs"), "*.yaml"),
        "NAME": _words_or_files("units", names(), "*.py"),
        "DIR": shtab.DIRECTORY,
    }
    for name, module in COMMANDS.items():
        part = fit if name in FITS else import_module(module).parser()
        whole = commands.add_parser(name, parents=[part], add_help=False, help=part.description)
        for action in _actions(whole):
            if name == "data" and action.dest == "name":
                action.choices = list(DATA)
            elif action.dest != "stage" and action.metavar in offered:
                action.complete = offered[action.metavar]  # type: ignore[attr-defined]
    return top


def _fit() -> ArgumentParser:
    """Return a parser of the options in configs; LightningCLI's parser is too large and slow to import."""
    found = ArgumentParser(description="one network")
    found.add_argument("-c", "--config", metavar="CONFIG", help="a config that ships with actlab, or a file")
    found.add_argument("--ckpt_path", metavar="CHECKPOINT", help="last, best or a file")
    configs = [read_mapping(path) for path in sorted(resource("configs").glob("*.yaml"))]
    keys = {key for config in configs for key in _keys(config)} | {f"trainer.{name}" for name in _TRAINER}
    for key in sorted(keys):
        found.add_argument(f"--{key}", metavar="NAME" if key == "model.activation" else "VALUE")
    return found


def _keys(node: Mapping[str, Any], before: str = "") -> Iterator[str]:
    """Yield the dotted keys of a config in the form of options."""
    for key, value in node.items():
        name = before if key == "init_args" else f"{before}.{key}".strip(".")
        if isinstance(value, dict):
            yield from _keys(value, name)
        elif key != "class_path":
            yield name


def _actions(parser: ArgumentParser) -> Iterator[Action]:
    """Yield the actions of a parser and of its subparsers."""
    for action in parser._actions:
        yield action
        if isinstance(action.choices, dict):
            for inner in action.choices.values():
                yield from _actions(inner)


def _words_or_files(name: str, words: Sequence[str], pattern: str) -> dict[str, Any]:
    """Return the shell code that completes to one of ``words`` or to a file that matches ``pattern``."""
    function, listed = f"_actlab_{name}", " ".join(words)
    return {
        "bash": function,
        "zsh": function,
        "fish": f"(printf '%s\\n' {listed}; __fish_complete_suffix {pattern[1:]})",
        "preamble": {
            "bash": f"""
{function}() {{
  compgen -W "{listed}" -- "$1"
  compgen -f -X '!{pattern}' -- "$1"
  compgen -d -- "$1"
}}
""",
            "zsh": f"""
{function}() {{
  _alternative '{name}:{name}:({listed})' 'files:file:_files -g "{pattern}"'
}}
""",
        },
    }
