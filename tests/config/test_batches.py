"""A whole number stays a whole number: whatever Python was asked to import before Lightning."""

import subprocess
import sys
import typing

import jsonargparse._typehints as hints
import pytest

from actlab import experiments
from actlab.config import parsing, records
from actlab.storage.mappings import read_mapping
from actlab.storage.resources import resource

CONFIGS = sorted(resource("configs").glob("*.yaml"))
LIMITS = {"limit_train_batches": 1, "limit_val_batches": 1.0, "val_check_interval": 1}


@pytest.fixture(params=["int first", "float first"])
def primed(request):
    """Python's unions as if a module that is imported earlier had written them in this order."""

    def forget():
        for clear in (
            *vars(typing)["_cleanups"],
            parsing.parser_of.cache_clear,
            hints._cached_class_parsers.clear,
        ):
            clear()
        parsing._kept.clear()

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
        return {key: one for name, inner in items for key, one in whole_numbers(inner, (*where, name)).items()}
    return {where: value} if type(value) is int else {}


def test_the_whole_numbers_of_every_config_stay_whole(primed):
    assert len(CONFIGS) > 10
    for path in CONFIGS:
        config = read_mapping(path)
        config["trainer"] |= LIMITS
        found = experiments.resolved(config, {}).as_dict()
        for section in ("trainer", "model", "data"):
            given, kept = (whole_numbers(records.plain(one[section])) for one in (config, found))
            lost = {place: number for place, number in given.items() if kept.get(place) is not number}
            assert not {place: n for place, n in lost.items() if place[-1] in LIMITS or "schedules" in place}, (
                path
            )


def test_a_schedule_in_epochs_is_built(primed):
    config = read_mapping(resource("configs") / "cifar10_convnet.yaml")
    config["data"]["init_args"]["sample"] = True
    config["trainer"] |= LIMITS
    trainer, task, _ = experiments.build(config)
    assert {name: type(getattr(trainer, name)) for name in LIMITS} == {k: type(v) for k, v in LIMITS.items()}
    assert (task.schedules["lr"].end, type(task.schedules["lr"].end)) == (200, int)


@pytest.mark.slow  # seven seconds of imports
def test_the_types_of_the_trainer_stay_where_floats_came_first(programs):
    words = [sys.executable, programs / "batches_of_a_config.py"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith("['int', 'float', 'int']"), done.stderr
