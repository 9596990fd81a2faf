"""Templates filled with values: text is escaped wherever it comes from."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from actlab.reports.captions import spans
from actlab.storage.files import write_atomically


@lru_cache(maxsize=1)
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("actlab.reports.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals["source"] = _source
    found.filters["spans"] = spans
    return found


def _source(name: str) -> Markup:
    """A script or style sheet of ours as it is; the only text that is not escaped."""
    environment = _environment()
    assert environment.loader is not None
    return Markup(environment.loader.get_source(environment, name)[0])


def write(template: str, path: Path, **values: Any) -> Path:
    """Fill a template with values and write it; the file's folder is made.

    Returns:
        ``path``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, _environment().get_template(template).render(values))
    return path
