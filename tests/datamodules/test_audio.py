"""torchaudio with and without its native extension, each in a process of its own."""

import subprocess
import sys


def test_an_extension_that_does_not_fit_is_left_out_and_one_that_fits_stays(programs):
    words = [sys.executable, "-W", "error", programs / "torchaudio_extension.py"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.stdout.split() == ["0"] * 3, done.stderr
