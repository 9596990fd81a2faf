"""Where the settings of a config were given: files and the command line, each overriding the earlier ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from actlab.config.identity import ACTLAB
from actlab.config.keys import get_dotted
from actlab.errors import ActlabError

SAMPLE, DATASET = "data.sample", "data.dataset"


def without_replaced_dataset(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config without the dataset that its sample takes the place of: one file may not name both."""
    kept, data = {**config}, config.get("data")
    of_actlab = isinstance(data, Mapping) and data.get("class_path") in ACTLAB["data"]
    if isinstance(data, Mapping) and of_actlab and get_dotted(kept, SAMPLE) is True:
        arguments = {key: value for key, value in data["init_args"].items() if key != "dataset"}
        kept["data"] = {**data, "init_args": arguments}
    return kept


def check_sample(places: Mapping[str, Mapping[str, Any]]) -> None:
    """Reject a dataset given beside or after ``data.sample: true``, of settings by place, in their order."""
    since = ""
    for place, given in places.items():
        if (sample := get_dotted(given, SAMPLE)) is not None:
            since = place if sample is True else ""
        if since and (dataset := get_dotted(given, DATASET)) is not None:
            raise ActlabError(
                f"{DATASET} {dataset!r} ({place}) has no effect, because {SAMPLE} is true ({since}): give one "
                f"of them, or set {SAMPLE} to false"
            )
