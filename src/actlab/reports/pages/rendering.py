"""Fill templates with values; all text from values is escaped."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from actlab.analysis.notes import spans
from actlab.reports import tables
from actlab.storage.files import write_atomically


@lru_cache(maxsize=1)
def _environment() -> Environment:
    loader = PackageLoader("actlab.reports.pages")
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # One of our scripts or style sheets, unescaped.
    environment.globals["source"] = lambda name: Markup(
        loader.get_source(environment, name)[0]
    )
    environment.globals["tables"] = tables
    environment.filters["spans"] = spans
    return environment


def write(template: str, path: Path, **values: Any) -> Path:
    """Fill a template with values, write it to ``path``, and return the path.

    The folder is created.
    """
    page = _environment().get_template(template)
    write_atomically(path, page.render(values))
    return path
