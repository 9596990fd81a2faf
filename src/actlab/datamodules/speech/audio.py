"""Import torchaudio even if its native extension, linked against one version of CUDA, does not fit torch.

The functions used here, for features and their differences, need only Python and torch.
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
    """Return torchaudio with ``functional`` and ``compliance.kaldi``, where needed without native extension."""
    try:
        importlib.import_module("torchaudio.compliance.kaldi")
    except (OSError, RuntimeError):  # a missing library; another version of CUDA
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchaudio"]:
            del sys.modules[name]
        sys.modules[EXTENSION] = extension = ModuleType(EXTENSION)
        names = {"_IS_TORCHAUDIO_EXT_AVAILABLE": False, "_check_cuda_version": lambda: None}
        vars(extension).update(names, fail_if_no_align=lambda function: function)
        importlib.import_module("torchaudio.compliance.kaldi")
    return importlib.import_module("torchaudio")
