"""`actlab.replace`: which modules it replaces, what it keeps, what it lists and what it rejects."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import actlab
from actlab.activations import FunctionalCall, Replacement, Spec
from actlab.activations.plugins import resolve
from actlab.errors import ActlabError
from actlab.tasks import ClassificationTask

pytestmark = pytest.mark.filterwarnings("ignore:.*replaced activations change their input in place")


class Block(nn.Module):
    """As in torchvision's ResNet: one module, called at two sites."""

    def __init__(self, width=4):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(x + self.second(self.relu(self.first(x))))


class Functional(nn.Module):
    """Calls of the same function in four spellings, and of another function."""

    def __init__(self):
        super().__init__()
        self.inner = Block()
        self.unregistered = [nn.ReLU()]

    def forward(self, x):
        x = F.relu(torch.relu(x)).relu_().relu()
        return self.inner(self.unregistered[0](torch.tanh(x)))


class Subclass(nn.ReLU):
    pass


class Slope(nn.Module):
    def __init__(self, slope):
        super().__init__()
        self.slope = slope

    def forward(self, x):
        return self.slope * x


def swish(x):
    return x * torch.sigmoid(x)


def nested():
    named = nn.ModuleDict({"act": nn.ReLU(), "norm": nn.BatchNorm1d(4)})
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.ModuleList([Block(), named]), nn.Tanh())


def types(model):
    return [type(part).__name__ for part in model.modules()]


def test_every_place_gets_a_fresh_module_and_all_else_stays():
    model = nested()
    before, others = (
        copy.deepcopy(model.state_dict()),
        [m for m in model.modules() if type(m) is not nn.ReLU],
    )
    found = actlab.replace(model, "relu", "gelu")
    assert found == Replacement(("1", "2.0.relu", "2.1.act"), None)
    new = [model.get_submodule(path) for path in found.paths]
    assert all(type(module) is nn.GELU for module in new)
    assert len(set(map(id, new))) == 3
    assert [m for m in model.modules() if type(m) is not nn.GELU] == others
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


def test_the_replaced_model_computes_the_new_activation():
    model, x = Block(), torch.randn(3, 4)
    actlab.replace(model, "relu", "gelu")
    assert torch.equal(model(x), F.gelu(x + model.second(F.gelu(model.first(x)))))


def test_a_module_at_several_places_becomes_several_and_a_shared_block_stays_shared():
    relu, block = nn.ReLU(), Block()
    model = nn.Sequential(block, relu, block, relu)
    found = actlab.replace(model, "relu", "prelu")
    assert found.paths == ("0.relu", "1", "3")
    assert model[1] is not model[3]
    assert model[0] is model[2]
    assert len({id(p) for path in found.paths for p in model.get_submodule(path).parameters()}) == 3


def model_of_many():
    gelus = [nn.GELU(), nn.GELU("tanh")]
    parts = [nn.ELU(0.5), nn.ELU(), *gelus, nn.Threshold(0, 0), Subclass(), Slope(1), Slope(2)]
    shifted: actlab.activations.Activation = {"name": "soi", "mu": 1.0}
    named = ["srelu", "cauchy_lu", "laplace_lu", shifted, "soi", "adaptive_dropout"]
    return nn.Sequential(*parts, *map(actlab.create, named), actlab.activations.Function(swish, {}))


SLOPE = f"{__name__}:Slope"


@pytest.mark.parametrize(
    ("old", "paths"),
    [
        ("elu", ["0", "1"]),
        ({"name": "elu", "alpha": 0.5}, ["0"]),
        (nn.ELU, ["0", "1"]),
        (actlab.factory({"name": "elu", "alpha": 1.0}), ["1"]),
        ("gelu", ["2"]),
        ("gelu_tanh", ["3"]),
        (nn.GELU, ["2", "3"]),
        (nn.Threshold, ["4", "8"]),
        ("srelu", ["8"]),
        ("cauchy_lu", ["9"]),
        ("soi", ["11", "12"]),
        ({"name": "soi", "mu": 1.0}, ["11"]),
        ("adaptive_dropout", ["13"]),
        ({"name": "adaptive_dropout", "activation": "relu"}, ["13"]),
        ("relu", ["13.activation"]),
        (Subclass, ["5"]),
        (Slope, ["6", "7"]),
        (SLOPE, ["6", "7"]),
        ({"name": SLOPE, "slope": 2}, ["7"]),
        (swish, ["14"]),
    ],
)
def test_which_modules_an_activation_stands_for(old, paths):
    assert list(actlab.replace(model_of_many(), old, "silu").paths) == paths


@pytest.mark.parametrize(
    ("new", "shown"),
    [
        ({"name": "elu", "alpha": 0.5}, "ELU(alpha=0.5)"),
        ("torch.nn:Mish", "Mish()"),
        ("./own.py:Own", "Own()"),
        (nn.Softplus, "Softplus(beta=1.0, threshold=20.0)"),
        (actlab.factory("silu"), "SiLU()"),
        (swish, "Function(swish)"),
        (lambda: nn.LeakyReLU(0.2), "LeakyReLU(negative_slope=0.2)"),
    ],
)
def test_everything_that_names_an_activation_can_be_the_new_one(new, shown, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(
        "from torch import nn\nclass Own(nn.Identity): pass\n", encoding="utf-8"
    )
    model = nn.Sequential(nn.ReLU())
    actlab.replace(model, "relu", new)
    assert str(model[0]) == shown


def test_mode_device_and_dtype_are_those_of_the_place():
    model = nn.Sequential(
        nn.Linear(2, 2).half(), nn.Sequential(nn.Linear(2, 2).double(), nn.ReLU()), nn.ReLU()
    )
    model[1].eval()
    actlab.replace(model, "relu", "prelu")
    assert [model[1][1].weight.dtype, model[2].weight.dtype] == [torch.float64, torch.float16]
    assert [model[1][1].training, model[2].training, model.training] == [False, True, True]
    learnt = nn.Sequential(nn.Linear(2, 2), nn.PReLU(2).double())
    actlab.replace(learnt, "prelu", {"name": "gelu", "learnable": "mu"})
    assert learnt[1].mu.dtype == torch.float64
    meta = nn.Sequential(nn.Linear(2, 2, device="meta"), nn.ReLU())
    actlab.replace(meta, "relu", {"name": "prelu", "channels": 2})
    assert meta[1].weight.device.type == "meta"


@pytest.fixture
def bend(programs):
    """A class that takes the number of channels of pictures."""
    return resolve(Spec.of(f"{programs}/sized_activations.py:Bend"))


class Twice(nn.Module):
    """Calls one module with 8 and with 4 features, and another one not at all."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 8), nn.Linear(8, 4)
        self.relu, self.idle = nn.ReLU(), nn.ELU()

    def forward(self, x):
        return self.relu(self.second(self.relu(self.first(x))))


def test_each_place_has_the_width_of_its_input(bend):
    relu, example = nn.ReLU(), torch.zeros(2, 3, 8, 8)
    for new in (bend, {"name": "prelu", "per_channel": True}):
        model = nn.Sequential(nn.Conv2d(3, 8, 3), relu, nn.Conv2d(8, 16, 3), relu)
        assert actlab.replace(model, "relu", new, example=example).paths == ("1", "3")
        assert [next(model[i].parameters()).numel() for i in (1, 3)] == [8, 16]
        assert not {**relu._forward_hooks, **relu._forward_pre_hooks}


@pytest.mark.parametrize(
    ("old", "example", "message"),
    [
        (
            "relu",
            None,
            (
                r"relu: Bend: expected the number of features at its site for 'channels'.* pass "
                "example=INPUT"
            ),
        ),
        (
            "relu",
            torch.zeros(2, 3),
            "relu, called with 4 and 8 features in the example: Bend: expected",
        ),
        ("elu", torch.zeros(2, 3), "idle, not called in the example: Bend: expected"),
    ],
)
def test_a_place_without_one_width_is_named(bend, old, example, message):
    model = Twice()
    before = dict(model.named_modules())
    with pytest.raises(ActlabError, match=message):
        actlab.replace(model, old, bend, example=example)
    assert dict(model.named_modules()) == before
    assert actlab.replace(model, old, "gelu", example=example).paths  # which needs none


def test_an_example_gives_widths_to_the_factory_of_a_network():
    class Net(nn.Sequential):
        def __init__(self, act, num_classes, input_shape):
            super().__init__(nn.Flatten(), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, num_classes))
            actlab.replace(self, "relu", act, example=torch.zeros(1, *input_shape))

    task = actlab.tasks.ClassificationTask(
        activation={"name": "prelu", "per_channel": True},
        network=Net,
        num_classes=3,
        input_shape=(1, 2, 2),
    )
    assert task.network[2].weight.shape == (6,)


GATE = nn.PReLU()


class Shared(nn.Module):
    def __init__(self, inner=GATE):
        super().__init__()
        self.inner = nn.Sequential(inner)

    def forward(self, x):
        return self.inner(x)


def test_a_parameter_at_several_places_is_rejected():
    model = nn.Sequential(nn.ReLU(), nn.Linear(2, 2), nn.ReLU())
    message = "inner.0.weight is shared by all instances of Shared: create it in `__init__`"
    with pytest.raises(ActlabError, match=message):
        actlab.replace(model, "relu", Shared)
    assert type(model[2]) is nn.ReLU
    actlab.replace(model, "relu", lambda: Shared(nn.PReLU()))


def test_wide_and_complex_tensors_keep_their_dtype():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            for dtype in (
                torch.bfloat16,
                torch.float32,
                torch.float64,
                torch.complex64,
                torch.int32,
            ):
                self.register_buffer(f"{dtype}_values"[6:], torch.zeros(1, dtype=dtype))

    model = nn.Sequential(nn.Linear(2, 2).half(), nn.ReLU())
    actlab.replace(model, "relu", Mixed)
    found = [str(value.dtype)[6:] for value in model[1].buffers()]
    assert found == ["float16", "float16", "float64", "complex64", "int32"]


def test_functional_calls_are_listed_by_module_and_spelling():
    model = Functional()
    found = actlab.replace(model, "relu", "gelu", example=torch.zeros(2, 4))
    spellings = [
        "torch.relu",
        "torch.nn.functional.relu",
        "torch.Tensor.relu_",
        "torch.Tensor.relu",
    ]
    assert found == Replacement(
        ("inner.relu",), tuple(FunctionalCall("", name) for name in spellings)
    )
    assert str(found).startswith(
        "replaced: inner.relu\nfunctional calls, not replaced: torch.relu in the model"
    )
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


class Leaky(nn.ReLU):
    def forward(self, x):
        return torch.where(x > 0, x, 0.3 * x)


@pytest.mark.parametrize("held", [nn.functional.relu, "relu", nn.ReLU(), Leaky()])
def test_a_layer_of_torch_computes_its_new_activation_in_evaluation_too(held):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation=held, batch_first=True)
    model = nn.TransformerEncoder(layer, 2)
    old, x = "relu" if type(held) is not Leaky else Leaky, torch.randn(3, 5, 8)
    padded = torch.arange(5) >= torch.tensor([5, 3, 4])[:, None]
    found = actlab.replace(model, old, "gelu_tanh", example=x)
    assert found == Replacement(("layers.0.activation", "layers.1.activation"), found.functional)
    with torch.no_grad():
        trained, evaluated = (
            model.train(mode)(x, src_key_padding_mask=padded) for mode in (True, False)
        )
    torch.testing.assert_close(trained[~padded], evaluated[~padded], rtol=0, atol=2e-6)


def test_a_function_that_is_not_replaced_stays_a_function():
    model = nn.Sequential(
        nn.TransformerDecoderLayer(4, 2, 8, activation=nn.functional.silu), nn.ReLU()
    )
    actlab.replace(model, "relu", "gelu")
    with pytest.raises(ActlabError, match=r"SiLU\(\) × 1"):
        actlab.replace(model, "elu", "gelu")
    assert model[0].activation is nn.functional.silu
    assert actlab.replace(model, "silu", "gelu").paths == ("0.activation",)


@pytest.mark.filterwarnings("ignore:`torch.jit")  # torch's own
def test_a_model_may_hold_a_scripted_module():
    model = nn.Sequential(torch.jit.script(nn.Linear(4, 8)), nn.ReLU())
    assert actlab.replace(model, "relu", "gelu", example=torch.zeros(1, 4)).functional == ()


def test_the_search_leaves_the_model_as_it_was():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(), Block().eval())
    before, modes = copy.deepcopy(model.state_dict()), [part.training for part in model.modules()]
    example, state = torch.randn(3, 4), torch.get_rng_state()
    found = actlab.replace(model, "relu", "gelu", example=(example,))
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert [part.training for part in model.modules()] == modes
    assert found.functional == ()


@pytest.mark.parametrize("old", ["soi", "gelu_sigmoid"])
def test_what_torch_has_no_function_for_is_not_searched_for(old):
    model = nn.Sequential(actlab.create(old))
    found = actlab.replace(model, old, "gelu", example=torch.zeros(2))
    assert found.functional is None
    assert str(found).endswith("not searched for")


def test_a_stochastic_map_draws_in_a_plain_loop():
    model, x = Block(), torch.randn(64, 4)
    actlab.replace(model, "relu", "soi")
    torch.manual_seed(1)
    first, second = model(x), model(x)
    torch.manual_seed(1)
    again = model(x)
    assert not torch.equal(first, second)
    assert torch.equal(first, again)
    first.sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    actlab.replace(model.eval(), "soi", "gelu")
    gelu = model(x)
    actlab.replace(model, "gelu", "soi")
    torch.testing.assert_close(model(x), gelu)


@pytest.mark.parametrize(
    ("model", "arguments", "words"),
    [
        (
            nested,
            {"old": "elu"},
            ["no matching ELU module", "ReLU() × 2", "ReLU(inplace=True) × 1", "example="],
        ),
        (
            model_of_many,
            {"old": {"name": "elu", "alpha": 2}},
            ["ELU(alpha=0.5) × 1", "Slope() × 2", "SOI("],
        ),
        (nn.Linear, {"old": "relu"}, ["no matching ReLU module", "none"]),
        (nested, {"old": "rleu"}, ["unknown activation", "relu"]),
        (nested, {"new": "gleu"}, ["unknown activation", "gelu"]),
        (nested, {"new": {"name": "elu", "beta": 1}}, ["beta", "elu", "alpha"]),
        (nested, {"new": nn.GELU()}, ["instance of GELU", "class"]),
        (
            nested,
            {"new": 3},
            ["replace: new: expected text or a mapping or a class or a function, got 3"],
        ),
        (nested, {"new": nn.Threshold}, ["Threshold: expected a value for 'threshold'"]),
        (
            Block,
            {"example": torch.zeros(3, 5)},
            ["cannot be run on the example", "RuntimeError", "tuple"],
        ),
        (nn.ReLU, {}, ["the model is itself a ReLU", "actlab.create"]),
        (
            Functional,
            {"old": "tanh", "example": torch.zeros(2, 4)},
            ["no matching Tanh module", "torch.tanh in the model itself", "act_layer"],
        ),
    ],
)
def test_an_error_names_the_remedy_and_nothing_changes(model, arguments, words):
    model = model(*[4, 4] * (model is nn.Linear))
    before = list(model.modules())
    with pytest.raises(ActlabError) as caught:
        actlab.replace(model, **{"old": "relu", "new": "gelu", **arguments})
    assert [word for word in words if word not in str(caught.value)] == []
    assert list(model.modules()) == before


def test_a_task_is_rejected_because_its_numbers_are_bound_to_its_activations():
    with pytest.raises(ActlabError, match=r"Set model\.activation"):
        actlab.replace(ClassificationTask(activation="relu"), "relu", "soi")


class PreActivation(nn.Module):
    """The activation in place also changes the skip connection."""

    def __init__(self, act=None):
        super().__init__()
        self.act, self.layer = act or nn.ReLU(inplace=True), nn.Linear(4, 4)

    def forward(self, x):
        return x + self.layer(self.act(x))


class Dropped(nn.Module):
    """Nobody takes the result."""

    def __init__(self):
        super().__init__()
        self.layer, self.act = nn.Linear(4, 4), nn.ReLU(inplace=True)

    def forward(self, x):
        x = self.layer(x)
        self.act(x)
        return x


class OwnInPlace(nn.Module):
    """No setting says so."""

    def forward(self, x):
        return x.relu_()


@pytest.mark.parametrize(
    ("block", "old", "places"),
    [
        (PreActivation, "relu", "1.act: "),
        (Dropped, "relu", "1.act: "),
        (lambda: PreActivation(OwnInPlace()), OwnInPlace, "1.act: "),
    ],
    ids=["skip connection", "dropped result", "no setting"],
)
def test_an_activation_in_place_whose_input_is_read_elsewhere_is_rejected(block, old, places):
    model = nn.Sequential(nn.Linear(4, 4), block(), nn.Linear(4, 4), nn.ReLU(inplace=True))
    x = torch.randn(3, 4)
    given, right = x.clone(), model(x)
    with pytest.raises(ActlabError) as raised:
        actlab.replace(model, old, "gelu", example=x)
    assert str(raised.value).startswith(f"{places}the model also reads the input")
    assert torch.equal(model(x), right)
    assert torch.equal(x, given)


@pytest.mark.parametrize("block", [PreActivation, Dropped])
def test_without_an_example_an_activation_in_place_is_named(block):
    with pytest.warns(
        UserWarning, match="^0.act, 1.relu: replaced activations change their input in place"
    ):
        actlab.replace(nn.Sequential(block(), Block(), nn.ReLU()), "relu", "gelu")


def test_an_activation_in_place_whose_result_alone_is_read_is_replaced():
    model = nn.Sequential(nn.Linear(4, 4), Block(), nn.ReLU(inplace=True))
    assert actlab.replace(model, "relu", "gelu", example=torch.randn(3, 4)).paths == ("1.relu", "2")
