"""One batch is one batch: whatever Python was asked to import before Lightning."""

import subprocess
import sys


def test_a_whole_number_of_batches_stays_one(programs):
    words = [sys.executable, programs / "batches_of_a_config.py"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith("['int', 'float']"), done.stderr
