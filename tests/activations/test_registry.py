"""Names, parameters, plug-ins, and what every registered activation must survive."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from actlab.activations import (
    Factory,
    Function,
    create,
    entry,
    factory,
    is_elementwise,
    is_stochastic,
    names,
    register,
    registry,
)
from actlab.errors import ActlabError
from actlab.random.streams import Stream, attach

NAMES = names()
PAPER_NAMES = (
    "relu elu leaky_relu srelu prelu rrelu silu gelu gelu_tanh gelu_sigmoid soi adaptive_dropout "
    "cauchy_lu laplace_lu identity tanh sigmoid"
)
NAMES_OF_TODAY = ("relu_squared", "mish", "softplus", "sine", "gauss")
SOI_FAMILY = [{"name": "soi", "cdf": cdf} for cdf in ("logistic", "laplace", "cauchy")]


@pytest.fixture
def own_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))


def values(module: nn.Module, x: torch.Tensor, seed: int = 3) -> list[torch.Tensor]:
    """Training value, its gradient, and evaluation value."""
    attach(module, Stream(seed))
    x = x.detach().clone().requires_grad_()
    y = module.train()(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    return [y.detach(), gradient, module.eval()(x).detach()]


def value_and_gradient(
    module: nn.Module, x: torch.Tensor, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(seed)
    x = x.detach().clone().requires_grad_()
    y = module(x)
    return y.detach(), torch.autograd.grad(y.sum(), x)[0]


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a, b, strict=True))


def test_every_activation_is_registered_with_formula_and_source():
    assert set(NAMES) == {*PAPER_NAMES.split(), *NAMES_OF_TODAY}
    assert tuple(name for name in NAMES if name in NAMES_OF_TODAY) == NAMES_OF_TODAY
    for name in NAMES:
        assert entry(name).formula
        assert entry(name).source


X = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
UNITS = [*NAMES, *SOI_FAMILY]
# A function, learnt, by hand, drawn, drawn by hand
KINDS = (
    "gelu",
    "prelu",
    "cauchy_lu",
    "rrelu",
    "soi",
)


def keeps_shape_and_dtype(spec: Any) -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        for x in (X.to(dtype), X[0].to(dtype), X.view(1, 3, 2, 5).to(dtype)):
            for y in values(create(spec).to(dtype), x):
                assert (y.shape, y.dtype) == (x.shape, dtype)


def copies_pickles_and_reloads(spec: Any) -> None:
    module = create(spec)
    expected = values(module, X)
    other = create(spec)
    other.load_state_dict(module.state_dict())
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), other):
        assert same(values(twin, X), expected)


def factory_makes_fresh_equal_modules(spec: Any) -> None:
    made = pickle.loads(pickle.dumps(factory(spec)))
    assert made == factory(spec)
    assert made() is not made()
    assert same(values(made(), X), values(create(spec), X))


def derivatives_of_every_order_and_mode(spec: Any) -> None:
    """Backward and forward, twice and mapped, against finite differences away from kinks."""
    module = create(spec).double().eval()
    x = torch.tensor([-7.0, -2.1, -0.4, 0.3, 1.7, 6.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(module, (x,), check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(
        module, (x,), check_fwd_over_rev=True, check_batched_grad=True
    )
    slope = torch.func.vmap(torch.func.grad(module))
    for mode in (False, True)[: 2 - is_stochastic(module)]:
        module.train(mode)
        ones = torch.ones_like(x)
        torch.testing.assert_close(torch.func.jvp(module, (x,), (ones,))[1], slope(x))
        curvature = torch.func.vmap(torch.func.grad(torch.func.grad(module)))(x)
        hessian = torch.func.hessian(lambda t: module(t).sum())(x)
        torch.testing.assert_close(hessian, torch.diag(curvature))


def vmap_maps_the_evaluation_and_draws_apart(spec: Any) -> None:
    module = create(spec)
    stack = X.expand(3, 6, 5)
    drawn = torch.func.vmap(module.train(), randomness="different")(stack)
    assert is_stochastic(module) is not torch.equal(drawn[0], drawn[1])
    module.eval()
    torch.testing.assert_close(torch.func.vmap(module)(stack), module(stack))


def autocast(spec: Any) -> None:
    layer, module = nn.Linear(5, 5), create(spec)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = module(layer(X))
    assert y.dtype == torch.bfloat16
    y.sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.isfinite().all()


def one_module_serves_a_stack_when_elementwise(spec: Any) -> None:
    module = create(spec)
    stack = torch.stack([X, X + 1, -X])
    alone = [values(create(spec), x, seed) for x, seed in zip(stack, (7, 8, 9), strict=True)]
    if is_elementwise(module):
        attach(module, Stream((7, 8, 9)))
        torch.testing.assert_close(module.train()(stack), torch.stack([a[0] for a in alone]))
        torch.testing.assert_close(module.eval()(stack), torch.stack([a[2] for a in alone]))
    else:
        assert list(module.parameters())


def says_rightly_whether_it_draws(spec: Any) -> None:
    module = create(spec).train()
    state = torch.get_rng_state()
    first, second = module(X), module(X)
    assert is_stochastic(module) is not torch.equal(torch.get_rng_state(), state)
    assert is_stochastic(module) is not torch.equal(first, second)
    assert (
        is_stochastic(module) is entry(spec if isinstance(spec, str) else spec["name"]).stochastic
    )
    assert torch.equal(module.eval()(X), module(X))


# torch's own, at the first use
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("spec", UNITS, ids=str)
def test_every_unit(spec):
    """Each check above, as its name says."""
    for check in (
        *(keeps_shape_and_dtype, copies_pickles_and_reloads, factory_makes_fresh_equal_modules),
        *(derivatives_of_every_order_and_mode, vmap_maps_the_evaluation_and_draws_apart, autocast),
        *(one_module_serves_a_stack_when_elementwise, says_rightly_whether_it_draws),
    ):
        torch.manual_seed(0)
        check(spec)


@pytest.mark.parametrize(
    "spec",
    [pytest.param(unit, marks=[] if unit in KINDS else pytest.mark.slow) for unit in UNITS],
    ids=str,
)
def test_it_compiles_with_its_backward(spec):
    torch.compiler.reset()
    module = create(spec)
    compiled: Any = torch.compile(module, backend="aot_eager", fullgraph=True)
    for mode in (True, False):
        module.train(mode)
        expected, found = (value_and_gradient(m, X, seed=5) for m in (module, compiled))
        torch.testing.assert_close(found, expected)


def test_parameters_reach_the_unit():
    x = torch.tensor([-2.0, 1.0])
    assert create({"name": "leaky_relu", "slope": 0.5})(x).tolist() == [-1, 1]
    assert create({"name": "elu", "alpha": 3}, alpha=2.0)(x)[0].item() == pytest.approx(
        2 * (2.718281828**-2 - 1)
    )
    assert create("prelu", slope=0.5)(x).tolist() == [-1, 1]
    assert entry("elu").parameters == {"alpha": 1.0}
    assert (
        create(
            {"name": "adaptive_dropout", "activation": {"name": "elu", "alpha": 2}}
        ).activation.alpha
        == 2
    )


def test_mistakes_are_named_when_the_factory_is_made():
    for spec, message in (
        ("gelo", "unknown activation 'gelo'; did you mean 'gelu'"),
        (
            "Swish",
            (
                r"unknown activation 'Swish'; did you mean 'silu'\? `actlab activations` lists "
                r"all. You can"
            ),
        ),
        ("gelu_new", r"did you mean 'gelu_tanh'\? "),
        (
            "hardswish",
            r"lists all\. You can also use an importable name: torch.nn:Hardswish\.$",
        ),
        (
            "qqq",
            (
                r"^unknown activation 'qqq'\. `actlab activations` lists all. You can also use an "
                r"importable name: \S+ or"
            ),
        ),
        ({"name": "elu", "alfa": 1}, "unknown parameter of elu 'alfa'; did you mean 'alpha'"),
        ({"name": "relu", "alpha": 1}, "unknown parameter of relu 'alpha'. relu accepts none."),
        ({"name": "elu", "alpha": "1e-3"}, "'alpha' of elu: expected float, got '1e-3'"),
        (
            {"name": "torch.nn:ELU", "inplace": "no"},
            "'inplace' of torch.nn:ELU: expected bool, got 'no'",
        ),
        ({"name": "prelu", "channels": "3"}, "'channels' of prelu: expected int or None, got '3'"),
        (
            {"name": "prelu", "channels": 1.5},
            "cannot build prelu with {'channels': 1.5}: TypeError: ",
        ),
        (
            {"name": "prelu", "channels": 0},
            "'channels' of prelu: expected a positive number without",
        ),
        (
            {"name": "prelu", "channels": 3, "per_channel": True},
            "without 'per_channel', got channels: 3, per_channel: true",
        ),
        ({"name": "gelu", "sigma": 0}, "'sigma' of gelu: expected a positive number, got 0"),
        ({"name": "gelu", "channels": 3}, "'learnable' of gelu: expected true, mu or sigma"),
        (
            {"name": "soi", "cdf": "normale"},
            r"'cdf' of soi: expected Literal\['normal', .*, got 'normale'",
        ),
        ({"name": "soi", "sigma": -1.0}, "'sigma' of soi: expected a positive number, got -1"),
        ({"name": "rrelu", "lower": 0.5}, "'lower' of rrelu: expected at most 'upper'"),
        ({"name": "adaptive_dropout", "activation": "rele"}, "unknown activation 'rele'"),
        ({"alpha": 1}, "a name or a mapping with a name"),
        (7, "a name or a mapping with a name"),
        (
            "no_such_package.units:Mine",
            "cannot import 'no_such_package.units': ModuleNotFoundError",
        ),
        (
            "torch.nn.functional:gelo",
            "unknown name in torch.nn.functional 'gelo'; did you mean",
        ),
        (
            "torch.nn:Linear",
            (
                "torch.nn:Linear: expected a value for 'out_features', got none. Use .*, with "
                "width for the number"
            ),
        ),
        ({"name": "torch.nn:ELU", "beta": 1}, "unknown parameter of torch.nn:ELU 'beta'"),
        ({"name": "torch:relu", "beta": 1}, "cannot build torch:relu .*TypeError"),
        ("torch:sum", r"shape \(2, 4\) as result, got a tensor of shape \(\)"),
        ("math:pi", "expected a class of nn.Module or a function, got float"),
        (
            "collections:OrderedDict",
            "expected a class of nn.Module or a function, got another class",
        ),
    ):
        with pytest.raises(ActlabError, match=message):
            factory(spec)  # type: ignore[arg-type]


def test_importable_names():
    x = torch.linspace(-2, 2, 9)
    assert isinstance(create("torch.nn:Mish"), nn.Mish)
    assert create({"name": "torch.nn:Threshold", "threshold": 1, "value": 9})(x)[0] == 9
    for name in ("torch:relu", "torch.nn.functional:relu"):
        module = pickle.loads(pickle.dumps(create(name)))
        assert torch.equal(module(x), x.relu())
        assert not is_elementwise(module)
        assert is_stochastic(module)
        assert "relu" in repr(module)
    assert create({"name": "torch.nn.functional:leaky_relu", "negative_slope": 0.5})(x)[0] == -1


def test_the_factory_leaves_the_global_generator_alone():
    state = torch.get_rng_state()
    factory({"name": "torch.nn.functional:dropout", "p": 0.5})
    assert torch.equal(torch.get_rng_state(), state)


@pytest.fixture
def width_file(programs: Path) -> str:
    return f"{programs}/sized_activations.py"


@pytest.fixture
def unit_file(
    program: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    monkeypatch.chdir(tmp_path)
    return program("activation_forms")


def test_a_file_of_the_user(unit_file, monkeypatch):
    x = torch.linspace(-2, 2, 5)
    made = factory({"name": "./activation_forms.py:Swish", "beta": 2.0})
    monkeypatch.chdir("/")
    unit = made()
    torch.testing.assert_close(unit(x), x * torch.sigmoid(2 * x))
    assert type(unit) is type(create(f"{unit_file}:Swish"))
    assert is_elementwise(unit)
    assert not is_stochastic(unit)
    for twin in (
        copy.deepcopy(unit),
        pickle.loads(pickle.dumps(unit)),
        pickle.loads(pickle.dumps(made))(),
    ):
        assert torch.equal(twin(x), unit(x))
    monkeypatch.chdir(unit_file.parent)
    assert create({"name": "./activation_forms.py:slope", "channels": 3}).num_parameters == 3
    assert create("activation_forms.py:default_slope")(x)[0] == -1
    assert create({"name": "activation_forms.py:scaled", "by": 3})(x)[0] == -6
    square = create("./activation_forms.py:square")
    assert is_elementwise(square)
    assert not is_stochastic(square)


def test_mistakes_in_a_file_of_the_user(unit_file):
    for name, message in (
        ("./activation_froms.py:Swish", "no such file: .*activation_froms.py"),
        (
            "./activation_forms.py:Swash",
            "unknown name in .*activation_forms.py 'Swash'; did you mean 'Swish'",
        ),
        (
            "./activation_forms.py",
            "got the file .* Add the class or function in it, as in .*activation_forms.py:MyAct",
        ),
        ("GELU", "did you mean 'gelu'"),
        ("./activation_forms.py:Odd", "RuntimeError: no width fits"),
        ("./activation_forms.py:shared", "got an instance of ReLU, which layers cannot share"),
        ("./broken.py:Swish", "cannot import .*broken.py: ZeroDivisionError: division by zero"),
    ):
        unit_file.with_name("broken.py").write_text("1 / 0")
        with pytest.raises(ActlabError, match=message):
            factory(name)


@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        ("Bend", (1, 6, 1, 1)),
        ({"name": "Bend", "channels": 4}, (1, 4, 1, 1)),
        ({"name": "Wide", "n": "width", "axis": "width"}, (6,)),
        ("made_of", (6,)),
        ("curried", (6,)),
        ({"name": "Optional"}, (1,)),
        ({"name": "Optional", "channels": "width"}, (6,)),
    ],
    ids=str,
)
def test_the_width_of_a_site_reaches_whoever_asks_for_it(spec, shape, width_file):
    named = {"name": spec} if isinstance(spec, str) else spec
    act = factory({**named, "name": f"{width_file}:{named['name']}"})
    (parameter,) = act(6).parameters()
    assert parameter.shape == shape


def test_a_function_of_features_is_tried_on_a_tensor_first(width_file):
    for name in ("of_features", "of_pictures", "scaled_by"):
        spec = {"name": f"{width_file}:{name}"}
        made = factory(spec)(6)
        assert isinstance(made, Function)
    assert made(torch.ones(2, 6))[0, 0] == 6
    assert factory(f"{width_file}:of_features")()(torch.ones(2)).tolist() == [2, 2]


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("Bend", "channels"),
        ("made_of", "features"),
        ({"name": "Wide", "n": "width"}, "n"),
        ({"name": "prelu", "per_channel": True}, "channels"),
    ],
    ids=str,
)
def test_a_network_that_gives_no_width_is_told_so(spec, name, width_file):
    named = {"name": spec} if isinstance(spec, str) else spec
    own = named["name"] if named["name"] == "prelu" else f"{width_file}:{named['name']}"
    act = factory({**named, "name": own})
    words = (
        rf"the number of features at its site for '{name}', got none\. Call act\(width\) in the "
    )
    with pytest.raises(ActlabError, match=words):
        act()


def test_causes_are_chained(unit_file):
    with pytest.raises(ActlabError, match="RuntimeError: no width fits") as caught:
        factory({"name": "./activation_forms.py:Odd", "width": 3})
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.usefixtures("own_entries")
def test_registered_activations_are_listed_and_created_by_name():
    @register("cube", formula="x³", source="test")
    class Cube(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x**3

    @register("noisy", formula="x + u", stochastic=True)
    def noisy() -> nn.Module:
        return Cube()

    assert names()[-2:] == ("cube", "noisy")
    assert create("cube")(torch.tensor(2.0)) == 8
    assert not is_stochastic(create("cube"))
    assert is_stochastic(create("noisy"))
    assert is_stochastic(Cube())
    assert isinstance(factory("cube"), Factory)
    with pytest.raises(ActlabError, match="'relu': the name is taken"):
        register("relu", formula="x")
    with pytest.raises(ActlabError, match="colon"):
        register("my:relu", formula="x")


def test_what_is_known_of_foreign_modules():
    assert is_elementwise(nn.Sequential(nn.ReLU(), nn.Tanh()))
    assert not is_stochastic(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    assert is_stochastic(nn.Sequential(nn.ReLU(), create("soi")))
    for unknown in (nn.RReLU(), nn.Dropout(), nn.Sequential(nn.Dropout())):
        assert is_stochastic(unknown)
        assert not is_elementwise(unknown)
    for other in (
        nn.Softmax(1),
        nn.PReLU(),
        nn.BatchNorm1d(2, affine=False),
        create("gelu", learnable=True),
    ):
        assert not is_elementwise(other)


def test_spellings_of_one_activation():
    for spec in (
        "torch.nn:ELU",
        "torch.nn.ELU",
        {"class_path": "torch.nn.ELU"},
        {"name": "torch.nn.ELU"},
    ):
        assert registry.factory(spec) == registry.factory("torch.nn:ELU")
