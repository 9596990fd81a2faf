"""Paths of the files that ship with actlab: configs, samples, published values."""

from pathlib import Path

from actlab.errors import ActlabError
from actlab.errors.messages import unknown

_PACKAGE = Path(__file__).parents[1]
_ROOTS = (_PACKAGE, _PACKAGE.parent.parent)  # of a wheel, of a checkout
# Start of the names of files in ``configs`` that define it and are not configs of runs
_SCOREBOARD = "scoreboard"


def resource(relative: str) -> Path:
    """Return the path of a file or folder that ships with actlab: ``data/samples/mnist``."""
    for root in _ROOTS:
        if (root / relative).exists():
            return root / relative
    raise ActlabError(
        f"{relative!r} is missing from this installation. Reinstall actlab."
    )


def names_in(folder: str) -> list[str]:
    """Return the sorted names, without suffix, of configs or studies that ship in a folder."""
    return sorted(
        path.stem
        for path in resource(folder).glob("*.yaml")
        if not path.stem.startswith(_SCOREBOARD)
    )


def config_file(name: str, folder: str = "configs", piped: bool = False) -> Path:
    """Return the path of a YAML file from its path, or from the bare name of a shipped file.

    Bare names, with or without ``.yaml``, are looked up in ``folder``, which is ``configs`` or
    ``configs/studies``. If ``piped``, the path may also name a pipe, such as ``<(…)`` of a shell.
    """
    path = Path(name)
    # A path takes precedence over a shipped file
    if is_file(path, piped):
        return path

    names = names_in(folder)
    is_bare = path.name == name
    if is_bare and path.stem in names and path.suffix in ("", ".yaml"):
        return resource(folder) / f"{path.stem}.yaml"
    kind = "study file" if folder.endswith("studies") else "config file"
    hint = "Use a name that ships with actlab, or the path of a YAML file."
    raise unknown(kind, name, names, hint)


def is_file(path: Path, piped: bool = False) -> bool:
    """Return whether a path is a regular file, or if ``piped`` a pipe; False if it is invalid."""
    try:
        return path.is_file() or (piped and path.is_fifo())
    except (OSError, ValueError):
        return False
