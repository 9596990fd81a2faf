"""A probe that says in the environment that it measures."""

import os

from actlab.probes import Measured


class Strict:
    """Lets the activation know that it is in a probe."""

    def __call__(self, subject, data):
        os.environ["IN_PROBE"] = "1"
        batch = next(iter(data.test_dataloader()))
        found = subject.measured(batch, shared=True)
        yield Measured("test", "loss", "", found["loss"].values.mean(-1))
