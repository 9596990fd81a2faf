"""``actlab tune``: a search on validation data, then a comparison on fresh seeds."""

import json
import re
from unittest.mock import ANY

import pytest

from actlab.cli.tune import parser, planned
from actlab.engines import training
from actlab.stages import opening, search
from actlab.studies.reading import load
from tiny_study import study_text

TABLE = "table: [{metric: test/error, at: last, percent: true}, {metric: val/loss, at: best}]\n"
STUDY = study_text("model.activation: [relu, gelu]", TABLE, seeds=1, epochs=1)
LR = "model.optimizer.lr"
MINE = """\
import torch


def needy(x, slope: float):
    return x * torch.sigmoid(slope * x)


def broken(x, slope=1.0):
    if x.shape[0] > 7:
        raise RuntimeError("out of order")
    return x * slope
"""
STAGES = """\
select: {tune: [model.network.dropout]}
stages:
  - {name: choose, seeds: 1}
  - {name: compare, seeds: 1-2, set: {data.batch_size: 250}}
"""


@pytest.fixture
def tune(cli, tmp_path):
    """Run ``actlab tune`` on the tiny study: by default three trials of ELU's alpha, two seeds."""
    (tmp_path / "tiny.yaml").write_text(STUDY)
    words = ("--activation", "elu", "--trials", "3", "--fresh", "2")
    return lambda *more: cli("tune", "tiny.yaml", *words, *more)


@pytest.fixture
def tuned(tune):
    """The same, which must succeed."""

    def run(*more):
        outcome = tune(*more)
        assert outcome.code == 0, outcome.err
        return outcome

    return run


@pytest.fixture
def without_page(tmp_path, monkeypatch):
    """Leave out figures and page, which take a second."""
    monkeypatch.setattr("actlab.reports.output.write", lambda *_, **__: [tmp_path / "report.html"])


def trials_of(outcome):
    """Each activation's trials as printed: settings and value, by the activation's name."""
    found: dict[str, list[tuple[str, str]]] = {}
    trial = r"^trial \d+, (\w+), (.*): (diverged|\S+ \S+)(?: \(best.*\))?$"
    for name, settings, value in re.findall(trial, outcome.out, re.M):
        found.setdefault(name, []).append((settings, value))
    return found


def trials_on(page):
    """The cells of each row of the page's table of trials."""
    table = page.read_text().partition("Trials of the search</h2>")[2].partition("</table>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", table.partition("<tbody>")[2], re.S)
    return [
        [re.sub("<.*?>", " ", cell) for cell in re.findall(r"<td.*?</td>", row, re.S)]
        for row in rows
    ]


def results_of(tmp_path):
    """``result.json`` of each run."""
    return [
        json.loads(path.read_text())
        for path in (tmp_path / "runs/tiny-tuned").glob("*/result.json")
    ]


def validation_loss(result):
    return result["summary"]["val/loss"][""]["last"]  # of one epoch, so also the best


def test_both_activations_have_as_many_trials_and_are_compared_on_fresh_seeds(tuned, cli, tmp_path):
    outcome = tuned(
        "--search",
        "alpha=0.1..3",
        "--search",
        f"{LR}=1e-4..1e-2",
        "--reference",
        "gelu",
        "--trials",
        "2",
    )
    trials = trials_of(outcome)
    assert {name: len(found) for name, found in trials.items()} == {"elu": 2, "gelu": 2}
    assert all("alpha" in settings and "lr" in settings for settings, _ in trials["elu"])
    assert all("alpha" not in settings and "lr" in settings for settings, _ in trials["gelu"])
    search = [result for result in results_of(tmp_path) if result["seed"] == 0]
    fresh = [result for result in results_of(tmp_path) if result["seed"] != 0]
    assert len(search) == 6  # also of ELU as given, at learning rates of its own
    assert sorted(result["seed"] for result in fresh) == [100, 100, 100, 101, 101, 101]
    for name, found in trials.items():
        unit = {"name": name, "alpha": ANY} if name == "elu" else name
        best = min(found, key=lambda trial: float(trial[1].split()[-1]))
        rates = {r["point"][LR] for r in fresh if r["point"]["model.activation"] == unit}
        assert rates == {float(re.search(r"lr (\S+)", best[0]).group(1).rstrip(","))}
        values = {f"{validation_loss(r):.4g}" for r in search}
        assert values.issuperset(value.split()[-1] for _, value in found)
    table = json.loads((tmp_path / "runs/tiny-tuned/table.json").read_text())
    assert [row["settings"] for row in table["rows"]] == [2, 2, 2]
    assert [row["reference_settings"] for row in table["rows"]] == [2, 2, None]
    assert len(re.findall(r": val/loss \d\.", outcome.out)) == 6
    assert len(re.findall(r"^trial .* \(best.*\)$", outcome.out, re.M)) == 3
    assert (
        "Tuned on seed 0, which this table does not use: elu tried 2 settings "
        "(alpha 0.1 to 3 on a log"
    ) in outcome.out
    assert "elu as given tried 2 settings (model.optimizer.lr 0.0001 to 0.01" in outcome.out
    assert "too few to reach p < 0.05" in outcome.out
    page = tmp_path / "runs/tiny-tuned/report.html"
    assert "Page: runs/tiny-tuned/report.html" in outcome.out.splitlines()
    assert (tmp_path / "runs/tiny-tuned/figures/curves.svg").exists()
    assert "next: all runs have ended" in cli("study", "status", "runs/tiny-tuned.yaml").out
    assert "settings<br>" in page.read_text()
    assert "was chosen</h2>" not in page.read_text()  # the comparison chose nothing
    shown = trials_on(page)
    printed = [value.split()[-1] for found in trials.values() for _, value in found]
    assert len(shown) == 6
    assert {f"{value:.4g}" for value in map(validation_loss, search)} >= {*printed}
    assert {re.search(r"\d[.\d]*", row[-1])[0] for row in shown} == {
        f"{validation_loss(result):#.3g}" for result in search
    }
    assert sum("(selected)" in row[-1] for row in shown) == 3


def test_arguments_of_the_activation_alone_leave_the_reference_one_setting(
    tuned, tmp_path, without_page
):
    outcome = tuned("--search", "alpha=[0.5, 2.0]", "--reference", "elu")
    assert re.search(r"elu\(alpha=\d[.\d]*\) +[12] \(elu 1\) +\d", outcome.out)
    assert "2 seeds (100, 101)" in outcome.out
    assert "Rows that tried another number of settings than elu show both numbers" in outcome.out
    words = " ".join(outcome.out.split())
    assert re.search(r"^trial \d, elu, alpha .* \(best; alpha at the edge\)$", outcome.out, re.M)
    assert re.search(r"\(edge\): the chosen value .* So is alpha of elu\(alpha=\d[.\d]*\)\.", words)
    runs = {(json.dumps(r["point"]["model.activation"]), r["seed"]) for r in results_of(tmp_path)}
    assert {seed for name, seed in runs if name == '"elu"'} == {0, 100, 101}


def test_the_file_of_a_tuned_study_holds_the_values_of_set(tuned, tune, cli, without_page):
    changes = (
        "--set",
        "trainer.limit_train_batches=1",
        "--set",
        "model.network.dropout=0.5",
        "--set",
        "seeds=3-4",
    )
    outcome = tuned(
        "--search",
        "alpha=[0.5, 2.0]",
        "--reference",
        "elu",
        "--trials",
        "1",
        "--fresh",
        "1",
        *changes,
    )
    # The same values as `study show` prints
    _, _, table = outcome.out.rpartition("──\n")
    shown = cli("study", "show", "runs/tiny-tuned.yaml").out
    rows = [re.split(r"  +", row) for row in table.partition("\n\n")[0].splitlines()]
    assert len(rows) == 2
    for name, *values in rows:
        assert name in shown
        assert [value for value in values if "[" in value and value not in shown] == []
    assert "0 not finished" in cli("study", "plan", "runs/tiny-tuned.yaml").out
    assert "Tuned on seeds 3, 4" in " ".join(outcome.out.split())
    line = tune("--search", "alpha=[0.5, 2.0]", "--set", "model.activation=relu").rejection
    assert (
        "--set: expected another key than model.activation. Use --activation and --reference."
        in line
    )


def test_the_options_of_a_run_are_accepted(cli):
    run = re.findall(r"^ +(--[a-z-]+)", cli("study", "run", "--help").out, re.M)
    assert len(run) > 10
    assert set(run) <= {*re.findall(r"^ +(--[a-z-]+)", cli("tune", "--help").out, re.M)}


def test_the_search_alone_is_a_stage(tune, cli, tmp_path, without_page):
    words = ("--search", "alpha=[0.5, 2.0]", "--reference", "elu", "--trials", "1", "--fresh", "1")
    searched = tune(*words, "--stage", "search")
    assert searched.code == 0, searched.err
    assert re.search(r"^trial 1, elu, alpha .* \(best; alpha at the edge\)$", searched.out, re.M)
    assert "without --stage compares what the search selected" in searched.out
    assert {result["seed"] for result in results_of(tmp_path)} == {0}
    assert (
        "expected a stage that compares"
        in cli("study", "show", "runs/tiny-tuned.yaml", "--stage", "search").err
    )
    assert "elu(alpha=" in tune(*words, "--stage", "compare").out
    assert {result["seed"] for result in results_of(tmp_path)} == {0, 100}


@pytest.mark.slow  # tests/studies/test_last_values.py selects by last values without a search
def test_trials_count_with_their_last_values_where_the_study_says_so(tuned, tmp_path, without_page):
    text = STUDY.replace("max_epochs: 1", "max_epochs: 4") + "select: {at: last}\n"
    (tmp_path / "tiny.yaml").write_text(text)
    # So high that the loss rises again
    outcome = tuned("--search", f"{LR}=[0.3, 0.6]", "--reference", "gelu", "--fresh", "1")
    assert "the median over seeds of the last val/loss selected one" in " ".join(
        outcome.out.split()
    )
    losses = [
        result["summary"]["val/loss"][""] for result in results_of(tmp_path) if result["seed"] == 0
    ]
    assert any(loss["last"] > loss["lowest"] for loss in losses)
    trials = {value.split()[-1] for found in trials_of(outcome).values() for _, value in found}
    assert trials == {f"{loss['last']:.4g}" for loss in losses}


@pytest.mark.slow  # two searches
def test_more_trials_continue_a_search_which_then_selects_again(tune, tmp_path, without_page):
    words = ("--search", "alpha=0.1..3", "--reference", "gelu", "--fresh", "1", "--trials")
    first = trials_of(tune(*words, "3"))
    assert len({settings for settings, _ in first["elu"]}) == 3
    again = trials_of(tune(*words, "4"))
    assert again["elu"][:3] == first["elu"]
    stored = json.loads((tmp_path / "runs/tiny-tuned/selection.json").read_text())["compare"]
    assert sorted(entry["tried"] for entry in stored.values()) == [1, 1, 4]


def test_a_further_comparison_after_a_verdict_is_corrected_as_another_look(
    tune, tmp_path, without_page
):
    text = STUDY.replace(", {metric: val/loss, at: best}]", "]")
    (tmp_path / "tiny.yaml").write_text(text)
    words = ("--search", f"{LR}=[1e-2, 1e-3]", "--reference", "gelu", "--trials", "1", "--fresh")
    first = tune(*words, "6")
    assert "Verdict on test error against gelu, 6 seeds:" in first.out
    assert "looks" not in first.out
    assert "looks" not in tune(*words, "6").out  # the same verdict again
    further = tune(*words, "7").out
    assert "1 comparison and 2 looks" in further


@pytest.fixture
def plan(tmp_path):
    """Write and read the study of some options of ``actlab tune``."""

    def read(*words, file="demo"):
        words = (file, "--activation", "elu", "--search", "alpha=0.1..3", *words)
        return planned(parser().parse_args(words), "elu", True)

    return read


@pytest.mark.parametrize("number", [1, 3, 20, 100])
def test_trials_are_the_first_points_of_one_sequence(plan, number):
    """With any version of scipy, so that a stopped search goes on."""
    searched = ("--search", f"{LR}=1e-4..1e-2", "--search", "model.l2=[0.0, 0.1]")
    tuned = plan(*searched, "--trials", str(number))
    blocks = opening.planned(tuned, tuned.stages[0]).blocks
    trials = [block.trial.tuned for block in blocks if "alpha" in block.trial.tuned]
    assert len({*trials}) == len(trials) == number
    expected = [(0.4032, 0.008477, 0.1), (1.436, 0.0002226, 0.0), (1.128, 0.001484, 0.1)]
    assert [(*trial.values(),) for trial in trials[:3]] == expected[:number]


def test_a_question_is_the_same_for_other_trials_and_seeds(plan):
    def question(*words: str, rates: str = "1e-4..1e-2") -> str:
        tuned = plan("--reference", "gelu", "--search", f"{LR}={rates}", *words)
        grid = opening.grid_of(tuned, tuned.stages[0])
        return search.compared(grid, grid, []).question

    same = {
        question(),
        question(rates="[1e-3, 1e-2]"),
        question("--seeds", "9"),
        question("--fresh", "200-214"),
    }
    assert len(same) == 1
    assert question("--set", "trainer.max_epochs=2") not in same


def test_a_trial_that_diverges_is_the_worst(cli, tune, tuned, tmp_path, without_page):
    outcome = tuned(
        "--search", f"{LR}=[1e-3, 1e+30]", "--reference", "gelu", "--trials", "5", "--fresh", "1"
    )
    assert "lr 1e+30: diverged" in outcome.out
    assert any(value == "diverged" for found in trials_of(outcome).values() for _, value in found)
    assert {r["point"][LR] for r in results_of(tmp_path) if r["seed"] == 100} == {1e-3}
    outcome = tune("--search", f"{LR}=[1e+29, 1e+30]", "--reference", "gelu", "--trials", "1")
    for rejected in (outcome, cli("study", "show", "runs/tiny-tuned.yaml")):
        assert "Search other values if all trials failed or diverged." in rejected.rejection
    assert "(best" not in outcome.out


def test_an_own_activation_needs_no_default_and_fails_with_its_message(
    tune, tmp_path, without_page
):
    (tmp_path / "mine.py").write_text(MINE)
    words = ("--search", "slope=0.5..2.0", "--trials", "1", "--fresh", "1")
    needy = tune("--activation", "./mine.py:needy", *words)
    assert needy.code == 0, needy.err
    assert "needy is not compared with its default arguments: " in needy.out
    assert len({json.dumps(r["point"]) for r in results_of(tmp_path) if r["seed"] == 100}) == 2
    broken = tune("--activation", "./mine.py:broken", *words)
    assert broken.code == 1
    assert "2 runs that failed: " in " ".join(broken.out.split())
    assert "out of order" in broken.out
    assert "Without values: broken" in broken.out


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--search", "alpha"], ["'alpha'", "LOW..HIGH"]),
        (["--search", "alpha=3..1"], ["'alpha=3..1'", "lower one first"]),
        (["--search", "alpha=-1e308..1e308"], ["from -1e15 to 1e15"]),
        (["--search", f"alpha=[1, {'9' * 400}]"], ["expected finite numbers or words, got 999"]),
        (["--search", "alpha=a..b"], ["'alpha=a..b'", "numbers"]),
        (["--search", "alpha=[1]"], ["two or more values"]),
        (["--search", "alpha=[1, 1.0]"], ["occurs twice"]),
        (["--search", "alpha=[[1], [2]]"], ["expected finite numbers or words, got [1]"]),
        (["--search", "alpha=1..2", "--search", "alpha=2..3"], ["'alpha=2..3'", "each KEY once"]),
        (["--search", "name=[relu, elu]"], ["'name'"]),
        (["--search", "slope=1..2"], ["parameter of elu 'slope'", "Allowed: alpha"]),
        (
            ["--search", "model.optimizer.lrr=0.1..1"],
            ["'model.optimizer.lrr'", "'model.optimizer.lr'"],
        ),
        (
            ["--search", "model.activation.alpha=0.1..1"],
            ["a dotted config key that is not in the grid"],
        ),
        (
            ["--search", "alpha=1..2", "--seeds", "100-102", "--fresh", "102-104"],
            ["stages search and compare both have seed 102"],
        ),
        (["--search", "alpha=1..2", "--fresh", "few"], ["'few'"]),
        (["--search", "alpha=1..2", "--trials", "0"], ["stages.0.trials in", "got 0"]),
        (["--search", f"{LR}=0.1..1", "--reference", "elu"], ["also the reference"]),
        (
            ["--search", "alpha=1..2", "--set", "model.activatoin=relu"],
            ["'model.activatoin'", "'model.activation'"],
        ),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_trained(tune, tmp_path, words, parts):
    line = tune(*words).rejection
    assert all(part in line for part in parts), line
    assert not [*tmp_path.glob("runs/*/")]


@pytest.mark.parametrize(
    ("seeds", "fresh", "expected"),
    [("3", "2", (100, 101)), ("98-102", "3", (103, 104, 105)), ("3", "7-8", (7, 8))],
)
def test_fresh_seeds_begin_at_100_or_above_those_of_the_search(plan, seeds, fresh, expected):
    assert plan("--seeds", seeds, "--fresh", fresh).stages[1].seeds == expected


UNTUNABLE = {
    "seeds: 1": (
        "seeds: 1\nselect: {metric: test/error}",
        "'select: metric: test/error' is not a validation metric",
    ),
    "[relu, gelu]": (
        "[relu], model.network.dropout: [0.0, 0.5]",
        "model.network.dropout in tiny: expected one value, got 2",
    ),
    "model.activation: [relu, gelu]": (
        "model.optimizer.lr: [0.1]",
        "expected a study with one grid and one key of activations",
    ),
    "grid: {model.activation: [relu, gelu]}": (
        "blocks: [{grid: {model.activation: [relu]}}, {name: b, grid: {model.activation: [elu]}}]",
        "expected a study with one grid and one key of activations",
    ),
}


@pytest.mark.parametrize(
    ("text", "change"), UNTUNABLE.items(), ids=["metric", "grid", "activation", "blocks"]
)
def test_a_study_that_cannot_be_tuned_is_rejected(tune, tmp_path, text, change):
    (tmp_path / "tiny.yaml").write_text(STUDY.replace(text, change[0]))
    assert change[1] in tune("--search", "alpha=0.1..3").rejection


@pytest.mark.parametrize(
    ("words", "seeds"), [([], (0,)), (["--seeds", "3"], (0, 1, 2)), (["--seeds", "1-2"], (1, 2))]
)
def test_a_study_is_tuned_on_seeds_of_the_first_stage_at_settings_of_the_last(
    plan, tmp_path, words, seeds
):
    grid = "[relu, gelu], model.network.dropout: [0.0]"
    (tmp_path / "tiny.yaml").write_text(STUDY.replace("[relu, gelu]", grid) + STAGES)
    tuned = plan(*words, file="tiny.yaml")
    assert tuned.stages[0].seeds == tuned.seeds == seeds
    assert {run.config["data"]["init_args"]["batch_size"] for run in tuned.runs()} == {250}


SEARCHES = """\
stages:
  - {name: search, seeds: 1, trials: 3,
     search: {model.optimizer.lr: 1e-4..1e-2, gelu: {mu: [0.0, 1.0]}}}
  - {name: compare, seeds: 5-6}
"""


# In the search and in the comparison; at night after each job.
@pytest.mark.parametrize("kills", [(1, 4), pytest.param((1, 2, 3, 4, 5), marks=pytest.mark.slow)])
def test_a_study_file_searches_then_compares(cli, succeed, tmp_path, monkeypatch, kills):
    """The same after kills behind some jobs."""
    (tmp_path / "tiny.yaml").write_text(STUDY + SEARCHES)
    before = cli("study", "plan", "tiny.yaml")
    assert before.out.count("waiting  ") == 6
    assert "then stage compare: 2 grid points at selected settings × 2 seeds" in before.out
    succeed("study", "run", "tiny.yaml", "--runs-dir", "straight")
    train, trained = training.work, []

    def killed(job, *rest):
        over = train(job, *rest)
        trained.append(job.id)
        if len(trained) in kills:
            raise KeyboardInterrupt
        return over

    monkeypatch.setattr(training, "work", killed)
    for _ in kills:
        with pytest.raises(KeyboardInterrupt):
            cli("study", "run", "tiny.yaml")
    succeed("study", "run", "tiny.yaml")
    assert len({*trained}) == len(trained) == 5
    for path in (tmp_path / "straight/tiny").glob("*/metrics.parquet"):
        assert (
            path.read_bytes()
            == (tmp_path / "runs/tiny" / path.parent.name / path.name).read_bytes()
        )
    stored = json.loads((tmp_path / "runs/tiny/selection.json").read_text())["compare"]
    assert stored == json.loads((tmp_path / "straight/tiny/selection.json").read_text())["compare"]
    assert [len(entry["runs"]) for entry in stored.values()] == [3, 3]


NOT_SEARCHED = {
    "search: {model.activation: [relu, elu]}": ("search: expected a dotted config key that"),
    "search: {alpha: 0.1..3}": "such as {alpha: 0.1..3}, got 'alpha'",
    "search: {elu: {alpha: 0.1..3}}": "unknown activation to search 'elu'",
    "set: {}": "selects nothing",
}


@pytest.mark.parametrize(("text", "said"), NOT_SEARCHED.items(), ids=range(len(NOT_SEARCHED)))
def test_a_mistake_in_the_search_of_a_study_file(cli, tmp_path, text, said):
    path = tmp_path / "tiny.yaml"
    path.write_text(f"{STUDY}stages: [{{name: search, {text}}}, {{name: compare, seeds: 5-6}}]")
    line = cli("study", "run", path, "--runs-dir", tmp_path / "runs").rejection
    assert said in line
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("before", ["", "{name: a, seeds: 1}, "])
def test_only_the_first_of_two_stages_searches(cli, tmp_path, before):
    path = tmp_path / "tiny.yaml"
    search = "{name: b, seeds: 2-3, search: {model.optimizer.lr: 0.1..1}}"
    path.write_text(f"{STUDY}stages: [{before}{search}]")
    assert "Set 'search' in the first of two stages" in cli("study", "plan", path).err


def test_shards_share_the_trials_of_a_search(succeed, tmp_path):
    (tmp_path / "tiny.yaml").write_text(STUDY + SEARCHES)
    # The second start opens the comparison.
    for shard, trained in (("0/2", 3), ("1/2", 8), ("0/2", 10)):
        succeed("study", "run", "tiny.yaml", "--shard", shard, "--max-stack", "1", "--jobs", "0")
        assert len([*tmp_path.glob("runs/tiny/*/result.json")]) == trained


def test_searched_arguments_join_those_of_each_spelling(tmp_path):
    grid = "model.activation: [{class_path: torch.nn.Hardtanh, init_args: {max_val: 6.0}}]"
    space = '"torch.nn.Hardtanh(max_val=6)": {min_val: [-2.0, -1.0]}'
    stages = (
        "stages: [{name: search, seeds: 1, trials: 2, search: {SPACE}}, "
        "{name: compare, seeds: 5-6}]\n"
    )
    (tmp_path / "tiny.yaml").write_text(
        study_text(grid, stages.replace("SPACE", space), seeds=1, epochs=1)
    )
    study = load(str(tmp_path / "tiny.yaml"))
    trials = opening.planned(study, study.stages[0]).blocks
    found = [value for block in trials for value in block.grid["model.activation"]]
    assert found == [
        {"name": "torch.nn:Hardtanh", "max_val": 6.0, "min_val": low} for low in (-2.0, -1.0)
    ]
