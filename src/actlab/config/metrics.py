"""Names of metrics: what they say about loop, condition and direction."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from actlab.errors import ActlabError

# Begins the names of parameters that activations learn, by layer.
PARAMETERS = "activation/"
LEARNT: Final = "learnt_activation"  # the curve that these parameters give
LOWEST: Final = "learnt_activation_min"  # of the channels
HIGHEST: Final = "learnt_activation_max"
INITIAL: Final = "initial_activation"
# Condition of what training logged without ``on_epoch``: the value of the last batch.
ONE_BATCH = "one batch"
# Loops by the first word of a name.
LOOPS = {
    "train": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
}
_LOW = {"loss", "error", "perplexity", "nll", "mse", "mae", "rmse", "cer", "wer"}
_HIGH = {
    "acc",
    "accuracy",
    "ap",
    "auc",
    "auroc",
    "f1",
    "fbeta",
    "kappa",
    "map",
    "mcc",
    "precision",
    "recall",
    "r2",
    "dice",
    "iou",
    "jaccard",
    "miou",
    "psnr",
    "ssim",
    "bleu",
    "chrf",
    "mrr",
    "ndcg",
    "pesq",
    "rouge",
    "sacrebleu",
    "sdr",
    "snr",
    "stoi",
}
# What torchmetrics adds to a metric's name.
_OF_CLASS = re.compile(r"^(binary|multiclass|multilabel)|score$")
_PLAIN = ("units/", PARAMETERS)
# What Lightning appends to a name.
_OF_LIGHTNING = re.compile(r"(_step|_epoch)?(/dataloader_idx_\d+)?$")
_OF_LAYER = re.compile(rf"({PARAMETERS}.+)\[(layer=\d+)\]")
_WORDS = re.compile(r"[/_.-]")


def mode_of(metric: str, modes: Mapping[str, str] | None = None) -> str:
    """Return whether low (``min``) or high (``max``) values of a metric are better.

    It is "" if nothing says so. ``modes`` has the modes of metrics by name or by `quantity`. For
    any other metric the last word of the name decides. Low values count as better for statistics
    of units and for learnt parameters, which no target is compared with.

    >>> mode_of("val/acc"), mode_of("test_g", {"g": "max"}), mode_of("test/error")
    ('max', 'max', 'min')
    >>> mode_of("val_mean")
    ''
    >>> mode_of("val_BinaryF1Score"), mode_of("test/r2_epoch")
    ('max', 'max')
    """
    measured = quantity(metric)
    # A declared mode takes precedence
    if modes:
        mode = modes.get(metric) or modes.get(measured)
        if mode:
            return mode

    # The last word of the name, in lower case: ``val_acc``, ``val_BinaryF1Score``
    words = _WORDS.split(_OF_LIGHTNING.sub("", metric.lower()))
    word = _OF_CLASS.sub("", words[-1])
    if word in _LOW or measured.endswith("bits_per_byte") or metric.startswith(_PLAIN):
        return "min"
    if word in _HIGH:
        return "max"
    return ""


def quantity(metric: str) -> str:
    """Return what a metric measures: its name without loop, probe and what Lightning appends.

    >>> quantity("val_f1"), quantity("test/f1_epoch"), quantity("noise/val/f1")
    ('f1', 'f1', 'f1')
    >>> quantity("f1/dataloader_idx_0")
    'f1'
    """
    last = _OF_LIGHTNING.sub("", metric).rpartition("/")[2]
    loop, *words = _WORDS.split(last, maxsplit=1)
    # ``val_f1`` without a slash has its loop as the first word
    if words and loop in LOOPS:
        return words[0]
    return last


def loop_of(metric: str) -> str:
    """Return the loop in the name of a metric: ``train``, ``val`` or ``test``; "" without one.

    >>> loop_of("noise/test/error"), loop_of("valid_acc"), loop_of("loss")
    ('test', 'val', '')
    """
    words = [*metric.split("/"), *_WORDS.split(metric)]
    return next((LOOPS[word] for word in words if word in LOOPS), "")


def is_parameter(metric: str) -> bool:
    """Return whether a metric is a learnt parameter of activations, such as ``activation/beta``."""
    return metric.startswith(PARAMETERS)


def logged(metric: str, condition: str) -> str:
    """Return the name of a metric with its condition, in loggers and files.

    >>> logged("activation/beta", "layer=3"), logged("val/loss", "")
    ('activation/beta[layer=3]', 'val/loss')
    """
    if not condition:
        return metric
    return f"{metric}[{condition}]"


def metric_and_condition(name: str) -> tuple[str, str]:
    """Return metric and condition of a logged name; only learnt parameters have a condition.

    >>> metric_and_condition("activation/beta[layer=3]"), metric_and_condition("val/top[k=5]")
    (('activation/beta', 'layer=3'), ('val/top[k=5]', ''))
    """
    parts = _OF_LAYER.fullmatch(name)
    if parts is None:
        return name, ""
    return parts[1], parts[2]


def no_direction(metric: str) -> ActlabError:
    """Return the error for a metric whose direction is needed and unknown."""
    return ActlabError(
        f"{metric} does not say whether low or high values are better. Set 'mode: min' or "
        "'mode: max' next to this metric in 'table' or 'select', or set 'ranked: false' for a "
        "column that ranks nothing."
    )
