"""``actlab study new``: copy a study file with comments."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from actlab.errors import ActlabError
from actlab.storage.files import regular
from actlab.storage.resources import names_in, resource
from actlab.studies.plan import check_name

STUDIES = "configs/studies"
TEMPLATE = "cli/new_study.yaml"


def write(path: Path, study: str | None) -> None:
    """Copy the template of study files, or a ``study`` that ships with actlab, to a path."""
    # Check the name, which is the study's
    if path.suffix not in (".yaml", ".yml"):
        raise ActlabError(
            f"PATH: expected a name that ends in .yaml, got {str(path)!r}."
        )
    check_name(path.stem)
    if path.stem in names_in(STUDIES):
        raise ActlabError(
            f"{path.stem} is a study that ships with actlab. Use another name."
        )

    # Write names of configs instead of relative paths, without comments about the file
    # itself
    source = TEMPLATE
    if study is not None:
        source = f"{STUDIES}/{study}.yaml"
    text = regular(resource(source)).read_text(encoding="utf-8")
    text = re.sub(
        r"^# (yaml-language-server|Command): .*\n", "", text, flags=re.MULTILINE
    )
    text = re.sub(r"\.\./(\w+)\.yaml", r"\1", text)

    try:
        # "x" never overwrites a file
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise ActlabError(
            f"{path} exists and is not overwritten. Use another name, or delete it."
        ) from error
    except FileNotFoundError as error:
        raise ActlabError(
            f"the folder {path.parent} does not exist. Create it first."
        ) from error

    print(f"{path} written; next: `actlab study plan {shlex.quote(str(path))}`")
