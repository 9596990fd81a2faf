"""A checkpoint's record: the config of its training, compared with the requested one."""

import pickle
from functools import partial
from typing import Any

import pytest
import torch

from actlab.config.paths import differences
from actlab.config.plain_values import plain
from actlab.config.record import changed_code, with_digests
from actlab.errors import ActlabError
from actlab.experiments import build
from actlab.storage.checkpoints import AtomicCheckpointIO, read
from actlab.tasks import ClassificationTask

ELU = {
    "activation": {"name": "elu", "alpha": 0.5},
    "network": {
        "class_path": "actlab.networks.MLP",
        "init_args": {"hidden": [16, 8], "dropout": 0.2},
    },
    "optimizer": {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1}},
}
DATA = {"class_path": "actlab.datamodules.MNISTDataModule", "init_args": {"sample": True}}


def config_of(**arguments):
    return {
        "seed_everything": 3,
        "model": {"class_path": "actlab.tasks.ClassificationTask", "init_args": arguments},
        "data": DATA,
        "trainer": {"max_epochs": 1, "limit_train_batches": 2},
    }


def trained(tmp_path, **arguments):
    trainer, task, data = build(config_of(**arguments), default_root_dir=str(tmp_path))
    trainer.fit(task, datamodule=data)
    path = tmp_path / "a.ckpt"
    trainer.save_checkpoint(path)
    return task, path


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """A trained task and its checkpoint, which tests only read."""
    return trained(tmp_path_factory.mktemp("trained"), **ELU)


def test_a_checkpoint_holds_the_resolved_config(once):
    found = torch.load(once[1], weights_only=True)["actlab"]
    assert found["seed_everything"] == 3
    arguments = found["model"]["init_args"]
    assert arguments["activation"] == ELU["activation"]
    network = {"hidden": [16, 8], "dropout": 0.2, "init": "unit_norm_rows", "batch_norm": False}
    assert arguments["network"]["init_args"] == network
    assert (arguments["num_classes"], arguments["input_shape"]) == (10, [1, 28, 28])
    assert found["data"]["init_args"]["sample"] is True
    assert found["data"]["init_args"]["batch_size"] == 128


def test_a_plugin_of_another_kind_or_weights_alone_lose_nothing(tmp_path):
    config = config_of(**ELU)
    plugin = "pytorch_lightning.plugins.environments.LightningEnvironment"
    config["trainer"]["plugins"] = [{"class_path": plugin}]
    trainer, task, data = build(config, default_root_dir=str(tmp_path))
    trainer.fit(task, datamodule=data)
    for weights_only in (True, False):
        trainer.save_checkpoint(tmp_path / "a.ckpt", weights_only=weights_only)
        assert "actlab" in read(tmp_path / "a.ckpt")


SCHEDULED = {
    "optimizer": {"class_path": "actlab.optim.AdamEpsilonInRoot", "init_args": {"lr": 0.01}},
    "schedules": {
        "beta1": {"class_path": "actlab.optim.Steps", "init_args": {"factors": {100: 0.5}}}
    },
    "training_metrics": ["error"],
}


@pytest.mark.parametrize("arguments", [ELU, SCHEDULED], ids=["elu", "scheduled"])
def test_load_from_checkpoint_gives_the_network_that_was_trained(once, tmp_path, arguments):
    task, path = once if arguments is ELU else trained(tmp_path, **arguments)
    loaded = ClassificationTask.load_from_checkpoint(path)
    x = torch.rand(5, 1, 28, 28)
    assert torch.equal(loaded.eval()(x), task.eval()(x))
    assert [type(m) for m in loaded.network.modules()] == [type(m) for m in task.network.modules()]
    assert loaded.seed == 3
    assert type(loaded.configure_optimizers()) is type(task.configure_optimizers())
    assert (loaded.schedules, loaded.trained) == (task.schedules, task.trained)
    assert loaded.config == read(path)["actlab"]


def test_a_subclass_or_its_base_may_load_it_and_another_class_may_not(once):
    class Other(ClassificationTask):
        """Of the user's own."""

    with pytest.raises(ActlabError, match=r"class .*Other, got actlab\.tasks\.ClassificationTask"):
        Other.load_from_checkpoint(once[1])


def test_without_a_config_arguments_are_asked_for_and_taken(tmp_path):
    task, path = trained(tmp_path)
    checkpoint = torch.load(path, weights_only=True)
    del checkpoint["actlab"]
    torch.save(checkpoint, path)
    with pytest.raises(ActlabError, match="no config"):
        ClassificationTask.load_from_checkpoint(path)
    loaded = ClassificationTask.load_from_checkpoint(path, activation="gelu_tanh")
    x = torch.rand(5, 1, 28, 28)
    assert torch.equal(loaded.eval()(x), task.eval()(x))


def test_load_from_checkpoint_takes_every_argument_of_lightnings(once, tmp_path):
    task, path = once
    x = torch.rand(5, 1, 28, 28)
    expected = task.eval()(x)
    (tmp_path / "h.yaml").write_text(str({**ELU, "num_classes": 10, "seed": 3}))
    given: list[dict[str, Any]] = [
        {"map_location": "cpu"},
        {"map_location": torch.device("cpu"), "strict": True, "weights_only": True},
        {"map_location": lambda storage, place: storage, "strict": False},
        {"weights_only": False},
        {"hparams_file": tmp_path / "h.yaml"},
        {"optimizer": partial(torch.optim.SGD, lr=0.5)},
    ]
    for arguments in given:
        loaded = ClassificationTask.load_from_checkpoint(path, **arguments)
        assert torch.equal(loaded.eval()(x), expected)
    assert loaded.optimizer is given[-1]["optimizer"]
    assert torch.equal(
        ClassificationTask.load_from_checkpoint(f"file://{path}").eval()(x), expected
    )
    with path.open("rb") as file:
        assert torch.equal(ClassificationTask.load_from_checkpoint(file).eval()(x), expected)
    gelu = ClassificationTask.load_from_checkpoint(path, activation="gelu")
    assert [type(unit) for unit in gelu.activations] != [type(unit) for unit in task.activations]


def test_weights_that_do_not_fit_are_one_line_unless_strict_is_false(once, tmp_path):
    path, checkpoint = tmp_path / "a.ckpt", torch.load(once[1], weights_only=True)
    weights = checkpoint["state_dict"]
    name = next(iter(weights))
    for change in ({name: None}, {name: torch.zeros(3)}, {"more": torch.zeros(3)}, {name: 3}):
        changed = {key: value for key, value in {**weights, **change}.items() if value is not None}
        torch.save({**checkpoint, "state_dict": changed}, path)
        with pytest.raises(ActlabError, match="weights do not fit the network") as raised:
            ClassificationTask.load_from_checkpoint(path)
        assert "\n" not in str(raised.value)
        if change == {name: None}:
            ClassificationTask.load_from_checkpoint(path, strict=False)


class Evil:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return print, ("this ran",)


def test_only_plain_values_are_read_whatever_is_asked_for(tmp_path, capsys):
    torch.save({"state_dict": {}, "x": Evil()}, tmp_path / "a.ckpt")
    with pytest.raises(ActlabError, match="plain values"):
        AtomicCheckpointIO().load_checkpoint(tmp_path / "a.ckpt", weights_only=False)
    (tmp_path / "b.ckpt").write_bytes(pickle.dumps(Evil(), protocol=2))
    (tmp_path / "c.ckpt").write_text("no checkpoint")
    (tmp_path / "d.ckpt").touch()
    torch.save([1], tmp_path / "e.ckpt")
    for name in "bcde":
        with pytest.raises(ActlabError, match=name):
            read(tmp_path / f"{name}.ckpt")
    assert "this ran" not in capsys.readouterr().out


def test_differences_are_named_as_a_config_names_them():
    one, two = (
        {
            "class_path": "a.Task",
            "init_args": {"x": [1], "net": {"class_path": "a.Net", "init_args": {"w": w}}},
        }
        for w in (1, 2)
    )
    assert [*differences(one, one, "model")] == []
    assert next(differences(one, two, "model")) == ("model.net.w", 1, 2)
    two["init_args"]["net"] = {"class_path": "a.Conv", "init_args": {"k": 2}}
    assert next(differences(one, two, "model")) == ("model.net", "a.Net", "a.Conv")
    assert [*differences({"x": 1}, {}, "model")] == [("model.x", 1, "nothing")]


def test_tuples_and_classes_become_plain_values():
    assert plain({"a": (1, None), "b": {"c": torch.optim.SGD}}) == {
        "a": [1, None],
        "b": {"c": "torch.optim.sgd.SGD"},
    }


def test_code_of_the_data_counts_too(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_data_here.py").write_text("class Mine: ...\n")
    data = {"class_path": "own_data_here.Mine", "init_args": {}}
    record = with_digests({**config_of(**ELU), "data": data})
    assert changed_code(record) == []
    (tmp_path / "own_data_here.py").write_text("class Mine:\n    other = 1\n")
    assert changed_code(record) == ["own_data_here.Mine"]


@pytest.mark.parametrize(("digests", "recorded"), [(None, False), ({}, True)])
def test_a_build_records_digests_if_its_caller_has_a_place_for_them(
    digests, recorded, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_unit.py").write_text("from torch import nn\n\n\nclass Mine(nn.ReLU): ...\n")
    spelling = "./own_unit.py:Mine"
    task: Any = build(config_of(**{**ELU, "activation": spelling}), digests).task
    assert (spelling in task.config.get("sources", {})) is recorded
    assert (spelling in (digests or {})) is recorded
