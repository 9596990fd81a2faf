"""TIMIT's parts, windows and batches, alone and in stacks; its cache; a fit."""

import shutil
from functools import partial

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

import text_files
from actlab.datamodules import TIMITDataModule
from actlab.datamodules.speech import reading
from actlab.datamodules.speech.corpus import find
from actlab.datamodules.speech.features import features, targets
from actlab.datamodules.speech.frames import PADDING
from actlab.datamodules.speech.phones import CLASSES
from actlab.datamodules.speech.recordings import read_phones, read_recording
from actlab.errors import ActlabError
from actlab.networks import MLP
from actlab.random.positions import Position
from actlab.stacking import StackedTask
from actlab.tasks import FrameTask
from corpora import write_corpus, write_nltk_layout
from toys import QUIET


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_nltk_layout(tmp_path_factory.mktemp("timit") / "sample", speakers=5)


@pytest.fixture
def module(folder):
    """A datamodule of five speakers: three for training, one each for validation and test."""
    return partial(
        TIMITDataModule, str(folder), batch_size=8, cache_dir=str(folder.parent / "cache")
    )


def plain(folder):
    """Features and targets of all sentences by part, read one by one: (part, name) → arrays."""
    corpus = find(folder)
    found = {}
    for s in corpus.sentences:
        assert s.wav
        assert s.phn
        frames = features(read_recording(s.wav)).numpy()
        found[s.part, s.key] = frames, targets(read_phones(s.phn, 6400), 6400).numpy()
    return found


def windows_of(values, reach=5):
    """Each frame with its neighbours, one by one."""
    last = len(values) - 1
    rows = [
        [min(max(t + k, 0), last) for k in range(-reach, reach + 1)] for t in range(len(values))
    ]
    return values[np.array(rows)]


def test_evaluation_is_every_target_frame_in_order_normalised_by_training(folder, module):
    sentences = plain(folder)
    train = np.concatenate(
        [values for (part, _), (values, _) in sentences.items() if part == "train"]
    )
    mean, deviation = train.mean(0, dtype=np.float64), train.std(0, dtype=np.float64)
    data = module(eval_batch_size=100)
    for part, loader in (("val", data.val_dataloader()), ("test", data.test_dataloader())):
        own = [pair for (of, _), pair in sentences.items() if of == part]
        expected = np.concatenate(
            [windows_of((values - mean) / deviation)[t >= 0] for values, t in own]
        )
        x, y = (torch.cat(tensors) for tensors in zip(*loader, strict=True))
        assert x.shape == (len(expected), 11, 26)
        assert x.numpy() == pytest.approx(expected, abs=1e-3)
        assert y.tolist() == np.concatenate([t[t >= 0] for _, t in own]).tolist()
    assert (data.num_classes, data.input_shape) == (39, (11, 26))


def test_a_training_batch_is_all_target_frames_of_some_sentences(module):
    data = module(seed=3)
    loader = data.train_dataloader()
    frames = loader.dataset.frames
    ends = data.tensors["train_lengths"].cumsum(0).tolist()
    assert len(loader) == 3
    for position, (x, y) in zip(loader.batch_sampler, loader, strict=True):
        rows = []
        for sentence in position.index.tolist():
            begin = ends[sentence - 1] if sentence else 0
            rows += [
                t for t in range(begin, ends[sentence]) if data.tensors["train_targets"][t] >= 0
            ]
        assert torch.equal(x, frames.windows(torch.tensor(rows)))
        assert torch.equal(y, data.tensors["train_targets"][rows])
    seen = sum(len(y) for _, y in loader)
    assert seen == int((data.tensors["train_targets"] >= 0).sum())
    assert seen < len(data.tensors["train_targets"])  # glottal stops are no targets


def test_a_stack_pads_at_the_end(module):
    seeds = [5, 11, 2]
    data = module(seed=0)
    data.seed = seeds
    together = list(data.train_dataloader())
    padding = 0
    for r, seed in enumerate(seeds):
        for (x, y), (x_all, y_all) in zip(
            module(seed=seed).train_dataloader(), together, strict=True
        ):
            assert torch.equal(x_all[r, : len(y)], x)
            assert torch.equal(y_all[r, : len(y)], y)
            assert (y_all[r, len(y) :] == PADDING).all()
            padding += y_all.shape[1] - len(y)
    assert padding > 0


def test_context_can_be_chosen(module):
    data = module(context=0)
    assert data.input_shape == (1, 26)
    x, _ = next(iter(data.train_dataloader()))
    assert x.shape[1:] == (1, 26)
    with pytest.raises(ActlabError, match=r"context: .*, got -1"):
        module(context=-1)


@pytest.mark.parametrize("index", [torch.tensor([3, 0, 7]), torch.tensor([[3, 0], [7, 7]])])
def test_evaluation_takes_a_run_axis(module, index):
    data = module()
    data.setup("test")
    x, y = data.val.__getitems__(Position((0,) * (index.dim()), 0, index))
    assert x.shape == (*index.shape, 11, 26)
    assert y.shape == index.shape


def test_the_sample_has_every_class():
    data = TIMITDataModule(sample=True)

    data.setup("fit")

    assert set(data.tensors["train_targets"].tolist()) == {-1, *range(len(CLASSES))}
    assert len(data.train_dataloader()) == 2  # of 64 sentences


def small_corpus(folder, **form):
    """The speakers of one region."""
    for region in write_corpus(folder, **form).glob("[tT][rR]*/[dD][rR][2-8]"):
        shutil.rmtree(region)
    return folder


def loads(folder, cache, **options):
    return TIMITDataModule(
        str(folder), partial=True, batch_size=8, cache_dir=str(cache), **options
    ).tensors


def test_same_content_is_read_once_whatever_its_form(tmp_path, monkeypatch):
    first = loads(small_corpus(tmp_path / "lower"), tmp_path / "cache")
    again = loads(small_corpus(tmp_path / "UPPER", upper=True), tmp_path / "cache")
    assert len(list((tmp_path / "cache").glob("*.safetensors"))) == 1
    # Other bytes, same audio
    riff = loads(small_corpus(tmp_path / "riff", riff=True), tmp_path / "cache")
    assert len(list((tmp_path / "cache").glob("*.safetensors"))) == 2
    for name, tensor in first.items():
        assert torch.equal(tensor, again[name])
        assert torch.equal(tensor, riff[name])
    monkeypatch.setattr(reading, "frames_of", None)
    loads(tmp_path / "lower", tmp_path / "cache")
    (tmp_path / "lower/train/dr1/faaa0/sx1.phn").write_text("0 6400 h#\n")
    with pytest.raises(TypeError):
        loads(tmp_path / "lower", tmp_path / "cache")


def refusal(folder, **options):
    data = TIMITDataModule(str(folder), batch_size=8, cache_dir=f"{folder}-cache", **options)
    return text_files.refusal(data.prepare_data)


def test_a_corpus_that_is_not_whole_is_refused_unless_it_is_meant(tmp_path):
    folder = small_corpus(tmp_path / "corpus")
    message = refusal(folder)
    assert "expected all sentences of TIMIT, got train 16 of 3696, val 8 of 1152" in message
    assert "data.partial" in message
    assert len(loads(folder, tmp_path / "cache")["train_lengths"]) == 16


def test_what_is_wrong_with_a_sentence_is_named(tmp_path):
    folder = small_corpus(tmp_path / "corpus")
    file = folder / "train/dr1/faaa0/sx1.phn"
    file.write_text("0 900 h#\n900 800 aa\n")
    assert f"{file}, line 2" in refusal(folder, partial=True)


def test_folders_that_cannot_serve_are_named(tmp_path):
    assert "is not a folder" in refusal(tmp_path / "none")
    assert "LDC93S1" in refusal("TIMIT")
    assert "expected TIMIT's folders" in refusal(tmp_path)
    few = write_nltk_layout(tmp_path / "few", speakers=4)
    assert "expected sentences of training speakers, core test speakers" in refusal(few)


def task(seed, dropout=0.3):
    network = partial(MLP, hidden=(32, 16), dropout=dropout)
    return FrameTask(39, (11, 26), "gelu", network, partial(torch.optim.Adam, lr=0.003), seed=seed)


def fitted(model, data, tmp_path, epochs=2, **options):
    trainer = pl.Trainer(max_epochs=epochs, default_root_dir=tmp_path, **options, **QUIET)
    trainer.fit(model, datamodule=data)
    return {name: value.clone() for name, value in trainer.callback_metrics.items()}


def test_members_of_a_stack_are_the_runs_alone(module, tmp_path):
    seeds = [4, 9]
    data = module()
    data.seed = seeds
    stack = StackedTask([task(seed) for seed in seeds])
    fitted(stack, data, tmp_path, precision="64-true")
    assert {"val/error", "train/clean_loss"} <= stack.latest.keys()
    for r, seed in enumerate(seeds):
        alone = task(seed)
        measured = fitted(alone, module(seed=seed), tmp_path, precision="64-true")
        for name, value in stack.latest.items():
            # Kept in float32
            assert value[r].item() == pytest.approx(measured[name].item(), rel=1e-6)
        for name, value in stack.network.member_state(r).items():
            assert torch.allclose(value, alone.network.state_dict()[name], rtol=1e-8, atol=1e-10)


@pytest.mark.slow
@pytest.mark.usefixtures("spawning")
def test_two_devices_draw_the_masks_of_one(module, tmp_path):
    """Their parts of a batch have the same sentences, but different numbers of frames."""
    precise = {"precision": "64-true"}
    one = fitted(task(4), module(seed=4), tmp_path, **precise)
    two = fitted(task(4), module(seed=4), tmp_path, **precise, devices=2, strategy="ddp_spawn")
    assert {"train/loss", "val/loss"} <= one.keys() == two.keys()
    for name, value in one.items():
        assert two[name].item() == pytest.approx(value.item(), rel=1e-6)  # kept in float32


def test_a_network_learns_the_tones(tmp_path):
    data = TIMITDataModule(sample=True, batch_size=4)
    measured = fitted(task(0, dropout=0.0), data, tmp_path, epochs=3)
    assert measured["val/error"] < 0.3  # chance is 0.85: silence is 15 % of the frames
