"""A checkpoint of wrong content ends in one line on resume: no traceback, no training on it."""

import copy
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

from actlab.__main__ import main
from actlab.config.messages import one_line_errors
from actlab.errors import ActlabError
from toys import Frames, FrameTask, fitted

# Each resume has a folder of its own
pytestmark = pytest.mark.filterwarnings("ignore:The dirpath has changed")
GONE = object()  # deletes the key
WEIGHT = ("state_dict", "network.0.weight")
STATE, GROUP = ("optimizer_states", 0, "state"), ("optimizer_states", 0, "param_groups", 0)
ROW = torch.zeros(3)
LOOP = ("loops", "fit_loop")
LOADER = (*LOOP, "state_dict", "combined_loader")
WHOLE: dict[tuple[Any, ...], list[Any]] = {  # what a resume rejects
    WEIGHT: [GONE, None, 3, ROW],
    ("state_dict",): [{}],
    ("state_dict", "network.9.weight"): [ROW],
    ("optimizer_states",): [[], [{}], [{}, {}]],
    ("lr_schedulers",): [[], [{}, {}]],
    ("lr_schedulers", 0, "last_epoch"): [None, "x"],
    STATE: [{}, 3],
    (*STATE, 0): [GONE, 3, {}],
    (*STATE, 0, "exp_avg"): [GONE, None, "x", ROW],
    (*STATE, 0, "step"): ["x"],
    ("optimizer_states", 0, "param_groups"): [[]],
    GROUP: [3],
    (*GROUP, "params"): [[0]],
    (*GROUP, "lr"): [GONE, None, "x", ROW],
    (*GROUP, "betas"): [GONE, 0.9, [0.9], ["x", "y"]],
    ("loops",): [GONE, {}, {"fit_loop": {}}],
    (*LOOP, "epoch_progress"): [GONE],
    (*LOOP, "epoch_progress", "current"): [3],
    (*LOOP, "epoch_progress", "current", "processed"): ["x"],
    (*LOOP, "epoch_loop.batch_progress"): [{}],
    (*LOOP, "epoch_loop.state_dict"): [[]],
    (*LOOP, "epoch_loop.automatic_optimization.optim_progress"): [GONE],
    ("callbacks", "ModelCheckpoint", "best_model_path"): [GONE],
    ("pytorch-lightning_version",): ["x"],
}
WITHIN: dict[tuple[Any, ...], list[Any]] = {
    ("within_epoch",): [GONE, {}],
    **{("within_epoch", name): [GONE] for name in ("whole", "accumulated")},
    ("within_epoch", "means"): [GONE, 3, [], [3]],
    ("within_epoch", "metrics"): [GONE, 3],
    LOADER: [
        GONE,
        3,
        [],
        [3],
        [{"epoch": 0}],
        [{"epoch": "x", "batches": 2}],
    ],
}
CASES = [
    pytest.param(which, path, values, id=f"{which} {'.'.join(map(str, path))}")
    for which, cases in (("whole", WHOLE), ("within", WITHIN))
    for path, values in cases.items()
]


def changed(checkpoint, path, value):
    """The checkpoint with one value replaced; a callback's name stands for its first key."""
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


def train(folder, epochs, resumed=None):
    """Train a task, and save checkpoints within each epoch and at its end."""
    whole = ModelCheckpoint(folder, "whole", save_on_train_epoch_end=True)
    within = ModelCheckpoint(folder, "{step}", save_top_k=-1, every_n_train_steps=2)
    options = {"max_epochs": epochs, "enable_checkpointing": True, "resumed": resumed}
    scheduler = partial(torch.optim.lr_scheduler.StepLR, step_size=1)
    task = FrameTask(optimizer=partial(torch.optim.Adam, lr=0.1), scheduler=scheduler)
    fitted(task, Frames(), folder, whole, within, **options)


def read(folder):
    """The checkpoints after the last batch of an epoch, and within it."""
    files = {"whole": "whole.ckpt", "within": "step=2.ckpt"}
    return {name: torch.load(folder / file, weights_only=True) for name, file in files.items()}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    train(folder := tmp_path_factory.mktemp("trained"), 1)
    found = read(folder)
    assert ["within_epoch" in found[name] for name in ("whole", "within")] == [False, True]
    return found


@pytest.fixture
def file(tmp_path):
    return tmp_path / "x.ckpt"


@pytest.mark.parametrize("which", ["whole", "within"])
def test_what_is_not_changed_resumes(saved, file, tmp_path, which):
    torch.save(saved[which], file)
    train(tmp_path / "r", 2, file)
    assert [*tmp_path.glob("r/*.ckpt")]


@pytest.mark.parametrize(("which", "path", "values"), CASES)
def test_wrong_content_is_rejected_in_one_line_before_training(
    saved, file, tmp_path, which, path, values
):
    for value in values:
        torch.save(changed(saved[which], path, value), file)
        with pytest.raises(ActlabError, match=r"\A.*([Uu]se|give) .*\Z"), one_line_errors():
            train(tmp_path / "r", 2, file)
        assert not [*tmp_path.glob("r/*.ckpt")]


WORDS = [
    *(
        "--model",
        "programs.plain_lightning.WithMomentum",
        "--data",
        "programs.plain_lightning.MyData",
    ),
    *("--trainer.logger", "false", "--trainer.enable_progress_bar", "false"),
    *("--trainer.enable_model_summary", "false", "--trainer.default_root_dir"),
]


@pytest.fixture(scope="module")
def third_party(tmp_path_factory):
    """The checkpoints of a module and data without a class of actlab."""
    kinds: dict[str, dict[str, Any]] = {
        "whole": {"save_on_train_epoch_end": True},
        "{step}": {"every_n_train_steps": 2, "save_top_k": -1},
    }
    kept = [{"filename": name, **kind} for name, kind in kinds.items()]
    made = [{"class_path": "ModelCheckpoint", "init_args": arguments} for arguments in kept]
    words = [*WORDS, str(tmp_path_factory.mktemp("trained")), "--trainer.max_epochs", "1"]
    assert main(["fit", *words, f"--trainer.callbacks={json.dumps(made)}"]) == 0
    return read(next(Path(words[-3]).glob("*/checkpoints")))


OF_WORDS = [  # one of the reader, of the record, of the loops, of the weights, of the optimisers
    ("whole", ("epoch",), "x", "epoch: input should be a valid integer"),
    ("whole", ("actlab",), {}, "record of model is malformed"),
    ("whole", ("loops",), GONE, "has no loops"),
    (
        "whole",
        (*STATE, 0),
        GONE,
        "has no optimizer_states.0.state.0. Use another file.",
    ),
    (
        "whole",
        (*GROUP, "lr"),
        "x",
        "has str at optimizer_states.0.param_groups.0.lr, but the training has a number",
    ),
    (
        "whole",
        ("lr_schedulers",),
        [{}],
        "has 1 lr_schedulers, but the training has 0. Use another file.",
    ),
    ("whole", WEIGHT, GONE, "cannot be restored"),
    ("whole", STATE, {}, "has no optimizer_states.0.state.0. Use another file."),
    ("within", LOADER, [{}], "cannot be restored (RuntimeError: The CombinedLoader has 0 stateful"),
]


# Of a loader without state
@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended")
def test_wrong_content_of_a_third_party_module_is_one_line(
    cli, succeed, third_party, file, tmp_path
):
    words = [*WORDS, tmp_path / "r", "--trainer.max_epochs", "2", "--ckpt_path", file]
    for which, path, value, said in OF_WORDS:
        torch.save(changed(third_party[which], path, value), file)
        outcome = cli("fit", *words)
        lines = [line for line in outcome.err.splitlines() if line.startswith("actlab: error:")]
        assert (outcome.code, len(lines), said in outcome.err) == (2, 1, True), outcome
        assert outcome.err.endswith(f"{lines[0]}\n")
    assert not [*tmp_path.glob("r/**/*.ckpt")]
    torch.save(third_party["whole"], file)
    succeed("fit", *words)
