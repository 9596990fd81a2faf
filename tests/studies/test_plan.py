"""Study files become runs: ids, overrides, added units, and one clear error for each mistake."""

import contextlib
import copy
import dataclasses
import json
import pickle
import textwrap
from typing import Any

import jsonschema
import pytest
from pytorch_lightning.loggers.logger import DummyLogger

from actlab.checks import configs
from actlab.cli import loggers
from actlab.config import identity, paths, resolved
from actlab.config.labels import label
from actlab.config.plain_values import plain
from actlab.errors import ActlabError
from actlab.stages import opening
from actlab.storage.mappings import read_mapping
from actlab.storage.resources import resource
from actlab.studies import groups, points, reading, schema
from actlab.studies.study_folder import StudyFolder

STUDIES = sorted(path.stem for path in resource("configs/studies").glob("*.yaml"))
TEXT = """\
base: mnist_classifier
grid:
  model.activation: [relu, elu]
  model.network.dropout: [0.0, 0.5]
seeds: 2
"""
NETWORK = TEXT.replace(
    "model.network.dropout: [0.0, 0.5]", "model.network: [{class_path: actlab.networks.MLP}]"
)


@pytest.fixture
def study(tmp_path):
    def write(text=TEXT, **options):
        path = tmp_path / "mine.yaml"
        path.write_text(textwrap.dedent(text))
        return reading.load(str(path), **options)

    return write


def test_a_key_within_another_that_is_given_before_it_is_set(study):
    text = TEXT.replace(
        "model.activation", "model.network: [{class_path: actlab.networks.MLP}]\n  model.activation"
    )
    dropouts = {paths.get_dotted(run.config, "model.network.dropout") for run in study(text).runs()}
    assert dropouts == {0.0, 0.5}


@pytest.mark.parametrize("key", ["fast_dev_run=true", "overfit_batches=1", "limit_train_batches=1"])
def test_brief_runs_are_a_part_of_the_data(study, key):
    assert study(overrides=[f"trainer.{key}"]).samples
    assert not study().samples


PARSED: set[str] = set()


@pytest.fixture
def parsed_by_kind(monkeypatch):
    """Of configs that differ in numbers or the activation only, parse one: parsing checks types."""
    parse = resolved.resolved

    def parse_kind(given, defaults, linked):
        text = json.dumps(given, default=str)
        kinds = json.loads(text, parse_float=lambda _: "float", parse_int=lambda _: "int")
        del kinds["model"]["init_args"]["activation"]  # `check` creates it
        if (kind := json.dumps(kinds)) not in PARSED:
            parse(given, defaults, linked)
            PARSED.add(kind)

    monkeypatch.setattr(resolved, "resolved", parse_kind)


@pytest.mark.usefixtures("parsed_by_kind")
@pytest.mark.parametrize("name", STUDIES)
def test_every_study_expands_and_passes_the_check(name):
    study = reading.load(name)
    runs, smoke = study.runs(), reading.load(name, smoke=True).runs()
    assert len({run.id for run in runs}) == len(runs) > 0
    assert len({run.id for run in smoke}) == len(smoke) > 0
    assert not {run.id for run in runs} & {run.id for run in smoke}
    configs.check(study)


def test_figure_2_has_ninety_runs():
    assert {"demo", "gelu_mnist_classifier", "soi_mnist"} <= set(STUDIES)
    assert len(reading.load("gelu_mnist_classifier").runs()) == 90


def test_the_grid_is_the_product_with_seeds_innermost(study):
    points = [
        (r.point["model.activation"], r.point["model.network.dropout"], r.seed)
        for r in study().runs()
    ]
    assert points == [(a, p, s) for a in ("relu", "elu") for p in (0.0, 0.5) for s in (0, 1)]


def test_runs_are_expanded_once_and_their_configs_are_the_base_with_their_values(study):
    mine = study(TEXT + "set: {trainer.max_epochs: 7}\n")
    runs = mine.runs()
    assert [a is b for a, b in zip(runs, mine.runs(), strict=True)] == [True] * 8
    assert mine.runs() is not runs
    for run in runs:
        config = copy.deepcopy(mine.blocks[0].base)
        for key, value in {
            "trainer.max_epochs": 7,
            **run.point,
            "seed_everything": run.seed,
        }.items():
            paths.set_dotted(config, key, value)
        assert plain(run.config) == config
        assert run.id.endswith(f"-{identity.identity_of(identity.counted(config, {}), {})[:16]}")


def test_points_are_equal_where_their_values_are_in_other_processes_too():
    point = points.Point({"a": 1, "b": {"name": "elu", "alpha": 2}})
    alike = points.Point({"b": {"alpha": 2.0, "name": "elu"}, "a": 1.0})
    assert {point: "found"}[pickle.loads(pickle.dumps(alike))] == "found"
    assert not any(point == point | {"a": other} for other in (True, "1", 2))


def test_a_few_runs_have_every_value_of_a_grid(study):
    few = groups.of_each_value(study().runs())
    assert [[*run.point.values()] for run in few] == [["relu", 0.0], ["elu", 0.5]]


def test_values_reach_the_config_and_what_the_run_folder_provides_is_left_out(study):
    config = study(TEXT + "set: {trainer.max_epochs: 7}\n").runs()[2].config
    assert config["model"]["init_args"]["network"]["init_args"]["dropout"] == 0.5
    assert config["trainer"]["max_epochs"] == 7
    assert config["seed_everything"] == 0
    assert not {"logger", "default_root_dir"} & config["trainer"].keys()
    assert [c["class_path"] for c in config["trainer"]["callbacks"]] == [
        "actlab.callbacks.TestEveryEpoch"
    ]


def test_an_id_is_a_function_of_study_and_point(study):
    ids = [run.id for run in study().runs()]
    assert ids == [run.id for run in study().runs()]
    assert ids[:4] == [run.id for run in study(activations=["gelu"]).runs()][:4]
    assert not set(ids) & {run.id for run in study(overrides=["trainer.max_epochs=3"]).runs()}
    plain = TEXT.replace("activation: [", "activation: [{name: relu}, ").replace(" relu,", "")
    # No arguments
    assert ids == [run.id for run in study(plain, activations=[{"name": "elu"}]).runs()]


def test_blocks_are_united(study):
    runs = study(
        """\
        base: mnist_classifier
        grid:
          - {model.activation: [relu], model.network.dropout: [0.0, 0.5]}
          - {model.activation: [relu, soi], model.network.dropout: [0.0]}
        seeds: [3]
        """
    ).runs()
    assert [(r.point["model.activation"], r.point["model.network.dropout"]) for r in runs] == [
        ("relu", 0.0),
        ("relu", 0.5),
        ("soi", 0.0),
    ]


def test_overrides_replace_values_of_the_study_file(study):
    changed = study(overrides=["seeds=[7]", "model.network.dropout=0.1", "model.optimizer.lr=1e-2"])
    (run, _) = changed.runs()
    assert (run.seed, run.point["model.network.dropout"]) == (7, 0.1)
    assert paths.get_dotted(run.config, "model.optimizer.lr") == 0.01


def test_units_added_on_the_command_line(study, tmp_path, monkeypatch):
    (tmp_path / "my_unit.py").write_text("class MyUnit: ...")
    monkeypatch.chdir(tmp_path)
    added = study(activations=["gelu", {"name": "elu", "alpha": 0.5}, "./my_unit.py:MyUnit"])
    labels = dict.fromkeys(label(run.point["model.activation"]) for run in added.runs())
    assert list(labels) == ["relu", "elu", "gelu", "elu(alpha=0.5)", "MyUnit"]
    assert added.runs()[-1].point["model.activation"] == f"{tmp_path}/my_unit.py:MyUnit"


def test_an_edited_unit_is_another_unit(study, tmp_path):
    unit = tmp_path / "my_unit.py"
    unit.write_text("class MyUnit: ...")
    before = study(activations=[f"{unit}:MyUnit"]).runs()
    unit.write_text("class MyUnit: x = 1")
    after = study(activations=[f"{unit}:MyUnit"]).runs()
    assert [a.id == b.id for a, b in zip(before, after, strict=True)] == [True] * 8 + [False] * 4


def test_smoke_takes_the_sample_and_few_seeds(study):
    smoke = study(TEXT + "smoke: {model.network.hidden: [8]}\n", smoke=True)
    assert smoke.name == "mine-smoke"
    config = smoke.runs()[0].config
    assert paths.get_dotted(config, "data.sample") is True
    assert paths.get_dotted(config, "model.network.hidden") == [8]
    assert len(smoke.seeds) == 2
    own = TEXT + "set: {data: {class_path: mine.Table, init_args: {rows: 100}}}\n"  # has no sample
    (config, *_) = (run.config for run in study(own, smoke=True).runs())
    assert config["data"] == {"class_path": "mine.Table", "init_args": {"rows": 100}}
    assert config["trainer"]["max_epochs"] == 1
    (asked, *_) = (
        run.config for run in study(own + "smoke: {data.sample: true}\n", smoke=True).runs()
    )
    assert asked["data"]["init_args"] == {"rows": 100, "sample": True}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TEXT + "seedz: 3", "unknown study key 'seedz'.*'seeds'"),
        ("grid: {model.activation: [relu]}", "expected 'base' and 'grid', got no 'base'"),
        ("base: mnist_classifier", "expected one of 'grid' and 'blocks', got neither"),
        ("base: mnist_clasifier\ngrid: {model.activation: relu}", "'mnist_classifier'"),
        (
            "base: mnist_classifier\ngrid: []",
            "expected config keys with lists of values, got an empty grid",
        ),
        (
            "base: mnist_classifier\nblocks: []",
            "expected config keys with lists of values, got an empty grid",
        ),
        (f"base: {'y' * 100_000}\ngrid: {{a.b: 1}}", "unknown config file 'y{150} … y{150}'"),
        (
            "base: mnist_clasifier\ngrid: {a.b: 1}",
            r"'mnist_classifier'.*\? Use a name that ships with actlab, or",
        ),
        ("base: mnist_classifier\ngrid: 3", "grid in .*: expected .*, got 3"),
        (TEXT.replace("seeds: 2", "seeds: 0"), "seeds: expected .*, got 0"),
        (TEXT.replace("seeds: 2", "seeds: [1, a]"), "whole numbers"),
        (TEXT.replace("seeds: 2", "seeds: [1, 1]"), "distinct whole numbers"),
        (TEXT.replace("seeds: 2", f"seeds: {10**30}"), "1 to 10000"),
        (TEXT.replace("seeds: 2", "seeds: 19-5"), "seeds: expected .*, got '19-5'"),
        (TEXT + "blocks: [{grid: {a.b: 1}}]", "expected one of 'grid' and 'blocks', got both"),
        (TEXT + "probes: [{name: ../out, class_path: a.B}]", "probes.0.name"),
        (
            TEXT + "probes: [{name: a, class_path: a.B, att: last}]",
            "key of 'probes' 'att'; did you mean 'at'",
        ),
        (
            TEXT + "probes: [{name: a, class_path: a.B, at: lst}]",
            "probes.0.at in .*: expected .* or 'last' or 'best', got 'lst'",
        ),
        (TEXT + "keep: [-1]", "expected epochs from 0, got -1"),
        (TEXT + "figures: [{name: ../../out}]", "figures.0.name"),
        (TEXT + "stages: [{name: a}, {name: b}]", "selects nothing"),
        (TEXT + "stages: [{name: a}, {name: a}]", "the same name .a, a."),
        (
            TEXT
            + "select: {tune: [model.network.dropout]}\n"
            + "stages: [{name: a, set: {model.activation: elu}}]",
            "stage a of .* sets the grid key model.activation",
        ),
        (TEXT + "stages: [{name: digest}]", r"selection\.json reserves. Rename"),
        (
            TEXT + "compare: model.network.dropot",
            "key to compare 'model.network.dropot'.*Allowed: model.activation",
        ),
        (TEXT + "select: {tune: [model.lr]}", "unknown tuned key 'model.lr'"),
        (TEXT + "select: {mode: low}", "select.mode in .*'min' or 'max'.*'low'"),
        (TEXT + "table: [{metric: test/error, at: lst}]", "table.0.at in .*'best'.*, got 'lst'"),
        (TEXT + "table: [{at: last}]", "table.0.metric in .*: expected a value, got none"),
        (
            TEXT + "published: {values: [{metric: test/error, value: 1, ds: 1}]}",
            "unknown key of 'values' 'ds'. Allowed: .*, sd, ",
        ),
        (
            TEXT + "published: {values: [{metric: test/error, value: 1, sd: -1}]}",
            "greater than or equal to 0",
        ),
        (
            TEXT + "figures: [{published: {names: {}}}]",
            r"figures\.0\.published\.file in .*: expected a value, got none",
        ),
        ("just words", "expected a YAML mapping"),
        (TEXT + "seeds: 3", "line 6: duplicate key 'seeds'"),
        ("a: [", "cannot be read as YAML"),
        (
            TEXT + "set: {trainer.max_epochs.deep: 1}",
            "trainer.max_epochs.deep: expected a mapping at 'max_epochs', got",
        ),
        (
            TEXT + "set: {model.optimizer: {class_path: a.B, init_args: 1}, model.optimizer.lr: 1}",
            "init_args of 'a.B': expected a mapping, got 1",
        ),
        (
            TEXT.replace("[0.0, 0.5]", str([*range(999)])).replace("seeds: 2", "seeds: 99"),
            "expected at most 10,000 runs, got 197,802",
        ),
        (
            TEXT.replace("model.network.dropout: [0.0, 0.5]", "seed_everything: [1, 2]"),
            "Set 'seeds'",
        ),
        (
            TEXT + "stages: [{name: a, set: {model.network.init_args.dropout: 0.1}}, {name: b}]\n",
            (
                "model.network.init_args.dropout would be lost, because "
                "model.network.dropout contains it and is set later"
            ),
        ),
        (
            TEXT + "figures: [{y: {val/loss: null}}, {y: {val/error: null}}]\n",
            "two figures in .* 'curves'",
        ),
        (
            TEXT
            + "figures: [{y: {val/loss: null}, panels: [{title: a}, {title: a, log: true}]}]\n",
            "two panels of the figure 'curves' in .* have the same name 'a'",
        ),
        (
            TEXT + "select: {tune: [model.network.dropout]}\ncompare: model.network.dropout\n",
            r"unknown key to compare .model\.network\.drop.*Allowed: model\.activation",
        ),
    ],
)
def test_mistakes_in_a_file_are_rejected(study, text, message):
    with pytest.raises(ActlabError, match=message):
        study(text).runs()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.network.dropout=0.5", "model.network.dropout would be lost, because"),
        ("seed_everything=7", "because a study sets it. Set 'seeds'"),
        *(
            (f"seeds={nothing}", "seeds: expected a number .*, got None")
            for nothing in ("", "null")
        ),
        *((wrong, "--set") for wrong in ("nonsense", "=3", "a=[1", "a=2020-99-99", "a=&x [*x]")),
    ],
)
def test_mistakes_in_overrides_are_rejected(study, override, message):
    with pytest.raises(ActlabError, match=message):
        study(NETWORK if "lost" in message else TEXT, overrides=[override])


@pytest.mark.parametrize(
    ("override", "other_length"),
    [
        ("trainer.max_epochs=25", "25 epochs, not 250"),
        ("trainer={max_epochs: 25}", "25 epochs, not 250"),
        ("trainer.max_epochs=1", "1 epoch, not 250"),
        ("trainer.max_steps=9", "9 updates"),
        ("trainer.max_steps=1", "1 update"),
        ("trainer.max_epochs=250", ""),
        ("seeds=1", ""),
    ],
)
def test_runs_of_another_length_are_known(override, other_length):
    assert reading.load("gelu_mnist_autoencoder", overrides=[override]).other_length == other_length
    assert reading.load("gelu_mnist_autoencoder", smoke=True).other_length == ""


def test_the_command_line_has_the_last_word_over_a_stage(study):
    text = TEXT + (
        "select: {tune: [model.network.dropout]}\nstages: [{name: a, set: {trainer.max_epochs: 4}}]"
    )
    assert study(text).stages[0].settings == {"trainer.max_epochs": 4}
    assert study(text, overrides=["trainer.max_epochs=1"]).stages[0].settings == {}
    assert study(text, smoke=True).stages[0].settings == {}


STAGED = TEXT + (
    "select: {tune: [model.network.dropout]}\n"
    "stages: [{name: choose, seeds: 2}, {name: compare, seeds: 2-9, "
    "set: {trainer.max_epochs: 3}}]\n"
)


@pytest.mark.parametrize(
    ("given", "choose", "compare"),
    [
        ("9", range(2), range(2, 11)),
        ("2", range(2), range(2, 4)),
        ("5-19", range(2), range(5, 20)),
        ("[3, 30]", range(2), [3, 30]),
        ("choose=1", range(1), range(2, 10)),
        ("choose=5,compare=5-19", range(5), range(5, 20)),
        ("compare=3, choose=11-12", range(11, 13), range(2, 5)),
        ("{choose: [20, 21, 22], compare: 4}", [20, 21, 22], range(2, 6)),
    ],
)
def test_given_seeds_are_those_of_the_last_stage_or_by_stage(study, given, choose, compare):
    first, last = study(STAGED, overrides=[f"seeds={given}"]).stages
    assert (first.seeds, last.seeds) == (tuple(choose), tuple(compare))
    assert [stage.seeds for stage in study(STAGED, smoke=True).stages] == [(0, 1), (2, 3)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("choose=5", "stages choose and compare both have seed 2.*seeds of compare to 5-12"),
        ("choose=5,compare=15", r"both have seed 2.*in the file or with --seeds compare=5-19"),
        ("0-4", "choose and compare both have seed 0.*seeds of compare to 2-6"),
        ("choose=2,chose=5", "unknown stage 'chose'; did you mean 'choose'"),
        ("choose=2,choose=3", "expected each stage once, got"),
        ("choose=", "seeds: expected a number .*, got ''"),
        ("{compare: null}", "seeds: expected a number .*, got None"),
    ],
)
def test_stages_share_no_seed(study, given, message):
    for smoke in (False, True):
        with pytest.raises(ActlabError, match=message):
            study(STAGED, overrides=[f"seeds={given}"], smoke=smoke)
    with pytest.raises(ActlabError, match="both have seed 2"):
        study(STAGED.replace("seeds: 2}", "seeds: 3}"))
    with pytest.raises(ActlabError, match="because the study has none"):
        study(overrides=["seeds=choose=5"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("trainer.max_epochs: ''", "max_epochs: expected a whole number or null, got ''"),
        ("model.network.hiden: [8]", "did you mean 'model.network.hidden'"),
        ("data.batch_size: .inf", "data.batch_size: expected a finite number, got inf"),
        ("trainer.max_epochs: -1", "a run of mine would never end"),
    ],
)
def test_settings_of_every_stage_are_checked_before_anything_runs(study, given, message):
    text = STAGED.replace("trainer.max_epochs: 3", given)
    with pytest.raises(ActlabError, match=message):
        configs.check(study(text))


@pytest.mark.parametrize("value", ["-1", "[5, -1]"])
def test_a_run_without_an_end_is_rejected(study, value):
    limits = "trainer.max_epochs or trainer.max_steps or trainer.max_time"
    with pytest.raises(
        ActlabError, match=f"trainer.max_epochs is -1, .* mine would never end. Set {limits}"
    ):
        configs.check(study(TEXT.replace("grid:", f"grid:\n  trainer.max_epochs: {value}")))
    for limit in ("max_steps=7", "max_time='00:00:01:00'"):
        configs.check(study(overrides=["trainer.max_epochs=-1", f"trainer.{limit}"]))


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", ".hidden", "-x", "_x", "a b", "a\nb", "a$", "\u0301e"],
    ids=[
        "empty",
        "here",
        "parent",
        "hidden",
        "option",
        "underscore",
        "space",
        "newline",
        "dollar",
        "accent",
    ],
)
def test_a_name_that_is_no_folder_of_its_own_is_rejected(study, tmp_path, name):
    mine = study()
    with pytest.raises(ActlabError, match=r"study name: expected a letter or digit, then letters"):
        dataclasses.replace(mine, name=name)
    if name:
        (tmp_path / f"{name}.yaml").write_text(TEXT)
        with pytest.raises(ActlabError, match="study name"):
            reading.load(str(tmp_path / f"{name}.yaml"))


@pytest.mark.parametrize(
    "name",
    ["größe", "gro\u0308ße", "学習率", "हिन्दी", "3rd_run-v1.2"],
    ids=["one character", "letter and accent", "ideographs", "vowel signs", "ASCII"],
)
def test_letters_of_any_script_name_a_study(tmp_path, name):
    (tmp_path / f"{name}.yaml").write_text(TEXT)
    assert reading.load(str(tmp_path / f"{name}.yaml")).name == name


def test_a_base_config_with_a_list_for_its_trainer_is_rejected(study, tmp_path):
    (tmp_path / "base.yaml").write_text("trainer: [1]")
    with pytest.raises(
        ActlabError, match=r"trainer in \./base\.yaml: expected a mapping, got \[1\]"
    ):
        study(TEXT.replace("mnist_classifier", "./base.yaml"))


def test_a_missing_study_names_the_nearest():
    with pytest.raises(ActlabError, match="'gelu_mnist_classifier'"):
        reading.load("gelu_mnist_clasifier")


def test_what_is_compared_is_the_first_key_that_is_not_tuned(study):
    assert study().compare == "model.activation"
    assert study(TEXT + "select: {tune: [model.activation]}\n").compare == "model.network.dropout"
    assert study(TEXT + "compare: model.network.dropout\n").compare == "model.network.dropout"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("table: [{metric: val/los}]", "unknown metric 'val/los'; did you mean 'val/loss'"),
        ("table: [{metric: noise/test/error}]", "unknown probe 'noise'"),
        (
            "set: {trainer.callbacks: []}\ntable: [{metric: test/error}]",
            "unknown metric 'test/error'.*Add actlab.callbacks.TestEveryEpoch to trainer.callbacks",
        ),
        (
            "set: {trainer.limit_test_batches: 0}\ntable: [{metric: test/error}]",
            "unknown metric 'test/error'",
        ),
        (
            "set: {model.scheduler: {class_path: torch.optim.lr_scheduler.ReduceLROnPlateau}}",
            (
                r"^model\.scheduler: .* got ReduceLROnPlateau\. .* set model\.schedules to "
                r".*actlab\.optim\.Plateau"
            ),
        ),
        (
            "table: [{metric: val/error, at: best}, {metric: val/error, at: best, mode: max}]",
            "the table of .* has two columns val/error@best. Remove one",
        ),
        ("select: {tune: [model.network.dropout], metric: val/los}", "unknown metric 'val/los'"),
        (
            "select: {tune: [model.network.dropout], metric: test/error}",
            "test/error' is not a validation metric",
        ),
        ("figures: [{y: {val/los: null}}]", "unknown metric 'val/los'"),
        (
            "figures: [{y: {val/loss: null}, panels: [{where: {model.lr: 1}}]}]",
            "unknown grid key 'model.lr'",
        ),
        (
            "published: {values: [{where: {model.lr: 1}, metric: a/b, value: 1}]}",
            "unknown grid key 'model.lr'",
        ),
        (
            "published: {values: [{metric: a/b, value: x}]}",
            "published.values.0.value in .*: expected a number",
        ),
        ("reference: glu", "unknown reference 'glu'; did you mean 'elu' or 'relu'"),
        (
            "set: {model.network.hiden: [8]}",
            "unknown config key 'model.network.hiden'; did you mean 'model.network.hidden'",
        ),
        ("set: {model.network.hidden: x}", "model.network.hidden: expected .*, got 'x'"),
        (
            "set: {trainer.max_epochs: many}",
            "trainer.max_epochs: expected a whole number or null, got 'many'",
        ),
        (
            "set: {model.network: {class_path: nowhere.Net}}",
            "'nowhere.Net' cannot be imported",
        ),
        ("set: {model.class_path: ./nowhere.py:Task}", "'nowhere.Task' cannot be imported"),
    ],
)
def test_plan_rejects_mistakes_that_would_fail_in_a_run(study, text, message):
    with pytest.raises(ActlabError, match=message):
        configs.check(study(TEXT + text + "\n"))


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        (
            "overrides",
            "model.activation=[]",
            "'model.activation': expected a value or a list of values, got none",
        ),
        ("overrides", "trainer=1", "trainer: expected a mapping of .*, got 1"),
        ("overrides", "data=1", "data: expected a class, got 1"),
        ("overrides", "trainer.callbacks=[1]", r"trainer.callbacks: expected .*, got \[1\]"),
        ("overrides", "trainer.callbacks=[null]", r"trainer.callbacks: expected .*, got \[None\]"),
        ("overrides", "model.activation={name: relu, 1: 2}", "activation: expected a name"),
        ("overrides", "model.activation=~no-one/x.py:Unit", "not a valid path"),
        *(("activations", {"name": name}, "activation: expected a name") for name in (1, None)),
        ("activations", {"name": [], "alpha": 1}, "activation: expected a name"),
        ("activations", "~no-one/x.py:Unit", "not a valid path"),
        ("activations", "glu", "unknown activation 'glu'"),
        ("activations", "./nowhere.py:Unit", r"there is no file '.*/nowhere\.py'"),
        (
            "activations",
            "nowhere.units:Unit",
            "'nowhere.units' cannot be imported, because there is no",
        ),
        (
            "activations",
            "nowhere.units.Unit",
            "'nowhere.units' cannot be imported, because there is no",
        ),
        (
            "overrides",
            "model.activation={class_path: nowhere.units.Unit}",
            "there is no module 'nowhere'",
        ),
    ],
)
def test_values_of_the_wrong_type_and_unknown_activations_are_rejected(
    study, option, value, message
):
    with pytest.raises(ActlabError, match=message):
        configs.check(study(**{option: [value]}))


def test_nothing_is_said_of_metrics_of_classes_from_outside(study, program, monkeypatch):
    monkeypatch.syspath_prepend(program("plain_lightning").parent)
    own = "set: {model.class_path: plain_lightning.OwnStep}\ntable: [{metric: own/loss}]\n"
    assert configs.check(study(TEXT + own)) == []
    with pytest.raises(ActlabError, match=r"unknown config key 'model\.width'"):
        configs.check(study(TEXT + own.replace("}", ", model.width: 3}", 1)))


@pytest.mark.parametrize(
    ("reference", "refused"), [("0", True), ("null", True), ("0.0", True), ("0.1", False)]
)
def test_a_reference_counts_as_given_whatever_it_is(study, reference, refused):
    text = TEXT.replace("seeds: 2", "seeds: 2\ncompare: model.network.dropout")
    with (
        pytest.raises(ActlabError, match="unknown reference")
        if refused
        else contextlib.nullcontext()
    ):
        configs.check(
            study(text, overrides=["model.network.dropout=[0.1, 0.5]"], reference=reference)
        )


def test_a_length_in_the_grid_counts_too(study):
    text = TEXT.replace("seeds: 2", "seeds: 2\n").replace(
        "grid:", "grid:\n  trainer.max_epochs: [1, 2]"
    )
    assert study(text).other_length == ""
    assert study(text, overrides=["trainer.max_epochs=3"]).other_length == "3 epochs, not 1 or 2"
    assert study(overrides=["trainer.max_time='00:00:01:00'"]).other_length == "00:00:01:00 of time"


def test_a_reference_is_given_on_the_command_line(study):
    assert study(reference="elu").reference == "elu"
    configs.check(study(reference="elu"))
    with pytest.raises(ActlabError, match="unknown reference 'gelu'"):
        configs.check(study(reference="gelu"))
    without_relu = TEXT.replace("relu, elu", "gelu, elu")
    configs.check(study(without_relu))
    with pytest.raises(ActlabError, match="unknown reference 'relu'"):
        configs.check(study(without_relu, reference="relu"))


@pytest.mark.parametrize(("asked", "other"), [("gelu", "gelu_tanh"), ("gelu_tanh", "gelu")])
def test_gelu_as_the_reference_is_found_in_its_other_form(study, asked, other):
    one = study(TEXT.replace("relu, elu", f"{other}, elu"), reference=asked)
    (note,) = one.notes
    assert one.reference == other
    assert note.startswith(f"Reference: {other}, ")
    assert note in configs.check(one)
    both = study(TEXT.replace("relu, elu", "gelu, gelu_tanh"), reference=asked)
    assert (both.reference, both.notes) == (asked, ())
    neither = study(TEXT.replace("relu, elu", "gelu_sigmoid, elu"), reference=asked)
    with pytest.raises(ActlabError, match=f"unknown reference '{asked}'"):
        configs.check(neither)


def test_the_title_of_a_study_follows_what_is_compared(study):
    """The file's own title may name what the command line has replaced."""
    text = TEXT.replace("grid:", "title: ReLU against ELU\ngrid:", 1)
    assert study(text).title == "ReLU against ELU"
    assert study(text, activations=["silu"]).title == "ReLU against ELU"
    assert study(text, overrides=["model.network.dropout=0.3"]).title == "ReLU against ELU"
    replaced = study(text, overrides=["model.activation=[gelu, relu]"], activations=["silu"])
    assert replaced.title == "ReLU against ELU (compared: gelu, relu, silu)"


def test_the_schema_for_editors_is_the_one_in_force():
    file = resource("configs/studies") / "schema.json"
    assert file.read_text() == schema.json_schema(), (
        "run: actlab study schema > configs/studies/schema.json"
    )
    kind = jsonschema.validators.validator_for(given := json.loads(file.read_text()))
    kind.check_schema(given)
    for path in file.parent.glob("*.yaml"):
        kind(given).validate(read_mapping(path))
        assert path.read_text().startswith("# yaml-language-server: $schema=schema.json\n")


def test_an_accuracy_is_selected_by_its_highest_value(study):
    chosen = study(TEXT + "select: {tune: [model.network.dropout], metric: val/accuracy}\n")
    assert chosen.select.mode == chosen.keep.mode == "max"
    assert study(TEXT + "select: {metric: val/loss}\n").select.mode == "min"
    assert study(TEXT + "select: {metric: val/f1, mode: max}\n").modes["f1"] == "max"


def test_a_stage_of_another_length_is_known(study, tmp_path):
    text = TEXT + (
        "select: {tune: [model.network.dropout]}\n"
        "stages: [{name: choose, set: {trainer.max_epochs: 2}}, {name: compare, seeds: 5-6}]\n"
    )
    assert (
        opening.opened(StudyFolder(study(text), tmp_path))
        .stages[0]
        .study.other_length.startswith("2 epochs")
    )
    assert study(text).other_length == ""


@pytest.mark.parametrize("names", [("a.py", "b.py"), ("v1/unit.py", "v2/unit.py")])
def test_loggers_distinguish_activations_of_one_name(study, tmp_path, names):
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"NAME = {name!r}\n\n\ndef bent(x):\n    return x.relu()\n")
    one = study(activations=[str(tmp_path / f"{name}:bent") for name in names])
    logged: dict[Any, set[Any]] = {}
    for run in one.runs():
        make = loggers.logger_factory("test_plan.Kept", StudyFolder(one, tmp_path))
        assert make
        logger = make(run)
        logged.setdefault(logger.config["setting"], set()).add(
            (logger.config["activation"], logger.tags[-1])
        )
    known = [
        [(unit, unit)]
        for unit in ("relu", "elu", *(f"{name}:bent" for name in names))
        for _ in range(2)
    ]
    assert [*map(list, logged.values())] == known
    assert len(logged) == len(names) * 2 + 4


class Kept(DummyLogger):
    """What a logger is given."""

    def __init__(self, tags):
        super().__init__()
        self.tags = tags

    def log_hyperparams(self, params, *args, **kwargs):
        self.config = params
