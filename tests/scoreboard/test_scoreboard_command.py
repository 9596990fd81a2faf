"""A user's activation on the scoreboard, by one command."""

import copy
import csv
import hashlib
import io
import json
import re
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

import tiny_study
from actlab.analysis import study_table
from actlab.checks import data_digests
from actlab.cli import estimates, scoreboard
from actlab.config.paths import set_dotted
from actlab.engines.workers import Inline
from actlab.scoreboard import definition, planning
from actlab.storage.resources import resource
from actlab.studies import reading
from actlab.studies.run_folder import RunFolder
from actlab.studies.seeds import seed_list
from actlab.studies.states import FINISHED
from actlab.studies.study_folder import StudyFolder
from kept_results import program as program_of

PICTURE = """\
base: {base}
set:
  data.tiles: 1
  data.batch_size: 64
  data.updates_per_epoch: 5
  trainer.max_epochs: 1
  trainer.check_val_every_n_epoch: 1
  model.network.hidden: [8, 8]
  model.schedules: null
grid:
  model.activation: [gelu, relu]
  model.optimizer.lr: [0.003, 0.01]
select: {{tune: [model.optimizer.lr], metric: val/psnr, at: last}}
stages:
  - {{name: choose, seeds: 2}}
  - {{name: compare, seeds: 5-10}}
reference: gelu
table:
  - {{metric: test/psnr, at: last, scale: decibels, chance: -50.0}}
"""


@pytest.fixture
def here(program, tmp_path, monkeypatch):
    program("learnt_swish")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Runs of GELU and ReLU on two noisy pictures."""
    folder = tmp_path_factory.mktemp("kept")
    noise = torch.rand(2, 16, 16, 3, generator=torch.Generator().manual_seed(0))
    for name, colours in zip(("first", "second"), noise, strict=True):
        Image.fromarray((255 * colours).byte().numpy()).save(folder / f"{name}.png")
        text = PICTURE.format(base=resource("configs/inr_image.yaml"))
        tiny_study.trained_once(folder, text, name, "--set", f"data.dataset={folder / name}.png")
    return folder


@pytest.fixture
def small(here, kept, monkeypatch, state):
    """A scoreboard of one task, on a picture and twice on another; `empty` has no data."""
    tables = {
        name: {"table": str(kept / "runs" / name), "file": f"{name}.png"}
        for name in ("first", "second")
    }
    task = {
        "title": "picture",
        "study": str(kept / "first.yaml"),
        "data": {
            "first": tables["first"],
            "second one": {**tables["second"], "seeds": "20-25"},
            "third": {**tables["second"], "seeds": "26-31", "chance": -40.0},
        },
    }
    empty = {**task, "data": {"first": {**tables["first"], "file": "nowhere.png"}}}
    tasks = {"picture": task, "empty": empty}
    file = {"reference": "gelu", "equivalence": 1.02, "least_gain": 0.1, "tasks": tasks}
    state(file)
    monkeypatch.setattr(scoreboard, "Worker", Inline)
    return file


@pytest.mark.usefixtures("undrawn")
def test_an_activation_of_ones_own_has_a_rank(here, kept, small, succeed):
    outcome = succeed("scoreboard", "--activation", "./learnt_swish.py:Mine", "--data", kept)
    out = outcome.out
    assert "left out: empty, first: nowhere.png is not in the folder of --data" in out
    assert re.search(
        (
            r"^picture: about .*\nall tasks: about .* one by one, .* cores?; --minutes 60 "
            r"allows 1 h 00 min$"
        ),
        out,
        re.M,
    )
    assert out.index("all tasks: about") < out.index("runs, 0 finished")
    assert re.search(r"^picture: first: \d\S+ \[.*\] times the error of gelu; \w+, p ", out, re.M)
    assert re.search(
        r"^picture: second one: \d\S+ \[.*\] times the error of gelu; \w+, p ", out, re.M
    )
    assert "No rank: it has runs on 1 task, a rank needs two." in out
    runs = here / "runs/scoreboard"
    assert "Mine" in (runs / "scoreboard.md").read_text()
    assert (runs / "picture/compare/report.html").exists()
    further = json.loads((runs / "picture/second-one/table.json").read_text())
    first = json.loads((runs / "picture/compare/table.json").read_text())
    assert further["seeds"] == [20, 21, 22, 23, 24, 25]  # none of those that chose or compared
    assert json.loads((runs / "picture/third/table.json").read_text())["seeds"] == [
        26,
        27,
        28,
        29,
        30,
        31,
    ]
    assert [row["chosen"] for row in further["rows"]] == [row["chosen"] for row in first["rows"]]
    # Each table has the chance level of its data
    chances = []
    for name in ("compare", "second-one", "third"):
        rows = json.loads((runs / f"picture/{name}/table.json").read_text())["rows"]
        chances.append(rows[0]["columns"][0]["chance"])
    assert chances == [-50.0, -50.0, -40.0]
    # How stable the selection is, is said where its settings have fresh values
    assert [row["choice"]["seeds"] for row in first["rows"]] == [2]
    assert [row.get("choice") for row in further["rows"]] == [None]
    # Stopped in a run of the last stage, it trains this run alone, and all is equal.
    before = {path.name: path.read_bytes() for path in runs.glob("scoreboard.*")}
    (stopped,) = (runs / "picture").glob("*seed31*")
    (stopped / "result.json").unlink()
    for path in runs.glob("scoreboard.*"):
        path.unlink()
    outcome = succeed("scoreboard", "--activation", "./learnt_swish.py:Mine", "--data", kept)
    assert "1 to run" in outcome.out
    assert {path.name: path.read_bytes() for path in runs.glob("scoreboard.*")} == before


def test_without_data_only_tasks_without_data_are_planned(
    here, kept, small, state, cli, monkeypatch
):
    free = {**small["tasks"]["picture"], "data": {"first": {"table": str(kept / "runs/first")}}}
    small["tasks"]["empty"]["download"] = "pip download pictures"
    state({**small, "tasks": {**small["tasks"], "free": free}})
    monkeypatch.setattr(estimates, "remaining", lambda *given: 60.0)
    out = cli("scoreboard", "--activation", "silu", "--minutes", "0").out
    assert out.splitlines()[:3] == [
        "left out, because --data is missing: picture, empty",
        "one download has the data of empty: pip download pictures",
        "one task gives no rank, because a rank needs two",
    ]
    assert re.search(r"^free: about ", out, re.M)


def test_tasks_that_do_not_fit_into_the_minutes_are_named(
    here, kept, small, state, cli, monkeypatch
):
    state({**small, "tasks": {**small["tasks"], "long": small["tasks"]["picture"]}})
    monkeypatch.setattr(
        estimates, "remaining", lambda folder, *given: 1e6 * (folder.study.name == "long")
    )
    trained = []
    monkeypatch.setattr(scoreboard, "run", lambda folder, engine: trained.append(folder.path) or 0)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    out = cli("scoreboard", "--activation", "silu", "--data", kept).out
    # A million seconds on two cores, named before and after the other tasks were trained
    before, _, after = out.partition("all tasks: about ")
    assert re.search(r"^long: about 277 h \d\d min$", before, re.M)
    late = r"left out, because they do not fit into 1 h 00 min: long \(about 138 h \d\d min\)$"
    assert re.search(late, after, re.M)
    assert {path.relative_to("runs/scoreboard").parts[0] for path in trained} == {"picture"}


def test_minutes_into_which_nothing_fits_are_a_mistake(
    here, kept, small, cli, succeed, monkeypatch
):
    monkeypatch.setattr(estimates, "remaining", lambda *given: 3600.0)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    mine = ("--activation", "silu", "--data", kept)
    outcome = cli("scoreboard", *mine, "--minutes", "12")
    assert outcome.code == 2
    advised = re.search(
        r"--minutes: expected at least 3[01], .* got 12\. Use (--minutes (\d+) --tasks picture)\.$",
        outcome.err.strip(),
    )
    assert 30 < int(advised[2]) < 60  # with room, because the next estimate differs
    # The estimate alone
    assert "all tasks: about 1 h" in cli("scoreboard", *mine, "--minutes", "0").out
    assert not (here / "runs").exists()
    monkeypatch.setattr(scoreboard, "run", lambda folder, engine: 0)
    succeed("scoreboard", *mine, *advised[1].split())


def test_a_submission_is_compared_with_one_repeated_seed(
    kept, small, tmp_path, monkeypatch, capsys
):
    folder = tmp_path / "submitted/again"
    table = json.loads((kept / "runs/first/table.json").read_text())
    table["rows"] = [row for row in table["rows"] if row["point"]["model.activation"] == "relu"]
    (folder / "picture/first").mkdir(parents=True)
    (folder / "picture/first/table.json").write_text(json.dumps(table))
    (folder / "submission.json").write_text(json.dumps({"activation": "relu"}))
    rerun = program_of("scoreboard/rerun")
    monkeypatch.setattr(rerun, "SUBMITTED", str(folder.parent))
    assert rerun.main(kept, ["again"]) == 0
    out = capsys.readouterr().out
    assert "left out: empty: nowhere.png is not in the folder of --data" in out
    assert "1 run, 0 finished" in out
    assert out.splitlines()[-1] == "all repeated values are the submitted ones"

    # Another value of this seed is found
    table["rows"][0]["columns"][0]["values"]["5"] *= 1.02
    (folder / "picture/first/table.json").write_text(json.dumps(table))
    assert rerun.main(kept, ["again"]) == 1
    assert "again: picture, seed 5: expected " in capsys.readouterr().out


def test_a_repeated_value_may_differ_as_on_another_processor(tmp_path):
    """GELU's values on MNIST on two processors, and a value that no processor gives."""
    rerun = program_of("scoreboard/rerun")
    folder = resource("results/scoreboard")
    table = json.loads((folder / "mnist/table.json").read_text())
    table["rows"] = [row for row in table["rows"] if row["point"]["model.activation"] == "gelu"]
    values = table["rows"][0]["columns"][0]["values"]

    def as_read():
        (tmp_path / "table.json").write_text(json.dumps(table))
        return study_table.read(tmp_path / "table.json")

    # On another processor
    submitted = as_read()
    rows = csv.DictReader((folder / "processors/classifier/values.csv").read_text().splitlines())
    values |= {row["seed"]: float(row["test/error@last"]) for row in rows}
    repeated = as_read()
    assert repeated != submitted
    assert rerun.differences("classifier", submitted, repeated) == []

    # A third less
    values["5"] *= 2 / 3
    (line,) = rerun.differences("classifier", submitted, as_read())
    assert line.startswith("classifier, seed 5: expected 0.0244")


def test_the_estimate_does_not_grow_with_other_programs(kept, small, tmp_path, monkeypatch):
    monkeypatch.setattr(estimates, "remaining", lambda *given: 60.0)
    study = reading.load(str(kept / "first.yaml"))
    used = iter([5.0, 15.0])  # of processor time, before and after the updates that are timed
    helper = Inline()
    monkeypatch.setattr(helper, "call", lambda function: next(used))
    assert estimates.timed([study], tmp_path, helper) == {"first": 80.0}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tasks", "pictures"], "did you mean 'picture'"),
        (["--activation", "gelu"], "expected another activation than the reference"),
        ([], "--data: expected a folder with data of a task. See docs/guide/scoreboard.md."),
    ],
)
def test_mistakes_are_one_line(small, cli, words, message):
    outcome = cli(
        "scoreboard", *words, *([] if "--activation" in words else ["--activation", "silu"])
    )
    assert outcome.code == 2
    assert message in outcome.err


@pytest.mark.usefixtures("undrawn")
def test_its_page_and_the_page_of_all_studies_do_not_replace_each_other(succeed, cli, tmp_path):
    # The scoreboard leaves the page of all studies as it is
    page = tmp_path / "index.html"
    page.write_text("all studies")
    outcome = cli("scoreboard", "--runs-dir", tmp_path)
    assert outcome.code == 2
    message = "--runs-dir: expected a folder without the index.html of `actlab report`"
    assert message in outcome.err
    assert page.read_text() == "all studies"

    # The page of all studies leaves the scoreboard as it is
    page.unlink()
    succeed("scoreboard", "--runs-dir", tmp_path)
    written = page.read_text()
    outcome = cli("report", "--runs-dir", tmp_path)
    assert outcome.code == 2
    assert "--runs-dir: expected a folder without the index.html of a scoreboard" in outcome.err
    assert page.read_text() == written

    # The scoreboard writes its own page again
    succeed("scoreboard", "--runs-dir", tmp_path)


def test_another_text_than_the_stated_one_is_rejected(kept, small, state, cli):
    small["tasks"]["picture"]["data"]["first"]["sha256"] = "0" * 64
    state(small)
    outcome = cli("scoreboard", "--activation", "silu", "--data", kept)
    assert outcome.code == 2
    assert "expected the sha256 000000000000…, got " in outcome.err


def test_other_pictures_than_the_stated_ones_are_rejected(
    kept, small, state, cli, succeed, tmp_path, monkeypatch
):
    monkeypatch.setattr(estimates, "remaining", lambda *given: 60.0)
    first = small["tasks"]["picture"]["data"]["first"]
    first["content"] = "0" * 64
    state(small)
    mine = ("--activation", "silu", "--minutes", "0", "--data")
    outcome = cli("scoreboard", *mine, kept)
    assert outcome.code == 2
    assert "first.png: expected data with the digest 000000000000…, got " in outcome.err

    # The same pixels in another file are valid
    with Image.open(kept / "first.png") as picture:
        first["content"] = hashlib.sha256(np.asarray(picture).tobytes()).hexdigest()
        picture.save(tmp_path / "first.png", compress_level=0)
    assert (tmp_path / "first.png").read_bytes() != (kept / "first.png").read_bytes()
    state(small)
    succeed("scoreboard", *mine, tmp_path)


def test_every_data_set_has_a_digest():
    """A stated data set needs its digest when its table is stored."""
    data_sets: dict[str, definition.DataSet] = {}
    for version in definition.FILES:
        for task in definition.load(version).with_tables.values():
            data_sets |= task.data
            for data_set in task.data.values():
                digest = data_set.sha256 or data_set.content
                assert bool(data_set.file) == bool(re.fullmatch("[0-9a-f]{64}", digest))
    assert definition.load(1).not_run == []

    # The texture; other images than the mosaic's have another digest
    texture = np.asarray(program_of("scoreboard/pictures").texture())
    assert data_sets["texture"].content == hashlib.sha256(texture.tobytes()).hexdigest()
    task = definition.load(1).tasks["picture"]
    study = planning.planned_task("picture", task, ["CIFAR-10 mosaic"], ["silu"]).study
    config = copy.deepcopy(study.runs()[0].config)
    set_dotted(config, "data.dataset", str(resource("data/samples/cifar10")))
    assert data_sets["CIFAR-10 mosaic"].content != data_digests.digest_of(config)


def test_pictures_of_a_wheel_are_checked_and_cut_to_squares(tmp_path, monkeypatch):
    pictures = program_of("scoreboard/pictures")
    content = io.BytesIO()
    wide = np.random.default_rng(0).integers(256, size=(128, 200, 3), dtype=np.uint8)
    Image.fromarray(wide).save(content, "PNG")
    with zipfile.ZipFile(tmp_path / "wheel.whl", "w") as wheel:
        for member in pictures.MEMBERS.values():
            wheel.writestr(f"skimage/data/{member}.png", content.getvalue())

    # Other content than stated
    with pytest.raises(SystemExit, match=r"Use scikit-image 0\.25\.2"):
        pictures.main(tmp_path / "out", [tmp_path / "wheel.whl"])

    # As stated
    digest = hashlib.sha256(content.getvalue()).hexdigest()
    monkeypatch.setattr(pictures, "SHA256", dict.fromkeys(pictures.SHA256, digest))
    pictures.main(tmp_path / "out", [tmp_path / "wheel.whl"])
    names = {path.stem for path in (tmp_path / "out").iterdir()}
    assert names == {"photograph", "page", "texture", "cat", "coffee", "tissue"}
    with Image.open(tmp_path / "out/cat.png") as cat:
        assert np.array_equal(np.asarray(cat), wide[:, 36:164])


def test_every_task_is_a_study_with_stored_tables():
    assert definition.load(1).not_run == []
    for version in definition.FILES:
        stated = definition.load(version)
        for name, task in stated.with_tables.items():
            for group in task.groups:
                study = planning.planned_task(name, task, group, ["silu"]).study
                assert {run.point["model.activation"] for run in study.runs()} == {"silu"}
            for data_set in task.data.values():
                table = study_table.read(resource(data_set.table) / study_table.NAME)
                assert stated.reference in {row.point["model.activation"] for row in table.rows}


def test_the_definition_is_no_config_of_a_fit(cli):
    listed = cli("fit", "--help").out.partition("Configs:")[2].partition(".")[0]
    assert "mnist_classifier" in listed
    assert "scoreboard" not in listed
    assert "unknown config file 'scoreboard'" in cli("fit", "-c", "scoreboard").err


def test_further_data_sets_have_seeds_of_their_own():
    for name, task in definition.load().tasks.items():
        for first, *further in task.groups:
            study = planning.planned_task(name, task, [first], ["silu"]).study
            used = {seed for stage in study.stages for seed in stage.seeds}
            for data in further:
                seeds = {*seed_list(task.data[data].seeds)}
                assert len(seeds) >= 8
                assert not seeds & used
                used |= seeds


@pytest.mark.usefixtures("undrawn")
def test_smoke_trains_on_samples_and_decides_nothing(here, succeed, monkeypatch):
    monkeypatch.setattr(scoreboard, "Worker", Inline)
    outcome = succeed(
        "scoreboard", "--activation", "./learnt_swish.py:Mine", "--tasks", "equation", "--smoke"
    )
    small = outcome.out.partition("Smoke scoreboard. Smoke runs decide nothing")[2].splitlines()[
        1:-1
    ]
    assert [re.sub(r"[\d.]+", "N", line) for line in small] == [
        f"equation, chosen by loss, block {block}: Mine, test/relative_error N, N runs"
        for block in ("waves", "hills")
    ]
    assert "with a verdict on each data set" in outcome.out.splitlines()[-1]
    assert "Rank 2 of 10 on these" in outcome.out  # of sine, as an example
    assert outcome.out.count("Rank ") == 1
    assert not (here / "runs/scoreboard/scoreboard.md").exists()


def test_the_time_of_later_stages_is_counted_and_of_finished_runs_not(monkeypatch, tmp_path):
    """One second an update, ten updates an epoch: an epoch is 10 s."""
    study = reading.load(
        "gelu_mnist_classifier", activations=["silu"], settings={"data.dataset": "/m"}
    )
    built = SimpleNamespace(updates_of=lambda run: 10)
    monkeypatch.setattr(estimates, "faults_of", lambda runs, helper: ({}, built))
    cost = {"seconds_per_update": 0.75, "seconds_added": 0.25}
    timed = {run.id: {"point": run.point, **cost} for run in study.runs()}
    measured = {}

    def measure_costs(*given, **options):
        measured.update(options)
        return [*timed.values()]

    monkeypatch.setattr(estimates, "measure_costs", measure_costs)

    helper = Inline()
    # Four activations, two dropouts: 3 learning rates × 5 seeds to choose, then 15 seeds; 50 epochs
    # each.
    assert (
        estimates.remaining(StudyFolder(study, tmp_path), helper, 1)
        == 4 * 2 * (3 * 5 + 15) * 50 * 10
    )
    assert measured["processor"]
    for run in study.runs()[:2]:
        RunFolder(tmp_path, run).open()
        RunFolder(tmp_path, run).finish(FINISHED, [], seconds=1.0)
    assert (
        estimates.remaining(StudyFolder(study, tmp_path), helper, 1)
        == (4 * 2 * (3 * 5 + 15) - 2) * 50 * 10
    )
