"""Recordings in both containers, phones, and whatever can be wrong with them: one line each."""

import io

import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actlab.datamodules.speech.recordings import read_phones, read_recording
from actlab.errors import ActlabError
from corpora import tone
from text_files import refusal

AUDIO = tone()


@pytest.fixture
def wav(tmp_path):
    """A file of some bytes."""

    def write(packed, name="sx1.wav"):
        path = tmp_path / name
        path.write_bytes(packed)
        return path

    return write


def sphere(audio):
    """A NIST SPHERE file."""
    file = io.BytesIO()
    soundfile.write(file, audio, 16_000, "PCM_16", "LITTLE", "NIST")
    return file.getvalue()


def riff(path, audio=AUDIO, rate=16_000, subtype="PCM_16", kind="WAV"):
    soundfile.write(path, audio, rate, subtype, format=kind)
    return path


def test_both_containers_hold_the_same_audio(tmp_path, wav):
    assert np.array_equal(read_recording(wav(sphere(AUDIO))), AUDIO)
    assert np.array_equal(read_recording(riff(tmp_path / "b.WAV")), AUDIO)


def test_audio_stored_high_byte_first(wav):
    packed = sphere(AUDIO)
    swapped = packed[:1024].replace(b"-s2 01", b"-s2 10") + AUDIO.astype(">i2").tobytes()
    assert np.array_equal(read_recording(wav(swapped)), AUDIO)


def test_a_damaged_sphere_file_is_named(wav):
    for change in (
        lambda p: p[:-100],
        lambda p: p[:1024],
        lambda p: p[:500],
        lambda p: b"",
        lambda p: b"no audio at all" * 100,
        lambda p: p.replace(b"sample_rate -i 16000", b"sample_rate -i 8000 "),
        lambda p: p.replace(b"sample_count -i 3000", b"sample_count -i few!"),
        lambda p: p.replace(b"sample_count -i 3000", b"sample_count -i -300"),
        lambda p: p.replace(b"sample_count -i 3000", b"sample_count -i 0032"),
        lambda p: p.replace(b"-s3 pcm", b"-s26 pcm,embedded-shorten-v2.00"),
    ):
        path = wav(change(sphere(AUDIO)))
        message = refusal(read_recording, path)
        assert f"{path}: expected an uncompressed recording" in message
        assert "sph2pipe" in message


def test_another_recording_is_refused(tmp_path):
    for options in (
        {"rate": 44_100},
        {"subtype": "PCM_24"},
        {"audio": np.stack([AUDIO, AUDIO], 1)},
        {"audio": AUDIO[:399]},
        {"audio": AUDIO[:0]},
    ):
        message = refusal(read_recording, riff(tmp_path / "sx1.wav", **options))
        assert "sx1.wav: expected an uncompressed recording of one channel with 16 bits" in message


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    assert str(tmp_path) in refusal(read_recording, tmp_path)
    assert "none.phn" in refusal(read_phones, tmp_path / "none.phn", 1000)


def phn(tmp_path, text):
    path = tmp_path / "sx1.phn"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_phones_of_a_file(tmp_path):
    # A gap, and an end within half a window of the audio's
    text = "0 900 h#\r\n900 1400 ax-h\n\n1500 3200 q\n"
    assert read_phones(phn(tmp_path, text), 3000) == [
        (0, 900, "h#"),
        (900, 1400, "ax-h"),
        (1500, 3200, "q"),
    ]


def test_a_damaged_phone_file_is_named(tmp_path):
    for text, parts in (
        ("0 900 h#\n900 1400 axh\n", ["line 2", "from 900 to 3000", "got '900 1400 axh'"]),
        ("0 900 h#\n800 1400 aa\n", ["line 2", "from 900 to 3000", "got '800 1400 aa'"]),
        ("900 800 h#\n", ["line 1", "begin end phone"]),
        ("0 3201 h#\n", ["from 0 to 3000"]),
        ("0 99999999999999999999 h#\n", ["line 1", "begin end phone"]),
        ("0 900\n", ["begin end phone", "'0 900'"]),
        ("-5 900 h#\n", ["begin end phone"]),
        ("0 9.5 h#\n", ["begin end phone"]),
        ("0 900 h# aa\n", ["begin end phone"]),
        ("0 900 h#\n900 2800 e", ["line 2", "begin end phone"]),
        ("\n\n", ["cut off"]),
        ("", ["cut off"]),
        (b"0 900 \xff\n", ["line 1", "begin end phone"]),
        ("0 ² h#\n".encode("latin-1"), ["line 1", "begin end phone"]),
    ):
        path = phn(tmp_path, text)
        message = refusal(read_phones, path, 3000)
        assert all(part in message for part in [str(path), *parts])


def test_phones_that_end_long_before_the_audio_are_cut_off(tmp_path):
    path = phn(tmp_path, "0 900 h#\n900 4000 ae\n")
    assert len(read_phones(path, 12_000)) == 2
    assert "is cut off: its phones end at audio sample 4000 of 12001" in refusal(
        read_phones, path, 12_001
    )


def test_the_last_line_of_a_whole_file_may_have_no_end(tmp_path):
    assert len(read_phones(phn(tmp_path, "0 900 ae\n900 3000 h#"), 3000)) == 2


ANY = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def outcome(function, *arguments):
    """What a function returns, or the words of our error."""
    try:
        return function(*arguments)
    except ActlabError as error:
        return str(error)


@pytest.fixture(params=["sphere", "riff"])
def whole(request, tmp_path):
    """The bytes of a sound file."""
    return (
        sphere(AUDIO[:900])
        if request.param == "sphere"
        else riff(tmp_path / "a", AUDIO[:900]).read_bytes()
    )


@ANY
@given(data=st.data())
def test_a_damaged_recording_gives_audio_or_our_error(whole, tmp_path, data):
    packed = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 6))):
        # Mostly the header, where damage tells.
        place = data.draw(
            st.one_of(st.integers(0, 64), st.integers(0, 400), st.integers(0, len(packed) - 1))
        )
        packed[place : place + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=5))
    packed = packed[: data.draw(st.one_of(st.just(len(packed)), st.integers(0, len(packed))))]
    path = tmp_path / "damaged.wav"
    path.write_bytes(packed)
    found = outcome(read_recording, path)
    if isinstance(found, str):
        assert "\n" not in found
        assert str(path) in found
    else:
        assert found.dtype == np.int16


LABELS = st.sampled_from(["h#", "q", "aa", "AA", "", "ä", "\x00"])
LINES = st.lists(st.tuples(st.integers(-3, 4000), st.integers(-3, 4000), LABELS), max_size=6)


@ANY
@given(text=st.one_of(st.binary(max_size=60), LINES, st.text(max_size=60)))
def test_a_damaged_phone_file_gives_phones_or_our_error(tmp_path, text):
    if isinstance(text, list):
        text = "".join(f"{begin} {end} {label}\n" for begin, end, label in text)
    path = phn(tmp_path, text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
    found = outcome(read_phones, path, 3000)
    if isinstance(found, str):
        assert "\n" not in found
    else:
        times = [time for begin, end, _ in found for time in (begin, end)]
        assert times == sorted(times)
        assert 0 <= times[0] <= times[-1] <= 3200


def test_paths_are_files_of_the_corpus_not_patterns(tmp_path):
    odd = tmp_path / "[x]* {y}"
    odd.mkdir()
    assert np.array_equal(read_recording(riff(odd / "sx1.wav")), AUDIO)
