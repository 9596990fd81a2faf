"""Tests of uniform numbers: frequencies, independence and runs."""

import numpy as np
from scipy import stats


def assert_frequent(counts: np.ndarray, alpha: float) -> None:
    """Chi-square: all counts are alike."""
    mean = counts.sum() / counts.size
    assert ((counts - mean) ** 2).sum() / mean < stats.chi2.isf(alpha, counts.size - 1)


def assert_uniform(u: np.ndarray, alpha: float) -> None:
    """Chi-square over 256 bins of the leading and the next eight bits, and Kolmogorov–Smirnov."""
    assert u.min() >= 0
    assert u.max() < 1
    for bits in (u * 2**8, u * 2**16):
        assert_frequent(np.bincount(bits.astype(np.int64) % 256, minlength=256), alpha)
    steps = np.arange(u.size + 1) / u.size
    ordered = np.sort(u)
    distance = max((steps[1:] - ordered).max(), (ordered - steps[:-1]).max())
    assert distance < stats.kstwobign.isf(alpha) / np.sqrt(u.size)


def assert_independent(first: np.ndarray, second: np.ndarray, alpha: float) -> None:
    """Chi-square of pairs on a 16 × 16 grid, and correlation."""
    pairs = (first * 16).astype(np.int64) * 16 + (second * 16).astype(np.int64)
    assert_frequent(np.bincount(pairs, minlength=256), alpha)
    assert abs(np.corrcoef(first, second)[0, 1]) < stats.norm.isf(alpha / 2) / np.sqrt(first.size)


def apart(u: np.ndarray, lag: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ``u`` and those ``lag`` further on; no row is in two pairs."""
    near, far = u[: len(u) - len(u) % (2 * lag)].reshape(-1, 2, lag, *u.shape[1:]).swapaxes(0, 1)
    return near.ravel(), far.ravel()


def assert_runs(u: np.ndarray, alpha: float) -> None:
    """Wald–Wolfowitz: the number of runs above and below ½, normal under independence."""
    above = u >= 0.5
    runs, high = 1 + np.count_nonzero(above[1:] != above[:-1]), above.sum()
    mean = 1 + 2 * high * (u.size - high) / u.size
    deviation = np.sqrt((mean - 1) * (mean - 2) / (u.size - 1))
    assert abs(runs - mean) < stats.norm.isf(alpha / 2) * deviation


def assert_no_shifts(sequences: np.ndarray, alpha: float) -> None:
    """Correlation of every pair of rows at all shifts."""
    number, length = sequences.shape
    level = stats.norm.isf(alpha / (number * (number - 1)) / length) / np.sqrt(length)
    spectra = np.fft.rfft(sequences - 0.5)
    for row, spectrum in enumerate(spectra[:-1]):
        at_all_shifts = np.fft.irfft(spectra[row + 1 :] * spectrum.conj(), length) * 12 / length
        assert np.abs(at_all_shifts).max() < level


def assert_uncorrelated(sequences: np.ndarray, alpha: float) -> None:
    """Correlation of every pair of rows at equal elements."""
    number, length = sequences.shape
    correlation = np.corrcoef(sequences)[np.triu_indices(number, 1)]
    assert np.abs(correlation).max() < stats.norm.isf(alpha / (number * (number - 1))) / np.sqrt(
        length
    )
