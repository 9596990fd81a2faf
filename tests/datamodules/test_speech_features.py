"""Features against a reference in numpy, targets by hand."""

import numpy as np
import pytest

from actlab.datamodules.speech.features import FEATURES, HOP, WINDOW, features, frame_count, targets
from actlab.datamodules.speech.phones import CLASS_OF, CLASSES, FOLDING, NO_CLASS, PHONES
from corpora import tone


def mel(hertz):
    return 1127 * np.log(1 + hertz / 700)


def reference_cepstra(audio, bands=23, cepstra=13, lifter=22.0):
    """Kaldi's cepstra step by step: framing, energy, window, spectrum, mel bands, log, cosines."""
    rows = []
    edges = np.linspace(mel(20.0), mel(8000.0), bands + 2)
    bins = mel(np.arange(257) * 16_000 / 512)
    filters = np.zeros((bands, 257))
    for band in range(bands):
        left, centre, right = edges[band : band + 3]
        rising, falling = (bins - left) / (centre - left), (right - bins) / (right - centre)
        filters[band] = np.maximum(0, np.minimum(rising, falling))
    filters[:, 256] = 0  # Kaldi leaves out the bin at half the sample rate
    povey = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 399)) ** 0.85
    for start in range(0, len(audio) - 399, 160):
        frame = audio[start : start + 400].astype(np.float64)
        frame = frame - frame.mean()
        energy = np.log(max((frame**2).sum(), 1.1920929e-07))
        emphasised = frame - 0.97 * np.concatenate([frame[:1], frame[:-1]])
        spectrum = np.abs(np.fft.rfft(emphasised * povey, 512)) ** 2
        logs = np.log(np.maximum(filters @ spectrum, 1.1920929e-07))
        row = [
            np.sqrt(2 / bands) * (logs * np.cos(np.pi * k * (np.arange(bands) + 0.5) / bands)).sum()
            for k in range(cepstra)
        ]
        row = [value * (1 + lifter / 2 * np.sin(np.pi * k / lifter)) for k, value in enumerate(row)]
        rows.append([max(energy, 0.0), *row[1:]])
    return np.array(rows)


def reference_slopes(values):
    padded = np.concatenate([values[:1], values[:1], values, values[-1:], values[-1:]])
    size = len(values)
    return (
        sum(n * (padded[2 + n : 2 + n + size] - padded[2 - n : 2 - n + size]) for n in (1, 2)) / 10
    )


@pytest.mark.parametrize("audio", [tone(), tone(400), tone(559), tone(16_000, 3000.0)])
def test_features_are_those_of_the_reference(audio):
    cepstra = reference_cepstra(audio)
    found = features(audio).numpy()
    assert found.shape == (frame_count(len(audio)), FEATURES) == (len(cepstra), 26)
    assert found.dtype == np.float32
    assert found[:, :13] == pytest.approx(cepstra, rel=1e-4, abs=2e-3)
    assert found[:, 13:] == pytest.approx(reference_slopes(cepstra), rel=1e-4, abs=2e-3)


def test_silence_has_finite_features():
    found = features(np.zeros(2000, np.int16))
    assert found.isfinite().all()
    assert not found[:, 0].any()  # the energy's floor is 1, its logarithm 0


def test_a_frame_is_of_the_phone_at_its_centre():
    samples = 400 + 160 * 9
    phones = [
        (0, 361, "h#"),
        (361, 840, "aa"),
        (840, 840, "b"),
        (840, 1000, "q"),
        (1000, 1200, "zh"),
    ]
    # Frames are centred at 200, 360, 520, …, 1640; the phones end at 1200.
    expected = ["sil", "sil", "aa", "aa", None, "sh", "sh", None, None, None]
    numbers = [NO_CLASS if name is None else CLASSES.index(name) for name in expected]
    assert targets(phones, samples).tolist() == numbers


def test_targets_are_those_of_a_loop_over_frames():
    rng = np.random.default_rng(3)
    for _ in range(20):
        bounds = np.sort(rng.integers(0, 5000, 12))
        phones = [(int(a), int(b), str(rng.choice(PHONES))) for a, b in bounds.reshape(6, 2)]
        expected = []
        for frame in range(frame_count(5000)):
            centre = HOP * frame + WINDOW // 2
            inside = [CLASS_OF[label] for begin, end, label in phones if begin <= centre < end]
            expected.append(inside[0] if inside else NO_CLASS)
        assert targets(phones, 5000).tolist() == expected


@pytest.mark.parametrize(
    ("samples", "count"), [(0, 0), (399, 0), (400, 1), (559, 1), (560, 2), (16_000, 98)]
)
def test_windows_lie_within_the_audio(samples, count):
    assert frame_count(samples) == count


def test_folding():
    assert (len(PHONES), len(CLASSES)) == (61, 39)
    assert " ".join(CLASSES) == (
        "aa ae ah aw ay b ch d dh dx eh er ey f g hh ih iy jh k l m n ng ow oy p r s sh sil t th "
        "uh uw v w y z"
    )
    assert set(PHONES) - set(FOLDING) == {"q"}
    assert CLASS_OF["q"] == NO_CLASS
    for phone, kind in {"ax-h": "ah", "bcl": "sil", "zh": "sh", "el": "l"}.items():
        assert FOLDING[phone] == kind == CLASSES[CLASS_OF[phone]]
