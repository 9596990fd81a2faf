"""Imports torchaudio with and without its native extension, in copies of this process; prints exit codes."""

import os
import sys
import traceback
import types
from functools import partial
from typing import Any

import pytest
import torch

from actlab.datamodules.speech.audio import torchaudio


def works_without(error):
    """Where loading the extension raises ``error``."""

    def fails(path):
        raise error("libc10_cuda.so: cannot open shared object file")

    torch.ops.load_library = fails  # type: ignore[method-assign]
    package = torchaudio()
    assert package is sys.modules["torchaudio"] is torchaudio()
    assert package.compliance.kaldi.mfcc(torch.ones(1, 400)).shape == (1, 13)
    assert package.functional.compute_deltas(torch.ones(13, 4)).shape == (13, 4)
    assert not package._extension._IS_TORCHAUDIO_EXT_AVAILABLE
    with pytest.raises(RuntimeError, match="native extension"):
        package.functional.forced_align()


def keeps_what_is_loaded():
    stand_in: Any = types.ModuleType(
        "torchaudio._extension"
    )  # as where it has loaded; this one has no native code
    stand_in._IS_TORCHAUDIO_EXT_AVAILABLE = False
    stand_in.fail_if_no_align = lambda function: function
    sys.modules["torchaudio._extension"] = stand_in
    assert torchaudio()._extension is stand_in


for check in (partial(works_without, OSError), partial(works_without, RuntimeError), keeps_what_is_loaded):
    if not (copy := os.fork()):
        try:
            check()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    print(os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]))
