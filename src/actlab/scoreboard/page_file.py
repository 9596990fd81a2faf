"""The file of the scoreboard's page for browsers, without what draws it."""

from __future__ import annotations

from pathlib import Path

from actlab.errors import ActlabError
from actlab.storage.files import regular

NAME = "index.html"  # also of the page of all studies
TITLE = "Scoreboard of activations"


def check_folder(folder: Path) -> None:
    """Raise an ActlabError if a folder has another ``index.html`` than the scoreboard's."""
    if (folder / NAME).exists() and not is_in(folder):
        raise ActlabError(
            f"--runs-dir: expected a folder without the {NAME} of `actlab report`, got "
            f"{str(folder)!r}. Use another folder."
        )


def is_in(folder: Path) -> bool:
    """Return whether the ``index.html`` of a folder is the page of a scoreboard."""
    page = folder / NAME
    if not page.exists():
        return False
    return f"<title>{TITLE}</title>" in regular(page).read_text("utf-8", "replace")
