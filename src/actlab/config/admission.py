"""What a record in a checkpoint, perhaps a stranger's, may name: data, never the user's words.

It names registered activations and classes of `PACKAGES` with the base class that the place requires, never a
function or a file. The user allows more by naming the same class, or by trusting the file.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from torch.nn import Module

from actlab.config.keys import OBJECT, import_path
from actlab.config.sections import SECTIONS, SEED
from actlab.config.signatures import PLAIN, classes_in, inner_type, is_callable, kinds, locate
from actlab.errors import ActlabError

PACKAGES = ("actlab", "torch.nn", "torch.optim", "torchmetrics", "pytorch_lightning")
# Modules of torchmetrics whose classes read no files and fetch no models by a name in their arguments.
METRICS = tuple(
    f"torchmetrics.{name}"
    for name in ("classification", "regression", "aggregation", "image.psnr", "image.ssim")
)
# Arguments of the Trainer that change results. No callback, logger, plugin, profiler or folder is ever taken
# from a record: they run code or write.
TRAINER = (
    *("precision", "max_epochs", "max_steps", "accumulate_grad_batches"),
    *("gradient_clip_val", "gradient_clip_algorithm", "val_check_interval", "check_val_every_n_epoch"),
    *(f"limit_{split}_batches" for split in ("train", "val", "test", "predict")),
    "deterministic",
)
WRITTEN = ("cache_dir",)  # folders that data write to; a record only names folders that are read
_WORD = re.compile(r"[\w+-]*")  # names no code: without dots, colons, slashes and brackets


class UntrustedError(ActlabError):
    """Raised for a record that names code which only the user may name; ``remedy`` says how to allow it."""

    def __init__(self, key: str, value: Any, remedy: str) -> None:
        super().__init__(
            f"the checkpoint records {key} {value!r}, which would be imported and run. Without your word a "
            f"checkpoint names only registered activations and classes of {', '.join(PACKAGES)}. If you trust "
            f"the file: {remedy}"
        )
        self.key, self.value = key, value


def admitted(
    found: Any,
    remedy: str,
    trust: bool = False,
    said: Iterable[str] = (),
    only: Collection[str] = tuple(SECTIONS),
    given: Mapping[str, type] | None = None,
) -> dict[str, Any]:
    """Return the training record of a file as a config: seed, ``only`` some sections, arguments in `TRAINER`.

    The record may name what the user ``said``, or has ``given`` as a class by its path in the record, and any
    code if the user does ``trust`` the file; else an `UntrustedError` names the ``remedy``.
    """
    if not isinstance(found, Mapping) or not isinstance(found.get("trainer", {}), Mapping):
        raise _malformed("model and data")
    reading = _Reading(remedy, trust, frozenset(said), given or {})
    config: dict[str, Any] = {SEED: found.get(SEED, 0)}
    for section in only:
        if section == "data" and section not in found:
            continue  # a plain Trainer wrote the checkpoint
        config[section] = reading.section(section, found.get(section))
    if trainer := {k: v for k, v in found.get("trainer", {}).items() if k in TRAINER and type(v) in PLAIN}:
        config["trainer"] = trainer
    return config


@dataclass(frozen=True)
class _Reading:
    """A walk through a record along the signatures of the classes that it names; see `admitted`."""

    remedy: str
    trust: bool
    said: frozenset[str]
    given: Mapping[str, type]

    def section(self, name: str, value: Any) -> dict[str, Any]:
        arguments = value.get("init_args") or {} if isinstance(value, Mapping) else None
        if not isinstance(arguments, Mapping):
            raise _malformed(name)
        self.check({**value, "init_args": arguments}, SECTIONS[name], name)
        kept = {key: item for key, item in arguments.items() if name != "data" or key not in WRITTEN}
        return {"class_path": value["class_path"], "init_args": copy.deepcopy(kept)}

    def check(self, value: Any, wanted: Any, key: str) -> None:
        if isinstance(value, Mapping) and OBJECT & value.keys():
            owner = self._class(value.get("class_path"), wanted, key)
            for name, item in value.items():
                if isinstance(item, Mapping):  # init_args, or dict_kwargs, which have no signature
                    for argument, inner in item.items():
                        taken = inner_type(owner, argument) if name == "init_args" else Any
                        self.check(inner, taken, f"{key}.{argument}")
                elif name != "class_path":
                    self.check(item, inner_type(owner, name), f"{key}.{name}")
        elif isinstance(value, Mapping):
            for name, item in value.items():
                self.check(item, inner_type(wanted, name), f"{key}.{name}")
        elif isinstance(value, list | tuple):
            for item in value:
                self.check(item, inner_type(wanted), key)
        elif isinstance(value, str):
            self._check_text(value, wanted, key)
        elif type(value) not in PLAIN:
            raise _malformed(key)

    def _check_text(self, value: str, wanted: Any, key: str) -> None:
        # Where more than a text may stand, the parser imports paths and reads YAML in texts. Where an object
        # may stand, it takes a bare word for the name of any class that is imported.
        options = kinds(wanted)
        names_object = any(is_callable(option) or any(classes_in(option)) for option in options)
        is_word = _WORD.fullmatch(value) and not names_object
        if not (options <= {*PLAIN} or is_word or _is_number(value)):
            self._class(value, wanted, key)

    def _class(self, path: Any, wanted: Any, key: str) -> Any:
        """Return the class at an import path, or Any for a file or an activation that the user allows."""
        if isinstance(path, str) and path in self.given:
            return self.given[path]
        if isinstance(path, str) and (self.trust or path in self.said):
            return locate(path) if all(part.isidentifier() for part in path.split(".")) else Any
        dotted = (import_path(path) or path) if isinstance(path, str) else ""
        bases = tuple(classes_in(wanted)) or ((Module,) if _is_open(wanted) else ())  # as of an activation
        found = locate(dotted) if _is_in(dotted, PACKAGES) else None
        if inspect.isclass(found) and issubclass(found, bases):
            module = found.__module__
            if _is_in(module, METRICS if module.startswith("torchmetrics.") else PACKAGES):
                return found
        raise UntrustedError(key, path, self.remedy)


def _malformed(key: str) -> ActlabError:
    return ActlabError(f"the checkpoint's record of {key} is malformed: give a config with -c FILE")


def _is_in(module: str, packages: Iterable[str]) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_open(wanted: Any) -> bool:
    """Return whether an annotation accepts anything, itself or as a value of a mapping."""
    return any(
        option is Any or (get_args(option)[-1:] == (Any,) and get_origin(option) in (dict, Mapping))
        for option in kinds(wanted)
    )
