"""Compute the features of a recording and its targets.

The features are 13 cepstral features per frame and their differences.

Shapes: ``S`` audio samples, ``T`` frames.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from actlab.datamodules.speech.audio import torchaudio
from actlab.datamodules.speech.phones import CLASS_OF, NO_CLASS

RATE = 16_000  # audio samples per second
WINDOW = 400  # audio samples: 25 ms
HOP = 160  # audio samples: 10 ms
COEFFICIENTS = 13  # log energy and 12 cepstra
FEATURES = 2 * COEFFICIENTS

Phone = tuple[int, int, str]  # first audio sample, end (excluded), label


def frame_count(samples: int) -> int:
    """Return T, the number of windows that lie completely within S audio samples."""
    return 0 if samples < WINDOW else 1 + (samples - WINDOW) // HOP


@torch.no_grad()
def features(recording: NDArray[np.int16]) -> Tensor:
    """Return log energy, 12 mel-frequency cepstra and the differences of these 13 features.

    Cepstra follow Kaldi, on audio in units of 16-bit steps: 23 mel bands from 20 Hz, pre-emphasis
    0.97, Povey window, lifter 22. There is no dither, so the features are deterministic. The log
    energy of the raw window replaces the zeroth cepstrum. A difference is the slope of a line
    through five frames, with the edge frames repeated.

    Source: GELU §3.4.

    Args:
        recording: audio samples ``(S,)``.

    Returns:
        float32 ``(T, 26)``. Frame t is centred at audio sample 160·t + 200.
    """
    kaldi = torchaudio().compliance.kaldi
    functional = torchaudio().functional
    audio = torch.from_numpy(recording.astype(np.float32)).unsqueeze(0)
    cepstra: Tensor = kaldi.mfcc(
        audio,
        num_ceps=COEFFICIENTS,
        use_energy=True,
        dither=0.0,
        sample_frequency=float(RATE),
    )
    slopes: Tensor = functional.compute_deltas(
        cepstra.t(), win_length=5, mode="replicate"
    )
    return torch.cat((cepstra, slopes.t()), dim=1)


def targets(phones: list[Phone], samples: int) -> Tensor:
    """Return the class of the phone at the centre of each frame, int64 ``(T,)``.

    Frames between phones have the class `NO_CLASS`.
    """
    centres = np.arange(frame_count(samples)) * HOP + WINDOW // 2
    sides = np.array([phone[:2] for phone in phones], dtype=np.int64).reshape(-1, 2)
    begins, ends = sides.T
    classes = [CLASS_OF[label] for _, _, label in phones]

    # Find the first phone that ends after each centre. Beyond the last phone, there is
    # no class.
    numbers = np.searchsorted(ends, centres, side="right")
    begins = np.append(begins, samples)[numbers]
    frame_classes = np.array([*classes, NO_CLASS])[numbers]
    return torch.from_numpy(np.where(begins <= centres, frame_classes, NO_CLASS))
