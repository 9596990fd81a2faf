"""The standard errors that means of an evaluation have from its samples, against numpy."""

import json
from functools import partial
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from actlab.callbacks import TestEveryEpoch
from actlab.datamodules import TextDataModule, TIMITDataModule, TwitterPOSDataModule
from actlab.networks import GPT
from actlab.stacking import StackedTask
from actlab.tasks import ClassificationTask, Derived, LanguageTask, PixelTask, Quantity
from actlab.tasks import FrameTask as LabelledFrames
from actlab.tasks.sampling import SampleSums, error_of_derived, sampling_error
from tolerances import ROUNDED
from toys import QUIET, Frames, FrameTask, PlainFrameTask, fitted

VALUES = np.random.default_rng(0).normal(2, 1, (3, 11, 5))  # runs, samples, tokens
WEIGHTS = np.random.default_rng(1).integers(0, 2, (11, 5)).astype(float)
WEIGHTS[4] = 0  # a sample that is all padding does not count


def by_hand(values: np.ndarray, weights: np.ndarray) -> float:
    """The standard error of a ratio of two means over samples, by linearisation."""
    w = weights.sum(-1)
    x = (values * weights).sum(-1)[w > 0] / w[w > 0]
    w = w[w > 0]
    mean, n = (w * x).sum() / w.sum(), len(w)
    return float(np.sqrt((w**2 * (x - mean) ** 2).sum() * n / (n - 1)) / w.sum())


def error_of_sums(samples: SampleSums, name: str, mean: torch.Tensor) -> torch.Tensor:
    """The sampling error on one device."""
    return sampling_error(samples.sums(name, mean), lambda local: local)


def error_in_batches(
    *sizes: int, runs: bool = False, weights: np.ndarray | None = WEIGHTS
) -> torch.Tensor:
    """The errors of the values, added in batches of these sizes."""
    samples = SampleSums()
    values = torch.tensor(VALUES if runs else VALUES[0])
    if weights is not None:
        values = torch.where(
            torch.tensor(weights) > 0, values, torch.inf
        )  # padding may be anything

    for rows in torch.arange(11).split(list(sizes)):
        quantity = Quantity(values[..., rows, :])
        if weights is not None:
            quantity = Quantity(values[..., rows, :], torch.tensor(weights)[rows])
        samples.add("loss", quantity, rows, runs)
    return error_of_sums(samples, "loss", torch.zeros(3 if runs else ()))


@pytest.mark.parametrize("sizes", [(11,), (6, 5), (1, 1, 9)], ids=str)
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "padded"])
def test_errors_are_numpys_in_any_batches_and_in_a_stack(sizes, weights):
    expected = [
        by_hand(of_run, np.ones((11, 5)) if weights is None else weights) for of_run in VALUES
    ]
    assert float(error_in_batches(*sizes, weights=weights)) == pytest.approx(expected[0], rel=1e-12)
    assert error_in_batches(*sizes, runs=True, weights=weights).tolist() == pytest.approx(
        expected, rel=1e-12
    )


def test_equal_weights_give_the_usual_standard_error():
    x = VALUES[0].mean(-1)
    assert float(error_in_batches(4, 7, weights=None)) == pytest.approx(
        x.std(ddof=1) / 11**0.5, rel=1e-12
    )


def test_half_precision_is_summed_in_higher_precision():
    samples = SampleSums()
    values = torch.tensor(VALUES[0], dtype=torch.bfloat16)

    samples.add("loss", Quantity(values), values, False)
    totals, weights = samples.sums("loss", torch.zeros((), dtype=torch.bfloat16))

    assert totals.dtype == torch.float64
    assert weights.tolist() == 11 * [5.0]
    assert totals.tolist() == pytest.approx(values.double().sum(-1).tolist(), rel=1e-6)


def test_what_is_not_of_samples_has_no_error():
    samples = SampleSums()

    samples.add("mean", Quantity(torch.tensor(1.0)), torch.ones(11), False)
    samples.add("tokens", Quantity(torch.ones(55)), torch.ones(11, 5), False)
    samples.add("one", Quantity(torch.ones(1)), torch.ones(1), False)
    samples.add("words", Quantity(torch.ones(2)), ["a", "b"], False)

    for name in ("mean", "tokens", "one", "words", "another"):
        assert not error_of_sums(samples, name, torch.zeros(())).isfinite()


def test_functions_of_a_mean_have_its_error_times_their_slope():
    mean, error = torch.tensor(1.5), torch.tensor(0.01, dtype=torch.float64)
    found = {
        f: float(error_of_derived(Derived(f), mean, error))
        for f in (torch.exp, torch.sqrt, torch.neg)
    }
    slopes = {torch.exp: np.exp(1.5), torch.sqrt: 0.5 / 1.5**0.5, torch.neg: 1}
    for function, value in found.items():
        assert value == pytest.approx(slopes[function] * 0.01, rel=1e-4)


def error_of(task: FrameTask, data: Frames) -> float:
    """The error of a task's loss over the test set, from the values of one batch, by numpy."""
    with torch.no_grad():
        found = task.eval().measured(data.test.tensors)["loss"]
    return by_hand(found.values.numpy(), data.test.tensors[2].numpy())


@pytest.mark.parametrize("kind", [FrameTask, PlainFrameTask])
def test_runs_alone_and_in_a_stack_have_the_errors_of_their_weights(tmp_path, kind):
    """Forty-eight padded sequences in batches of 16, validated and tested after three epochs."""
    alone = []
    for r in range(3):
        task, data = kind(r).double(), Frames(seed=r)
        fitted(task, data, tmp_path, TestEveryEpoch())
        for split in ("val", "test"):  # which are equal
            assert task.sampling_errors[f"{split}/loss"] == pytest.approx([error_of(task, data)])
            # A share, of so many samples
            assert not np.isfinite(task.sampling_errors[f"{split}/error"])
        alone.append(task.sampling_errors)
    data = Frames()
    data.seed = [0, 1, 2]
    stack = StackedTask([kind(r).double() for r in range(3)]).double()
    fitted(stack, data, tmp_path, TestEveryEpoch())
    assert stack.sampling_errors.keys() == alone[0].keys()
    for name, errors in stack.sampling_errors.items():
        assert errors == pytest.approx([run[name][0] for run in alone], rel=1e-9, nan_ok=True)


def test_means_and_errors_of_two_devices_are_those_of_one(tmp_path):
    def tested(**options: Any) -> dict[str, float]:
        task, data = FrameTask(0).double(), Frames()
        settings = {**QUIET, "precision": "64-true", "default_root_dir": tmp_path, **options}
        pl.Trainer(**settings, callbacks=[Written(tmp_path / str(len(options)))]).test(
            task, data, verbose=False
        )
        return json.loads((tmp_path / str(len(options))).read_text())

    assert tested(devices=2, strategy="ddp_fork") == pytest.approx(tested(), rel=1e-12, nan_ok=True)


class Written(pl.Callback):
    """Writes the errors to a file: other processes have the task."""

    def __init__(self, path: Any) -> None:
        self.path = path

    def on_test_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if trainer.is_global_zero:
            self.path.write_text(
                json.dumps({name: error for name, (error,) in pl_module.sampling_errors.items()})
            )


def test_a_language_task_keeps_the_loss_of_each_window(tmp_path):
    data = TextDataModule(
        sample=True, context=8, windows=12, eval_batch_size=5, updates_per_epoch=3
    )
    task = LanguageTask(256, (8,), activation="gelu", network=partial(GPT, width=8))
    trainer = fitted(task, data, tmp_path, TestEveryEpoch(), max_epochs=1)
    for split in ("val", "test"):
        with torch.no_grad():
            nats = task.eval().measured(getattr(data, split).tensors)["loss"].values.double()
        error = nats.mean(-1).std().item() / 12**0.5
        (found,), (bits,) = (
            task.sampling_errors[f"{split}/{name}"] for name in ("loss", "bits_per_byte")
        )
        assert found == pytest.approx(error, rel=ROUNDED)
        assert bits == pytest.approx(error / np.log(2), rel=ROUNDED)
        mean = float(trainer.callback_metrics[f"{split}/loss"])
        (perplexity,) = task.sampling_errors[f"{split}/perplexity"]
        assert perplexity == pytest.approx(np.exp(mean) * np.sinh(error), rel=ROUNDED)
        (kept,) = task.sample_losses[f"{split}/loss_by_sample"]
        assert kept == pytest.approx(nats.mean(-1).tolist(), abs=2e-6)


def test_pixels_of_a_picture_have_no_error():
    assert not PixelTask.independent


@pytest.mark.parametrize("kind", ["tweets", "speech"])
def test_tokens_of_tweets_and_frames_of_speech_are_counted_by_sentence(kind, tmp_path):
    """Errors of losses and shares; by token or frame they would be smaller."""
    if kind == "tweets":
        data: Any = TwitterPOSDataModule(sample=True, batch_size=500, eval_batch_size=37)
        task: Any = ClassificationTask(25, (3, 34), "relu")
    else:
        data, task = (
            TIMITDataModule(sample=True, eval_batch_size=300),
            LabelledFrames(39, (11, 26), "relu"),
        )
    fitted(task, data, tmp_path, TestEveryEpoch(), max_epochs=1, precision="32-true")
    for split in ("val", "test"):
        samples = getattr(data, split)
        if kind == "tweets":
            lengths = [len(tweet.labels) for tweet in getattr(data.corpus, split)]
        else:
            lengths = [len(rows) for rows in samples.frames.sentences]
        with torch.no_grad():
            found = task.eval().measured(samples.batch(samples.position_of(range(len(samples)))))
        for name in ("loss", "error"):
            sentences = found[name].values.double().split(lengths)
            totals, number = np.array([float(x.sum()) for x in sentences]), np.array(lengths)
            mean = totals.sum() / number.sum()
            expected = np.sqrt(
                ((totals - mean * number) ** 2).sum() * len(number) / (len(number) - 1)
            )
            assert task.sampling_errors[f"{split}/{name}"] == pytest.approx(
                [expected / number.sum()], rel=1e-6
            )
