"""Study files with every mistake: the plan, or one line, at once."""

import random

import pytest

from actlab.storage.mappings import read_mapping
from actlab.storage.resources import config_file, resource
from fuzzing import STRUCTURES, VALUES, as_yaml, changed, listed, mistake, paths, replaced, tried

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600, method="thread")]


def of_each_key():
    """The studies, longest first, with a key that no earlier one has: others repeat sections."""
    known: set[tuple[str, ...]] = set()
    found = []
    files = resource("configs/studies").glob("*.yaml")
    for path in sorted(files, key=lambda path: (-path.stat().st_size, path.stem)):
        places = (
            tuple(part for part in place if isinstance(part, str))
            for place in paths(read_mapping(path))
        )
        keys = {place[:2] for place in places if place[0] not in ("set", "grid", "smoke")}
        if keys - known:
            known |= keys
            found.append(path.stem)
    return found


STUDIES = of_each_key()
EVERYTHING = """\
title: everything that a study can say
set: {data.batch_size: 500, trainer.max_epochs: 2}
blocks:
  - {name: narrow, base: mnist_classifier, set: {model.network.hidden: [8]},
     grid: {model.activation: [relu, elu]}}
  - {name: wide, base: mnist_classifier,
     grid: {model.activation: [relu], model.network.dropout: [0.5]}}
seeds: 3
compare: model.activation
select: {tune: [model.network.dropout], metric: val/loss, mode: min}
stages: [{name: choose, seeds: 2}, {name: compare, seeds: 5-7, set: {data.train_on_all: true}}]
probes:
  - {name: noise, class_path: actlab.probes.InputNoise, init_args: {strengths: [0.0, 0.5]},
     at: [last, best, 1]}
keep: [best, 0, 1]
reference: relu
table:
  - {metric: test/error, at: last, percent: true}
  - {metric: val/loss, at: selected, mode: min}
  - {metric: noise/test/error, at: 1, condition: noise=0.5}
published:
  source: nobody
  values:
    - {where: {model.activation: relu}, metric: test/error, at: last, value: 0.1, sd: 0.01,
       condition: ""}
figures:
  - name: curves
    lines: model.activation
    fixed: {model.network.dropout: 0.5}
    y: {val/loss: heldout}
    label: loss
    percent: false
    panels: [{title: a, where: {block: wide}, ylim: [0, 1], published: MNIST dropout0.5, label: b}]
    published: {file: data/published/gelu_curves.csv, names: {relu: ReLU}}
  - {name: noise, x: noise, xlabel: strength, at: last, y: {noise/test/error: null}}
notes: [a note]
smoke: {model.network.hidden: [4]}
"""


@pytest.fixture
def planned(cli, tmp_path, monkeypatch):
    """What is wrong with ``study plan --smoke`` of a text."""
    monkeypatch.chdir(tmp_path)

    def plan(text, *words):
        (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
        outcome, fault = tried(lambda: cli("study", "plan", "mine.yaml", "--smoke", *words))
        return fault or mistake(outcome)

    return plan


def read(name, folder):
    if name != "everything":
        return read_mapping(config_file(name, "configs/studies")) | {"base": "mnist_classifier"}
    (folder / "everything.yaml").write_text(EVERYTHING)
    return read_mapping(folder / "everything.yaml")


@pytest.mark.parametrize(
    ("name", "least"), [("everything", 900), *((name, 250) for name in STUDIES)]
)
def test_mistakes_in_study_files(planned, tmp_path, name, least):
    """Every place of a file: values of every kind, and keys dropped, misspelt and added."""
    values, source = read(name, tmp_path), random.Random(name)
    assert not planned(as_yaml(values))
    faults, number = {}, 0
    for path in paths(values):
        for kind, change in STRUCTURES.items():
            number += 1
            faults[path, kind] = planned(as_yaml(changed(values, path, change)))
        for text in source.sample(VALUES, 8):
            number += 1
            faults[path, text[:60]] = planned(replaced(values, path, text))
    assert not (wrong := listed(faults)), wrong
    assert number >= least


def test_every_value_in_every_section(planned, tmp_path):
    """The sections of a study file, each replaced by each value: 900 cases or more."""
    values = read("everything", tmp_path)
    faults = {
        (key, text[:60]): planned(replaced(values, (key,), text))
        for key in (*values, "base")
        for text in VALUES
    }
    assert len(faults) >= 900
    assert not (wrong := listed(faults)), wrong


LARGE = (
    "seeds: 1000000000000",
    "seeds: 1-999999999",
    "seeds: 0-999999999999",
    f"seeds: {'9' * 4000}",
    f"seeds: {[*range(20_000)]}",
    f"seeds: {[2**40]}",
    "grid: {" + ", ".join(f"model.a{i}: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]" for i in range(9)) + "}",
    f"grid: {{model.optimizer.lr: {[*range(60_000)]}}}",
    f"grid: [{', '.join(['{model.activation: [relu, elu]}'] * 20_000)}]",
    f"keep: {[*range(90_000)]}",
    f"keep: [{10**30}]",
    "set: {trainer.max_epochs: 1000000000000000}",
    f"set: {{trainer.max_epochs: {10**400}}}",
    f"set: {{{'a.' * 3000}b: 1}}",
    f"set: {{model.{'network.' * 300}b: 1}}",
    f"stages: [{{name: a, seeds: {10**12}}}]\nselect: {{tune: [model.optimizer.lr]}}",
    f"table: [{', '.join(['{metric: val/loss}'] * 3000)}]",
    f"notes: [{', '.join(['x'] * 50_000)}]",
)


def test_absurdly_large_studies_are_refused_or_planned_at_once(planned):
    base = {
        "base": "base: mnist_classifier",
        "grid": "grid: {model.activation: [relu, elu]}",
        "seeds": "seeds: 2",
    }
    faults = {}
    for text in LARGE:
        lines = {**base, text.partition(":")[0]: text}
        faults[text[:60]] = planned("\n".join(lines.values()))
    assert not (wrong := listed(faults)), wrong
    assert len(faults) >= 18


NONSENSE = (
    *(
        "",
        "=",
        "==",
        "x",
        "x=",
        "=x",
        ".=1",
        "..=1",
        "a..b=1",
        ".a=1",
        "a.=1",
        "a b=1",
        "é=1",
        "a=[1",
        "a={",
    ),
    *(
        "a=*x",
        "seeds=",
        "seeds=0",
        "seeds=-1",
        "seeds=1e9",
        "seeds=1e999",
        "seeds=.nan",
        "seeds=x",
        "seeds=[]",
    ),
    *(
        "seeds={}",
        "seeds=[[]]",
        "seeds=10000000000000",
        "seeds=true",
        "seeds=[1, 1]",
        "seeds=[1.5]",
    ),
    *("seeds=null", "seeds=3-1", "model=1", "model=null", "model=[]", "model.class_path=null"),
    *("model.class_path=os.system", "model.init_args=1", "model.init_args=null", "model.network=1"),
    *("model.network=null", "model.network=[]", "model.optimizer=null", "model.network.hidden=[]"),
    *("model.network.hidden=x", "model.network.hidden=[-1]", "model.network.hidden=[1e999]"),
    *("model.network.dropout=2", "model.network.dropout=.nan", "model.network.dropout=[]"),
    *("model.activation=[]", "model.activation=null", "model.activation=1", "model.activation={}"),
    *(
        "model.activation=[[]]",
        "trainer=1",
        "model.activation=./nowhere.py:Unit",
        "model.activation=a:b:c",
    ),
    *(
        "model.activation=:",
        "model.activation={name: 1}",
        "trainer=null",
        "trainer=[]",
        "trainer.callbacks=1",
    ),
    *(
        "trainer.callbacks=null",
        "trainer.callbacks=[1]",
        "trainer.callbacks=[null]",
        "trainer.callbacks=[{}]",
    ),
    *(
        "trainer.callbacks={}",
        "trainer.max_epochs=x",
        "trainer.max_epochs=null",
        "trainer.max_epochs=-1",
    ),
    *(
        "trainer.max_epochs=1e999",
        "trainer.max_epochs=[]",
        "trainer.max_epochs=.nan",
        "trainer.max_epochs=2.5",
    ),
    *(
        "trainer.max_epochs=true",
        "data=1",
        "data=null",
        "data=[]",
        "data.class_path=1",
        "data.class_path=x",
    ),
    *(
        "data.init_args=[]",
        "data.batch_size=0",
        "data.batch_size=x",
        "data.dataset=/",
        "data.dataset=[",
    ),
    *("data.dataset=1", "data.dataset=null", "data.dataset=/dev/zero", "seed_everything=x"),
    *(
        "seed_everything=-1",
        "seed_everything=[]",
        "seed_everything=null",
        "block=x",
        "block=[]",
        "optimizer=x",
    ),
    *("ckpt_path=x", "unknown=1", "a=2020-99-99", "a=&a [*a]", f"a={'[' * 3000}", "a=!!int x"),
    *(
        f"a={'9' * 5000}",
        "9=9",
        "model.activation.name=elu",
        "model.seed=1",
        "data.seed=1",
        "trainer.logger=x",
    ),
    *("trainer.strategy=x", "trainer.precision=x", "trainer.accelerator=x", "trainer.devices=x"),
    "trainer.plugins=[1]",
)
UNITS = (
    *(
        "",
        " ",
        "x",
        "1",
        "null",
        "true",
        "1e999",
        ".nan",
        "[]",
        "{}",
        "[relu]",
        "{name: 1}",
        "{name: null}",
    ),
    *("{nam: elu}", "{name: elu, alpha: x}", "{name: elu, alhpa: 1}", "{name: elu, alpha: .nan}"),
    *(
        "{name: [], alpha: 1}",
        "::",
        ":",
        "a:",
        ":a",
        "a:b",
        "a:b:c",
        "os:system",
        "os.system",
        "./x.py:",
    ),
    *(
        "./x.py",
        "./x.py:y",
        "/dev/zero:x",
        "~no-one/y.py:z",
        "relu ",
        "RELU",
        "é",
        "\0",
        "*a",
        "&a [*a]",
    ),
    *(
        "!!int x",
        "2020-99-99",
        "'",
        '"',
        "{",
        "[",
        "%",
        "relu\nelu",
        "y" * 9999,
        "..:x",
        "[" * 3000,
    ),
    *(
        "{name: relu, name: elu}",
        "{class_path: torch.nn.ReLU}",
        "{name: relu, 1: 2}",
        "torch.nn:Nothing",
    ),
    *(
        "torch.nn:functional",
        "torch:nn",
        "nowhere.at.all:Unit",
        "{name: './x.py:y', a: 1}",
        "{name: ':'}",
    ),
    "9" * 5000,
)


@pytest.mark.parametrize(
    ("option", "words", "least"),
    [("--set", NONSENSE, 110), ("--activation", UNITS, 55), ("--reference", UNITS, 55)],
)
def test_nonsense_on_the_command_line(planned, option, words, least):
    """Each word with its option, over a study that takes it."""
    text = "base: mnist_classifier\ngrid: {model.activation: [relu, elu]}\nseeds: 2\n"
    faults = {word[:60]: planned(text, option, word) for word in dict.fromkeys(words)}
    assert not (wrong := listed(faults)), wrong
    assert len(faults) >= least
