"""torchaudio with and without its native extension, imported again in this process."""

import sys
import types

import pytest
import torch

from actlab.datamodules.speech.audio import torchaudio


def dropped():
    """Take torchaudio out of the loaded modules, and return what it was."""
    torchaudio.cache_clear()
    return {
        name: sys.modules.pop(name)
        for name in [*sys.modules]
        if name.partition(".")[0] == "torchaudio"
    }


@pytest.fixture(autouse=True)
def _imported_again():
    before = dropped()
    yield
    dropped()
    sys.modules.update(before)


@pytest.mark.parametrize("error", [OSError, RuntimeError])
def test_an_extension_that_does_not_fit_is_left_out(monkeypatch, error):
    def fails(path):
        raise error("libc10_cuda.so: cannot open shared object file")

    monkeypatch.setattr(torch.ops, "load_library", fails)
    package = torchaudio()
    assert package is sys.modules["torchaudio"] is torchaudio()
    assert package.compliance.kaldi.mfcc(torch.ones(1, 400)).shape == (1, 13)
    assert package.functional.compute_deltas(torch.ones(13, 4)).shape == (13, 4)
    assert not package._extension._IS_TORCHAUDIO_EXT_AVAILABLE


def test_an_extension_that_has_loaded_stays():
    stand_in = types.ModuleType("torchaudio._extension")  # this one has no native code
    vars(stand_in).update(
        _IS_TORCHAUDIO_EXT_AVAILABLE=False, fail_if_no_align=lambda function: function
    )
    sys.modules["torchaudio._extension"] = stand_in
    assert torchaudio()._extension is stand_in
