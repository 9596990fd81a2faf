"""Fill templates with values; all text from values is escaped."""

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
    """Return one of our scripts or style sheets unescaped."""
    environment = _environment()
    assert environment.loader is not None
    return Markup(environment.loader.get_source(environment, name)[0])


def write(template: str, path: Path, **values: Any) -> Path:
    """Fill a template with values, write it to ``path``, whose folder is created, and return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, _environment().get_template(template).render(values))
    return path
