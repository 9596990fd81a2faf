"""What a class takes, read off hand-made classes of every kind that a config may name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeVar

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from actlab.errors import ActlabError
from actlab.networks import MLP
from actlab.signatures import ANY_CLASS, NO_CLASS, Wanted, find, locate, name_of, parameters, wanted

if TYPE_CHECKING:
    from nowhere import Unknown


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
def test_parameters(owner, names, required):
    taken = parameters(owner)
    assert list(taken) == names
    assert [name for name in taken if taken[name].required] == required


def test_parameters_of_the_base_class_keep_their_types():
    assert parameters(HandsOn)["depth"].annotation in (int, "int")


def test_a_class_without_signature_is_left_alone():
    assert parameters(torch.Generator) is None


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (int, NO_CLASS),
        (str | None, NO_CLASS),
        (Literal["a", "b"], NO_CLASS),
        (dict[str, Any], NO_CLASS),
        (str | dict[str, Any], NO_CLASS),
        (nn.Module | Mapping[str, int], NO_CLASS),
        (list[int], NO_CLASS),
        (type[nn.Module], NO_CLASS),
        (Any, ANY_CLASS),
        ("Unknown", ANY_CLASS),
        (TypeVar("T"), ANY_CLASS),
        (Looks, ANY_CLASS),
        (Callable, ANY_CLASS),
        (Callable[..., Any], ANY_CLASS),
        (list[Any], ANY_CLASS),
        (nn.Module, Wanted((nn.Module,))),
        (Annotated[nn.Module, "a network"], Wanted((nn.Module,))),
        (nn.Module | Iterable[nn.Module] | bool | None, Wanted((nn.Module,))),
        (tuple[Tensor, ...], Wanted((Tensor,))),
        (torch.utils.data.Dataset[Tensor], Wanted((torch.utils.data.Dataset,))),
        (Callable[[int, Sequence[int]], nn.Module], Wanted((nn.Module,), factory=True, passed=2)),
        (Callable[..., nn.Module], Wanted((nn.Module,), factory=True, passed=None)),
        (Callable[[int], nn.Module] | None, Wanted((nn.Module,), factory=True, passed=1)),
        (str | Callable[[int], nn.Module], Wanted((nn.Module,), factory=False, passed=1)),
        (Callable[[Tensor], float], NO_CLASS),
    ],
)
def test_which_classes_fit_a_type(annotation, expected):
    assert wanted(annotation) == expected


def test_the_trainer_says_where_it_wants_classes():
    taken = parameters(pl.Trainer)
    assert taken["callbacks"].wanted == Wanted((pl.Callback,))
    assert [kind.__name__ for kind in taken["logger"].wanted.kinds] == ["Logger"]
    assert taken["max_epochs"].wanted == NO_CLASS


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


def test_the_shortest_path_names_a_class():
    assert name_of(MLP) == "actlab.networks.MLP"
    assert name_of(torch.optim.Adam) == "torch.optim.Adam"
