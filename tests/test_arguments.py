"""Wrong arguments of the public functions: one clear error, before anything is tried or trained."""

import inspect
import itertools
import traceback
from pathlib import Path
from types import FunctionType
from typing import Any, cast

import pytest
from torch import nn

import actlab
from actlab.checks import configs
from actlab.datamodules import MNISTDataModule
from actlab.engines import running
from actlab.errors import ActlabError


class Hostile:
    """Raises whatever it is asked."""

    def __getattr__(self, name: str) -> Any:
        raise ValueError(name)

    def __repr__(self) -> str:
        raise RuntimeError("no text")

    __len__ = __iter__ = __bool__ = __hash__ = __eq__ = __repr__  # type: ignore[assignment]


def looped() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


VALUES: dict[str, Any] = {
    **{
        "none": None,
        "true": True,
        "zero": 0,
        "minus one": -1,
        "huge": 10**5000,
        "half": 0.5,
        "nan": float("nan"),
    },
    **{
        "empty": "",
        "a null byte": "\0",
        "half a pair": "\ud800",
        "a long text": "y" * 5000,
        "bytes": b"gelu",
    },
    **{
        "a path": Path("/nowhere"),
        "an empty list": [],
        "nested lists": [[]],
        "texts": ["gelu", "gelu"],
    },
    **{"a loop": looped(), "a set": {1}, "an empty mapping": {}, "a mapping of numbers": {1: 2}},
    **{
        "a mapping": {"name": "elu", "alpha": object()},
        "a function": print,
        "a lambda": lambda x: x,
    },
    **{
        "a class": dict,
        "an object": object(),
        "a hostile object": Hostile(),
        "a module": nn.ReLU(),
    },
    **{
        "a mapping of a loop": {"trainer.max_epochs": looped()},
        "a mapping of objects": {"a": Hostile()},
    },
}
GIVEN: dict[str, dict[str, Any]] = {
    "create": {"spec": "relu"},
    "factory": {"spec": "relu"},
    "load_study": {"study": "demo"},
    "names": {},
    "register": {"name": "of_a_test", "formula": "x"},
    "replace": {"model": nn.Sequential(nn.Linear(2, 2), nn.ReLU()), "old": "relu", "new": "gelu"},
    "results": {"study": "demo"},
    "run_study": {"study": "demo", "smoke": True, "seeds": 1},
}
FUNCTIONS = [name for name in actlab.__all__ if isinstance(getattr(actlab, name), FunctionType)]


def parameters(name: str) -> list[str]:
    """Each parameter, those passed on as keywords too, and one that no function has."""
    known = inspect.signature(getattr(actlab, name)).parameters
    more = inspect.signature(actlab.load_study).parameters if "changes" in known else {}
    return [key for key in {**known, **more} if key not in ("changes", "params")] + ["nowhere"]


@pytest.fixture(autouse=True)
def _untrained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is trained, also where a value is valid."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(running, "run", lambda *_: 0)
    monkeypatch.setattr(configs, "check", lambda _: [])


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        (
            "load_study",
            {"smoke": print},
            "smoke: expected true or false, got <built-in function print>",
        ),
        ("load_study", {"settings": 0}, "settings: expected a mapping, got 0"),
        (
            "load_study",
            {"settings": {1: 2}},
            "settings: expected a mapping with texts as keys, got {1: 2}",
        ),
        ("load_study", {"study": 3}, "study: expected text or a path, got 3"),
        (
            "load_study",
            {"activations": [3]},
            "activations: expected text or .* or a list of these, got \\[3\\]",
        ),
        ("run_study", {"jobs": [[]]}, "jobs: expected a whole number, got \\[\\[\\]\\]"),
        ("run_study", {"jobs": -1}, "jobs: expected a number greater than or equal to 0, got -1"),
        (
            "run_study",
            {"sed": 0},
            "load_study: unknown argument sed. Allowed: study, activations, seeds,",
        ),
        ("names", {"all": 0}, "names: unknown argument all. Allowed: none"),
    ],
)
def test_the_message_names_argument_value_and_what_is_allowed(name, given, message):
    with pytest.raises(ActlabError, match=message):
        getattr(actlab, name)(**{**GIVEN[name], **given})


def test_arguments_without_a_name_are_checked_too():
    api, data = cast(Any, actlab), cast(Any, MNISTDataModule)
    for wrong, message in [
        (lambda: api.load_study(), "load_study: study is missing"),
        (lambda: api.create(), "create: spec is missing"),
        (
            lambda: api.load_study("demo", "gelu"),
            "load_study: too many arguments. Allowed: study, ",
        ),
        (lambda: api.replace(nn.ReLU(), "relu", 3), "replace: new: expected text"),
        (lambda: data(workers=2), "MNISTDataModule: unknown argument workers. Allowed: dataset, "),
    ]:
        with pytest.raises(ActlabError, match=message):
            wrong()


def test_every_public_function_is_here():
    assert GIVEN.keys() == set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_wrong_argument_is_an_actlab_error(name):
    wrong = []
    for key, value in itertools.product(parameters(name), VALUES):
        message = "a valid argument"
        try:
            getattr(actlab, name)(**{**GIVEN[name], key: VALUES[value]})
        except ActlabError as error:
            message = str(error)
        except Exception as error:
            message = f"{type(error)}\n{traceback.format_exc()}"
        if not 0 < len(message) < 2000 or "\n" in message:
            wrong.append(f"{key}, {value}: {message}")
    assert not wrong, "\n".join(wrong)
