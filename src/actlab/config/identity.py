"""The identity of a run: a digest of everything that affects its results, and of nothing else.

That are settings and the contents of files: data and the user's code, which is not imported. Of a
class that is not in `ACTLAB`, any argument and the number of devices may affect results.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from actlab.config.batches import BATCHES
from actlab.config.class_paths import class_of
from actlab.config.metric_classes import KEY
from actlab.config.paths import get_dotted
from actlab.config.values import as_number, mapped
from actlab.storage import contents

# Of actlab's code: increased when equal settings give different results than before
NUMERICS = 3
NUMERICS_OF_OTHERS = 2  # the same for runs whose model or data is not in `ACTLAB`
NUMERICS_OF_METRICS = 2  # the same for runs with metrics of torchmetrics
DIGITS = 16  # length of an identity in names
# Trainer arguments that do not affect results, up to the order of floating-point sums.
NOT_COUNTED = {
    "accelerator",
    "benchmark",
    "barebones",
    "default_root_dir",
    "enable_checkpointing",
    "enable_model_summary",
    "enable_progress_bar",
    "inference_mode",
    "log_every_n_steps",
    "logger",
    "num_sanity_val_steps",
    "profiler",
    "strategy",
}
# Classes whose results do not depend on the number of devices.
ACTLAB = {
    "model": {
        f"actlab.tasks.{name}Task"
        for name in (
            "Autoencoder",
            "Classification",
            "Frame",
            "Helmholtz",
            "Hills",
            "Language",
            "Pixel",
            "Regression",
        )
    },
    "data": {
        f"actlab.datamodules.{name}DataModule"
        for name in (
            "CIFAR",
            "Image",
            "ImageNet",
            "MNIST",
            "Pixel",
            "Square",
            "TIMIT",
            "Table",
            "Text",
            "TwitterPOS",
        )
    },
}
# Arguments that do not affect results if model and data are in `ACTLAB`: devices, and
# how data are read.
NOT_COUNTED_OF_ACTLAB = {
    "trainer": {"devices", "num_nodes", "use_distributed_sampler"},
    "data": {"cache_dir", "workers"},
}
# Arguments for which null differs from the default.
_NULLS = {"check_val_every_n_epoch"}


def identity_of(counts: Mapping[str, Any], sources: Mapping[str, str]) -> str:
    """Return the SHA-256 of what counts of a complete config, and of the files that it names."""
    parts = [NUMERICS, counts, sorted(set(sources.values()))]
    # Another class may depend on more of actlab's code than our tasks do
    if not is_of_actlab(counts):
        parts.append(NUMERICS_OF_OTHERS)
    if get_dotted(dict(counts), KEY):
        parts.append({KEY: NUMERICS_OF_METRICS})

    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def is_of_actlab(config: Mapping[str, Any]) -> bool:
    """Return whether model and data are of classes in `ACTLAB`, by import path or bare name."""
    for section, classes in ACTLAB.items():
        # A bare name ends every import path of its class
        ending = f".{class_of(config.get(section))}"
        if not [name for name in classes if f".{name}".endswith(ending)]:
            return False
    return True


def counted(config: Mapping[str, Any], sources: Mapping[str, str]) -> dict[str, Any]:
    """Return the part of a complete config that affects results, with values in canonical form."""
    # How actlab's own data are read does not affect results
    is_model = str(class_of(config.get("model"))) in ACTLAB["model"]
    is_data = str(class_of(config.get("data"))) in ACTLAB["data"]
    data = config.get("data") or {}
    if is_data:
        data = _without_reading(config)

    # The Trainer
    trainer = config.get("trainer") or {}
    if isinstance(trainer, Mapping):
        left_out = NOT_COUNTED
        if is_model and is_data:
            left_out = left_out | NOT_COUNTED_OF_ACTLAB["trainer"]
        trainer = _without(trainer, left_out)
        for key, value in [*trainer.items()]:
            if value is None and key not in _NULLS:
                # Null is the Trainer's default, and the same as leaving the key out
                del trainer[key]
            if key in BATCHES and type(value) is int and value == 1:
                # A limit of 1 is a batch, of 1.0 all of them; numbers would be equal
                # below
                trainer[key] = "one batch"

    # Write equal values in one form
    counts = {**config, "data": data, "trainer": trainer}
    canonical: dict[str, Any] = mapped(counts, partial(_canonical, sources=sources))
    return canonical


def _without_reading(config: Mapping[str, Any]) -> Any:
    """Return the data section without the arguments for reading.

    A run may change its own cache folder.
    """
    data = config.get("data") or {}
    if not isinstance(data, Mapping):
        return data
    arguments = _without(data.get("init_args") or {}, NOT_COUNTED_OF_ACTLAB["data"])
    return {**data, "init_args": arguments}


def _without(values: Any, keys: set[str]) -> Any:
    """Return a mapping without some keys; other values unchanged."""
    if not isinstance(values, Mapping):
        return values
    return {key: value for key, value in values.items() if key not in keys}


def _canonical(value: Any, sources: Mapping[str, str]) -> Any:
    """Return a value in canonical form: 1 equals 1.0, text stays text, a path is a digest."""
    if isinstance(value, str) and value in sources:
        # The digest replaces the path: moved files and data are the same
        file, _, name = value.rpartition(":")
        if contents.module_of(value):
            name = value
        elif not file:
            name = ""
        return [sources[value], name]
    return as_number(value)


def sources_of(
    config: Mapping[str, Any], contents_by_key: contents.ContentsByText | None = None
) -> dict[str, str]:
    """Return digests of the files, folders and modules outside actlab that a config names.

    Digests in ``contents_by_key``, None for other texts, are not computed again; new ones are
    added to it.
    """
    if contents_by_key is None:
        contents_by_key = {}

    # Texts of the data, where a plain word may name a folder
    data = _without_reading(config)
    arguments = data
    if isinstance(data, Mapping):
        arguments = data.get("init_args")
    data_texts = set(contents.texts(arguments))

    digests = {}
    trainer = _without(config.get("trainer") or {}, NOT_COUNTED)
    for text in contents.texts({**config, "data": data, "trainer": trainer}):
        of_data = text in data_texts
        key = f"data {text}" if of_data else text
        if key not in contents_by_key:  # a large folder takes minutes to read
            contents_by_key[key] = contents.content_of(text, of_data)
        content = contents_by_key[key]
        if content:
            digests[text] = content
    return digests
