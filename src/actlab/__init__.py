"""Compare activation functions and stochastic maps, and reproduce the GELU and ELU papers.

Activations by name, and your own::

    import actlab

    gelu = actlab.create("gelu")                         # a module
    act = actlab.factory({"name": "elu", "alpha": 0.5})  # a network calls it at every site
    actlab.names()                                       # every registered activation
    actlab.replace(model, "relu", "gelu")                # in an existing model, in place

Studies: one file describes many runs, which are trained, selected on validation data and compared
over seeds::

    results = actlab.run_study("demo", activations=["./my_activation.py:MyActivation"])
    results.table                       # medians, intervals, tests: a DataFrame
    results.values                      # every run's values: a DataFrame
    results.figures                     # matplotlib figures, by name

The same studies run from the shell:
``actlab study run demo --activation ./my_activation.py:MyActivation``.

Importing this package loads neither torch nor Lightning; each name below loads on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from actlab.runtime.operators import watch

if TYPE_CHECKING:
    from actlab.activations import create, factory, names, register, replace
    from actlab.api import StudyResults, load_study, results, run_study
    from actlab.tasks import Quantity, Task

    __version__: str

# Where the public names are defined.
_MODULES = {
    **dict.fromkeys(
        ["create", "factory", "names", "register", "replace"], "actlab.activations"
    ),
    **dict.fromkeys(
        ["StudyResults", "load_study", "results", "run_study"], "actlab.api"
    ),
    **dict.fromkeys(["Quantity", "Task"], "actlab.tasks"),
}
__all__ = [
    "Quantity",
    "StudyResults",
    "Task",
    "create",
    "factory",
    "load_study",
    "names",
    "register",
    "replace",
    "results",
    "run_study",
]

watch()  # for torchvision


def __getattr__(name: str) -> Any:
    """Load a public name on first use; ``__version__`` is the version that was installed."""
    if name == "__version__":
        from importlib.metadata import version

        return version("actlab")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_MODULES[name])
    return getattr(module, name)


def __dir__() -> list[str]:
    """Return the public names, which are not in the module's dictionary before their first use."""
    return [*__all__, "__version__"]
