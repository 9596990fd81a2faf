"""Import torchaudio even if its native extension does not fit torch.

The extension is linked against one version of CUDA. The functions used here, for features and their
differences, need only Python and torch.
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
    """Return torchaudio with ``functional`` and ``compliance.kaldi``."""
    try:
        importlib.import_module("torchaudio.compliance.kaldi")
    except (OSError, RuntimeError):  # a missing library; another version of CUDA
        # Forget the modules that were imported before the error.
        for name in list(sys.modules):
            if name.partition(".")[0] == "torchaudio":
                del sys.modules[name]

        # Import it with an extension that says it is not available.
        extension: Any = ModuleType(EXTENSION)
        extension._IS_TORCHAUDIO_EXT_AVAILABLE = False
        extension._check_cuda_version = lambda: None
        extension.fail_if_no_align = lambda function: function
        sys.modules[EXTENSION] = extension
        importlib.import_module("torchaudio.compliance.kaldi")
    return importlib.import_module("torchaudio")
