"""A whole number stays a whole number: whatever Python was asked to import before Lightning."""

import json
import subprocess
import sys
import typing
from functools import partial
from pathlib import Path
from typing import Any

import jsonargparse._typehints as hints
import pytest
import torch

from actlab import experiments
from actlab.config import resolved
from actlab.config.plain_values import plain
from actlab.config.sections import linked_shapes
from actlab.networks import MLP
from actlab.optim import Linear
from actlab.storage.mappings import read_mapping
from actlab.storage.resources import config_file, names_in, resource
from actlab.tasks import ClassificationTask

CONFIGS = [config_file(name) for name in names_in("configs")]
LIMITS = {"limit_train_batches": 1, "limit_val_batches": 1.0, "val_check_interval": 1}


@pytest.fixture(params=[pytest.param("int first", marks=pytest.mark.slow), "float first"])
def primed(request):
    """Python's unions as if a module that is imported earlier had written them in this order."""

    def forget():
        for clear in (
            *vars(typing)["_cleanups"],
            resolved.parser_of.cache_clear,
            hints._cached_class_parsers.clear,
        ):
            clear()
        resolved._stored.cache_clear()

    forget()
    one, other = (int, float) if request.param == "int first" else (float, int)
    assert str(typing.Optional[one | other | None]).startswith(f"typing.Union[{one.__name__}, ")  # noqa: UP045
    assert typing.get_args(typing.Union[one, other]) == (one, other)  # noqa: UP007
    yield
    forget()


def whole_numbers(value, where=()):
    """The whole numbers in nested values, by place."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {
            key: one
            for name, inner in items
            for key, one in whole_numbers(inner, (*where, name)).items()
        }
    return {where: value} if type(value) is int else {}


def test_the_whole_numbers_of_every_config_stay_whole(primed):
    assert len(CONFIGS) > 10
    for path in CONFIGS:
        config = read_mapping(path)
        config["trainer"] |= LIMITS
        found = resolved.resolved(config, {}, linked_shapes(config)).as_dict()
        for section in ("trainer", "model", "data"):
            given, kept = (whole_numbers(plain(one[section])) for one in (config, found))
            lost = {
                place: number for place, number in given.items() if kept.get(place) is not number
            }
            assert not {
                place: n for place, n in lost.items() if place[-1] in LIMITS or "schedules" in place
            }, path


def test_a_schedule_in_epochs_is_built(primed):
    config = read_mapping(resource("configs") / "cifar10_convnet.yaml")
    config["data"]["init_args"]["sample"] = True
    config["trainer"] |= LIMITS
    trainer, task, _ = experiments.build(config)
    assert {name: type(getattr(trainer, name)) for name in LIMITS} == {
        k: type(v) for k, v in LIMITS.items()
    }
    assert (task.schedules["lr"].end, type(task.schedules["lr"].end)) == (200, int)


@pytest.mark.slow  # seven seconds of imports
def test_the_types_of_the_trainer_stay_where_floats_came_first(programs):
    words = [sys.executable, programs / "batches_of_a_config.py"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith("['int', 'float', 'int']"), done.stderr


class Own(ClassificationTask):
    """A user's class whose numbers may be whole or not."""

    def __init__(self, first: int | float | None = None, second: float | int | None = None) -> None:
        super().__init__(network=partial(MLP, hidden=[4]), schedules={"lr": Linear(0, 200)})
        NUMBERS[:] = [first, second]


NUMBERS: list[Any] = []


@pytest.mark.parametrize(("first", "second"), [(200, 200.0), (200.0, 200)])
def test_the_numbers_of_a_users_class_keep_their_types(
    primed, cli, tmp_path, monkeypatch, first, second
):
    monkeypatch.chdir(tmp_path)
    model = {"class_path": f"{__name__}.Own", "init_args": {"first": first, "second": second}}
    data = {"class_path": "actlab.datamodules.MNISTDataModule", "init_args": {"sample": True}}
    limits = {"limit_train_batches": 1, "limit_val_batches": 1, "max_epochs": 1, "logger": False}
    Path("own.yaml").write_text(json.dumps({"model": model, "data": data, "trainer": limits}))
    assert cli("fit", "-c", "own.yaml", "--trainer.limit_test_batches", "1.0").code == 0
    assert [repr(number) for number in NUMBERS] == [repr(first), repr(second)]
    (path,) = tmp_path.glob("runs/*/*/checkpoints/*.ckpt")
    loaded: Any = Own.load_from_checkpoint(path)
    assert [repr(number) for number in NUMBERS] == [repr(first), repr(second)]
    assert repr(loaded.schedules["lr"].end) == "200"
    assert torch.load(path)["global_step"] == 1
