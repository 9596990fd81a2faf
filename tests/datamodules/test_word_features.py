"""Features of words: Brown clusters and word vectors, from files of any size; damaged lines."""

import gzip
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from actlab.datamodules.tweets import read_tweets
from actlab.datamodules.words import (
    FIRST_WORD,
    PADDING,
    UNKNOWN,
    read_clusters,
    read_vectors,
    say_once,
)
from actlab.errors import ActlabError
from text_files import CLUSTERS, FUZZ, TRAIN, VECTORS, file_of, refusal


def test_features_of_clusters_are_the_bits_of_their_paths(tmp_path):
    rows, table = read_clusters(file_of(tmp_path, CLUSTERS), {"i", "like", "nowhere"})
    assert rows == {"i": FIRST_WORD, "like": FIRST_WORD + 1}
    assert table.shape == (4, 34)
    assert table[PADDING].nonzero().flatten().tolist() == [33]
    assert table[UNKNOWN].nonzero().flatten().tolist() == [32]
    assert table[rows["i"]].nonzero().flatten().tolist() == [0, 2]  # 00: the first of each pair
    # 0 and fifteen times 1
    assert table[rows["like"]].nonzero().flatten().tolist() == [
        0,
        *range(3, 33, 2),
    ]
    assert set(table.unique().tolist()) == {0, 1}


def test_the_first_of_two_lines_of_a_word_counts(tmp_path):
    path = file_of(tmp_path, "01\ta\t1\n10\ta\t2\n")
    assert read_clusters(path, {"a"}).table[FIRST_WORD].nonzero().flatten().tolist() == [0, 3]
    path = file_of(tmp_path, "a 1 2\na 3 4\n")
    assert read_vectors(path, {"a"}).table[FIRST_WORD].tolist() == [1, 2]


def test_damaged_clusters_are_named_with_their_line(tmp_path):
    for content, parts in (
        ("00\ti\t1\n012\tlike\t1\n", ["line 2", "expected a path of 1 to 16 bits"]),
        ("00000000000000000\ti\t1\n", ["line 1", "expected a path of 1 to 16 bits"]),
        ("\ti\t1\n", ["line 1", "expected a path of 1 to 16 bits"]),
        ("0\t\t1\n", ["line 1", "expected a path of 1 to 16 bits"]),
        ("0\ti\tmany\n", ["line 1", "expected a path of 1 to 16 bits"]),
        ("i 0.1 0.2\n", ["line 1", "expected a path of 1 to 16 bits", "data.vectors"]),
        ("0\tother\t1\n", ["none of the 2 words"]),
        ("", ["is empty"]),
        (b"0\ti\t1\n0\t\xff\t1\n", ["line 2", "expected UTF-8"]),
    ):
        path = file_of(tmp_path, content)
        message = refusal(read_clusters, path, {"i", "like"})
        assert all(part in message for part in [str(path), *parts])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        lambda text: text,
        lambda text: "6 3\n" + text,
        lambda text: "6\t3\r\n" + text.replace("\n", "\r\n"),
        lambda text: text.replace(" ", "\t"),
        lambda text: "".join(line.replace(" ", "\t", 1) + "\n" for line in text.splitlines()),
        lambda text: text.replace("\n", " \n"),
        lambda text: text + "New York 1 1 1\n\x85 2 2 2\n\n",
        lambda text: text.replace(" ", "\t") + "New York\t1\t1\t1\n",
    ],
    ids=[
        *("spaces", "header", "header, tabs and carriage returns", "tabs", "a tab after the word"),
        *("spaces at the ends", "two parts and a control character", "two parts and tabs"),
    ],
)
def test_vectors_come_in_every_usual_form(tmp_path, change, packed):
    content = change(VECTORS).encode()
    path = file_of(tmp_path, gzip.compress(content, mtime=0) if packed else content)
    rows, table = read_vectors(path, {"i", "like", "New York", "\x85", "nowhere"})
    expected = {"i": [1, 2, 3], "like": [0.5, -0.1, 0.25], "New York": [1, 1, 1], "\x85": [2, 2, 2]}
    assert {"i", "like"} <= rows.keys() <= expected.keys()
    assert all(table[row].tolist() == pytest.approx(expected[word]) for word, row in rows.items())
    assert table.dtype == torch.float32
    assert table[PADDING].tolist() == [9, 8, 7]
    assert table[UNKNOWN].tolist() == [5, 5, 5]
    assert table.shape == (len(rows) + 2, 3)


def test_other_files_give_zeros_and_their_mean_and_it_is_said_once(tmp_path, caplog):
    say_once.cache_clear()
    path = file_of(tmp_path, "i 1 2\nyou 3 6\nunused 2 1\n")
    with caplog.at_level("INFO"):
        for _ in range(2):
            table = read_vectors(path, {"i", "you"}).table
    assert table[PADDING].tolist() == [0, 0]
    assert table[UNKNOWN].tolist() == [2, 3]  # of all that the file has
    assert [
        record.getMessage() for record in caplog.records if str(path) in record.getMessage()
    ] == [
        (
            f"{path} has no vector of </s> and UUUNKKK: padding gets zeros, unknown words the mean "
            "of all vectors"
        ),
    ]


def test_damaged_vectors_are_named_with_their_line(tmp_path):
    for content, parts in (
        ("i 1 2\nlike 1\n", ["line 2: expected a word and 2 numbers", "got 'like 1'"]),
        ("i 1 2\nlike 1 x\n", ["line 2: expected a word and 2 numbers", "got 'like 1 x'"]),
        ("i 1 2\nlike\n", ["line 2"]),
        ("i\n", ["line 1", "a word and 1 numbers"]),
        ("i 1 nan\n", ["line 1"]),
        ("i 1 1\nother 1 -inf\n", ["line 2", "finite"]),
        ("i 1 1e39\n", ["line 1"]),
        ("2 3\ni 1 2\nlike 1 2\n", ["line 2", "3 numbers"]),
        ("3 2\ni 1 2\nlike 1 2\n", ["expected 3 words, as in its header, got 2"]),
        ("1 2\ni 1 2\nlike 1 2\n", ["expected 1 words, as in its header, got 2"]),
        ("0 2\n", ["empty or has none"]),
        ("", ["empty or has none"]),
        ("other 1 2\n", ["none of the 2 words"]),
        (b"i 1 2\n\xff 1 2\n", ["line 2", "expected UTF-8"]),
        (gzip.compress(b"i 1 2\n" * 99, mtime=0)[:-12], ["damaged"]),
    ):
        path = file_of(tmp_path, content)
        message = refusal(read_vectors, path, {"i", "like"})
        assert all(part in message for part in [str(path), *parts])


def test_memory_is_that_of_the_words_that_are_kept(tmp_path):
    numbers = " ".join(f"{value:.4f}" for value in np.random.default_rng(0).normal(size=50))
    path = tmp_path / "vectors.txt"
    with path.open("w") as file:
        file.writelines(f"word{i} {numbers}\n" for i in range(2_000))
    tracemalloc.start()
    _, table = read_vectors(path, {f"word{i}" for i in range(0, 2_000, 200)})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert table.shape == (12, 50)
    assert peak < 1.4e5 < path.stat().st_size / 5  # a line, and 4 kB of what is kept


def damaged(content: bytes) -> st.SearchStrategy[bytes]:
    """The content cut, or with some of it replaced by other bytes, or packed and then so."""

    def change(begin: int, end: int, new: bytes, packed: bool) -> bytes:
        whole = gzip.compress(content, mtime=0) if packed else content
        return whole[:begin] + new + whole[end:]

    place = st.integers(0, len(content))
    new = st.one_of(
        st.binary(max_size=4),
        st.sampled_from([b"\n", b"\t", b" ", b"nan", b"\xff", b"\x00", b"9" * 5000]),
    )
    return st.builds(change, place, place, new, st.booleans())


@settings(FUZZ, max_examples=60)
@given(damaged(TRAIN.encode()), damaged(CLUSTERS.encode()), damaged(b"6 3\n" + VECTORS.encode()))
def test_damage_is_an_error_of_ours_or_nothing(tmp_path, tweets, clusters, vectors):
    needed = {"i", "like"}
    for read, content in (
        (read_tweets, tweets),
        (lambda path: read_clusters(path, needed), clusters),
        (lambda path: read_vectors(path, needed), vectors),
    ):
        path = file_of(tmp_path, content)
        try:
            assert read(path)
        except ActlabError:
            assert str(path) in refusal(read, path)
