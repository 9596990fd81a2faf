"""The training record stored in each checkpoint: seed, model, data and numbers of the Trainer.

It is made of plain values: of a resolved config, or of the arguments with which a program built a
task. It includes digests of the user's code and of files of data, which the config only names.
`actlab.config.admission` says what a record may name.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from jsonargparse import Namespace

from actlab.config import identity
from actlab.config.admission import TRAINER
from actlab.config.class_paths import class_of
from actlab.config.plain_values import Arguments, plain
from actlab.config.sections import SECTIONS, SEED
from actlab.errors import ActlabError
from actlab.storage import contents

Record = dict[str, Any]
Values = Mapping[str, Any]

MISSING = "missing"  # key of the names of the model's arguments that are objects
SOURCES = "sources"  # key of the digests of the files and code that model and data name


def as_given(config: Namespace, linked: Sequence[str]) -> Record:
    """Return a resolved config as an input: without seeds, and without ``linked`` shapes.

    Shapes that are linked to the data follow from them.
    """
    stated: Record = plain(config)
    for section in SECTIONS:
        stated[section].get("init_args", {}).pop("seed", None)
    for name in linked:
        stated["model"].get("init_args", {}).pop(name, None)
    return stated


def record(resolved: Values, shapes: Values) -> Record:
    """Return the record of a resolved config, as `plain` values.

    ``shapes`` are those that the data give the model.
    """
    recorded = {SEED: resolved[SEED]}
    for section in SECTIONS:
        arguments = dict(resolved[section].get("init_args", {}))
        # The seed is recorded once, for model and data
        arguments.pop("seed", None)
        recorded[section] = {**resolved[section], "init_args": arguments}
    # The data determined these shapes
    recorded["model"]["init_args"].update(plain(shapes))

    trainer = resolved["trainer"]
    recorded["trainer"] = {
        key: trainer[key] for key in TRAINER if trainer.get(key) is not None
    }
    return recorded


def of_task(kind: type, stated: Arguments, seed: int) -> Record:
    """Return the record of a task that a program built.

    Its ``class_path`` is None if the class has no import path.
    """
    path = None
    name = kind.__qualname__
    package = kind.__module__.rpartition(".")[0]
    for module in (kind.__module__, package):
        if (
            module != "__main__"
            and getattr(sys.modules.get(module), name, None) is kind
        ):
            path = f"{module}.{name}"
    return with_digests(with_arguments({"model": {"class_path": path}}, stated, seed))


def with_arguments(recorded: Values, stated: Arguments, seed: int) -> Record:
    """Return a record with some of the model's arguments replaced."""
    # Of an argument that is an object, a record has only the name
    names_of_objects = [
        name for name in missing_in(recorded) if name not in stated.plain
    ]
    for name in stated.objects:
        if name not in names_of_objects:
            names_of_objects.append(name)

    # Replace the plain arguments; the seed is recorded outside the model
    arguments = {**(recorded["model"].get("init_args") or {}), **stated.plain}
    for name in ("seed", *names_of_objects):
        arguments.pop(name, None)

    # Without objects, the record has no entry for them
    model = {**recorded["model"], "init_args": arguments}
    changed = {**recorded, SEED: seed, "model": model}
    changed.pop(MISSING, None)
    if names_of_objects:
        changed[MISSING] = names_of_objects
    return changed


def missing_in(recorded: Any) -> list[str]:
    """Return the names of the model's arguments that a record does not hold."""
    names = []
    if isinstance(recorded, Mapping):
        names = recorded.get(MISSING, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        message = f"the checkpoint's record of {MISSING} arguments is malformed"
        raise ActlabError(f"{message}. Use another file.")
    return names


def completed(trained: Values, model: Any) -> Record:
    """Return a record with the values of a config's model for the arguments that were objects."""
    # A complete record stays as it is
    names = missing_in(trained)
    recorded = trained.get("model")
    if not isinstance(recorded, Mapping) or not (
        names or recorded.get("class_path", "") is None
    ):
        return dict(trained)

    # A class path has no arguments
    arguments: Values = {}
    if isinstance(model, Mapping):
        arguments = model.get("init_args") or {}
    # The config must state the objects
    unset = [f"--model.{name}" for name in names if name not in arguments]
    if unset:
        message = (
            "the checkpoint does not record arguments that a script passed as objects"
        )
        raise ActlabError(f"{message}. Add {', '.join(unset)}.")

    # Add the objects' values, and the class path if missing
    values = dict(recorded.get("init_args") or {})
    values |= {name: arguments[name] for name in names}
    path = recorded.get("class_path") or class_of(model)
    return {**trained, "model": {"class_path": path, "init_args": values}}


def with_digests(
    recorded: Values,
    contents_by_key: contents.ContentsByText | None = None,
) -> Record:
    """Return a record with the digests of the files and code that its model and data name."""
    sections = {key: recorded[key] for key in SECTIONS if key in recorded}
    return {**recorded, SOURCES: identity.sources_of(sections, contents_by_key)}


def changed_code(recorded: Values) -> list[str]:
    """Return the names of code that was edited or removed after training.

    It is code that the record's model and data name.
    """
    naming_parts = [recorded["model"], recorded.get("data", {}).get("class_path")]
    return _changed(recorded, naming_parts, of_data=False)


def changed_files(recorded: Values, used: Values) -> list[str]:
    """Return the files and folders of a record's data that have changed, if ``used`` names them."""
    return _changed(recorded, used["data"]["init_args"], of_data=True)


def _changed(recorded: Values, naming_parts: Any, of_data: bool) -> list[str]:
    digests = recorded.get(SOURCES) or {}
    changed = []
    for text in dict.fromkeys(contents.texts(naming_parts)):
        if text in digests and contents.content_of(text, of_data) != digests[text]:
            changed.append(text)
    return changed
