"""Clusters without Ray: rejected options, names in parcels, the order of writing, files at other paths."""

import io
import sys
import tarfile

import pytest
import yaml

from actlab.config import elsewhere
from actlab.engines import parcels, shipping
from actlab.errors import ActlabError
from actlab.storage import contents
from actlab.storage.files import write_atomically
from tiny_study import STUDY, execute, load, metrics


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cluster", "ray://host:10001"], "Ray's client is not supported"),
        (["--cluster", "host"], "give auto, or HOST:PORT"),
        (["--cluster", "auto", "--cpus", "-1"], "--cpus -1: give a number from 0"),
        (["--cluster", "auto", "--cpus", "0"], "--cpus 0: without --gpus a job must reserve cores"),
        (["--cluster", "auto", "--send-every", "nan"], "--send-every nan: give a number from 0"),
        (["--gpus", "1"], "--gpus is an option of --cluster"),
    ],
)
def test_options_are_rejected(cli, tmp_path, words, message):
    (tmp_path / "tiny.yaml").write_text(STUDY)
    outcome = cli("study", "run", tmp_path / "tiny.yaml", "--runs-dir", tmp_path / "runs", *words)
    assert outcome.code == 2
    assert message in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_without_ray_the_extra_is_named(cli, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    (tmp_path / "tiny.yaml").write_text(STUDY)
    outcome = cli("study", "run", tmp_path / "tiny.yaml", "--runs-dir", tmp_path / "runs", "--cluster", "auto")
    assert outcome.code == 2
    assert "pip install 'actlab[cluster]'" in outcome.err


def tar(name, kind=tarfile.REGTYPE, content=b"x"):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as file:
        for one, one_kind in (("run-1/config.yaml", tarfile.REGTYPE), (name, kind)):
            entry = tarfile.TarInfo(one)
            entry.type, entry.linkname, entry.size = (
                one_kind,
                "/etc/passwd",
                len(content) * (one_kind == tarfile.REGTYPE),
            )
            file.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(
            (name, tarfile.REGTYPE)
            for name in ("../x", "/etc/x", "run-1/../run-2/x", "run-2/x", "run-1", "stacks/b/x")
        ),
        *(
            (name, tarfile.REGTYPE)
            for name in ("run-1//x", "run-1/./x", "stacks.json", "run-10/x", "run-1/a\\..\\b")
        ),
        *(
            ("run-1/link", kind)
            for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE)
        ),
    ],
)
def test_a_tampered_tar_is_rejected_whole(tmp_path, name, kind):
    with pytest.raises(ActlabError) as error:
        parcels.write(parcels.Parcel(tar(name, kind)), tmp_path, ["run-1", "stacks/a"])
    assert repr(name) in str(error.value)
    assert not list(tmp_path.iterdir())


def test_other_bytes_and_deletions_elsewhere_are_rejected(tmp_path):
    with pytest.raises(ActlabError, match="damaged tar"):
        parcels.write(parcels.Parcel(b"no tar" * 200), tmp_path, ["run-1"])
    (tmp_path / "kept").touch()
    with pytest.raises(ActlabError, match=r"'\.\./kept', which is outside"):
        parcels.write(parcels.Parcel(tar("run-1/x"), ("../kept",)), tmp_path, ["run-1"])
    assert (tmp_path / "kept").exists()


def test_files_are_written_in_the_order_of_training(tmp_path, monkeypatch):
    names = [
        *("r/config.yaml", "r/units/1.npz", "r/checkpoints/best.ckpt", "r/checkpoints/last.ckpt"),
        *("r/metrics.parquet", "r/result.json", "stacks/a/last.ckpt"),
    ]
    node, home, seen = tmp_path / "node", tmp_path / "home", []
    node.mkdir()
    changes = parcels.Changes(node)
    for name in reversed(names):
        write_atomically(node / name, name.encode())
    monkeypatch.setattr(
        parcels, "write_atomically", lambda path, content: seen.append((str(path.relative_to(home)), content))
    )
    parcels.write(changes.parcel(), home, ["r", "stacks/a"])
    assert seen == [(name, name.encode()) for name in names]
    (node / "stacks/a/last.ckpt").unlink()
    again = changes.parcel(["b"])
    assert (parcels.unpacked(again.content, []), again.gone) == ({}, ("stacks/a/last.ckpt",))


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A study with an activation in a folder, which then moves to another one."""
    monkeypatch.setenv("ACTLAB_CACHE", str(tmp_path / "cache"))
    own = tmp_path / "own"
    own.mkdir()
    (own / "mine.py").write_text(
        "import torch\nfrom slope_of_mine import SLOPE\n\n\ndef f(x):\n    return SLOPE * torch.relu(x)\n"
    )
    (own / "slope_of_mine.py").write_text("SLOPE = 0.5\n")
    monkeypatch.syspath_prepend(str(own))
    name = f"{own / 'mine.py'}:f"
    study = load(tmp_path, overrides=[f"model.activation={name}", "seeds=1", "trainer.max_epochs=1"])
    return own, study.runs()[:2]


@pytest.mark.parametrize("place", ["sent", "variable"])
def test_an_activation_at_another_path_leaves_the_same_records(mine, tmp_path, monkeypatch, place):
    own, runs = mine
    execute(runs, tmp_path / "here")
    (source,) = shipping.sources_of(runs)
    content = shipping.parcel(source)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(own)])
    own.rename(tmp_path / "moved")
    sys.modules.pop("slope_of_mine")
    assert shipping.find(source) is None
    if place == "sent":
        shipping.receive(source, content)
    else:
        monkeypatch.setenv(shipping.DATA, str(tmp_path / "moved"))
    found = shipping.find(source)
    assert found not in (None, source.text)
    with elsewhere.using({source.text: found}, {source.text: source.digest}):
        execute(runs, tmp_path / "there")
    for run in runs:
        assert metrics(tmp_path / "here", run).equals(metrics(tmp_path / "there", run))
        one, other = ((tmp_path / name / run.id / "config.yaml").read_text() for name in ("here", "there"))
        assert one == other
        assert yaml.safe_load(one)["model"]["init_args"]["activation"] == source.text
    records = [
        (tmp_path / n / runs[0].id / "checkpoints/last.ckpt").read_bytes().count(b"moved")
        for n in ("here", "there")
    ]
    assert records == [0, 0]


def test_data_that_were_changed_on_the_node_are_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("ACTLAB_CACHE", str(tmp_path / "cache"))
    data = tmp_path / "own" / "set"
    data.mkdir(parents=True)
    (data / "a.csv").write_text("1")
    digest = contents.content_of(str(data), of_data=True)
    assert digest
    source = shipping.Source(str(data), digest, str(data))
    content = shipping.parcel(source)
    (data / "a.csv").write_text("2")
    assert shipping.find(source) is None
    shipping.receive(source, content)
    assert shipping.find(source) == str(source.kept / "data" / "set")
    (source.kept / "data" / "set" / "a.csv").write_text("3")
    assert shipping.find(source) is None
    shipping.receive(source, content)
    assert shipping.find(source)


def test_what_is_too_large_or_installed_is_not_sent(tmp_path, monkeypatch):
    (tmp_path / "large").write_bytes(b"x" * 100)
    monkeypatch.setattr(shipping, "MOST_BYTES", 10)
    with pytest.raises(ActlabError, match=r"large \(digest abc\) has 0 MB; home sends at most 0"):
        shipping.parcel(shipping.Source("large", "abc", str(tmp_path / "large")))
    with pytest.raises(ActlabError, match="installed package"):
        shipping.parcel(shipping.Source("rich.console.Console", "abc", ""))
