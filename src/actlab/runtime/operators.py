"""Let torchvision be imported beside a torch that its native extension does not fit.

Torchvision's wheel is linked against CUDA libraries. With a torch without CUDA its extension does
not load, and torchvision 0.28 fails when it registers details of two operators of the extension; so
does ``import pytorch_lightning``, because torchmetrics imports torchvision if it is installed.
actlab needs no such operator, so it suffices to define the two before torchvision is imported.
``import actlab`` must therefore come before the others.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

OPERATORS = ("nms", "qnms")
SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


class OperatorsFirst:
    """A finder of modules that finds none, but defines the operators before torchvision loads."""

    @classmethod
    def find_spec(
        cls, name: str, path: Any = None, target: Any = None
    ) -> ModuleSpec | None:
        """Return None: the other finders find the module."""
        if name == "torchvision":
            sys.meta_path.remove(cls)
            spec = PathFinder.find_spec(name)
            if spec is not None and spec.origin:
                define_operators(Path(spec.origin).parent)
        return None


def watch() -> None:
    """Define the operators before torchvision is first imported in this process; load nothing."""
    if "torchvision" not in sys.modules and OperatorsFirst not in sys.meta_path:
        sys.meta_path.insert(0, OperatorsFirst)


def define_operators(package: Path) -> None:
    """Define the `OPERATORS`, without an implementation, unless the package's extension loads."""
    import torch

    extensions = [*package.glob("_C.*"), *package.glob("_C_*")]
    try:
        for extension in extensions or [package / "_C.so"]:
            torch.ops.load_library(str(extension))  # type: ignore[no-untyped-call]
    except OSError:
        for name in OPERATORS:
            torch.library.define(f"torchvision::{name}", SCHEMA)
