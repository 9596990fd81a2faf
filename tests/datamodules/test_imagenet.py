"""ImageNet: folders, squares, the mean, windows, order, resuming; mistakes are named."""

import inspect
import io
import multiprocessing
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
import yaml
from PIL import Image
from torch import Tensor

from actlab.datamodules import ImageNetDataModule
from actlab.datamodules.photographs import square
from actlab.datamodules.samplers import SeededBatches
from actlab.errors import ActlabError
from actlab.networks import PyramidNet
from actlab.random.positions import Position
from actlab.storage.resources import resource
from actlab.tasks import ClassificationTask
from hub_folders import collected, write_pictures
from text_files import refusal
from updates_in_blocks import check_equal

SIZE, CROP, BATCH = 12, 8, 4
CLASSES, TRAIN, VAL = ("ant", "bee", "cow"), 6, 3  # pictures a class
CHOSEN = 4  # of the nine validation pictures
EXPECTED = {
    **{"dataset": "", "size": SIZE, "crop": CROP, "val_images": CHOSEN},
    **{"batch_size": BATCH, "eval_batch_size": 5, "workers": 0},
}
SILENT: dict[str, Any] = dict.fromkeys(
    ("logger", "enable_progress_bar", "enable_model_summary"), False
)

Build = Callable[..., ImageNetDataModule]


def write_tree(folder: Path, val: str = "val") -> Path:
    """Pictures of SIZE × SIZE pixels, without loss, so that squares are what was written."""
    counts = {"train": TRAIN, val: VAL}
    places = [
        f"{part}/{kind}/{n}.png" for part in counts for kind in CLASSES for n in range(counts[part])
    ]
    pixels = np.random.default_rng(0).integers(0, 256, (len(places), SIZE, SIZE, 3), dtype=np.uint8)
    return write_pictures(folder, dict(zip(places, pixels, strict=True)))


def pixels_in(folder: Path) -> np.ndarray:
    """All pictures below a folder by class and name, (N, 3, H, W)."""
    return np.stack(
        [np.asarray(Image.open(path)).transpose(2, 0, 1) for path in sorted(folder.rglob("*.png"))]
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "pictures")


@pytest.fixture
def module(tree: Path, tmp_path: Path) -> Build:
    def build(folder: Path = tree, **options: Any) -> ImageNetDataModule:
        settings: dict[str, Any] = (
            EXPECTED | {"dataset": str(folder), "cache_dir": str(tmp_path / "cache")} | options
        )
        return ImageNetDataModule(**settings)

    return build


def test_the_mean_of_each_pixel_is_subtracted_and_the_centre_is_cut(module, tree):
    mean = pixels_in(tree / "train").astype(np.float64).mean(0)
    expected = (pixels_in(tree / "val") - mean)[..., 2:10, 2:10] / 255
    data = module()
    for loader in (data.test_dataloader(), data.predict_dataloader()):
        parts = [collected(part) for part in (data.val_dataloader(), loader)]
        images, labels = map(torch.cat, zip(*parts, strict=True))
        distances = np.abs(expected[:, None] - images.numpy()).max((2, 3, 4))
        assert (distances.min(1) < 1e-6).all()
        assert labels[distances.argmin(1)].tolist() == [0] * VAL + [1] * VAL + [2] * VAL
        assert [len(part) for _, part in parts] == [CHOSEN, len(CLASSES) * VAL - CHOSEN]
    assert (data.num_classes, data.input_shape, data.stackable) == (3, (3, CROP, CROP), False)


def test_the_mean_is_kept_until_the_pictures_change(module, tree, tmp_path):
    module().prepare_data()
    (kept,) = (tmp_path / "cache").glob("mean-*.safetensors")
    time = kept.stat().st_mtime_ns
    module(workers=2).setup("fit")
    assert kept.stat().st_mtime_ns == time
    (tree / "train" / "ant" / "0.png").unlink()
    module().setup("fit")
    assert len(list((tmp_path / "cache").glob("mean-*.safetensors"))) == 2


@pytest.mark.parametrize(
    ("width", "height", "mode"), [(40, 20, "RGB"), (21, 40, "L"), (30, 30, "CMYK")]
)
def test_the_square_is_the_middle_of_a_picture(width, height, mode):
    across = np.linspace(0, 255, width).astype(np.uint8)
    picture, file = Image.fromarray(np.tile(across, (height, 1))).convert(mode), io.BytesIO()
    picture.save(file, "TIFF")
    side = min(width, height)
    found = square(Image.open(file), side).float()
    assert found.shape == (3, side, side)
    middle = np.interp(np.arange(side) + (width - side) / 2, np.arange(width), across)
    np.testing.assert_allclose(found[0].mean(0), middle, atol=2)


def test_windows_and_mirroring_are_functions_of_seed_epoch_and_sample(module, tree):
    data = module(seed=3)
    data.setup("fit")
    assert data.train is not None
    index = torch.arange(len(data.train))
    here = data.train.__getitems__(Position((3,), 1, index))[0]
    some = torch.tensor([7, 2])
    assert torch.equal(data.train.__getitems__(Position((3,), 1, some))[0], here[some])
    for other in (Position((3,), 2, index), Position((4,), 1, index)):
        assert not torch.equal(data.train.__getitems__(other)[0], here)
    centred = (
        pixels_in(tree / "train") - pixels_in(tree / "train").astype(np.float64).mean(0)
    ) / 255
    every = np.lib.stride_tricks.sliding_window_view(centred, (CROP, CROP), (2, 3))
    mirrored = []
    for window, places in zip(here.numpy(), every, strict=True):  # places: (3, row, column, H, W)
        found = [
            np.isclose(places, w[:, None, None], atol=1e-5).all((0, 3, 4))
            for w in (window, window[..., ::-1])
        ]
        assert sum(f.sum() for f in found) == 1
        mirrored.append(found[1].any())
    assert 2 < sum(mirrored) < len(index) - 2


def test_workers_and_devices_leave_the_batches_alone(module):
    alone, helped = module(seed=5), module(seed=5, workers=2)
    batches, others = ([*data.train_dataloader()] for data in (alone, helped))
    assert len(batches) == len(CLASSES) * TRAIN // BATCH
    for (x, y), (other_x, other_y) in zip(batches, others, strict=True):
        assert torch.equal(x, other_x)
        assert torch.equal(y, other_y)
    ranks = [SeededBatches(18, BATCH, 5, rank=rank, world_size=2) for rank in range(2)]
    for (x, _), *positions in zip(batches, *ranks, strict=True):
        assert alone.train is not None
        assert torch.equal(torch.cat([alone.train.__getitems__(p)[0] for p in positions]), x)
    images, _ = collected(helped.val_dataloader())
    assert torch.equal(images, collected(alone.val_dataloader())[0])


class Watch(pl.callbacks.Checkpoint):  # one of those that come after the epoch's metrics
    """Keep what was trained on, the losses of epochs, and a checkpoint after one of the updates."""

    def __init__(self, path: Path, after: int | None = None) -> None:
        self.path, self.after = path, after
        self.seen: list[Tensor] = []
        self.losses: list[Tensor] = []

    def on_train_batch_end(
        self, trainer: Any, module: Any, out: Any, batch: Any, number: int
    ) -> None:
        self.seen.append(batch[0].clone())
        if trainer.global_step == self.after:
            trainer.save_checkpoint(self.path)

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        self.losses.append(trainer.callback_metrics["train/loss"])


def trained(
    data: ImageNetDataModule, watch: Watch, epochs: int = 2, **options: Any
) -> dict[str, Tensor]:
    network = lambda act, k, shape: PyramidNet(act, k, shape, ((1, 4, 3),), 1, (1, 2), (8,))  # noqa: E731
    task = ClassificationTask(
        3, (3, CROP, CROP), "elu", network, lambda p: torch.optim.SGD(p, 1e-2, 0.9), top=2
    )
    settings: dict[str, Any] = {
        "max_epochs": epochs,
        "num_sanity_val_steps": 0,
        "accelerator": "cpu",
    }
    trainer = pl.Trainer(
        **settings, callbacks=[watch], default_root_dir=watch.path.parent, **SILENT
    )
    trainer.fit(task, datamodule=data, **options)
    assert trainer.global_step == 4 * epochs
    return {name: value.clone() for name, value in task.network.state_dict().items()}


@pytest.mark.parametrize("workers", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_training_resumes_within_an_epoch(module, tmp_path, workers):
    """Workers read ahead: the position is that of the batches which were trained."""
    within, resumed = Watch(tmp_path / "within.ckpt", after=6), Watch(tmp_path / "none.ckpt")
    weights = trained(module(workers=workers), within)
    found = trained(module(workers=workers), resumed, ckpt_path=within.path, weights_only=True)
    assert all(map(torch.equal, resumed.seen, within.seen[6:]))
    check_equal(found, weights)
    assert all(value.isfinite().all() for value in weights.values())
    assert resumed.losses == within.losses[1:]


def test_some_validation_images_are_chosen_for_all_runs_alike(module):
    parts = [module(val_images=2, seed=seed) for seed in (0, 1)]
    val, test = (
        collected(loader)[0] for loader in (parts[0].val_dataloader(), parts[0].test_dataloader())
    )
    assert (len(val), len(test)) == (2, 7)
    assert torch.equal(val, collected(parts[1].val_dataloader())[0])


def test_validation_and_test_share_no_image(tmp_path):
    """Without any setting, ``monitor: val/loss`` would otherwise select on the test images."""
    data = ImageNetDataModule(sample=True, size=40, crop=32, workers=0, cache_dir=str(tmp_path))
    val, test = (collected(loader)[0] for loader in (data.val_dataloader(), data.test_dataloader()))
    assert (len(val), len(test)) == (8, 12)
    assert not {x.numpy().tobytes() for x in val} & {x.numpy().tobytes() for x in test}
    defaults = inspect.signature(ImageNetDataModule).parameters
    assert defaults["val_images"].default == 5000


def test_the_hubs_tables_give_what_a_tree_gives(module, hub_folder, tree):
    parts = iter(("train", "val"))

    def change(files: list[Any], labels: list[Any]) -> None:
        paths = sorted((tree / next(parts)).rglob("*.png"))
        files[:] = [path.read_bytes() for path in paths]
        labels[:] = [CLASSES.index(path.parent.name) for path in paths]

    here = module()
    there = module(
        hub_folder("tables", splits=("train", "validation"), names=CLASSES, change=change)
    )
    assert there.num_classes == 3
    for loader in ("train_dataloader", "val_dataloader"):
        assert all(
            map(torch.equal, *(collected(getattr(data, loader)()) for data in (here, there)))
        )
    assert there.revisions == {}


@pytest.mark.parametrize("divided", [False, True])
def test_a_dataset_without_validation_pictures_names_what_divides_it(
    module, hub_folder, tree, divided
):
    folder = hub_folder("half", splits=("train",)) if divided else tree / "train"
    with pytest.raises(
        ActlabError, match=r"got no validation split\. Add it, or use ImageDataModule, which"
    ):
        module(folder).setup("fit")


@pytest.mark.parametrize(
    "change", [lambda content: content[: len(content) // 2], None], ids=["half", "lost"]
)
def test_a_damaged_copy_of_the_hubs_tables_is_written_again(module, hub_folder, tmp_path, change):
    folder = hub_folder("tables", splits=("train", "validation"), shape=(SIZE, SIZE, 3))
    before = collected(module(folder).val_dataloader())
    (copy,) = (tmp_path / "cache" / "rows").rglob("*-validation.arrow")
    content = copy.read_bytes()
    copy.unlink()
    if change:
        copy.write_bytes(change(content))
    assert all(map(torch.equal, before, collected(module(folder).val_dataloader())))
    assert copy.read_bytes() == content


def test_tables_that_cannot_be_copied_say_where(module, hub_folder, tmp_path):
    (tmp_path / "cache").write_text("a file in its place")
    with pytest.raises(
        ActlabError, match=r"cannot write the cache .*/rows .*another folder with data\.cache_dir"
    ):
        module(hub_folder("tables", splits=("train", "validation"))).setup("fit")


def test_the_sample_is_small_and_has_pictures_of_several_kinds():
    files = sorted(resource("data/samples/imagenet").rglob("*.JPEG"))
    assert len(files) == 60
    assert sum(file.stat().st_size for file in files) < 200_000
    modes = set()
    for file in files:
        with Image.open(file) as picture:
            modes.add(picture.mode)
    assert modes == {"RGB", "L", "CMYK"}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_picture_that_cannot_be_decoded_is_named(module, tree, workers):
    """The workers have ended by then, whatever still refers to the error."""
    path = tree / "val" / "bee" / "1.png"
    path.write_bytes(b"no picture")
    before = multiprocessing.active_children()
    data = module(workers=workers)
    message = refusal(collected, chain(data.val_dataloader(), data.test_dataloader()))
    assert multiprocessing.active_children() == before
    assert message.startswith(f"{path} cannot be decoded (not a picture)")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"val_images": 9}, "val_images: expected at least 1 and fewer than the 9 .*, got 9"),
        ({"crop": 13}, r"crop: expected 1 to 12 pixels \(data\.size\), got 13"),
        ({"workers": -1}, "workers: expected a number greater than or equal to 0, got -1"),
    ],
)
def test_mistakes_are_named(module, options, message):
    with pytest.raises(ActlabError, match=message):
        module(**options).train_dataloader()


def test_another_name_of_the_validation_folder(module, tmp_path):
    data = module(write_tree(tmp_path / "other", "validation"))
    assert len(collected(data.val_dataloader())[1]) == CHOSEN


def test_the_config_says_what_the_paper_says():
    config = yaml.safe_load((resource("configs") / "imagenet_elu15.yaml").read_text())
    data, model = config["data"]["init_args"], config["model"]["init_args"]
    assert (data["size"], data["crop"], data["val_images"], model["top"]) == (256, 224, 5000, 5)
    assert model["network"]["init_args"]["stacks"] == [
        [1, 96, 6],
        [3, 512, 3],
        [5, 768, 3],
        [3, 1024, 3],
    ]
    assert model["l2"]["init_args"] == {"strength": 0.0005}
