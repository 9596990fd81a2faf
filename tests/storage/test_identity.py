"""Ids of runs: a function of what changes their numbers, and of nothing else."""

import importlib
import shutil

import pytest

from actlab import datamodules, tasks
from actlab.checks.configs import check
from actlab.config import identity
from actlab.errors import ActlabError
from actlab.storage import contents, digests
from actlab.studies import reading
from actlab.tasks import Task

TEXT = """\
base: ./base.yaml
grid:
  model.activation: [relu, elu]
  model.optimizer.lr: [RATE]
  model.network.dropout: [DROP]
seeds: 2
"""
BASE = """\
model:
  class_path: actlab.tasks.ClassificationTask
  init_args:
    network: {class_path: actlab.networks.MLP}
    optimizer: {class_path: torch.optim.Adam}
data: {class_path: actlab.datamodules.MNISTDataModule, init_args: {dataset: DATASET}}
trainer: {max_epochs: 2, log_every_n_steps: 50}
"""


@pytest.fixture
def ids(tmp_path):
    (tmp_path / "digits").mkdir()
    (tmp_path / "digits/train.parquet").write_bytes(b"pixels" * 1000)

    def of(name="mine.yaml", rate="1.0e-3", drop="0.0", dataset=None, text=TEXT, **options):
        (tmp_path / "base.yaml").write_text(
            BASE.replace("DATASET", str(dataset or tmp_path / "digits"))
        )
        (tmp_path / name).write_text(text.replace("RATE", rate).replace("DROP", drop))
        return [run.id for run in reading.load(str(tmp_path / name), **options).runs()]

    return of


def test_how_runs_of_other_libraries_are_seeded_counts_for_them_alone(ids, monkeypatch):
    others = TEXT + "set: {data.class_path: mine.Data}\n"
    before, before_of_others = ids(), ids(text=others)
    monkeypatch.setattr(identity, "NUMERICS_OF_OTHERS", 0)
    assert ids() == before
    assert not {*ids(text=others)} & {*before_of_others}
    assert identity.is_of_actlab(
        {"model": "ClassificationTask", "data": {"class_path": "MNISTDataModule"}}
    )
    assert not identity.is_of_actlab(
        {"model": "ClassificationTask", "data": "mine.MNISTDataModule"}
    )


def test_how_things_are_written_does_not_count(ids, tmp_path):
    first = ids()
    assert len(set(first)) == 4
    assert ids(rate="1e-3") == first
    assert ids(rate="0.001", drop="0") == first
    assert ids(name="other.yaml") == first
    shutil.copytree(tmp_path / "digits", tmp_path / "elsewhere")
    assert ids(dataset=tmp_path / "elsewhere") == first
    for override in (
        "trainer.log_every_n_steps=7",
        "trainer.accelerator=cpu",
        "data.cache_dir=/somewhere",
    ):
        assert ids(overrides=[override]) == first, override


@pytest.mark.parametrize(
    "override",
    [
        *(
            "trainer.max_epochs=3",
            "model.network.init=he",
            "data.batch_size=7",
            "trainer.precision=64-true",
        ),
        "trainer.check_val_every_n_epoch=null",  # by updates alone
    ],
)
def test_what_changes_the_numbers_counts(ids, override):
    assert not set(ids(overrides=[override])) & set(ids())


def test_one_batch_is_no_whole_epoch(ids):
    for key in ("limit_train_batches", "val_check_interval"):
        assert ids(overrides=[f"trainer.{key}=1"]) != ids(overrides=[f"trainer.{key}=1.0"])


def test_two_classes_of_one_module_are_two(ids, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("two", "three"):
        (tmp_path / f"classes_{name}.py").write_text("class NetA: ...\n\n\nclass NetB: ...\n")
    names = ("classes_two.NetA", "classes_two.NetB", "classes_three.NetB")
    found = [ids(overrides=[f"model.network={{class_path: {name}}}"]) for name in names]
    units = [
        ids(text=TEXT.replace("relu, elu", f"'classes_two:{name}'")) for name in ("NetA", "NetB")
    ]
    digests = [{name.rpartition("-")[2] for name in one} for one in (*found, *units)]
    assert len(set.union(*digests)) == sum(map(len, digests))


@pytest.mark.parametrize(
    "change", ["of a file", "of a linked folder that leads back", "which folder it is in"]
)
def test_the_content_of_the_data_counts(ids, tmp_path, change):
    digits, elsewhere = tmp_path / "digits", tmp_path / "elsewhere"
    for folder in (digits / "cat", digits / "dog", elsewhere):
        folder.mkdir(parents=True)
        (folder / f"{folder.name}.png").write_bytes(b"pixels")
    (digits / "train").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(digits)
    before = ids()
    if change == "of a file":
        (digits / "train.parquet").write_bytes(b"pixelz" * 1000)
    elif change == "of a linked folder that leads back":
        (elsewhere / "elsewhere.png").write_bytes(b"pixelz")
    else:
        (digits / "cat/cat.png").rename(digits / "dog/cat.png")
    assert not set(ids()) & set(before)


def test_a_folder_of_any_name_counts(ids, tmp_path, monkeypatch):
    """A plain word, and one that looks like a module's."""
    monkeypatch.chdir(tmp_path)
    for name in ("mydata", "TIMIT", "data.v2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.parquet").write_bytes(b"pixels")
        before = ids(dataset=name)
        (tmp_path / name / "train.parquet").write_bytes(b"pixelz")
        assert not set(ids(dataset=name)) & set(before), name
    before = ids()
    (tmp_path / "relu").mkdir()  # is no unit
    assert ids() == before


def test_of_very_many_files_names_and_sizes_count(ids, tmp_path, monkeypatch):
    monkeypatch.setattr(contents, "MOST_FILES", 3)
    for name in ("train/1", "train/2", "val/1"):
        (tmp_path / "digits" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "digits" / name).write_bytes(b"pixels")
    found = [ids()]
    (tmp_path / "digits/val/1").rename(tmp_path / "digits/val/2")
    found.append(ids())
    (tmp_path / "digits/val/2").write_bytes(b"more pixels")
    found.append(ids())
    assert len({name for one in found for name in one}) == 3 * len(found[0])
    (tmp_path / "digits/val/2").write_bytes(b"more pixelz")
    assert ids() == found[-1]
    with (tmp_path / "mine.yaml").open("a") as file:
        file.write("table: [{metric: val/loss}]\n")
    lines = check(reading.load(str(tmp_path / "mine.yaml")))
    assert any(
        f"{tmp_path}/digits: more than 3 files, so run ids depend on file names" in one
        for one in lines
    )


def test_a_users_file_counts_with_what_it_imports(ids, tmp_path):
    unit, helper, other = (tmp_path / name for name in ("unit.py", "helper.py", "unrelated.py"))
    unit.write_text("import helper\nclass Unit: ...")
    helper.write_text("x = 1")
    other.write_text("y = 1")
    before = ids(activations=[f"{unit}:Unit"])
    other.write_text("y = 2")
    assert ids(activations=[f"{unit}:Unit"]) == before
    helper.write_text("x = 2")
    assert ids(activations=[f"{unit}:Unit"])[-2:] != before[-2:]


@pytest.fixture
def code(tmp_path, monkeypatch):
    """Write files of a user's, below the current folder, which is on Python's path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def write(**files):
        for name, text in files.items():
            path = tmp_path / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        # Python may have listed the folder within the same tick of its clock
        importlib.invalidate_caches()

    return write


@pytest.mark.parametrize("unit", ["mypackage.units:Unit", "mymodule:Unit", "./folder/unit.py:Unit"])
def test_what_own_code_imports_from_the_path_counts(ids, code, tmp_path, unit):
    """Directly or through others, in circles too; not if never imported, nor if installed."""
    text = "import numpy, random\nfrom mynear import leak\nclass Unit: ..."
    code(mypackage__units=text, mymodule=text, folder__unit=text, unrelated="y = 1")
    (tmp_path / "mypackage/__init__.py").touch()
    code(
        mynear="import mypackage, myfar.deep\nfrom . import nothing",
        myfar__deep="import mynear\nx = 1",
    )
    before = ids(activations=[unit])
    code(unrelated="y = 2")
    assert ids(activations=[unit]) == before
    own = dict.fromkeys(("mypackage__units", "mymodule", "folder__unit"), f"{text}\nx = 1")
    for change in (own, {"mynear": "import myfar"}, {"myfar__deep": "x = 2"}):
        code(**change)
        after = ids(activations=[unit])
        assert [a == b for a, b in zip(before, after, strict=True)] == [True] * 4 + [False] * 2, (
            change
        )
        before = after


def test_what_is_installed_stands_alone(ids, code, tmp_path, monkeypatch):
    """Its version does not count where it is imported; named, it counts without what it imports."""
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages/theirs.py").write_text("import mine_below")
    # Python remembers what a folder holds, or lacks
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    code(mymodule="import theirs", mine_below="x = 1")
    before = ids(activations=["mymodule:Unit", "theirs:Unit"])
    code(mine_below="x = 2")
    assert ids(activations=["mymodule:Unit", "theirs:Unit"]) == before
    (tmp_path / "site-packages/theirs.py").write_text("import mine_below, random")
    after = ids(activations=["mymodule:Unit", "theirs:Unit"])
    assert [a == b for a, b in zip(before, after, strict=True)] == [True] * 6 + [False] * 2


@pytest.mark.parametrize("table", ["knots.csv", "./knots.csv", "knots.v2.csv"])
def test_a_file_that_a_unit_is_given_counts(ids, code, tmp_path, table):
    """By its bare name too, which reads as a module's, even where there is such a module."""
    code(unit="class Unit: ...")
    for module in ({}, {"knots": "x = 1"}):
        code(**module)
        (tmp_path / table).write_text("0.1")
        before = ids(activations=[{"name": "./unit.py:Unit", "table": table}])
        (tmp_path / table).write_text("0.9")
        after = ids(activations=[{"name": "./unit.py:Unit", "table": table}])
        assert [a == b for a, b in zip(before, after, strict=True)] == [True] * 4 + [False] * 2


@pytest.mark.parametrize(
    ("size", "start", "changed"),
    [
        pytest.param(14_997_006, 5 * 2**20, 4 * 2**20, id="of a published size"),
        pytest.param(80 * 2**20, 2**20 + 2**18, 2**14, id="between two samples"),
    ],
)
def test_every_byte_of_a_large_file_counts(ids, tmp_path, size, start, changed):
    with (tmp_path / "digits/table.csv").open("wb") as file:
        file.truncate(size)
        before = ids()
        file.seek(start)
        file.write(b"1" * changed)
    assert not set(ids()) & set(before)


def test_a_users_task_counts(ids, code):
    words = ["model.class_path=mytasks.Mine"]
    code(mytasks="class Mine: ...")
    before = ids(overrides=words)
    code(mytasks="class Mine: x = 1")
    assert not set(ids(overrides=words)) & set(before)


def test_nothing_that_a_study_names_is_imported(ids, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "trap.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')")
    ids(activations=["trap:Unit", {"name": "os:system", "command": "true"}])
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    "text", ["/", "~nobody/x", "a" * 5000, "\0", "no/such.file", ":", ".", "a..b"]
)
def test_odd_texts_are_no_sources(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert set(identity.sources_of({"a": text})) <= {"."}


def test_where_caches_lie_counts_for_nothing(ids, tmp_path):
    before = ids(overrides=[f"data.cache_dir={tmp_path}/cache"])
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "images.safetensors").write_text("x")
    assert before == ids(overrides=[f"data.cache_dir={tmp_path}/cache"]) == ids()


@pytest.mark.parametrize("change", ["data.cache_dir=./b", "data.workers=3"])
def test_a_users_own_datamodule_means_what_it_says(ids, code, tmp_path, change):
    """Another value of any key counts; what a run leaves in its cache does not."""
    code(mydata="class Mine: ...")
    own = "data={class_path: mydata.Mine, init_args: {cache_dir: ./a, workers: 2}}"
    before = ids(overrides=[own])
    (tmp_path / "a").mkdir()
    (tmp_path / "a/images.safetensors").write_text("x")
    assert ids(overrides=[own]) == before
    assert not set(ids(overrides=[own, change])) & set(before)


@pytest.mark.parametrize("change", ["trainer.devices=2", "trainer.use_distributed_sampler=false"])
def test_what_changes_the_batches_of_third_party_code_counts_and_not_of_own_data(ids, code, change):
    code(mydata="class Mine: ...")
    for theirs in (
        "data={class_path: mydata.Mine, init_args: {}}",
        "model.class_path=mytasks.Mine",
    ):
        assert not set(ids(overrides=[theirs, change])) & set(ids(overrides=[theirs]))
    assert ids(overrides=[change]) == ids()


def test_the_classes_whose_arguments_are_known_are_those_that_are_offered():
    tasks_ = {
        n
        for n in tasks.__all__
        if isinstance(kind := getattr(tasks, n), type) and issubclass(kind, Task)
    }
    assert identity.ACTLAB["model"] == {f"actlab.tasks.{name}" for name in tasks_ - {"Task"}}
    assert identity.ACTLAB["data"] == {f"actlab.datamodules.{name}" for name in datamodules.__all__}


def test_two_runs_of_one_name_are_an_error(ids, monkeypatch):
    """As two identities that begin alike would be."""
    monkeypatch.setattr(identity, "DIGITS", 0)
    text = TEXT.replace("seeds: 2", "seeds: 1").replace(
        "[relu, elu]", "['./a.py:Unit', './b.py:Unit']"
    )
    message = r"two different runs would get the same ID Unit-lr0\.001"
    with pytest.raises(ActlabError, match=message):
        ids(text=text)


def test_a_large_file_is_read_once(ids, tmp_path, monkeypatch):
    """Unless it is changed; a file that changed a moment ago may change within the same tick."""
    monkeypatch.setattr(digests, "WORTH", 1)
    read, digest = [], digests._digest
    monkeypatch.setattr(
        digests, "_digest", lambda file, size: read.append(file.name) or digest(file, size)
    )
    first = ids()
    assert ids() == first
    assert read == ["train.parquet"] * 2
    monkeypatch.setattr(digests, "_SETTLED", 0)
    assert ids() == first
    assert ids() == first
    assert read == ["train.parquet"] * 3
    (tmp_path / "digits/train.parquet").write_bytes(b"pixelz" * 1000)
    assert not set(ids()) & set(first)


@pytest.mark.parametrize("place", ["a file", "nothing to write to"])
def test_without_the_memory_files_are_read_again(ids, tmp_path, monkeypatch, place):
    before = ids()
    monkeypatch.setattr(digests, "WORTH", 1)
    monkeypatch.setenv("ACTLAB_CACHE", str(tmp_path / "cache"))
    if place == "a file":
        (tmp_path / "cache").touch()
    else:
        (tmp_path / "cache").mkdir()
        (tmp_path / "cache" / digests.FILE).write_text(
            "no database, but long enough to be taken for one" * 100
        )
    assert ids() == ids() == before
