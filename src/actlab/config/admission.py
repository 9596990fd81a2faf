"""What a record in a checkpoint, perhaps a stranger's, may name: data, never the user's words.

It names registered activations and classes of the modules in `NAMES`, never a function or a file.
The user allows more by naming the same class, or by trusting the file.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from actlab.config.class_paths import import_path
from actlab.config.paths import OBJECT
from actlab.config.sections import SECTIONS, SEED
from actlab.config.signatures import (
    PLAIN,
    classes_in,
    inner_type,
    is_callable,
    kinds,
    locate,
)
from actlab.errors import ActlabError
from actlab.errors.messages import short_repr

# Modules whose classes a record may name; torchmetrics' classes read no files and fetch
# no models by a name.
NAMES = (
    "actlab",
    "torch.nn",
    "torch.optim",
    "pytorch_lightning",
    "torchmetrics.classification",
    "torchmetrics.regression",
    "torchmetrics.aggregation",
    "torchmetrics.image.psnr",
    "torchmetrics.image.ssim",
)
# Arguments of the Trainer that change results. No callback, logger, plugin, profiler or
# folder is ever taken from a record: they run code or write.
TRAINER = (
    "precision",
    "max_epochs",
    "max_steps",
    "accumulate_grad_batches",
    "gradient_clip_val",
    "gradient_clip_algorithm",
    "val_check_interval",
    "check_val_every_n_epoch",
    "limit_train_batches",
    "limit_val_batches",
    "limit_test_batches",
    "limit_predict_batches",
    "deterministic",
)
# Folders that data write to; a record only names folders that are read.
WRITTEN = ("cache_dir",)
# A word or a number, which name no code: without dots in words, colons, slashes and
# brackets.
_WORD = re.compile(r"[\w+-]*|[+-]?[\d.]+(e[+-]?\d+)?", re.IGNORECASE)


class UntrustedError(ActlabError):
    """Raised for a record that names code which only the user may name.

    The ``remedy`` says how to allow it.
    """

    def __init__(self, key: str, value: Any, remedy: str) -> None:
        super().__init__(
            f"{key} in the checkpoint: expected a registered activation or a class of "
            f"{', '.join(NAMES)}, got {short_repr(value)}, whose code would run. If you trust "
            f"the file, use {remedy}"
        )
        self.key, self.value = key, value


def admitted(
    recorded: Any,
    remedy: str,
    trust: bool = False,
    user_texts: Iterable[str] = (),
    only: Collection[str] = tuple(SECTIONS),
) -> dict[str, Any]:
    """Return the training record of a file as a config: seed, sections, and arguments in `TRAINER`.

    Args:
        recorded: the record.
        remedy: how the user allows code, for the `UntrustedError`.
        trust: whether the record may name any code.
        user_texts: what the user named, which the record may name, too.
        only: the sections that are returned.
    """
    # A file of another program may hold anything
    if not isinstance(recorded, Mapping) or not isinstance(
        recorded.get("trainer", {}), Mapping
    ):
        raise _malformed("model and data")
    reading = _Reading(remedy, trust, frozenset(user_texts))
    config: dict[str, Any] = {SEED: recorded.get(SEED, 0)}

    # Model and data
    for section in only:
        if section == "data" and section not in recorded:
            continue  # a plain Trainer wrote the checkpoint
        value = recorded.get(section)
        if not isinstance(value, Mapping):
            raise _malformed(section)
        arguments = value.get("init_args") or {}
        reading.check({**value, "init_args": arguments}, Any, section)
        # The record stays as it was read
        arguments = copy.deepcopy(dict(arguments))
        if section == "data":
            for name in WRITTEN:
                arguments.pop(name, None)
        config[section] = {"class_path": value["class_path"], "init_args": arguments}

    # Trainer
    trainer = {}
    for name, value in recorded.get("trainer", {}).items():
        if name in TRAINER and type(value) in PLAIN:
            trainer[name] = value
    if trainer:
        config["trainer"] = trainer
    return config


@dataclass(frozen=True)
class _Reading:
    """A walk through a record along the signatures of the classes that it names; see `admitted`."""

    remedy: str
    trust: bool
    user_texts: frozenset[str]

    def check(self, value: Any, annotation: Any, key: str) -> None:
        """Raise an error if a value at a config key names code that a record may not name."""
        # Objects and containers
        if isinstance(value, Mapping) and OBJECT & value.keys():
            self._check_object(value, key)
        elif isinstance(value, Mapping):
            for name, item in value.items():
                self.check(item, inner_type(annotation, name), f"{key}.{name}")
        elif isinstance(value, list | tuple):
            for item in value:
                self.check(item, inner_type(annotation), key)

        # Single values
        elif isinstance(value, str):
            self._check_text(value, annotation, key)
        elif type(value) not in PLAIN:
            raise _malformed(key)

    def _check_object(self, value: Mapping[str, Any], key: str) -> None:
        owner = self._class(value.get("class_path"), key)
        arguments = value.get("init_args") or {}
        if not isinstance(arguments, Mapping):
            raise _malformed(key)
        for name, item in arguments.items():
            self.check(item, inner_type(owner, name), f"{key}.{name}")

        more = {name: value[name] for name in value.keys() - OBJECT}
        self.check(more, Any, key)

    def _check_text(self, value: str, annotation: Any, key: str) -> None:
        # If more than a text is accepted, the parser imports paths and reads YAML in
        # texts. If an object is accepted, it takes a bare word for the name of any
        # imported class.
        options = kinds(annotation)
        names_object = any(
            is_callable(option) or any(classes_in(option)) for option in options
        )
        is_word = _WORD.fullmatch(value) and not names_object
        if not (options <= {*PLAIN} or is_word):
            self._class(value, key)

    def _class(self, path: Any, key: str) -> Any:
        """Return the class at an import path, or Any for anything else that the user allows."""
        if not isinstance(path, str):
            raise UntrustedError(key, path, self.remedy)
        # Code that the user allows
        if self.trust or path in self.user_texts:
            is_dotted = "." in path and all(map(str.isidentifier, path.split(".")))
            return locate(path) if is_dotted else Any

        # A class of the modules in `NAMES`, whose base class the parser checks
        dotted = import_path(path) or path
        if _is_in(dotted, (*NAMES, "torchmetrics")):
            owner = locate(dotted)
            if inspect.isclass(owner) and _is_in(owner.__module__, NAMES):
                return owner
        raise UntrustedError(key, path, self.remedy)


def _malformed(key: str) -> ActlabError:
    return ActlabError(f"the checkpoint's record of {key} is malformed. Add -c CONFIG.")


def _is_in(module: str, packages: Iterable[str]) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in packages)
