"""Verdicts on activations against the reference, for runs whose true differences are known."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from actlab.analysis import results
from actlab.analysis.comparison import table_of
from actlab.analysis.differences import Flips
from actlab.analysis.power import detectable, pairs_to_detect, power
from actlab.analysis.results import Results
from actlab.analysis.sentences import margin_text
from actlab.analysis.study_table import Cell, Comparison
from actlab.analysis.verdict import SMOKE, needs
from actlab.config.labels import in_full
from actlab.errors import ActlabError
from actlab.reports import tables as written
from actlab.storage.json_files import write_json
from actlab.studies.plan import Selection, Study
from actlab.studies.run_folder import RunFolder
from actlab.studies.study_folder import StudyFolder
from written_runs import ACT, COST, finished, study, write

PERCENT = {"metric": "test/error", "percent": True}


def planned(pairs: int, *columns: dict, **changes) -> Study:
    given = {
        "seeds": tuple(range(pairs)),
        "grids": ({ACT: ["gelu", "relu"]},),
        "select": Selection(),
        "table": columns or (PERCENT,),
    }
    return study(**given | changes)


def loaded(root: Path, plan: Study, shifts: list[float], metric: str = "test/error") -> Results:
    """Runs of relu at 10 to 14 % error, and of gelu with a shift for each seed."""
    for run in (run for run in plan.runs() if not RunFolder(root, run).finished):
        shift = shifts[run.seed] if run.point[ACT] == "gelu" else 0.0
        write(root, run, {metric: [0.5, 0.1 + 0.01 * (run.seed % 5) + shift]})
    return results.load(StudyFolder(plan, root))


def primary_cell(found: Results) -> Cell:
    """The first cell of the primary family."""
    return next(cell for _, cell in table_of(found).compared if cell.family == "primary")


def verdict(*args, **changes) -> Comparison:
    (found,) = table_of(loaded(*args, **changes)).verdicts
    return found


def test_a_difference_is_printed_with_its_interval_pairs_and_p(tmp_path):
    shifts = [-0.003 - 0.0001 * seed for seed in range(15)]
    found = verdict(tmp_path, planned(15), shifts)
    assert found.outcome == "better"
    assert found.text == (
        "gelu: better, 0.37 points lower test error than relu (95 % interval 0.35 to 0.39; "
        "p = 6e-05; probability of being better 0.60 [0.39, 0.78]; 15 pairs). The two quantities "
        "disagree before correction: p = 6e-05 for the mean difference, 0.34 for the probability."
    )
    assert str(found) == found.text
    assert (found.difference.mean, found.difference.low) == pytest.approx((-0.0037, -0.00395))
    assert found.superiority.text == "0.60 [0.39, 0.78]"
    assert (found.correction.comparisons, found.correction.looks) == (1, 0)
    small = verdict(tmp_path, planned(15, {**PERCENT, "margin": 0.005}), shifts)
    assert (
        "0.37 points lower test error than relu, less than the margin of 0.50 points ("
        in small.text
    )


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("mode", ["min", "max"])
def test_direction_follows_the_mode(tmp_path, sign, mode):
    plan = planned(8, {"metric": "test/f1", "mode": mode})
    found = verdict(
        tmp_path, plan, [sign * 0.01 * (1 + seed) for seed in range(8)], metric="test/f1"
    )
    assert found.outcome == ("better" if (sign < 0) == (mode == "min") else "worse")
    assert f"{'lower' if sign < 0 else 'higher'} test f1 than relu" in found.text


def test_no_difference_is_printed_with_what_more_pairs_would_show(tmp_path):
    shifts = [0.004 * (-1) ** seed for seed in range(14)]
    found = verdict(tmp_path, planned(14, {**PERCENT, "margin": 0.002}), shifts)
    assert found.outcome == "undecided"
    assert "no significant difference to relu in test error" in found.text
    shown, wanted, pairs = re.search(
        r"show a difference of ([\d.]+) points with 80 % power; one of the margin, "
        r"([\d.]+) points, takes about (\d+), including the correction for a further look",
        found.text,
    ).groups()
    spread = 0.4 * math.sqrt(14 / 13)  # points
    assert float(shown) == pytest.approx(detectable(14) * spread, abs=0.006)
    # 6 times for the second look
    assert (float(wanted), int(pairs)) == (
        0.2,
        pairs_to_detect(0.2 / spread, 6),
    )
    unasked = verdict(tmp_path, planned(14), shifts)
    assert "points with 80 % power." in unasked.text  # without a margin no number of pairs


def test_pairs_too_few_for_their_own_power_still_name_the_pairs_for_the_margin(tmp_path):
    shifts = [0.01 * (-1) ** seed for seed in range(6)]
    found = verdict(tmp_path, planned(6, {**PERCENT, "margin": 0.002}), shifts)
    pairs = pairs_to_detect(0.002 / float(np.std(shifts, ddof=1)), 6)
    assert (found.outcome, detectable(6)) == ("undecided", None)
    assert (
        f" A difference of the margin, 0.20 points, takes about {pairs} pairs, including the "
        "correction for a further look." in found.text
    )
    assert "further look" not in verdict(tmp_path, planned(6), shifts).text


@pytest.mark.parametrize("margin", [0.005, "5 %"])
def test_equivalence_needs_a_margin_of_the_study(tmp_path, margin):
    shifts = [0.0004 * (-1) ** seed for seed in range(14)]
    assert verdict(tmp_path, planned(14), shifts).outcome == "undecided"
    found = verdict(tmp_path, planned(14, {**PERCENT, "margin": margin}), shifts)
    within = "0.50" if margin == 0.005 else "0.60"  # relu's median is 12 %
    assert found.outcome == "equivalent"
    assert f"equivalent to relu within {within} points in test error" in found.text


def test_equivalence_needs_its_97_5_percent_interval_inside_the_margin(tmp_path):
    """Seven of eight differences are small, and one is not: the tests alone show equivalence."""
    shifts = [*(0.001 * (-1) ** seed for seed in range(7)), 0.012]
    for margin, p, outcome in ((0.0062, 6 / 256, "undecided"), (0.0081, 2 / 256, "equivalent")):
        found = loaded(tmp_path, planned(8, {**PERCENT, "margin": margin}), shifts)
        cell = primary_cell(found)
        assert cell.p_equivalent == p
        assert cell.p_equivalent_holm < 0.05
        (verdict_of,) = table_of(found).verdicts
        assert verdict_of.outcome == outcome
        assert ("but the 97.5 % interval exceeds the margin." in verdict_of.text) == (
            outcome == "undecided"
        )


def test_a_margin_that_is_no_size_is_rejected(tmp_path):
    for margin in (0, -1, "much", True, math.inf, "0 %"):
        with pytest.raises(
            ActlabError,
            match=r"margin of test/error: expected a number above 0, or a percentage .*, got ",
        ):
            list(
                table_of(
                    loaded(tmp_path, planned(6, {**PERCENT, "margin": margin}), [0.01] * 6)
                ).summary
            )


def test_too_few_pairs_name_the_seeds_that_show_the_margin(tmp_path):
    shifts = [-0.01, -0.012, -0.006]
    plan = loaded(tmp_path, planned(3, {**PERCENT, "margin": 0.002}), shifts)
    assert table_of(plan).verdicts[0].outcome == "too few pairs"
    too_few = (
        "gelu: no verdict against relu in test error, too few pairs, so far −0.93 points test "
        "error in 3 pairs."
    )
    assert str(table_of(plan).verdicts[0]) == too_few
    seeds = pairs_to_detect(0.2 / float(np.std([1, 1.2, 0.6], ddof=1)))
    assert list(table_of(plan).summary) == [
        "No verdict against relu from 3 pairs of runs: with 1 comparison, so few cannot reach "
        f"p < 0.05. {seeds} seeds show the margin of 0.20 points with 80 % power: --seeds "
        f"{seeds}. So far gelu: −0.93 points test error."
    ]
    for given, advice in (
        ("--fresh {}", f"80 % power: --fresh {seeds}. So far"),
        ("", "80 % power. So far"),
    ):
        (line,) = list(
            table_of(
                replace(plan, folder=plan.folder.with_study(replace(plan.study, more_seeds=given)))
            ).summary
        )
        assert advice in line
    (line,) = list(table_of(loaded(tmp_path, planned(3), shifts)).summary)
    assert (
        "`actlab study plan --detect SIZE` says how many seeds a difference takes. So far" in line
    )
    f1 = {"metric": "test/f1", "mode": "max"}
    more = planned(6, PERCENT, {"metric": "val/loss", "at": "last"}, {"metric": "test/loss"}, f1)
    said = list(
        table_of(
            finished(tmp_path / "b", more, {column["metric"]: [1.0] for column in more.table})
        ).summary
    )
    assert "identical to relu in test error" in said[0]  # the primary comparison is one
    quantities = [line.partition("Secondary: gelu: identical to relu in ")[2] for line in said[1:]]
    assert quantities == ["test loss, run by run (6 pairs).", "test f1, run by run (6 pairs)."]


FIVE = ({ACT: ["gelu", "relu", "silu", "elu", "tanh"]},)  # four comparisons


def six_pairs(root: Path, gelu: list[float], **changes) -> Comparison:
    """The verdict on errors of gelu; those of the other activations are 10 to 15 %."""
    plan = planned(6, grids=FIVE, **changes)
    others = [0.1 + 0.01 * seed for seed in range(6)]

    def curves(run):
        errors = gelu if run.point[ACT] == "gelu" else others
        return {"test/error": [errors[run.seed]]}

    found = table_of(finished(root, plan, curves))
    return next(one for one in found.verdicts if one.name == "gelu")


def test_with_too_few_pairs_for_the_mean_the_probability_decides(tmp_path):
    """Six pairs reach 0.031 by the mean, and 0.0022 by the probability."""
    worse = six_pairs(tmp_path / "worse", [0.9 + 0.001 * seed for seed in range(6)])
    assert worse.outcome == "worse"
    assert worse.text == (
        "gelu: worse, 77.75 points higher test error than relu (95 % interval 75.50 to 80.00; "
        "p = 0.0022 alone, 0.0087 after Holm's correction for 4 comparisons; probability of being "
        "better 0.00 [0.00, 0.09]; 6 pairs). The p-value belongs to the probability of being "
        "better: 6 pairs are too few for the mean difference, which takes 8 after this correction."
    )
    alone = [0.09 + 0.01 * seed for seed in range(6)]
    undecided = six_pairs(tmp_path / "undecided", alone)
    assert undecided.outcome == "undecided"
    assert "no significant difference to relu in test error (95 % interval" in undecided.text


def test_divergence_gives_a_verdict(tmp_path):
    def of_gelu(pairs: int, gain: float, *lost: int) -> Comparison:
        error = lambda run: 0.1 + 0.001 * run.seed - gain * (run.point[ACT] == "gelu")  # noqa: E731
        bad = lambda run: run.point[ACT] == "gelu" and run.seed in lost  # noqa: E731
        (found,) = table_of(
            finished(tmp_path, planned(pairs), lambda run: {"test/error": [error(run)]}, bad)
        ).verdicts
        return found

    found = of_gelu(12, 0.0, *range(10))
    assert found.outcome == "worse"
    assert (
        "gelu: worse than relu in test error (failed 10 of 12 runs, 0 of relu; p = " in found.text
    )
    assert "; probability of being better 0.0" in found.text
    found = of_gelu(15, 0.02, 4)
    assert found.outcome == "better"
    assert "failed 1 of 15 runs, 0 of relu; p = " in found.text
    assert "; −2.00 points where both succeeded; probability" in found.text


def results_of_both(
    root: Path, gelu: list[float], relu: list[float], margin: float | None = None
) -> Results:
    """Errors by seed, of 1,000 samples; infinite ones diverged. Chance is 90 %."""
    plan = planned(len(gelu), {**PERCENT, "chance": 0.9, "margin": margin})
    errors = {"gelu": gelu, "relu": relu}
    of = lambda run: errors[run.point[ACT]][run.seed]  # noqa: E731
    return finished(
        root,
        plan,
        lambda run: {"test/error": [of(run)]},
        lambda run: math.isinf(of(run)),
        scored={"test": 1000},
    )


def of_both(*args, **given) -> Comparison:
    (found,) = table_of(results_of_both(*args, **given)).verdicts
    return found


def test_a_run_at_chance_fails_like_one_that_diverged(tmp_path):
    relu, won = (
        [0.1 + 0.001 * seed for seed in range(8)],
        [0.05 + 0.001 * seed for seed in range(7)],
    )
    loaded = [
        results_of_both(tmp_path / str(last), [*won, last], relu, 0.01) for last in (0.9, math.inf)
    ]
    found = [one for of_both in loaded for one in table_of(of_both).verdicts]
    cells = [primary_cell(of_both) for of_both in loaded]
    assert [one.outcome for one in found] == ["better", "better"]
    assert cells[0].p == cells[1].p == pytest.approx(0.022, abs=0.001)
    assert found[0].text == found[1].text
    assert {cell.p_equivalent for cell in cells} == {None}


@pytest.mark.parametrize("failure", [0.91, math.inf])
def test_what_failed_on_both_sides_is_not_equivalent(tmp_path, failure):
    all_failed = of_both(tmp_path / "all", [failure] * 8, [failure] * 8, 0.01)
    assert all_failed.outcome == "undecided"
    assert "gelu: both at chance in test error" in all_failed.text
    half = [failure] * 4 + [0.1 + 0.001 * seed for seed in range(4)]
    assert of_both(tmp_path / "half", half, half, 0.01).outcome == "undecided"
    lost = of_both(
        tmp_path / "reference", [0.1 + 0.001 * seed for seed in range(8)], [failure] * 8, 0.01
    )
    assert lost.outcome == "better"
    assert lost.text.endswith(" relu is at chance.")


def test_three_runs_that_failed_leave_no_empty_sentence(tmp_path):
    errors = [math.inf, 0.2, 0.3]
    assert str(of_both(tmp_path, errors, [0.1, 0.1, 0.1])).endswith(
        "too few pairs, so far +15.00 points test error (failed 1 of 3 runs, 0 of relu) in 3 pairs."
    )


def test_equality_at_the_margin_is_decided_in_counts(tmp_path):
    nine, eight = (
        [0.09 + 0.002 * (seed % 3) for seed in range(8)],
        [0.08 + 0.002 * (seed % 3) for seed in range(8)],
    )
    assert (
        "1.00 points higher test error on this test set than relu (95"
        in of_both(tmp_path, nine, eight, 0.01).text
    )


@pytest.mark.parametrize(
    ("margin", "said"), [(1e-9, "1e-07 points"), (0.00125, "0.125 points"), (0.01, "1.00 points")]
)
def test_a_margin_is_printed_with_its_digits(tmp_path, margin, said):
    shifts = [0.004 * (-1) ** seed for seed in range(14)]
    loaded_ = loaded(tmp_path, planned(14, {**PERCENT, "margin": margin}), shifts)
    assert margin_text(primary_cell(loaded_)) == said


def test_identical_runs_are_called_identical(tmp_path):
    errors = [0.1 + 0.001 * seed for seed in range(8)]
    for margin in (None, 1e-9):
        text = of_both(tmp_path / str(margin), errors, errors, margin).text
        assert (
            text == "gelu: identical to relu in test error on this test set, run by run (8 pairs)."
        )
    assert (
        "so far identical test error in 3 pairs"
        in of_both(tmp_path / "3", errors[:3], errors[:3]).text
    )


def test_a_sentence_about_the_probability_prints_its_p(tmp_path):
    relu = [0.1 + 0.0001 * seed for seed in range(15)]
    gelu = [error - 0.02 for error in relu[:-1]] + [0.8]
    text = of_both(tmp_path, gelu, relu).text
    assert re.search(
        r"By the mean it is worse, but it wins most pairs: p = [\d.]+ for the mean difference, "
        r"[\d.e-]+",
        text,
    )


def test_a_verdict_waits_for_all_planned_runs(tmp_path):
    plan = planned(8)
    *begun, last = plan.runs()
    for run in begun:
        write(tmp_path, run, {"test/error": [0.1 + 0.01 * run.seed]})
    assert list(table_of(results.load(StudyFolder(plan, tmp_path))).summary) == [
        "No verdict yet against relu on 1 comparison: a comparison is judged when all planned runs "
        "of both sides have ended."
    ]
    RunFolder(tmp_path, last).open()
    RunFolder(tmp_path, last).fail("ValueError: broken")
    (line,) = list(table_of(results.load(StudyFolder(plan, tmp_path))).summary)
    assert f"have ended, and {last.id} failed. Repair what failed" in line
    assert "which counts as a look" in line


@pytest.mark.parametrize(
    ("value", "own"),
    [
        ("./torch.py:Act", True),
        ("torchish.acts:Act", True),
        ("torchish.acts.Act", True),
        ({"class_path": "torchish.Act", "init_args": {"slope": 2}}, True),
        ("torch.nn:SELU", False),
        ("torch.nn.SELU", False),
        ({"class_path": "torch.nn.ELU", "init_args": {"alpha": 0.5}}, False),
        ({"name": "torch.nn:ELU", "alpha": 0.5}, False),
        ("actlab.activations.deterministic:srelu", False),
        ({"name": "elu", "alpha": 0.5}, False),
    ],
    ids=in_full,
)
def test_only_the_users_activations_join_the_primary_family(tmp_path, value, own):
    """Those of a file, of a package that is neither torch nor actlab, or added to the grid."""
    plan = planned(8, PERCENT, grids=({ACT: ["gelu", value, "relu"]},))
    loaded = finished(tmp_path, plan, lambda run: {"test/error": [0.1 + 0.001 * run.seed]})
    (row,) = (row for row in table_of(loaded).rows if row.point[ACT] == value)
    (gelu,) = (row for row in table_of(loaded).rows if row.point[ACT] == "gelu")
    assert (row.columns[0].family, gelu.columns[0].family) == (
        "primary",
        "secondary" if own else "primary",
    )
    added = replace(plan, added=(value,))
    assert added.is_own(ACT, value)
    assert plan.is_own(ACT, value) == own


def test_the_users_activation_is_the_primary_comparison(tmp_path):
    mine = "./mine.py:Bent"
    plan = planned(8, PERCENT, {"metric": "test/loss"}, grids=({ACT: ["gelu", mine, "relu"]},))
    error = lambda run: [0.1 + 0.001 * run.seed - 0.02 * (run.point[ACT] == mine)]  # noqa: E731
    loaded = finished(
        tmp_path, plan, lambda run: dict.fromkeys(("test/error", "test/loss"), error(run))
    )
    found = table_of(loaded).verdicts
    assert [(one.name, one.correction.family) for one in found] == [
        ("Bent", "primary"),
        ("gelu", "secondary"),
        ("gelu", "secondary"),
        ("Bent", "secondary"),
    ]
    cell = primary_cell(loaded)
    assert cell.p_holm == cell.p == 2 / 2**8
    assert [line.startswith("Secondary: ") for line in list(table_of(loaded).summary)] == [
        False,
        True,
        True,
        True,
    ]
    other = replace(plan, primary={"metric": "test/loss"})
    assert (
        table_of(results.load(StudyFolder(other, tmp_path))).verdicts[0].column == "test/loss@last"
    )
    for given in ({"metric": "val/loss"}, {"metric": "test/error", "at": "best"}):
        with pytest.raises(ActlabError, match="unknown primary column"):
            table_of(results.load(StudyFolder(replace(plan, primary=given), tmp_path)))


def test_chance_is_named(tmp_path):
    plan = planned(8, {**PERCENT, "chance": 0.9})
    error = lambda run: [0.2 + 0.01 * run.seed + 0.64 * (run.point[ACT] == "gelu")]  # noqa: E731
    (found,) = table_of(
        finished(tmp_path, plan, lambda run: {"test/error": error(run)}, scored={"test": 100})
    ).verdicts
    assert found.outcome == "worse"
    # Two sampling errors of 100 images are 6 points
    assert found.text.endswith(" It is at chance.")
    assert (
        "than relu in test error on this test set (failed 8 of 8 runs, 0 of relu; p = "
        in found.text
    )
    file = tmp_path / plan.runs()[0].id / "result.json"
    write_json(file, {k: v for k, v in json.loads(file.read_text()).items() if k != "scored"})
    assert [one.text for one in table_of(results.load(StudyFolder(plan, tmp_path))).verdicts] == [
        found.text
    ]


def test_an_earlier_best_epoch_is_better_whatever_the_metric(tmp_path):
    for metric, best in (("val/error", 0.1), ("val/accuracy", 0.9)):
        plan = planned(
            8, {"metric": metric, "at": "best_epoch"}, {"metric": "test/error", "ranked": False}
        )

        def curve(run, metric=metric, best=best):
            late = run.point[ACT] == "relu"
            return {metric: [0.5, 0.5, best] if late else [0.5, best, 0.5], "test/error": [0.1]}

        loaded = finished(tmp_path / metric.replace("/", "-"), plan, curve)
        (cell,) = (c for row in table_of(loaded).rows for c in row.columns if c.family)
        assert (cell.paired.mean, cell.better.probability) == (-1.0, 1.0)
        assert cell.worst == math.inf


def test_a_mean_that_is_no_share_of_samples_has_no_binomial_error(tmp_path):
    for values, sampled in (([0.25, 0.26], 100), ([0.254321, 0.26], None)):
        of = {seed: {"test/error": [value]} for seed, value in enumerate(values)}

        def curves(run, of=of):
            return of[run.seed]

        loaded = finished(tmp_path / str(sampled), planned(2), curves, scored={"test": 100})
        (row, _) = table_of(loaded).rows
        assert row.columns[0].samples == sampled
        assert row.columns[0].values[0] == pytest.approx(values[0], rel=1e-7)


def test_a_level_that_is_never_reached_is_not_called_failed_or_diverged(tmp_path):
    plan = planned(8, {"metric": "test/error", "at": "below 0.16"})
    loaded = finished(
        tmp_path, plan, lambda run: {"test/error": [0.5, 0.1 if run.point[ACT] == "relu" else 0.2]}
    )
    (found,) = table_of(loaded).verdicts
    assert found.outcome == "worse"
    assert "never reached by 8 of 8 runs, 0 of relu" in found.text
    assert "In the median it never did." in found.text
    assert not re.search("fail|diverge", found.text)


def by_decades(root, scale, gelu, relu, **column):
    """Relative errors by seed."""
    plan = planned(
        len(gelu), {"metric": "test/relative_error", "mode": "min", "scale": scale, **column}
    )
    of = {"gelu": gelu, "relu": relu}
    return finished(root, plan, lambda run: {"test/relative_error": [of[run.point[ACT]][run.seed]]})


def test_on_a_log_scale_a_difference_is_a_ratio(tmp_path):
    ratios = [0.5 * 1.02**seed for seed in range(8)]
    relu = [10.0 ** (seed % 3 - 2) for seed in range(8)]
    loaded_ = by_decades(tmp_path, "log", [a * b for a, b in zip(ratios, relu, strict=True)], relu)
    (found,) = table_of(loaded_).verdicts
    logs = np.log(ratios)
    assert found.difference.mean == pytest.approx(logs.mean(), rel=1e-6)
    low, high = (f"{math.exp(end):#.3g}" for end in Flips(logs).interval())
    mean = f"{math.exp(logs.mean()):#.3g}"
    assert (
        f"better, {mean} times the test relative error of relu (95 % interval {low} to {high}; p = "
        in found.text
    )
    (row, _) = table_of(loaded_).rows
    assert written.mean_difference(row.columns[0]) == f"×{mean} [×{low}, ×{high}]"


def test_a_margin_on_a_log_scale_is_a_ratio(tmp_path):
    equal = [0.1 * 1.01 ** (-1) ** seed for seed in range(14)]
    loaded_ = by_decades(tmp_path, "log", equal, [0.1] * 14, margin="5 %")
    (found,) = table_of(loaded_).verdicts
    assert found.outcome == "equivalent"
    assert "within a ratio of 1.05 in test relative error" in found.text
    (said,) = needs(table_of(loaded_), 1.1)
    assert "a ratio of 1.10 to relu takes about" in said
    for margin, message in (
        (0.05, "expected a percentage such as .* on the scale log, got 0.05"),
        ("0 %", "expected a number above 0, .*, got .0 %.$"),
    ):
        with pytest.raises(ActlabError, match=message):
            by_decades(tmp_path, "log", equal, [0.1] * 14, margin=margin)


def test_a_log_scale_needs_positive_values(tmp_path):
    with pytest.raises(
        ActlabError, match="is 0 in a run, but 'scale: log' compares positive values"
    ):
        table_of(by_decades(tmp_path, "log", [0.0] * 8, [0.1] * 8))


def test_smoke_runs_decide_nothing(tmp_path):
    plan = planned(8, name="s-smoke")
    assert list(table_of(loaded(tmp_path, plan, [-0.01] * 8)).summary) == [SMOKE]


def test_training_quantities_and_unranked_columns_have_no_verdict(tmp_path):
    plan = planned(8, {**PERCENT, "ranked": False}, {"metric": "train/loss", "at": "last"})
    assert (
        list(table_of(finished(tmp_path, plan, {"test/error": [0.1], "train/loss": [0.2]})).summary)
        == []
    )


@pytest.mark.parametrize(("pairs", "effect"), [(10, 1.0), (15, 0.8), (12, 0.6)])
def test_power_is_that_of_the_sign_flip_test(pairs, effect):
    random = np.random.default_rng(0)
    hits = [Flips(random.normal(effect, 1, pairs)).p() < 0.05 for _ in range(300)]
    # 3.5 standard errors at most
    assert np.mean(hits) == pytest.approx(power(pairs, effect), abs=0.1)


def test_pairs_and_detectable_effects_agree():
    for hypotheses in (1, 4, 12):
        for effect in (0.3, 0.7, 1.1):
            pairs = pairs_to_detect(effect, hypotheses)
            assert pairs
            assert detectable(pairs, hypotheses) <= effect
            assert pairs == min(pairs, 12) or detectable(pairs - 1, hypotheses) > effect
    assert pairs_to_detect(0.001) is None
    assert pairs_to_detect(0) is None


def test_a_plan_says_how_many_seeds_a_difference_takes(tmp_path):
    shifts = [0.004 * (-1) ** seed for seed in range(14)]
    (line,) = needs(table_of(loaded(tmp_path, planned(14), shifts)), 0.2)
    spread = 0.4 * math.sqrt(14 / 13)  # points
    assert f"takes about {pairs_to_detect(0.2 / spread, 6)} seeds" in line
    assert "gelu, test error: a difference of 0.20 points to relu" in line
    assert needs(table_of(results.load(StudyFolder(planned(1), tmp_path))), 0.2) == []


def test_more_seeds_are_no_look_after_a_smoke_run_which_shows_no_verdict(tmp_path):
    shifts = [0.004 * (-1) ** seed for seed in range(14)]
    (line,) = needs(table_of(loaded(tmp_path, planned(14, name="s-smoke"), shifts)), 0.2)
    assert line.endswith("14 pairs so far, 1 comparison)")


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([1.25, 1.5], " An update takes 1.25 (1.20 to 1.25) times the time of relu."),
        ([1.25], ""),  # of a single round
    ],
)
def test_a_relative_time_has_its_spread(tmp_path, parts, text):
    plan = planned(8)
    base = loaded(tmp_path, plan, [-0.003 - 0.0001 * seed for seed in range(8)])
    costs = []
    for name, slower in (("gelu", parts), ("relu", [1.0, 1.25][: len(parts)])):
        run = next(run for run in plan.runs() if run.point[ACT] == name)
        entry = {
            "run": run.id,
            "point": dict(run.point),
            "seconds_per_update": 1.25 if name == "gelu" else 1.0,
        }
        costs.append({**COST, **entry, "seconds_in_parts": slower})
    (tmp_path / "cost.json").write_text(json.dumps(costs))
    (found,) = table_of(results.load(StudyFolder(base.study, base.root))).verdicts
    assert found.text.partition("8 pairs).")[2].rpartition("probability.")[2] == text
