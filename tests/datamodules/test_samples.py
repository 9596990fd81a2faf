"""Samples are small, and are what their scripts write."""

import runpy
import sys

import numpy as np
import pandas as pd
import pytest

from actlab.datamodules.speech.recordings import read_recording
from actlab.storage.resources import resource


def files_of(folder):
    return {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("name", "number", "most_bytes"),
    [
        ("table", 3, 40_000),
        ("text", 1, 60_000),
        ("timit", 288, 2_500_000),
        ("twitter_pos", 4, 20_000),
    ],
)
def test_a_sample_is_what_its_script_writes(name, number, most_bytes, tmp_path, monkeypatch):
    folder = resource("data/samples") / name
    script = folder.parents[1] / f"make_{name}_sample.py"
    monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path)])

    runpy.run_path(str(script), run_name="__main__")

    made, stored = files_of(tmp_path), files_of(folder)
    assert made.keys() == stored.keys()
    assert len(stored) == number
    assert sum(path.stat().st_size for path in stored.values()) < most_bytes
    for file, path in stored.items():
        if file.suffix == ".wav":  # the last bit of a sine depends on the processor
            assert np.abs(read_recording(made[file]) - read_recording(path)).max() <= 1
        elif file.suffix == ".parquet":  # its header has the version of the library
            pd.testing.assert_frame_equal(pd.read_parquet(made[file]), pd.read_parquet(path))
        else:
            assert made[file].read_bytes() == path.read_bytes()
