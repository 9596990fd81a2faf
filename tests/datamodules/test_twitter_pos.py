"""Twitter POS: windows, batches, the sample, the config, getting the files; one-line mistakes."""

import gzip
import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

from actlab.checks import data_digests
from actlab.datamodules import TwitterPOSDataModule, twitter_pos
from actlab.datamodules.tweets import TAGS
from actlab.datamodules.twitter_pos import fetch
from actlab.datamodules.words import PADDING, UNKNOWN
from actlab.experiments import build
from actlab.networks import MLP
from actlab.storage.resources import resource
from text_files import CLUSTERS, DAILY, DEV, TEST, TRAIN, VECTORS, Copies, file_of, refusal

SAMPLE = Path(resource("data/samples/twitter_pos"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three tweets, one of each kind of token, and the clusters of all words but two."""
    made = tmp_path / "tweets"
    made.mkdir()
    files = {"train": TRAIN, "dev": DEV, "test": TEST}
    for name, text in {
        **{f"oct27.{k}": v for k, v in files.items()},
        "50mpaths2": CLUSTERS,
    }.items():
        (made / name).write_text(text, encoding="utf-8", newline="")
    return made


def data_of(folder: Path, **options: Any) -> TwitterPOSDataModule:
    return TwitterPOSDataModule(str(folder), **{"batch_size": 2, **options})


def test_the_digest_covers_features_and_tags_of_all_splits(folder):
    """It does not depend on the format of the clusters."""

    def digest() -> str:
        path = "actlab.datamodules.TwitterPOSDataModule"
        arguments = {"dataset": str(folder)}
        return data_digests.digest_of({"data": {"class_path": path, "init_args": arguments}})

    expected = digest()

    # Packed clusters
    clusters = folder / "50mpaths2"
    packed = gzip.compress(clusters.read_bytes())
    clusters.unlink()
    (folder / "50mpaths2.gz").write_bytes(packed)
    assert digest() == expected

    # A changed tag of the test set
    words = TEST.splitlines()
    token, tag = words[0].split("\t")
    words[0] = f"{token}\t{'N' if tag != 'N' else 'V'}"
    (folder / "oct27.test").write_text("\n".join(words) + "\n", encoding="utf-8")
    changed = digest()
    assert changed != expected

    # A changed feature of a word
    text = CLUSTERS.replace("0", "1", 1)
    assert text != CLUSTERS
    (folder / "50mpaths2.gz").write_bytes(gzip.compress(text.encode()))
    assert digest() not in (expected, changed)


def test_windows_are_the_token_and_its_neighbours_within_its_tweet(folder):
    data = data_of(folder)
    data.setup("fit")
    rows, table = data.corpus.features
    i, like, at, url = (rows[word] for word in ("i", "like", "<@MENTION>", "<URL-T.co>"))
    pad = PADDING
    expected = [[pad, i, like], [i, like, at], [like, at, pad], [pad, like, url], [like, url, pad]]
    assert data.train.tensors[0].tolist() == expected
    assert [TAGS[label] for label in data.train.tensors[1]] == ["O", "V", "@", "P", "U"]
    (features, labels), *rest = data.val_dataloader()
    assert not rest
    assert torch.equal(features, table[torch.tensor([[pad, UNKNOWN, like], [UNKNOWN, like, pad]])])
    assert features.dtype == torch.float32
    assert [TAGS[label] for label in labels] == ["^", "V"]
    ((features, labels),) = data.test_dataloader()
    assert features.argmax(-1).tolist() == [[33, 32, 33]]
    assert (data.num_classes, data.input_shape) == (25, (3, 34))


def test_vectors_of_ones_own_take_the_place_of_clusters(folder):
    path = file_of(folder, VECTORS, "vectors.txt")
    (folder / "50mpaths2").unlink()
    data = data_of(folder, vectors=str(path))
    assert data.input_shape == (3, 3)
    ((features, _),) = data.test_dataloader()
    assert features.tolist() == [[[9, 8, 7], [5, 5, 5], [9, 8, 7]]]


@pytest.mark.parametrize("ending", ["", ".gz", ".txt"])
def test_clusters_may_be_packed(folder, ending):
    content = (folder / "50mpaths2").read_bytes()
    (folder / "50mpaths2").unlink()
    (folder / f"50mpaths2{ending}").write_bytes(
        gzip.compress(content, mtime=0) if ending == ".gz" else content
    )
    assert data_of(folder).input_shape == (3, 34)


@pytest.mark.parametrize("ending", ["", ".conll"])
def test_the_further_test_set_is_chosen_by_name(folder, ending):
    assert "no file 'daily547'" in refusal(data_of(folder, test_set="daily547").test_dataloader)
    file_of(folder, DAILY, f"daily547{ending}")
    ((_, labels),) = data_of(folder, test_set="daily547").test_dataloader()
    assert [TAGS[label] for label in labels] == ["O", "V"]
    ((_, labels),) = data_of(folder).test_dataloader()
    assert [TAGS[label] for label in labels] == ["N"]


def test_a_changed_file_is_read_again(folder):
    first = data_of(folder).corpus
    assert data_of(folder).corpus is first
    file_of(folder, TEST + "i\tO\n", "oct27.test")
    assert len(data_of(folder).corpus.test) == 2


@pytest.mark.parametrize("name", ["oct27.train", "oct27.dev", "oct27.test", "50mpaths2"])
def test_a_missing_file_is_named_and_where_to_get_it(folder, name):
    (folder / name).unlink()
    message = refusal(lambda: data_of(folder).input_shape)
    assert all(
        part in message for part in (repr(name), str(folder), "ark-tweet-nlp", "data.sample")
    )
    (folder / name).mkdir()
    assert "not a regular file" in refusal(lambda: data_of(folder).input_shape)


def test_a_missing_folder_is_named():
    for options in ({"dataset": "nowhere"}, {"dataset": "~no-such-user/tweets"}):
        message = refusal(lambda options=options: TwitterPOSDataModule(**options).input_shape)
        assert repr(options["dataset"]) in message
        assert "ark-tweet-nlp" in message


def test_vectors_that_are_not_there_are_named(folder):
    assert "nowhere.txt cannot be read" in refusal(
        lambda: data_of(folder, vectors="nowhere.txt").input_shape
    )


def test_the_network_has_the_papers_parameters():
    for features, parameters in ((34, 98_585), (50, 110_873)):
        config = yaml.safe_load((resource("configs") / "twitter_pos.yaml").read_text())
        arguments = config["model"]["init_args"]["network"]["init_args"]
        network = MLP(nn.ReLU, 25, (3, features), **arguments)
        assert sum(p.numel() for p in network.parameters()) == parameters


def test_each_part_of_the_sample_holds_all_tags():
    data = TwitterPOSDataModule(sample=True)

    for tweets in (data.corpus.train, data.corpus.val, data.corpus.test):
        assert {label for tweet in tweets for label in tweet.labels} == set(range(25))


def test_the_config_learns_what_neighbours_decide(tmp_path):
    config = yaml.safe_load((resource("configs") / "twitter_pos.yaml").read_text())
    config["data"]["init_args"]["sample"] = True
    config["trainer"] |= {
        "max_epochs": 3,
        "logger": False,
        "callbacks": None,
        "default_root_dir": str(tmp_path),
    }
    config["trainer"] |= {"enable_checkpointing": False, "accelerator": "cpu"}
    data: Any
    trainer, task, data = build(config)
    trainer.fit(task, datamodule=data)
    assert trainer.global_step == 3 * (sum(len(t.tokens) for t in data.corpus.train) // 16)
    assert trainer.callback_metrics["val/error"] < 0.12  # unclustered words make up most of it
    ambiguous = {"play", "watch", "call", "run"}
    rows = {row for word, row in data.corpus.features.rows.items() if word in ambiguous}
    windows, labels = data.test.tensors
    chosen = torch.tensor([row in rows for row in windows[:, 1].tolist()])
    batch = data.test.transform((windows[chosen], labels[chosen]), None)
    with torch.no_grad():
        wrong = task.eval()(batch[0]).argmax(-1) != batch[1]
    assert len(labels[chosen].unique()) == 2
    assert wrong.float().mean() < 0.1  # without neighbours about a half


def test_mistakes_on_the_command_line_are_one_line(cli, folder, tmp_path):
    (folder / "oct27.dev").write_text("a\tN\nb\n")
    for words, part in (
        (["--data.dataset", folder], "oct27.dev, line 2"),
        (["--data.sample", "true", "--data.test_set", "daily"], "test_set"),
    ):
        done = cli(
            "fit", "-c", "twitter_pos", "--trainer.default_root_dir", tmp_path / "runs", *words
        )
        assert done.code == 2
        assert done.err.count("\n") == 1
        assert part in done.err


@pytest.fixture
def remotes(monkeypatch: pytest.MonkeyPatch) -> Copies:
    """The sample as what is to be fetched."""
    monkeypatch.setattr(twitter_pos, "RETRIES", 0)
    hashes = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in SAMPLE.iterdir()}
    files = {name: (url, hashes[name]) for name, (url, _) in twitter_pos.FILES.items()}
    monkeypatch.setattr(twitter_pos, "FILES", files)
    copies = Copies(SAMPLE)
    monkeypatch.setattr("pooch.HTTPDownloader", lambda **options: copies)
    return copies


def test_what_is_fetched_can_be_trained_on_and_is_fetched_once(remotes, tmp_path):
    target = tmp_path / "new" / "tweets"
    paths = fetch(target)
    assert (
        sorted(remotes.asked)
        == sorted(path.name for path in paths)
        == sorted(p.name for p in SAMPLE.iterdir())
    )
    assert data_of(target).input_shape == (3, 34)
    fetch(target)
    assert len(remotes.asked) == 4
    (target / "oct27.dev").write_text("other")
    fetch(target)
    assert remotes.asked[4:] == ["oct27.dev"]
    assert (target / "oct27.dev").read_bytes() == (SAMPLE / "oct27.dev").read_bytes()


def test_another_file_than_was_meant_is_not_kept(remotes, tmp_path):
    remotes.folder = tmp_path / "wrong"
    shutil.copytree(SAMPLE, remotes.folder)
    (remotes.folder / "oct27.test").write_text("other")
    message = refusal(fetch, tmp_path / "new")
    assert all(part in message for part in ("oct27.test", "raw.githubusercontent.com", "hash"))
    assert not (tmp_path / "new" / "oct27.test").exists()


def test_a_network_that_fails_is_named(remotes, tmp_path):
    remotes.folder = tmp_path / "nothing"
    message = refusal(fetch, tmp_path / "new")
    assert all(
        part in message
        for part in ("oct27.train cannot be downloaded", "the network", str(tmp_path))
    )
    file = file_of(tmp_path, "", "file")
    assert "cannot be downloaded" in refusal(fetch, file / "below")


def test_files_come_over_https_and_each_is_checked():
    for url, sha256 in twitter_pos.FILES.values():
        assert url.startswith("https://raw.githubusercontent.com/")
        assert len(bytes.fromhex(sha256)) == 32
