"""What a class takes, read off hand-made classes of every kind that a config may name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pytest
import torch
from torch import Tensor, nn

from actlab.config.signatures import find, locate, parameters
from actlab.errors import ActlabError

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]


class Base:
    def __init__(self, width: int, depth: int = 2) -> None: ...


class HandsOn(Base):
    def __init__(self, extra: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)


class GivesOne(Base):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(width=3, **kwargs)


class KeepsAll:
    def __init__(self, *args: int, size: int = 1, **kwargs: Any) -> None: ...


class ForCheckersOnly:
    def __init__(self, thing: Unknown | None = None, net: nn.Module | None = None) -> None: ...


class Looks(Protocol):
    def look(self) -> None: ...


def made(width: int = 3) -> nn.Module:
    return nn.Linear(width, width)


@pytest.mark.parametrize(
    ("owner", "names", "required"),
    [
        (Base, ["width", "depth"], ["width"]),
        (HandsOn, ["extra", "width", "depth"], ["width"]),
        (GivesOne, ["depth"], []),
        (KeepsAll, ["size"], []),
        (ForCheckersOnly, ["thing", "net"], []),
        (made, ["width"], []),
        (nn.Identity, [], []),
    ],
)
def test_parameters_include_those_passed_on_to_base_classes(owner, names, required):
    taken = parameters(owner) or {}
    assert list(taken) == names
    assert [name for name in taken if taken[name].required] == required


def test_parameters_of_the_base_class_keep_their_types_and_a_class_may_have_no_signature():
    assert parameters(HandsOn)["depth"].annotation in (int, "int")
    assert parameters(torch.Generator) is None


def test_classes_are_found_by_path_and_by_name():
    assert find("torch.optim.SGD", (torch.optim.Optimizer,), "model.optimizer") is torch.optim.SGD
    assert find("SGD", (torch.optim.Optimizer,), "model.optimizer") is torch.optim.SGD
    assert find("torch.nn.functional.relu", (Tensor,), "model.f") is nn.functional.relu
    assert locate("torch.optim.Optimizer.step") is torch.optim.Optimizer.step


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("torch.optim.SDG", ["model.optimizer", "'SDG'", "'SGD'", "torch.optim"]),
        ("torch.optimm.SGD", ["model.optimizer", "'optimm'", "'optim'"]),
        ("nowhere.SGD", ["model.optimizer", "nowhere.SGD", "PYTHONPATH"]),
        ("torch.nn.Linear", ["model.optimizer", "Optimizer", "torch.nn.Linear"]),
        ("torch.optim", ["model.optimizer", "Optimizer", "torch.optim"]),
        ("torch.pi", ["model.optimizer", "Optimizer", "torch.pi"]),
        ("SDG", ["model.optimizer", "Optimizer", "'SDG'", "'SGD'"]),
        ("no path.SGD", ["model.optimizer", "no path.SGD", "import path"]),
        ("./mine/sgd.py:SGD", ["model.optimizer", "import path. Use one such as mine.sgd.SGD"]),
        ("mine:SGD", ["model.optimizer", "import path. Use one such as mine.SGD"]),
        ("needs_another.Thing", ["needs_another.Thing", "nowhere"]),
        ("no_python.Thing", ["no_python.Thing", "invalid syntax"]),
    ],
)
def test_a_class_that_is_not_there_is_one_clear_line(path, parts, tmp_path, monkeypatch):
    (tmp_path / "needs_another.py").write_text("import nowhere\n")
    (tmp_path / "no_python.py").write_text("x =\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ActlabError) as error:
        find(path, (torch.optim.Optimizer,), "model.optimizer")
    assert all(part in str(error.value) for part in parts)
