"""Values keep their type, from the file to the identity of a run and the argument of a class."""

import datetime
import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import yaml

import actlab
from actlab import experiments
from actlab.checks import configs
from actlab.cli.arguments import Words, options_of
from actlab.config.paths import get_dotted
from actlab.config.resolved import resolved
from actlab.config.sections import linked_shapes
from actlab.config.signatures import TEXT_ARGUMENTS, parameters
from actlab.errors import ActlabError
from actlab.storage.mappings import parse, written
from actlab.studies import reading

STUDY = """\
base: ./base.yaml
set: {data.revision: REVISION}
grid: {model.activation: [relu, elu]}
seeds: 1
"""
BASE = """\
model:
  class_path: actlab.tasks.ClassificationTask
  init_args:
    network: {class_path: actlab.networks.MLP}
    optimizer: {class_path: torch.optim.Adam}
data: {class_path: actlab.datamodules.MNISTDataModule, init_args: {sample: true}}
trainer: {max_epochs: 1, callbacks: [{class_path: actlab.callbacks.TestEveryEpoch}]}
"""
OWN = BASE.replace(
    "actlab.datamodules.MNISTDataModule, init_args: {sample: true}",
    "labelled_data.Labelled, init_args: {}",
)
TEXTS = [
    "1.10",
    "1.1",
    "1e3",
    "1000",
    "0",
    "00",
    "1_0",
    "10",
    "no",
    "007",
    "12:30",
    "",
    "2024-01-01",
]
TEXTS += ["null", "a #b"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, program):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    program("labelled_data")
    Path("base.yaml").write_text(BASE)
    Path("s.yaml").write_text(STUDY.replace("REVISION", "null"))


def study(text: str = STUDY, **options: Any) -> Any:
    Path("s.yaml").write_text(text)
    return reading.load("s.yaml", **options)


def revisions(found: Any) -> list[Any]:
    return [get_dotted(run.config, "data.revision") for run in found.runs()]


@pytest.mark.parametrize("word", ["1e-3", "1E5", "1.e3", "-1e+2", ".5e1", "1.5e3"])
def test_a_float_of_yaml_is_a_number_in_every_reader(word, cli):
    assert parse(f"[{word}, '{word}', {{a: {word}}}]") == [float(word), word, {"a": float(word)}]
    assert parse(written(["1e-3", 1e-3, word, float(word)])) == ["1e-3", 1e-3, word, float(word)]
    Path("base.yaml").write_text(
        BASE.replace("optim.Adam", f"optim.Adam, init_args: {{lr: {word}}}")
    )
    shown = yaml.safe_load(cli("fit", "-c", "base.yaml", "--print_config").out)
    assert shown["model"]["init_args"]["optimizer"]["init_args"]["lr"] == float(word)
    run = study(overrides=[f"trainer.gradient_clip_val={word}"]).runs()[0]
    assert get_dotted(run.config, "model.optimizer.lr") == float(word)
    assert get_dotted(run.config, "trainer.gradient_clip_val") == float(word)


def test_texts_that_look_like_one_number_are_different_runs():
    found = [study(STUDY.replace("REVISION", repr(text))).runs()[0].id for text in TEXTS]
    assert len(set(found)) == len(TEXTS)
    grid = STUDY.replace("grid: {", f"grid: {{data.revision: {TEXTS}, ")
    assert len(study(grid.replace("set: {data.revision: REVISION}\n", "")).runs()) == 2 * len(TEXTS)


def test_an_integer_is_its_float_up_to_the_largest_that_has_one():
    ids = [
        study(overrides=[f"trainer.gradient_clip_val={word}"]).runs()[0].id
        for word in ("1", "1.0", "1e0")
    ]
    assert len(set(ids)) == 1
    large = [study(settings={"data.split_seed": 2**53 + n}).runs()[0].id for n in range(3)]
    assert len(set(large)) == 3


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        (
            "model.activation: [relu], trainer.max_epochs: [1, 1.0]",
            r"of trainer.max_epochs, 1 and 1.0",
        ),
        (
            "model.activation: [relu], model.optimizer.lr: [1e-3, 0.001]",
            r"model.optimizer.lr, 0.001 and 0.001",
        ),
        (
            "model.activation: [relu, {name: relu}]",
            r"model.activation, 'relu' and {'name': 'relu'}",
        ),
        ("model.activation: [./a.py:f, a.py:f]", r"model.activation, './a.py:f' and 'a.py:f'"),
    ],
)
def test_a_grid_with_two_equal_values_is_rejected(grid, words):
    text = STUDY.replace("model.activation: [relu, elu]", grid)
    with pytest.raises(ActlabError, match=words):
        study(text)


def test_equal_values_from_the_command_line_and_python_are_rejected_too(cli):
    outcome = cli("study", "plan", "s.yaml", "--set", "model.activation=[elu, relu, elu]")
    assert "'elu' and 'elu'" in outcome.rejection
    with pytest.raises(ActlabError, match=r"equal values of model\.activation"):
        actlab.load_study("s.yaml", settings={"model.activation": ["elu", "relu", "elu"]})


def test_an_activation_that_is_compared_already_is_not_added_again():
    found = actlab.load_study("s.yaml", activations=["elu", {"name": "relu"}, "gelu", "gelu"])
    assert found.blocks[0].grid["model.activation"] == ["relu", "elu", "gelu"]


def test_copies_of_a_file_that_would_be_one_run_are_rejected():
    for name in ("a", "b"):
        Path(name).mkdir()
        Path(f"{name}/unit.py").write_text("def bent(x):\n    return x.relu()\n")
    with pytest.raises(
        ActlabError,
        match=r"model.activation: .*/a/unit\.py:bent and .*/b/unit\.py:bent have the same",
    ):
        actlab.load_study("s.yaml", activations=["./a/unit.py:bent", "./b/unit.py:bent"]).runs()


def own_study(**options: Any) -> Any:
    Path("base.yaml").write_text(OWN)
    return study("base: ./base.yaml\ngrid: {model.activation: [relu]}\nseeds: 1\n", **options)


@pytest.mark.parametrize("text", [text for text in TEXTS if text not in ("", "null")])
def test_a_text_key_takes_a_word_of_the_command_line_as_it_stands(text):
    assert revisions(study(overrides=[f"data.revision={text}"])) == [text, text]
    assert (
        get_dotted(own_study(overrides=[f"data.label={text}"]).runs()[0].config, "data.label")
        == text
    )
    for config, key in ((BASE, "revision"), (OWN, "label")):
        Path("base.yaml").write_text(config)
        words = ["-c", "base.yaml", f"--data.{key}", text, "--trainer.max_time", "12:00:00:00"]
        given = Words(options_of(words), "fit").config
        assert get_dotted(given, f"data.{key}") == text
        assert given["trainer"]["max_time"] == "12:00:00:00"


def test_other_keys_take_the_value_that_yaml_reads():
    words = [
        "data.size=007",
        "data.either=1.10",
        "data.anything=1.10",
        "data.bare=no",
        "trainer.max_epochs=3",
    ]
    words += ["data.table=a: 1", "data.rates=[1, 1e-3]"]
    config = own_study(overrides=words).runs()[0].config
    assert config["data"]["init_args"] == {
        "size": 7,
        "either": 1.1,
        "anything": 1.1,
        "bare": False,
    } | {**{"table": {"a": 1}, "rates": [1, 0.001]}}
    assert config["trainer"]["max_epochs"] == 3


def test_words_in_quotes_lists_null_and_nothing():
    words: dict[str, Any] = {"'1.10'": "1.10", "a: b": "a: b", "- 1": "- 1", "null": None, "": ""}
    words["[1.10, 1.1, null]"] = ["1.10", "1.1", None]
    for word, value in words.items():
        changed = study(overrides=[f"data.revision={word}"])
        assert changed.blocks[0].settings["data.revision"] == value
    text = STUDY.replace("set: {data.revision: REVISION}\ngrid: {", "grid: {data.revision: [a], ")
    assert revisions(study(text, overrides=["data.revision=[1.10, 1.1]"])) == [
        "1.10",
        "1.10",
        "1.1",
        "1.1",
    ]


@pytest.mark.parametrize(
    ("value", "quoted"),
    [
        ("1.25", '"1.25"'),
        ("1e3", '"1000.0"'),
        ("3", '"3"'),
        ("no", '"no"'),
        ("2024-01-01", '"2024-01-01"'),
    ],
)
def test_a_number_for_a_text_key_in_yaml_is_rejected_with_the_quoting(cli, value, quoted):
    found = study(STUDY.replace("REVISION", value))
    with pytest.raises(
        ActlabError,
        match=f"data.revision: expected text or null, got .* quotes: revision: {quoted}",
    ):
        configs.check(found)
    Path("base.yaml").write_text(BASE.replace("sample: true", f"revision: {value}"))
    outcome = cli("fit", "-c", "base.yaml", "--print_config")
    assert f"quotes: revision: {quoted}" in outcome.rejection


def test_text_for_a_number_key_in_yaml_is_rejected(cli):
    config = yaml.safe_load(OWN)
    config["data"]["init_args"] = {"rates": [0.1, "0.1"]}
    message = "expected a number, got the text '0.1'. Remove the quotes"
    with pytest.raises(ActlabError, match=f"data.rates: {message}"):
        experiments.build(config)
    message = "expected .*, got the text '1e-3'. Remove the quotes"
    with pytest.raises(ActlabError, match=f"optimizer.lr: {message}"):
        configs.check(study(STUDY.replace("data.revision: REVISION", "model.optimizer.lr: '1e-3'")))
    Path("base.yaml").write_text(BASE.replace("max_epochs: 1,", "max_epochs: '1',"))
    outcome = cli("fit", "-c", "base.yaml", "--print_config")
    message = "trainer.max_epochs: expected a whole number or null, got the text '1'"
    assert message in outcome.rejection


def test_a_text_reaches_a_class_as_text():
    config = yaml.safe_load(OWN)
    for text in TEXTS:
        texts = dict.fromkeys(("label", "either", "anything", "bare"), text)
        config["data"]["init_args"] = texts
        given = resolved(config, {}, linked_shapes(config)).data.init_args
        assert {key: given[key] for key in texts} == texts
        assert {type(given[key]) for key in texts} == {str}
        held = {"nested": [text, {"again": text}]}
        config["data"]["init_args"] = {"anything": held, "table": held}
        found = resolved(config, {}, linked_shapes(config)).data.init_args
        assert (found.anything, found.table) == (held, held)


def test_a_setting_from_python_is_passed_as_it_is():
    for text in TEXTS:
        assert revisions(actlab.load_study("s.yaml", settings={"data.revision": text})) == [
            text,
            text,
        ]


def test_values_and_classes_from_python_are_passed_as_values():
    class Whole(int):
        """As NumPy's numbers are."""

    settings = {
        "a.b": Whole(3),
        "a.c": (1, "1"),
        "a.d": {"e": inspect.signature},
        "a.f": None,
        "a.g": True,
    }
    found = actlab.load_study("s.yaml", settings=settings).blocks[0].settings
    assert {key: found[key] for key in settings} == {
        **{"a.b": 3, "a.c": [1, "1"], "a.d": {"e": "inspect:signature"}, "a.f": None, "a.g": True}
    }
    assert type(found["a.b"]) is int
    with pytest.raises(
        ActlabError, match=r"settings: a.b: expected text, a number, .* got datetime.date"
    ):
        actlab.load_study("s.yaml", settings={"a.b": datetime.date(2024, 1, 1)})


@pytest.mark.parametrize(
    "name", ["a #b.py", "a,b.py", "{a}.py", "[a].py", "a: b.py", "'a'.py", "1e3.py"]
)
def test_an_activation_in_a_file_of_any_name_arrives_whole(name, cli):
    Path(name).write_text("def bent(x):\n    return x.relu()\n")
    (*_, run) = actlab.load_study("s.yaml", activations=[f"./{name}:bent"]).runs()
    assert run.point["model.activation"] == str(Path.cwd() / f"{name}:bent")
    assert run.sources
    out = cli("study", "plan", "s.yaml", "--activation", f"./{name}:bent").succeeded()
    assert run.id in out


def test_a_text_names_a_value_of_the_grid_where_studies_refer_to_one():
    text = STUDY.replace(
        "[relu, elu]", "[relu, {name: elu, alpha: 2}], model.network.dropout: [0.0, 0.5]"
    )
    more = """\
reference: elu(alpha=2)
published:
  values:
    - {where: {model.activation: elu(alpha=2), model.network.dropout: "0.50"}, metric: m, value: 1}
figures: [{lines: model.activation, panels: [{where: {model.network.dropout: "0"}}]}]
"""
    found = study(text + more)
    elu = {"name": "elu", "alpha": 2}
    assert found.reference == elu
    assert found.published["values"][0]["where"] == {
        "model.activation": elu,
        "model.network.dropout": 0.5,
    }
    assert found.figures[0]["panels"][0]["where"] == {"model.network.dropout": 0.0}
    dropout = "compare: model.network.dropout\n"
    assert study(text + dropout, reference=reading.activation("5e-1")).reference == 0.5


def own_classes() -> dict[str, type]:
    """The classes of actlab whose arguments a dotted key of a study can set, and the Trainer."""
    found: dict[str, type] = {"Trainer": pl.Trainer}
    for name in ("tasks", "networks", "optim", "datamodules", "callbacks"):
        module = importlib.import_module(f"actlab.{name}")
        classes = {
            key: one for key, one in vars(module).items() if inspect.isclass(one) and key[0] != "_"
        }
        found |= {key: one for key, one in classes.items() if one.__module__.startswith("actlab")}
    return found


def test_text_arguments_are_those_of_the_signatures():
    of_each = {name: parameters(one) or {} for name, one in own_classes().items()}
    text = {key for known in of_each.values() for key, taken in known.items() if taken.is_text}
    other = {key for known in of_each.values() for key, taken in known.items() if not taken.is_text}
    assert text - other | {"ckpt_path"} == TEXT_ARGUMENTS


def test_numbers_for_known_classes_load_nothing_heavy():
    words = [
        "data.revision=1.10",
        "model.optimizer.lr=0.1",
        "trainer.max_epochs=3",
        "model.network.dropout=0",
    ]
    code = (
        "import sys; from actlab.studies import reading; "
        f"reading.load('s.yaml', overrides={words}).runs(); "
        "print(*({'torch', 'pytorch_lightning', 'pandas'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
