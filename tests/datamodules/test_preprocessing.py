"""Preprocessing against numpy in float64: steps, chains, whitening, the cache, mistakes."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from actlab.datamodules import preprocessing
from actlab.datamodules.preprocessing import STEPS, Preprocessing, fitted, steps_of
from actlab.runtime import matmul
from text_files import refusal

TRAIN, D = 90, 3 * 4 * 5


def images_of(count: int = TRAIN, shape: tuple[int, ...] = (3, 4, 5), seed: int = 0) -> Tensor:
    """Correlated random images, uint8: neighbouring values are alike."""
    noise = np.random.default_rng(seed).normal(size=(count, int(np.prod(shape)))).cumsum(1)
    return torch.from_numpy((128 + 12 * noise).clip(0, 255).astype(np.uint8)).view(count, *shape)


@pytest.fixture
def fit(tmp_path: Path) -> Any:
    def fit(images: Tensor, *chain: Any) -> Preprocessing:
        return fitted(images, steps_of(chain), str(tmp_path / "cache"))

    return fit


def floats(images: Tensor) -> np.ndarray:
    return images.numpy().astype(np.float64)


def rows_of(images: Tensor) -> np.ndarray:
    return images.flatten(1).double().numpy()


def covariance(rows: np.ndarray) -> np.ndarray:
    centred = rows - rows.mean(0)
    return centred.T @ centred / len(rows)


def of_whitened(rows: np.ndarray, eps: float) -> np.ndarray:
    """U diag(λ/(λ + eps)) Uᵀ."""
    values, vectors = np.linalg.eigh(covariance(rows))
    return (vectors * (values / (values + eps))) @ vectors.T


def contrast(x: np.ndarray, norm: float = 55) -> np.ndarray:
    rows = x.reshape(len(x), -1)
    rows = rows - rows.mean(1, keepdims=True)
    return (norm * rows / np.linalg.norm(rows, axis=1, keepdims=True)).reshape(x.shape)


REFERENCES: dict[str, Any] = {
    "unit": (["unit"], lambda x, train: x / 255),
    "scale": (["scale"], lambda x, train: (x - 127.5) / 128),
    "mean": (["mean"], lambda x, train: x - train.mean(0)),
    "unit, mean": (["unit", "mean"], lambda x, train: (x - train.mean(0)) / 255),
    "gcn": (["gcn"], lambda x, train: contrast(x)),
    "gcn of norm 2": ([{"name": "gcn", "norm": 2}], lambda x, train: contrast(x, 2)),
    "unit, gcn, mean": (
        ["unit", "gcn", "mean"],
        lambda x, train: contrast(x) - contrast(train).mean(0),
    ),
    "nothing": ([], lambda x, train: x),
}


def test_each_step_is_its_formula(fit):
    for chain in REFERENCES:
        train, test = images_of(), images_of(7, seed=1)
        given, formula = REFERENCES[chain]
        found = fit(train, *given)(test)
        assert found.dtype == torch.float32
        assert np.allclose(
            found.numpy(), formula(floats(test), floats(train)), rtol=1e-5, atol=1e-4
        )


def test_every_step_is_tested():
    assert {"unit", "scale", "mean", "gcn", "zca"} == STEPS.keys()


@pytest.mark.parametrize("before", ["scale", "unit"])
def test_image_without_contrast_becomes_zero(fit, before):
    """Whatever its colour: the mean of equal values is rounded, too."""
    images = images_of(3)
    for colour in range(256):
        images[1] = colour
        found = fit(images, before, "gcn")(images)
        assert found[1].eq(0).all()
    assert np.allclose(found[[0, 2]].flatten(1).norm(dim=1), 55)


@pytest.mark.parametrize("count", [TRAIN, 25], ids=["more images than values", "fewer"])
@pytest.mark.parametrize("eps", [1e-3, 0.1])
def test_zca_is_its_formula(fit, count, eps):
    train, test = images_of(count), images_of(7, seed=1)
    rows, others = ((floats(images).reshape(-1, D) - 127.5) / 128 for images in (train, test))
    values, vectors = np.linalg.eigh(covariance(rows))
    matrix = (vectors / np.sqrt(values.clip(0) + eps)) @ vectors.T
    found = fit(train, "scale", {"name": "zca", "eps": eps})(test)
    assert np.allclose(rows_of(found), (others - rows.mean(0)) @ matrix, rtol=1e-4, atol=1e-4)


@pytest.mark.slow  # up to a minute on two busy cores: the eigenvectors of 3072 dimensions
def test_covariance_at_the_size_of_cifar(fit):
    images = images_of(4000, (3, 32, 32))
    rows = rows_of(fit(images, "scale", "zca")(images))
    assert np.allclose(
        covariance(rows), of_whitened(rows_of(fit(images, "scale")(images)), 1e-5), atol=1e-3
    )


def test_size_of_blocks_makes_no_difference(fit, tmp_path, monkeypatch):
    images, chain = images_of(), ("scale", "gcn", {"name": "zca", "eps": 0.1})
    whole = fit(images, *chain)(images)
    monkeypatch.setattr(preprocessing, "BLOCK", 7)
    by_blocks = fitted(images, steps_of(chain), str(tmp_path / "other"))(images)
    assert torch.allclose(whole, by_blocks, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("route", ["default", "onednn"])
def test_whitening_is_exact_under_each_backend_of_the_cpu(fit, route):
    """The backend stays as the process has it; torch has no single precision where it is onednn."""
    images, mkldnn = images_of(200, (3, 16, 16)), cast(Any, torch.backends.mkldnn)
    exact, before = fit(images, "scale", "zca")(images), mkldnn.matmul.fp32_precision
    try:
        matmul.use(route)
        chosen = mkldnn.matmul.fp32_precision
        assert torch.equal(fit(images, "scale", "zca")(images), exact)
        assert mkldnn.matmul.fp32_precision == chosen
    finally:
        mkldnn.matmul.fp32_precision = before


def test_steps_are_applied_on_the_device_that_is_asked_for(fit):
    meta = torch.device("meta")  # refuses tensors of another device, as an accelerator does
    images = images_of()
    found = fit(images, "scale", "mean", "gcn", "zca")(images, meta)
    assert (found.device, found.shape) == (meta, images.shape)


def test_images_are_left_as_they_are(fit):
    images = images_of()
    before = images.clone()
    fit(images, "scale", "mean", "gcn", "zca")(images)
    assert torch.equal(images, before)


def test_statistics_are_fitted_once_for_the_same_images_and_steps(fit, tmp_path, monkeypatch):
    images, fits = images_of(), []
    inner = preprocessing.spectrum
    monkeypatch.setattr(preprocessing, "spectrum", lambda *a: fits.append(1) or inner(*a))
    first = fit(images, "scale", "zca")(images)
    assert torch.equal(fit(images.clone(), "scale", "zca")(images), first)
    assert len(fits) == 1
    changed = images.clone()
    changed[3, 0, 0, 0] ^= 1
    for number, other in enumerate([("unit", "zca"), ("scale", {"name": "zca", "eps": 1e-4})]):
        fit(images, *other)
        assert len(fits) == 2 + number
    fit(changed, "scale", "zca")
    assert len(fits) == 4
    assert {path.suffix for path in (tmp_path / "cache").iterdir()} == {".lock", ".safetensors"}


def test_steps_without_statistics_leave_no_files(fit, tmp_path):
    fit(images_of(), "scale", "gcn")
    assert not (tmp_path / "cache").exists()


def test_impossible_steps_are_refused():
    cases: list[tuple[Any, str]] = [
        (["zac"], "'zac'; did you mean 'zca'"),
        ([{"eps": 1}], "unknown step of data.preprocessing 'None'"),
        ([3], "unknown step of data.preprocessing '3'"),
        ([{"name": "zca", "epsilon": 1}], "'epsilon'; did you mean 'eps'"),
        ([{"name": "unit", "eps": 1}], "setting of preprocessing step 'unit' 'eps'"),
        ([{"name": "zca", "eps": 0}], "eps of 'zca': expected a number above 0, got 0"),
        (
            [{"name": "zca", "eps": float("nan")}],
            "eps of 'zca': expected a number above 0, got nan",
        ),
        ([{"name": "gcn", "norm": True}], "norm of 'gcn': expected a number above 0, got True"),
        ([{"name": "gcn", "norm": "1"}], "norm of 'gcn': expected a number above 0, got '1'"),
        (["mean", "unit"], "'unit' requires pixels from 0 to 255. Put it first."),
        (["unit", "scale"], "'scale' requires pixels from 0 to 255"),
    ]
    for given, words in cases:
        assert words in refusal(steps_of, given)
