"""Directions of metrics that only the modules of a study know, in ``directions.json`` of its folder.

A start of the study writes the file where a direction is needed that neither the study file nor the name of the
metric says; reports, which import no module, read it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from actlab.storage.files import read_json
from actlab.studies.plan import Study

FILE = "directions.json"
_REMEDY = "delete it; the next start of the study writes it again"


def directed(study: Study, root: Path) -> Study:
    """Return a study with the directions in its folder ``root``."""
    return study if study.directions else replace(study, directions=read(root))


def read(root: Path) -> dict[str, Literal["min", "max"]]:
    """Return ``min`` or ``max`` by metric; empty without the file, which few studies need.

    Raises:
        DamagedError: if the file holds anything else.
    """
    file = root / FILE
    return read_json(file, dict[str, Literal["min", "max"]], _REMEDY) if file.exists() else {}
