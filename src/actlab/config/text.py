"""A config as text: what files, studies and the command line say, before any class is imported.

Later settings override earlier ones. A setting that would have no effect is rejected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from actlab.config.identity import ACTLAB
from actlab.config.paths import get_dotted
from actlab.errors import ActlabError

SAMPLE, DATASET = "data.sample", "data.dataset"


def without_replaced_dataset(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config without the dataset whose place its sample takes.

    One file may not name both; see `check_sample`.
    """
    changed = dict(config)
    data = config.get("data")
    # Only actlab's datamodules have samples
    if not isinstance(data, Mapping) or data.get("class_path") not in ACTLAB["data"]:
        return changed

    if get_dotted(changed, SAMPLE) is True:
        arguments = dict(data["init_args"])
        arguments.pop("dataset", None)
        changed["data"] = {**data, "init_args": arguments}
    return changed


def check_sample(places: Mapping[str, Mapping[str, Any]]) -> None:
    """Reject a dataset that is set together with ``data.sample: true``, or after it.

    Args:
        places: settings by the file or words that state them, in their order.
    """
    since = ""  # the place that sets the sample
    for place, settings in places.items():
        sample = get_dotted(settings, SAMPLE)
        if sample is not None:
            since = ""
        if sample is True:
            since = place

        dataset = get_dotted(settings, DATASET)
        if since and dataset is not None:
            raise ActlabError(
                f"{DATASET} {dataset!r} ({place}) has no effect, because {SAMPLE} is true "
                f"({since}). Remove one of them, or set {SAMPLE} to false."
            )


def check_order(settings: Iterable[str], grid: Iterable[str]) -> None:
    """Reject keys that a later key of the grid would overwrite.

    The keys of the grid are set after the settings, in their order.

    >>> check_order(["model.optimizer"], ["model.optimizer.lr"])
    """
    # Seeds are set by the study
    before = [*settings]
    later = [*grid]
    for key in (*before, *later):
        if _parts(key) == ["seed_everything"]:
            raise ActlabError(
                f"{key} cannot be set, because a study sets it. Set 'seeds'."
            )

    # A key of the grid that contains an earlier key
    for wider in later:
        parts = _parts(wider)
        for key in before:
            if key != wider and _parts(key)[: len(parts)] == parts:
                raise ActlabError(
                    f"{key} would be lost, because {wider} contains it and is set later. "
                    f"Put {wider} first, or set {key} within the values of {wider}."
                )
        before.append(wider)


def _parts(key: str) -> list[str]:
    return [part for part in key.split(".") if part != "init_args"]
