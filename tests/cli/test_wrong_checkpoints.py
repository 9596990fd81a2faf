"""A checkpoint of wrong content ends in one line on resume: no traceback, and never a training on it."""

import copy
from typing import Any

import pytest
import torch

from actlab.__main__ import main

QUICK = [
    *("--data.sample", "true", "--model.network.hidden", "[8]", "--trainer.limit_train_batches", "3"),
    *("--trainer.limit_val_batches", "1", "--trainer.limit_test_batches", "1", "--trainer.logger", "false"),
    *("--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"),
]
FIT = ["-c", "mnist_classifier", *QUICK, "--trainer.default_root_dir"]
pytestmark = pytest.mark.filterwarnings("ignore:The dirpath has changed")  # each resume has a folder of its own
GONE = object()  # deletes the key
WEIGHT = ("state_dict", "network.1.weight")
STATE, GROUP = ("optimizer_states", 0, "state"), ("optimizer_states", 0, "param_groups", 0)
LOOP = ("loops", "fit_loop")
PARTS: dict[str, list[Any]] = {
    "state_dict": [None, 3, [1], {}, {1: 2}],
    "optimizer_states": [GONE, None, 3, "x", [], {}, [3], [{}], {"a": 1}],
    "lr_schedulers": [GONE, None, 3, "x", [3], {"a": 1}, [{"last_epoch": 1}]],
    "loops": [GONE, None, 3, "x", [], {}, {"a": 1}, {"fit_loop": {}}, {"fit_loop": 3}],
    "callbacks": [GONE, None, 3, "x", [], [3]],
    "epoch": [GONE, None, "x", [], 1.5],
    "global_step": [GONE, None, "x", {}],
    "plateaus": [None, 3, "x", {"lr": 3}, {"lr": ["x"]}],
    "pytorch-lightning_version": [GONE, None, 3, "x"],
    "actlab": [3, "x", [], {}],
    "within_epoch": [3, []],
    "without_state": [3, [3], [["x"]]],
}
INSIDE = [
    (WEIGHT, GONE),
    (WEIGHT, None),
    (WEIGHT, 3),
    (WEIGHT, torch.zeros(3)),
    (WEIGHT, torch.zeros(8, 784, dtype=torch.int64)),
    (WEIGHT, torch.zeros(8, 784, dtype=torch.complex64)),
    (("state_dict", "network.9.weight"), torch.zeros(3)),
    (STATE, {}),
    (STATE, 3),
    ((*STATE, 0), GONE),
    ((*STATE, 0), 3),
    ((*STATE, 7), {}),
    ((*STATE, 0), {}),
    ((*STATE, 0, "exp_avg"), GONE),
    ((*STATE, 0, "exp_avg"), None),
    ((*STATE, 0, "exp_avg"), "x"),
    ((*STATE, 0, "exp_avg"), torch.zeros(3)),
    ((*STATE, 0, "exp_avg"), torch.zeros(8, 784, dtype=torch.int64)),
    ((*STATE, 0, "step"), "x"),
    (("optimizer_states", 0, "param_groups"), []),
    (GROUP, 3),
    ((*GROUP, "lr"), GONE),
    ((*GROUP, "lr"), "x"),
    ((*GROUP, "betas"), 3),
    ((*GROUP, "params"), [0]),
    ((*LOOP, "epoch_progress"), GONE),
    ((*LOOP, "epoch_progress", "current"), 3),
    ((*LOOP, "epoch_progress", "current", "processed"), "x"),
    ((*LOOP, "epoch_loop.batch_progress"), {}),
    ((*LOOP, "epoch_loop.state_dict"), []),
    ((*LOOP, "epoch_loop.automatic_optimization.optim_progress"), GONE),
    (("callbacks", "ModelCheckpoint", "best_k_models"), 3),
    (("callbacks", "ModelCheckpoint", "best_model_path"), GONE),
]
WRONG = [*INSIDE, *(((name,), value) for name, values in PARTS.items() for value in values)]


def named(path, value):
    """The id of a case."""
    text = "missing" if value is GONE else repr(value)
    if isinstance(value, torch.Tensor):
        text = f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return f"{'.'.join(map(str, path))} {text}"


def changed(checkpoint, path, value):
    """The checkpoint with one value replaced; a name of a callback stands for the first of its keys."""
    found = copy.deepcopy(checkpoint)
    *above, last = path
    holder = found
    for part in above:
        known = holder if isinstance(holder, dict) and part not in holder else {}
        part = next((key for key in known if str(key).startswith(str(part))), part)
        holder = holder[part]
    if value is GONE:
        del holder[last]
    else:
        holder[last] = value
    return found


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The checkpoints of an epoch of training: after its last batch, and within it."""
    folder = tmp_path_factory.mktemp("trained")
    words = ["--trainer.max_epochs", "1", "--trainer.callbacks", "ModelCheckpoint"]
    words += ["--trainer.callbacks.every_n_train_steps", "1", "--trainer.callbacks.save_top_k", "-1"]
    assert main(["fit", *FIT, str(folder / "whole"), *words[:2]]) == 0
    assert main(["fit", *FIT, str(folder / "within"), *words]) == 0
    files = {"whole": "last.ckpt", "within": "*step=2.ckpt"}
    return {name: next(folder.glob(f"{name}/*/checkpoints/{file}")) for name, file in files.items()}


@pytest.fixture
def resumed(cli, tmp_path):
    def run(checkpoint):
        torch.save(checkpoint, path := tmp_path / "x.ckpt")
        return cli("fit", *FIT, tmp_path / "r", "--trainer.max_epochs", "2", "--ckpt_path", path)

    return run


WITHIN = [
    (("within_epoch",), GONE),
    (("within_epoch",), {}),
    *((("within_epoch", name), GONE) for name in ("means", "metrics", "whole", "accumulated")),
    (("within_epoch", "means"), 3),
    (("within_epoch", "means"), []),
    (("within_epoch", "means"), [3]),
    (("within_epoch", "metrics"), 3),
    *(
        ((*LOOP, "state_dict", "combined_loader"), value)  # of a whole epoch it is not used
        for value in (GONE, 3, [], [3], [{"epoch": 0}], [{"epoch": "x", "batches": 2}])
    ),
]


def test_what_is_not_changed_resumes(resumed, saved):
    outcome = resumed(torch.load(saved["whole"], weights_only=True))
    assert outcome.code == 0, outcome.err


CASES = [*(("whole", *case) for case in WRONG), *(("within", *case) for case in WITHIN)]


@pytest.mark.parametrize(
    ("which", "path", "value"), CASES, ids=[f"{which} {named(path, value)}" for which, path, value in CASES]
)
@pytest.mark.filterwarnings("ignore:Be aware that when using .ckpt_path")
def test_wrong_content_is_one_line(resumed, saved, tmp_path, which, path, value):
    outcome = resumed(changed(torch.load(saved[which], weights_only=True), path, value))
    lines = [line for line in outcome.err.splitlines() if line.startswith("actlab: error:")]
    assert (outcome.code, len(lines)) == (2, 1), outcome
    assert outcome.err.endswith(f"{lines[0]}\n")
    assert not [*tmp_path.glob("r/**/*.ckpt")]


PLAIN = ["--model", "plain_lightning.WithMomentum", "--data", "plain_lightning.MyData", *QUICK[4:]]
THIRD_PARTY = [
    (("state_dict", "network.0.weight"), GONE),
    (("state_dict", "network.0.weight"), torch.zeros(3)),
    (STATE, {}),
    ((*STATE, 0, "momentum_buffer"), torch.zeros(3)),
    (("loops",), GONE),
    (("callbacks",), GONE),
    (("optimizer_states",), []),
]


@pytest.mark.parametrize(("path", "value"), THIRD_PARTY, ids=[named(*case) for case in THIRD_PARTY])
def test_wrong_content_of_a_third_party_module_is_one_line(cli, tmp_path, program, monkeypatch, path, value):
    program("plain_lightning")
    monkeypatch.syspath_prepend(tmp_path)
    words = [*PLAIN, "--trainer.default_root_dir", tmp_path / "r", "--trainer.max_epochs"]
    callback = ["--trainer.callbacks", "ModelCheckpoint", "--trainer.callbacks.save_on_train_epoch_end", "true"]
    assert cli("fit", *words, 1, *callback).code == 0
    (file,) = tmp_path.glob("r/*/checkpoints/*.ckpt")
    whole = torch.load(file, weights_only=True)
    for checkpoint, code in ((whole, 0), (changed(whole, path, value), 2)):
        torch.save(checkpoint, file)
        outcome = cli("fit", *words, 2, "--ckpt_path", file)
        lines = [line for line in outcome.err.splitlines() if line.startswith("actlab: error:")]
        assert (outcome.code, len(lines)) == (code, code / 2), outcome


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended")  # what Lightning says of it
def test_the_state_of_another_data_loader_is_one_line(cli, tmp_path, program, monkeypatch):
    program("plain_lightning")
    monkeypatch.syspath_prepend(tmp_path)
    words = [*PLAIN, "--trainer.default_root_dir", tmp_path / "r", "--trainer.max_epochs", "1"]
    words += ["--trainer.callbacks", "ModelCheckpoint", "--trainer.callbacks.every_n_train_steps", "2"]
    assert cli("fit", *words).code == 0
    (file,) = tmp_path.glob("r/*/checkpoints/*.ckpt")
    torch.save(
        changed(torch.load(file, weights_only=True), (*LOOP, "state_dict", "combined_loader"), [{}]), file
    )
    outcome = cli("fit", *words, "--ckpt_path", file)
    assert outcome.code == 2
    assert "the checkpoint cannot be restored (RuntimeError: The CombinedLoader has 0 stateful" in outcome.err
