"""torchaudio with and without its native extension, each in a process of its own."""

import subprocess
import sys

FAILS = """
import sys, torch

def fails(path):
    raise {kind}("libc10_cuda.so: cannot open shared object file")

torch.ops.load_library = fails
from actlab.datamodules.speech.audio import torchaudio
package = torchaudio()
assert package is sys.modules["torchaudio"] is torchaudio()
assert package.compliance.kaldi.mfcc(torch.ones(1, 400)).shape == (1, 13)
assert package.functional.compute_deltas(torch.ones(13, 4)).shape == (13, 4)
assert not package._extension._IS_TORCHAUDIO_EXT_AVAILABLE
try:
    package.functional.forced_align()
except RuntimeError as error:
    assert "native extension" in str(error)
else:
    raise AssertionError
"""

LOADS = """
import sys, types
stand_in = types.ModuleType("torchaudio._extension")  # as where it has loaded; this one has no native code
stand_in._IS_TORCHAUDIO_EXT_AVAILABLE = False
stand_in.fail_if_no_align = lambda function: function
sys.modules["torchaudio._extension"] = stand_in
from actlab.datamodules.speech.audio import torchaudio
assert torchaudio()._extension is stand_in
"""


# Imports torch once, and runs each program in a copy of the process.
EACH = """
import os, sys, torch, traceback
for program in sys.argv[1:]:
    if not (copy := os.fork()):
        try:
            exec(program, {})
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    print(os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]))
"""


def test_an_extension_that_does_not_fit_is_left_out_and_one_that_fits_stays():
    programs = [FAILS.format(kind="OSError"), FAILS.format(kind="RuntimeError"), LOADS]
    words = [sys.executable, "-W", "error", "-c", EACH, *programs]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.stdout.split() == ["0"] * len(programs), done.stderr
