"""Where the files lie that travel with actlab: configs, samples, published values.

In a checkout they are ``configs/`` and ``data/`` at its root; a wheel carries them inside the package.
"""

from pathlib import Path

from actlab.errors import ActlabError, unknown

_PACKAGE = Path(__file__).parents[1]
_ROOTS = (_PACKAGE, _PACKAGE.parent.parent)  # a wheel's package, a checkout's root


def resource(relative: str) -> Path:
    """The path of a file or folder that travels with actlab, such as ``data/samples/mnist``.

    Raises:
        ActlabError: when neither the package nor a checkout holds it.
    """
    for root in _ROOTS:
        if (root / relative).exists():
            return root / relative
    raise ActlabError(f"{relative!r} did not come with this installation of actlab; reinstall it")


def names_in(folder: str) -> list[str]:
    """The names of the YAML files in a folder that travels with actlab."""
    return sorted(path.stem for path in resource(folder).glob("*.yaml"))


def config_file(name: str, folder: str = "configs", piped: bool = False) -> Path:
    """The YAML file that ``name`` means: a path, or the bare name of a file that travels with actlab.

    Args:
        name: ``path/to/file.yaml``, or ``gelu_mnist_classifier`` with or without ``.yaml``.
        folder: where bare names are looked up, ``configs`` or ``configs/studies``.
        piped: whether it may also be a pipe, such as ``<(…)`` of a shell.

    Raises:
        ActlabError: when there is no such file; names the nearest ones that exist.
    """
    if is_file(path := Path(name)) or (piped and is_pipe(path)):
        return path
    carried = {p.stem: p for p in resource(folder).glob("*.yaml")}
    if path.name == name and path.stem in carried and path.suffix in ("", ".yaml"):
        return carried[path.stem]
    raise unknown(
        "study file" if folder.endswith("studies") else "config file",
        name,
        carried,
        "Give one of these names or the path of a YAML file.",
    )


def is_file(path: Path) -> bool:
    """Whether a path is of a file; one that is too long, or has a zero in it, is not."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_pipe(path: Path) -> bool:
    """Whether a path is of a pipe, which can be read once."""
    try:
        return path.is_fifo()
    except (OSError, ValueError):
        return False
