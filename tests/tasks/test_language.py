"""The language task: metrics by hand, metrics of torchmetrics, predictions by the command."""

import math
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from torchmetrics import Accuracy

from actlab.callbacks import TestEveryEpoch
from actlab.datamodules import TextDataModule
from actlab.errors import ActlabError
from actlab.networks import GPT
from actlab.storage.resources import resource
from actlab.tasks import LanguageTask
from tolerances import ROUNDED
from toys import fitted

SMALL = partial(GPT, width=8)


@pytest.fixture
def data() -> TextDataModule:
    return TextDataModule(
        sample=True, context=8, windows=12, eval_batch_size=5, updates_per_epoch=3
    )


def task(**options: Any) -> LanguageTask:
    return LanguageTask(256, (8,), activation="gelu", network=SMALL, **options)


def probabilities(
    one: LanguageTask, data: TextDataModule, part: str = "val"
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities ``(N, 8, 256)`` of a part by softmax, and the targets."""
    inputs, targets = getattr(data, part).tensors
    with torch.no_grad():
        logits = one.eval()(inputs).double().numpy()
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True), targets.numpy()


def test_metrics_are_those_of_the_formulas(data, tmp_path):
    one = task(metrics={"hits": Accuracy(task="multiclass", num_classes=256, average="micro")})
    trainer = fitted(one, data, tmp_path, precision="32-true", max_epochs=1)
    found = {name: float(value) for name, value in trainer.callback_metrics.items()}
    shares, targets = probabilities(one, data)
    nats = -np.log(np.take_along_axis(shares, targets[..., None], -1)).mean()
    error = (shares.argmax(-1) != targets).mean()
    assert found["val/loss"] == pytest.approx(nats, rel=ROUNDED)
    assert found["val/bits_per_byte"] == pytest.approx(nats / math.log(2), rel=ROUNDED)
    assert found["val/perplexity"] == pytest.approx(math.exp(nats), rel=10 * ROUNDED)
    assert found["val/error"] == pytest.approx(error, abs=0.011)
    assert found["val/hits"] == pytest.approx(found["val/accuracy"])
    assert found["val/accuracy"] == pytest.approx(1 - found["val/error"])


def test_the_default_network_is_a_gpt():
    assert isinstance(LanguageTask(256, (16,)).network, GPT)


def test_guessing_has_eight_bits_a_byte(data):
    one = task().eval()
    torch.nn.init.zeros_(one.network.get_parameter("head.weight"))
    data.setup("fit")
    with torch.no_grad():
        measured = one.measured(next(iter(data.val_dataloader())))
    found = one.reported({name: quantity.mean() for name, quantity in measured.items()})
    assert tuple(found) == LanguageTask.metric_names
    assert float(found["bits_per_byte"]) == pytest.approx(8, rel=ROUNDED)
    assert float(found["perplexity"]) == pytest.approx(256, rel=10 * ROUNDED)


def test_predictions_are_the_surprisal_of_each_byte(data):
    one = task()
    data.setup("fit")
    shares, targets = probabilities(one, data)
    with torch.no_grad():
        found = one.predict_step(data.val.tensors, 0)
    expected = -np.log(np.take_along_axis(shares, targets[..., None], -1))[..., 0]
    torch.testing.assert_close(found.double(), torch.from_numpy(expected), rtol=1e-4, atol=1e-5)


def quick(tmp_path) -> list[Any]:
    """Words for a short fit of the config that ships, on the sample."""
    quiet = [
        word for key in ("logger", "enable_progress_bar") for word in (f"--trainer.{key}", "false")
    ]
    sizes = {"context": 8, "updates_per_epoch": 2, "windows": 6, "sample": "true"}
    data = [word for key, value in sizes.items() for word in (f"--data.{key}", value)]
    return [*data, "--model.network.width", 8, "--trainer.default_root_dir", tmp_path, *quiet]


PLAIN = pytest.param("gpt_plain", marks=pytest.mark.slow)  # as the other, without gates


@pytest.mark.parametrize("config", [PLAIN, "gpt_gated"])
def test_predict_writes_a_row_a_window(cli, tmp_path, config):
    cli("fit", "-c", config, *quick(tmp_path)).succeeded()
    (checkpoint,) = tmp_path.rglob("last.ckpt")
    cli("predict", "--ckpt_path", checkpoint, "--trainer.enable_progress_bar", "false").succeeded()
    (path,) = tmp_path.rglob("predictions.parquet")
    table = pd.read_parquet(path)
    assert list(table) == [
        "index",
        *(f"label_{t}" for t in range(8)),
        *(f"surprisal_{t}" for t in range(8)),
    ]
    assert len(table) == 6
    data = TextDataModule(sample=True, context=8, windows=6)
    data.setup("fit")
    assert np.array_equal(table.filter(like="label").to_numpy(), data.test.tensors[1].numpy())
    outcome = cli("test", "--ckpt_path", checkpoint, "--trainer.enable_progress_bar", "false")
    assert f"{table.filter(like='surprisal').to_numpy().mean():.3f}"[:4] in outcome.out


def test_the_test_set_is_evaluated_every_n_epochs(data, tmp_path):
    one, seen = task(), list[int]()
    one.on_test_epoch_end = lambda: seen.append(one.current_epoch)  # type: ignore[method-assign]
    fitted(one, data, tmp_path, TestEveryEpoch(every_n_epochs=2), precision="32-true", max_epochs=5)
    assert seen == [1, 3, 4]  # the last is always tested
    with pytest.raises(ActlabError, match="every_n_epochs: expected a number"):
        TestEveryEpoch(every_n_epochs=0)


@pytest.mark.parametrize("config", ["gpt_plain", "gpt_gated"])
def test_validation_and_test_come_once_at_the_end(config):
    given = yaml.safe_load((resource("configs") / f"{config}.yaml").read_text())["trainer"]
    every = [callback.get("init_args", {}).get("every_n_epochs") for callback in given["callbacks"]]
    assert given["max_epochs"] == given["check_val_every_n_epoch"] == every[0] == 4
