"""The top level of a config: its keys, its classes, and values that other sections determine."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.cli import LightningCLI

from actlab.config.class_paths import class_of
from actlab.config.paths import get_dotted
from actlab.config.signatures import classes_in, find, parameters
from actlab.errors import ActlabError
from actlab.errors.messages import not_a_class, short_repr, unknown

SEED = "seed_everything"
# The arguments of the model that come from the data if the config has none.
SHAPES = ("num_classes", "num_outputs", "input_shape")
SECTIONS = {"model": pl.LightningModule, "data": pl.LightningDataModule}
PACKAGES = {"model": "actlab.tasks", "data": "actlab.datamodules"}
# LightningCLI's keys for settings that are arguments of actlab's tasks; they would
# override those arguments.
MOVED = {"optimizer": "model.optimizer", "lr_scheduler": "model.scheduler"}
FILES = (".yaml", ".yml", ".json")


def top_level(command: str | None = None) -> tuple[str, ...]:
    """Return the top-level keys of a config, with the arguments of a command such as ``fit``."""
    keys = (SEED, "trainer", *SECTIONS)
    if command:
        keys += arguments_of(command)
    return keys


@cache
def arguments_of(command: str) -> tuple[str, ...]:
    """Return the text and boolean arguments of a command, such as ``ckpt_path`` and ``verbose``."""
    skipped = {"self", *LightningCLI.subcommands()[command]}
    # Read from Lightning, whose versions differ
    taken = inspect.signature(getattr(pl.Trainer, command)).parameters
    return tuple(key for key in taken if key not in skipped)


def replaced_seeds(config: Mapping[str, Any], seed: int | None = None) -> list[str]:
    """Return a note for each class whose default seed is not ``seed``, the seed of the run."""
    # Only an argument `seed` can have another default
    notes = []
    for section, kind in SECTIONS.items():
        path = str(class_of(config[section]))
        owner = find(path, (kind,), section)
        argument = (parameters(owner) or {}).get("seed")
        if argument is None:
            continue

        # The default is not used
        default = argument.default
        if isinstance(default, int) and default != seed:
            notes.append(
                f"{section}.seed is the seed of the run, not {path}'s default {default}"
            )
    return notes


def check(config: Mapping[str, Any], command: str | None = None) -> None:
    """Check the top level of a config, with the arguments of a ``command`` such as ``fit``.

    Without a command the config is only built.
    """
    _check_keys(config, command)

    # Trainer
    trainer = config.get("trainer", {})
    if not isinstance(trainer, Mapping) and not _is_file(trainer):
        text = "null" if trainer is None else repr(trainer)
        raise ActlabError(
            f"trainer: expected a mapping of arguments of Lightning's Trainer, got {text}. Set "
            "them, or remove the key."
        )

    # Model and data
    for section in SECTIONS:
        _check_section(config, section)


def _check_section(config: Mapping[str, Any], section: str) -> None:
    """Check that a config names the class of its model or data, and leaves the seed to the run."""
    value = config.get(section)
    if value is None:
        message = (
            f"{section}: expected a class, got none. "
            f"Add -c CONFIG, or pass --{section} CLASS."
        )
        # Users of Lightning may expect the module's own loaders to do
        if section == "data":
            message += " Move a module's own data loaders into a LightningDataModule."
        raise ActlabError(message)
    if not isinstance(value, Mapping | str):
        raise not_a_class(value, section)
    # A second seed could contradict the first one
    if get_dotted(config, f"{section}.seed") is not None:
        raise ActlabError(
            f"{section}.seed cannot be set, because it is {SEED}. Set {SEED}."
        )


def _check_keys(config: Mapping[str, Any], command: str | None) -> None:
    keys = top_level(command)
    for key, value in config.items():
        # LightningCLI's optimiser and schedule
        if (
            key in MOVED
            and value is not None
            and not (command and _lacks_optimizers(config))
        ):
            raise ActlabError(
                f"{key!r} at the top level would override the model's setting. Set {MOVED[key]} "
                "instead, or build it in configure_optimizers of a user-defined model."
            )

        # Other keys
        if key not in keys and key not in MOVED:
            raise unknown("top-level config key", str(key), keys)
        # All arguments of a command are switches
        is_flag = key not in (*top_level(), "ckpt_path", *MOVED)
        if is_flag and value not in (None, True, False):
            raise ActlabError(
                f"{key}: expected true, false or null, got {short_repr(value)}."
            )


def _lacks_optimizers(config: Mapping[str, Any]) -> bool:
    configure = getattr(class_at(config, "model"), "configure_optimizers", None)
    return configure is pl.LightningModule.configure_optimizers


def _is_file(value: Any) -> bool:
    return isinstance(value, str) and value.endswith(FILES)


def gives(config: Mapping[str, Any], name: str) -> bool:
    """Return whether a config sets an argument of the model."""
    return get_dotted(config, f"model.{name}") is not None


def class_at(config: Mapping[str, Any], key: str) -> Any:
    """Return the class that a config names at a dotted key, or None if it cannot be found."""
    # A file is read later, by the parser
    path = class_of(get_dotted(dict(config), key))
    if not isinstance(path, str) or _is_file(path):
        return None
    if key in PACKAGES and "." not in path:
        import_module(PACKAGES[key])  # a bare name is one of an imported class
    bases = _bases_at(config, key)
    if bases:
        with suppress(ActlabError):  # `check` raises it
            return find(path, bases, key)
    return None


def _bases_at(config: Mapping[str, Any], key: str) -> tuple[type, ...]:
    """Return the base classes of the objects that the class above a dotted key accepts there."""
    if key in SECTIONS:
        return (SECTIONS[key],)

    # The class above takes the object as an argument
    above, _, name = key.rpartition(".")
    if above == "trainer":
        owner = pl.Trainer
    else:
        owner = class_at(config, above)
    if owner is None:
        return ()

    # Empty if the class does not have the argument
    argument = (parameters(owner) or {}).get(name)
    if argument is None:
        return ()
    return tuple(classes_in(argument.annotation))


def linked_shapes(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the shapes that the model may accept, by its signature, and the config lacks."""
    model = class_at(config, "model")
    accepted = None if model is None else parameters(model)
    shapes = []
    for name in SHAPES:
        is_accepted = accepted is None or name in accepted
        if is_accepted and not gives(config, name):
            shapes.append(name)
    return tuple(shapes)


def sample_replaces_dataset(config: Mapping[str, Any]) -> bool:
    """Return whether the datamodule's class declares that ``sample`` replaces ``dataset``."""
    return bool(getattr(class_at(config, "data"), "sample_replaces_dataset", False))
