"""A study on a cluster that answers as Ray does, in this process: tasks fail independently."""

import sys
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from actlab.engines import training
from tiny_study import study_text


class RayError(Exception):
    """Ray's base class."""


class RayTaskError(RayError):
    """Ray's error for an exception of a task."""

    def __init__(self, cause):
        super().__init__(str(cause))
        self.cause = cause


@pytest.fixture
def ray(monkeypatch):
    """A module `ray` that runs a task when its result is asked for."""

    def get(task):
        try:
            return task()
        except Exception as error:
            raise RayTaskError(error) from error

    others = {name: type(name, (RayError,), {}) for name in ("WorkerCrashedError", "NodeDiedError")}
    others["OutOfMemoryError"] = type("OutOfMemoryError", (RayError,), {})
    fake: Any = ModuleType("ray")
    fake.exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError, **others)
    fake.init = fake.shutdown = lambda **_: None
    fake.nodes = lambda: [{"Alive": True, "Resources": {"CPU": 1.0}}]
    fake.remote = lambda **_: lambda function: SimpleNamespace(remote=partial(partial, function))
    fake.wait = lambda tasks, **_: (tasks[:1], tasks[1:])
    fake.get = get
    monkeypatch.setitem(sys.modules, "ray", fake)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (OSError(28, "No space left on device"), 2, "actlab: error: training stopped in "),
        (
            torch.AcceleratorError("CUDA error: device-side assert"),
            1,
            "failed: AcceleratorError: CUDA error",
        ),
    ],
    ids=["full disk", "lost accelerator"],
)
def test_an_error_of_one_task_ends_no_other(cli, ray, tmp_path, monkeypatch, error, code, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(study_text("model.activation: [elu, relu]", seeds=1, epochs=1))
    plain = training.fit

    def trained(job, *given):
        if job.id.startswith("elu"):
            raise error
        plain(job, *given)

    monkeypatch.setattr(training, "fit", trained)
    outcome = cli("study", "run", "s.yaml", "--jobs", "0", "--cluster", "auto")
    assert outcome.code == code
    assert said in outcome.out + outcome.err
    assert [path.parent.name[:4] for path in tmp_path.glob("runs/s/*/result.json")] == ["relu"]
    monkeypatch.setattr(training, "fit", plain)
    again = cli("study", "run", "s.yaml", "--jobs", "0", "--cluster", "auto")
    assert (again.code, "2 runs, 1 finished, 1 to run" in again.out) == (0, True)
