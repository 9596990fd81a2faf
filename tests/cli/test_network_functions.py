"""A function takes the place of a network's class in fits and studies, also in modules of users."""

import pytest
import torch

from tiny_study import study_text

BRIEF = [
    *(
        "--data.sample",
        "true",
        "--trainer.enable_progress_bar",
        "false",
        "--trainer.logger",
        "false",
    ),
    *("--trainer.enable_model_summary", "false", "--trainer.max_epochs", "1"),
    *("--trainer.limit_train_batches", "2", "--trainer.limit_val_batches", "1"),
]


@pytest.fixture
def fit(succeed, program, tmp_path):
    """Fit with some words; return the state dict at the end."""
    program("network_functions")

    def run(*words):
        succeed("fit", *words, *BRIEF)
        (last,) = tmp_path.glob("runs/*/*/checkpoints/*.ckpt")
        state = torch.load(last, weights_only=True)["state_dict"]
        last.unlink()
        return state

    return run


@pytest.mark.parametrize("words", [["net"], ["sized", "--model.network.width", "8"], ["shaped"]])
def test_a_function_builds_the_network_of_a_fit(fit, words):
    base = [
        "-c",
        "mnist_classifier",
        "--trainer.callbacks",
        "ModelCheckpoint",
        "--model.network.class_path",
    ]
    found = fit(*base, f"network_functions.{words[0]}", *words[1:])
    wanted = fit(*base, "network_functions.Shaped")
    assert [tuple(found[key].shape) for key in found] == [
        tuple(wanted[key].shape) for key in wanted
    ]
    assert words[0] != "shaped" or all(torch.equal(found[key], wanted[key]) for key in wanted)


@pytest.mark.parametrize(
    ("module", "key"),
    [("Untyped", "network"), ("Typed", "network"), ("Typed", "network.class_path")],
)
def test_a_module_of_a_user_takes_a_function(fit, module, key):
    named = ["--model", f"network_functions.{module}", "--data", "MNISTDataModule"]
    assert len(fit(*named, f"--model.{key}", "network_functions.net")) == 4


def test_an_argument_that_a_function_does_not_take_is_named(cli, program):
    program("network_functions")
    named = [
        "--model",
        "actlab.tasks.ClassificationTask",
        "--data",
        "MNISTDataModule",
        "--model.optimizer=Adam",
    ]
    named += ["--model.network", "network_functions.sized"]
    line = cli("fit", *named, "--model.network.wdth", "8", *BRIEF).rejection
    assert "unknown config key 'model.network.wdth'; did you mean 'model.network.width'" in line


def test_a_function_builds_the_networks_of_a_study(succeed, program, tmp_path):
    program("network_functions")
    text = study_text("model.activation: [relu], model.network.width: [4, 8]", seeds=2, epochs=1)
    text = text.replace(
        "  model.network.hidden: [8]\n", "  model.network: {class_path: network_functions.sized}\n"
    )
    (tmp_path / "tiny.yaml").write_text(text)
    assert "4 of 4 runs finished" in succeed("study", "run", "tiny.yaml").out
