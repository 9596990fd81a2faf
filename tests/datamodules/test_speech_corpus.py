"""Layouts, parts, and what a copy of the corpus lacks."""

import shutil

import pytest

from actlab.datamodules.speech.corpus import CORE, PARTS, WHOLE, check_whole, find
from corpora import write_corpus, write_nltk_layout
from text_files import refusal

# Of each dialect region: readme.doc, table 1, and testset.doc, table 2, of the corpus.
SPEAKERS = {"train": (38, 76, 76, 68, 70, 35, 77, 22), "test": (11, 26, 26, 32, 28, 11, 23, 11)}
COUNTS = {"train": 128, "val": 8, "test": 8}


def counts(corpus):
    return {part: len(corpus.part(part)) for part in PARTS}


@pytest.fixture
def whole(tmp_path):
    """The names of the whole corpus: empty files, invented speakers except the core test set's."""
    for split, of_regions in SPEAKERS.items():
        for region, count in enumerate(of_regions, 1):
            core = list(CORE[3 * region - 3 : 3 * region]) if split == "test" else []
            letters = "abcdefghij"
            invented = [
                f"f{split[0]}{letters[region]}{letters[k // 10]}{k % 10}"
                for k in range(count - len(core))
            ]
            for speaker in [*core, *invented]:
                home = tmp_path / "TIMIT" / split / f"dr{region}" / speaker
                home.mkdir(parents=True)
                for name in ("sa1", "sa2", "si1", "si2", "si3", "sx1", "sx2", "sx3", "sx4", "sx5"):
                    for suffix in (".wav", ".phn"):
                        (home / f"{name}{suffix}").open("x").close()
    return tmp_path / "TIMIT"


def test_the_whole_corpus_has_the_papers_parts(whole):
    corpus = find(whole)
    assert counts(corpus) == WHOLE == {"train": 3696, "val": 1152, "test": 192}
    check_whole(corpus, partial=False)
    by_part = {part: {s.speaker for s in corpus.part(part)} for part in PARTS}
    assert {part: len(speakers) for part, speakers in by_part.items()} == {
        "train": 462,
        "val": 144,
        "test": 24,
    }
    assert by_part["test"] == set(CORE)
    assert not any(s.name.startswith("sa") for s in corpus.sentences)
    assert counts(find(whole.parent)) == WHOLE  # the folder above will do
    shutil.rmtree(whole / "test/dr2" / CORE[3])
    (whole / "train/dr5/ftfa0/sx3.phn").unlink()
    (whole / "train/dr5/ftfa0/sx3.wav").unlink()
    message = refusal(check_whole, find(whole), False)
    assert "train 3695 of 3696, val 1152 of 1152, test 184 of 192. Complete the folder" in message


def test_the_core_test_set_has_two_men_and_a_woman_of_each_region():
    assert len(set(CORE)) == 24
    assert all([name[0] for name in CORE[k : k + 3]] == ["m", "m", "f"] for k in range(0, 24, 3))
    assert (sum(SPEAKERS["train"]), sum(SPEAKERS["test"])) == (462, 168)


@pytest.mark.parametrize(("upper", "riff"), [(False, False), (True, True)])
def test_case_and_container_make_no_difference(tmp_path, upper, riff):
    corpus = find(write_corpus(tmp_path / "corpus", upper, riff))
    assert counts(corpus) == COUNTS
    assert corpus.has_parts
    assert corpus.sentences[0].key == "train/dr1/faaa0/si1500"
    assert corpus.part("test")[0].key == "test/dr1/mdab0/si1500"


def test_other_files_are_left_alone(tmp_path):
    folder = write_corpus(tmp_path / "corpus")
    home = folder / "train/dr1/maaa0"
    for name in ("._sx1.wav", "SX1.WAV.wav", "sa1.wav", "sa1.phn", "sx1.txt", "notes", "sx1.phn~"):
        (home / name).write_text("?")
    (folder / "train/dr9").mkdir()
    (folder / "train/dr1/extra").mkdir()
    (folder / "doc").mkdir()
    assert counts(find(folder)) == COUNTS


def test_the_sample_without_parts_is_split_by_speaker(tmp_path):
    corpus = find(write_nltk_layout(tmp_path / "sample"))
    assert counts(corpus) == {"train": 80, "val": 24, "test": 24}
    assert not corpus.has_parts
    speakers = {
        part: sorted({f"{s.region}-{s.speaker}" for s in corpus.part(part)}) for part in PARTS
    }
    # third, eighth, thirteenth of 16
    assert speakers["val"] == [
        "dr2-faab0",
        "dr4-maad0",
        "dr7-faag0",
    ]
    assert speakers["test"] == ["dr3-faac0", "dr5-maae0", "dr8-faah0"]
    assert not set(speakers["train"]) & {*speakers["val"], *speakers["test"]}


def test_folders_of_something_else_are_refused(tmp_path):
    for name in ("train", "cats"):
        assert f"{tmp_path}: expected TIMIT's folders" in refusal(find, tmp_path)
        (tmp_path / name).mkdir()
