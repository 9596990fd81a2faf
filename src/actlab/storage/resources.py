"""Paths of the files that ship with actlab: configs, samples, published values."""

from pathlib import Path

from actlab.errors import ActlabError
from actlab.errors.messages import unknown

_PACKAGE = Path(__file__).parents[1]
_ROOTS = (_PACKAGE, _PACKAGE.parent.parent)  # of a wheel, of a checkout
_SCOREBOARD = (
    "scoreboard"  # its definition is a YAML file in ``configs``, but no run has it as its config
)


def resource(relative: str) -> Path:
    """Return the path of a file or folder that ships with actlab, such as ``data/samples/mnist``."""
    for root in _ROOTS:
        if (root / relative).exists():
            return root / relative
    raise ActlabError(f"{relative!r} is missing from this installation of actlab; reinstall actlab")


def names_in(folder: str) -> list[str]:
    """Return the sorted names of the configs or studies in a folder that ships with actlab, without suffix."""
    return sorted(path.stem for path in resource(folder).glob("*.yaml") if path.stem != _SCOREBOARD)


def config_file(name: str, folder: str = "configs", piped: bool = False) -> Path:
    """Return the path of a YAML file, given as a path or as the bare name of a file that ships with actlab.

    Bare names, with or without ``.yaml``, are looked up in ``folder``, ``configs`` or
    ``configs/studies``. If ``piped``, the path may also be that of a pipe, such as ``<(…)`` of a
    shell.
    """
    if is_file(path := Path(name), piped):
        return path
    names = names_in(folder)
    if path.name == name and path.stem in names and path.suffix in ("", ".yaml"):
        return resource(folder) / f"{path.stem}.yaml"
    kind = "study file" if folder.endswith("studies") else "config file"
    raise unknown(
        kind, name, names, "Use a name that ships with actlab, or the path of a YAML file."
    )


def is_file(path: Path, piped: bool = False) -> bool:
    """Return whether a path is a regular file, or if ``piped`` a pipe; False for one that no file can have."""
    try:
        return path.is_file() or (piped and path.is_fifo())
    except (OSError, ValueError):
        return False
