"""torchaudio, whatever torch it was built for.

The registry's wheel of torchaudio 2.11 is linked against CUDA libraries: beside a torch without CUDA, or one of
another CUDA version, ``import torchaudio`` fails while it loads its native extension. What is needed here,
features and their differences, is plain Python and torch, so then the extension is left out.
"""

from __future__ import annotations

import importlib
import sys
from functools import cache
from types import ModuleType
from typing import Any

EXTENSION = "torchaudio._extension"


@cache
def torchaudio() -> Any:
    """The package with its parts ``functional`` and ``compliance.kaldi``.

    It is imported plainly where that works; else without its native extension, for the whole process.
    """
    try:
        return _imported()
    except (OSError, RuntimeError):  # a library that is not there; another version of CUDA
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchaudio"]:
            del sys.modules[name]
        sys.modules[EXTENSION] = without_extension()
        return _imported()


def _imported() -> ModuleType:
    importlib.import_module("torchaudio.compliance.kaldi")
    return importlib.import_module("torchaudio")


def without_extension() -> ModuleType:
    """What the rest of torchaudio asks of its module ``_extension``, saying that there is no native code."""
    module = ModuleType(EXTENSION, "Stands for the native extension, which does not fit the installed torch.")
    vars(module).update(
        _IS_TORCHAUDIO_EXT_AVAILABLE=False,
        _check_cuda_version=lambda: None,
        fail_if_no_align=_refused,
    )
    return module


def _refused(function: Any) -> Any:
    """A stand-in for a function that needs the native extension."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"{function.__name__} needs torchaudio's native extension, which does not fit torch")

    return refuse
