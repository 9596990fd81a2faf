"""The scoreboard: how activations compare over tasks, next to a user's own."""

import copy
import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

import tables_by_hand
from actlab.scoreboard import definition, page, scores, sentences
from actlab.scoreboard.statistic import effect, ratio_of
from actlab.scoreboard.tables import labels_of
from kept_results import program
from scored_rows import STORED, UNIT, row, spread

FOLDER = Path(__file__).parents[2] / "results/scoreboard"


def test_the_stored_scoreboard_and_its_tuning_are_what_the_tables_give():
    written = page.to_markdown(scores.load())
    assert (FOLDER / "scoreboard.md").read_text(encoding="utf-8") == written
    assert (FOLDER / "processors.md").read_text(encoding="utf-8") == program(
        "scoreboard/processors"
    ).page()
    tuning = program("scoreboard/tuning")
    assert (FOLDER / "tuning.md").read_text(encoding="utf-8") == tuning.page()
    some = [0.3, 0.1, 0.7, 0.2]
    for number in range(1, 5):
        expected = np.mean([min(drawn) for drawn in itertools.combinations(some, number)])
        assert tuning.best_of(some, number) == pytest.approx(expected)


def test_ratios_of_the_stored_scoreboard_are_recomputed_from_the_runs():
    for standing in json.loads((FOLDER / "scoreboard.json").read_text())["standings"]:
        for data in standing["on"]:
            name, _, block = data["name"].partition(", block ")
            folder, column, chance = STORED[tuple(name.split(": "))]
            runs = pd.read_csv(FOLDER.parent / folder / "values.csv")
            runs = runs[(runs["chosen"] == 1) & ((runs["block"] == block) if block else True)]
            errors = runs[column] if "psnr" not in column else 10 ** (-runs[column] / 10)
            guess = chance if "psnr" not in column else 10 ** (-chance / 10)
            best = errors.groupby(runs[UNIT]).median().min()
            gained = (guess - errors) / (guess - best)
            succeeded = runs[gained >= 0.1][UNIT].value_counts()
            means = np.log(errors[gained >= 0.1]).groupby(runs[UNIT]).mean()
            most = succeeded.get(standing["label"], 0) > (runs[UNIT] == standing["label"]).sum() / 2
            assert data["fails"] == (not most), data["name"]
            if data["ratio"]:
                ratio = np.exp(means[standing["label"]] - means["gelu"])
                assert data["ratio"]["value"] == pytest.approx(ratio, rel=1e-6), data["name"]
            elif most:
                assert succeeded.get("gelu", 0) < 8


def logs_of(folder, column, block=None):
    """The mean logarithm of an error ÷ that of GELU by activation, over chosen settings."""
    runs = pd.read_csv(FOLDER.parent / folder / "values.csv")
    runs = runs[(runs["chosen"] == 1) & ((runs["block"] == block) if block else True)]
    means = np.log(runs[column]).groupby(runs[UNIT]).mean()
    return means - means["gelu"]


def text_of(page):
    return " ".join((FOLDER.parents[1] / page).read_text(encoding="utf-8").split())


def text_of_page():
    return text_of("results/scoreboard/README.md")


def test_what_the_page_says_of_orders_on_further_data_follows_from_the_runs():
    text = text_of_page()
    first, second = (
        logs_of(name, "test/loss@last", "plain") for name in ("gpt_gates", "scoreboard/glibc")
    )
    assert "By geometric means, all ten rank the same on C sources as on the Bible" in text
    assert list(first.sort_values().index) == list(second.sort_values().index)
    assert len(first) == 10
    assert (
        f"logarithms of ratios {np.polyfit(first, second[first.index], 1)[0]:.1f} times as large"
        in text
    )
    assert "By medians, ReLU² is second on C sources and sixth on the Bible." in text
    places = [
        medians_of(name, "test/loss@last", "plain").rank()["relu_squared"]
        for name in ("gpt_gates", "scoreboard/glibc")
    ]
    assert places == [6, 2]
    first, second = (
        logs_of(name, "test/loss@last", "gated") for name in ("gpt_gates", "scoreboard/glibc")
    )
    assert first.idxmin() == second.idxmin() == "sine"
    assert "the others differ by less than 2 % on the Bible" in text
    assert first.drop("sine").max() - first.drop("sine").min() < np.log(1.02)
    assert set(second.nsmallest(4).index) == {"sine", "silu", "mish", "tanh"}
    medians = medians_of("scoreboard/glibc", "test/loss@last", "gated")
    assert "(median losses 1.62 to 1.65, GELU 1.69)" in text
    three = medians[["silu", "mish", "tanh"]]
    assert [f"{loss:.2f}" for loss in (three.min(), three.max(), medians["gelu"])] == [
        "1.62",
        "1.65",
        "1.69",
    ]
    higher = pd.read_csv(FOLDER / "glibc/higher_rate.csv").groupby(UNIT)["test/loss@last"].median()
    assert f"GELU has {higher['gelu']:.2f} and ReLU {higher['relu']:.2f} " in text
    assert higher.index.size == 2


def medians_of(folder, column, block=None):
    runs = pd.read_csv(FOLDER.parent / folder / "values.csv")
    runs = runs[(runs["chosen"] == 1) & ((runs["block"] == block) if block else True)]
    return runs.groupby(UNIT)[column].median()


def divided(losses, by):
    measured = effect(losses.to_numpy(), by.to_numpy())
    assert measured
    return ratio_of(measured)


def test_what_the_page_says_of_the_higher_rate_follows_from_the_runs():
    text = text_of_page()
    runs = pd.read_csv(FOLDER / "glibc/values.csv").query("block == 'gated'")
    losses = {name: group["test/loss@last"] for name, group in runs.groupby(UNIT)}
    higher = pd.read_csv(FOLDER / "glibc/higher_rate.csv")
    at_higher = {name: group["test/loss@last"] for name, group in higher.groupby(UNIT)}
    gelu, relu = (divided(losses["silu"], at_higher[name]) for name in ("gelu", "relu"))
    assert f"SiLU has {gelu} times GELU's loss and {relu} times ReLU's." in text
    for name in ("silu", "mish", "tanh"):
        ratios = [divided(losses[name], at_higher[other]) for other in ("gelu", "relu")]
        assert ratios[0].high > 1 > ratios[1].high  # mostly the rate for GELU, not for ReLU
    lower = np.log(losses["gelu"]).mean() - np.log(at_higher["gelu"]).mean()
    chose = pd.read_csv(FOLDER.parent / "gpt_gates/choose/values.csv")
    chose = chose[(chose["block"] == "gated") & (chose[UNIT] == "gelu")]
    by_rate = chose.groupby("model.optimizer.lr")["test/loss@last"].mean()
    raised = np.log(by_rate[0.006] / by_rate[0.003])
    changes = (
        f"on C sources by {100 * lower:.1f} % and raises it on the Bible by {100 * raised:.1f} %"
    )
    assert changes in text


def test_what_the_page_says_of_gates_on_both_texts_follows_from_the_runs():
    text = text_of_page()
    said = []
    for folder in ("gpt_gates", "scoreboard/glibc"):
        runs = pd.read_csv(FOLDER.parent / folder / "values.csv").query("chosen == 1")
        losses = runs.pivot(index="seed", columns=["block", UNIT], values="test/loss@last")
        seeds = np.random.default_rng(0).integers(len(losses), size=(10_000, len(losses)))
        drawn = {block: losses[block].to_numpy()[seeds].mean(1) for block in ("gated", "plain")}
        ends = np.quantile(drawn["gated"].std(1) / drawn["plain"].std(1), [0.025, 0.975])
        means = losses.mean()
        ratio = means["gated"].std() / means["plain"].std()
        without = means["gated"].drop("sine").std() / means["plain"].drop("sine").std()
        said.append((f"{ratio:.2f} ({ends[0]:.2f} to {ends[1]:.2f})", f"{without:.2f}"))
    (bible, bible_without), (sources, sources_without) = said
    assert f"is {bible} of that without gates on the Bible, and {sources} on C sources." in text
    assert f"Without sine it is {bible_without} and {sources_without}." in text
    words = text_of("docs/guide/which_activation.md")
    assert f"is {bible} of that without gates on the Bible, and {sources} on C sources." in words


def test_what_the_page_says_of_pictures_follows_from_the_runs():
    text = text_of_page()
    orders = {}
    for folder in ("inr_image", "scoreboard/photograph"):
        medians = medians_of(folder, "test/psnr@last")
        orders[folder] = [*medians.sort_values(ascending=False).index]
    first, photograph = orders.values()
    assert "Two adjacent pairs change places: Mish and SiLU, ELU and ReLU²." in text
    for one, other in (("mish", "silu"), ("elu", "relu_squared")):
        place = first.index(one)
        assert first[place : place + 2] == [one, other]
        first[place : place + 2] = [other, one]
    assert first == photograph
    further = {}
    for name in ("cat", "coffee", "tissue"):
        further[name] = medians_of(f"scoreboard/{name}", "test/psnr@last")
        assert [*further[name].nlargest(3).index] == ["sine", "gauss", "tanh"]
    for label in ("gelu", "sine"):
        said = "{:.1f}, {:.1f} and {:.1f} dB".format(*(of[label] for of in further.values()))
        assert said in text
    assert "ReLU is better than GELU on the cat and the tissue, and worse on the coffee." in text
    ahead = [name for name in further if further[name]["relu"] > further[name]["gelu"]]
    assert ahead == ["cat", "tissue"]
    texture = medians_of("scoreboard/texture", "test/psnr@last")
    assert f"it has {texture['sine']:.1f} dB, and GELU has {texture['gelu']:.1f} dB" in text
    page_of_text = medians_of("scoreboard/page", "test/psnr@last")
    assert f"GELU has {page_of_text['gelu']:.1f} and {texture['gelu']:.1f} dB;" in text


def test_what_the_page_says_of_the_validation_passage_follows_from_the_runs():
    assert "four of nine plain ratios lie outside" in text_of_page()
    runs = pd.read_csv(FOLDER.parent / "gpt_gates/values.csv").query("chosen == 1")
    ratios = {}
    for label, standing in standings().items():
        for score in standing["on"]:
            ratios[score["name"], label] = score["ratio"]
    outside = {}
    for block, group in runs.groupby("block"):
        losses = {name: np.log(of["val/loss@last"]).mean() for name, of in group.groupby(UNIT)}
        count = 0
        for label in losses.keys() - {"gelu"}:
            ratio = ratios[f"text: Bible, block {block}", label]
            count += not ratio["low"] <= np.exp(losses[label] - losses["gelu"]) <= ratio["high"]
        outside[block] = count
    assert outside == {"plain": 4, "gated": 0}


def standings():
    content = json.loads((FOLDER / "scoreboard.json").read_text())
    return {standing["label"]: standing for standing in content["standings"]}


def short(ratio):
    """A ratio as the page has it: two digits after the point, or two in all of a ratio above 2."""
    kind = "g" if ratio["value"] >= 2 else "f"
    value, low, high = (f"{ratio[end]:.2{kind}}" for end in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def test_what_the_page_says_of_ranks_and_tasks_is_in_the_scoreboard():
    text = text_of_page()
    found = standings()
    names = {"gelu": "GELU", "sine": "sine", "mish": "Mish", "silu": "SiLU", "tanh": "tanh"}
    names |= {"leaky_relu": "leaky ReLU", "relu": "ReLU", "elu": "ELU", "relu_squared": "ReLU²"}
    names |= {"identity": "identity"}
    ranks = [f"{name} {found[label]['rank']['mean']:.1f}" for label, name in names.items()]
    assert f"**Mean ranks.** {', '.join(ranks)}." in text
    places = [found[label]["rank"]["place"] for label in names]
    assert places == sorted(places)

    tasks = {name: short(task["ratio"]) for name, task in found["sine"]["tasks"].items()}
    assert (
        f"is {tasks['picture']} times GELU's on pictures, {tasks['tagging']} on tags, "
        f"{tasks['text']} on texts and {tasks['equation']} on equations. "
        f"It is {tasks['tabular']} times GELU's on tables, {tasks['classifier']} on classifiers, "
        f"{tasks['convolutions']} in convolutional networks and {tasks['autoencoder']} on "
        "autoencoders."
    ) in text
    over = found["sine"]["over"]
    logs = [np.log(found["sine"]["tasks"][name]["ratio"]["value"]) for name in tasks]
    without = np.exp(
        np.mean([log for name, log in zip(tasks, logs, strict=True) if name != "picture"])
    )
    here = over["here"]["value"]
    assert f"over these tasks is {here:.2f}, and {without:.2f} without pictures." in text
    task = over["task"]["ratio"]
    assert f"between {task['low']:.2f} and {task['high']:.1f} times GELU's" in text

    pair = [short(found[label]["over"]["here"]) for label in ("mish", "silu")]
    assert f"They have {pair[0]} and {pair[1]} times GELU's error" in text
    task = found["silu"]["over"]["task"]["ratio"]
    assert f"SiLU's ratio is predicted between {task['low']:.2f} and {task['high']:.1f}" in text

    scores_by_data = [score for label in found if label != "gelu" for score in found[label]["on"]]
    intervals = sum(score["ratio"] is not None for score in scores_by_data)
    for words in (text, text_of("docs/guide/scoreboard.md")):
        assert f"has {intervals} intervals by data set" in words


def test_what_the_page_says_of_autoencoders_follows_from_the_runs():
    text = text_of_page()
    medians = {}
    for name in ("mnist", "fashion_mnist"):
        medians[name] = medians_of(f"scoreboard/autoencoder_{name}", "test/loss@last")
    assert "GELU has the lowest loss on MNIST." in text
    assert medians["mnist"].idxmin() == "gelu"
    clothes = medians["fashion_mnist"].map("{:.4f}".format)
    said = f"Mish ({clothes['mish']}) and GELU ({clothes['gelu']}) are not distinguished"
    assert f"On Fashion-MNIST, {said}, and all others are worse than GELU." in text
    digits = medians["mnist"].map("{:.4f}".format)
    others = [digits[label] for label in ("gelu", "silu", "mish", "leaky_relu", "elu", "relu")]
    said = "{} for GELU, {} for SiLU and {} for Mish. Leaky ReLU has {}, ELU {} and ReLU {}."
    assert f"errors on MNIST are {said.format(*others)}" in text
    assert f"Sine ({digits['sine']}) and tanh ({digits['tanh']}) are not better than" in text
    assert f"the identity ({digits['identity']})." in text
    assert medians["mnist"]["identity"] < min(medians["mnist"][["sine", "tanh"]])


def test_what_the_page_says_of_convolutions_follows_from_the_runs():
    text = text_of_page()
    medians = 100 * medians_of("scoreboard/convolutions_cifar10", "test/error@last")
    alike = medians[["gelu", "mish", "silu", "relu"]]
    assert f"(medians {alike.min():.1f} to {alike.max():.1f} % test error)" in text
    sine, elu, tanh, identity = medians[["sine", "elu", "tanh", "identity"]]
    worse = f"Sine ({sine:.1f} %), ELU ({elu:.1f} %) and tanh ({tanh:.1f} %) are worse than GELU"
    assert f"{worse}, and the identity has {identity:.1f} %." in text
    words = text_of("docs/guide/which_activation.md")
    gelu, mish, silu, relu = alike
    said = f"{mish:.1f} % test error for Mish, {gelu:.1f} % for GELU, {silu:.1f} % for SiLU and"
    assert f"{said} {relu:.1f} % for ReLU." in words
    assert f"Sine has {sine:.1f} %, ELU {elu:.1f} % and tanh {tanh:.1f} %." in words

    # CIFAR-100, where three others and ReLU² are worse
    further = 100 * medians_of("scoreboard/convolutions_cifar100", "test/error@last")
    mish, silu, gelu, sine, tanh, identity = further[
        ["mish", "silu", "gelu", "sine", "tanh", "identity"]
    ]
    assert f"{mish:.1f}" == f"{silu:.1f}"
    assert f"Mish and SiLU have {mish:.1f} % and GELU {gelu:.1f} %." in text
    worse = f"sine ({sine:.1f} %), tanh ({tanh:.1f} %) and the identity ({identity:.1f} %)"
    assert f"Only {worse} are worse than GELU." in text
    lines = (FOLDER / "convolutions_cifar100/table.md").read_text(encoding="utf-8").splitlines()
    found = {line[2:].partition(": ")[0] for line in lines if ": worse" in line}
    assert found == {"sine", "tanh", "identity", "relu_squared"}

    # ReLU² diverges in every run, also of those that select
    for file in ("values.csv", "choose/values.csv"):
        runs = pd.read_csv(FOLDER / "convolutions_cifar10" / file)
        squared = runs[runs[UNIT] == "relu_squared"]
        assert {*squared["status"]} == {"diverged"}


def test_what_the_page_says_of_failures_is_in_the_scoreboard():
    failed = {}
    for label, standing in standings().items():
        failed[label] = {score["name"] for score in standing["on"] if score["fails"]}
    waves, hills = (f"equation: chosen by loss, block {name}" for name in ("waves", "hills"))
    equations = {waves, hills}
    assert failed["relu"] == failed["leaky_relu"] == equations | {"picture: texture"}
    pictures = {
        f"picture: {name}" for name in ("texture", "CIFAR-10 mosaic", "page of text", "cat")
    }
    assert failed["identity"] == equations | pictures
    assert failed["elu"] == {waves, "picture: texture"}
    assert failed["relu_squared"] == {
        *("picture: texture", "classifier: MNIST", "classifier: Fashion-MNIST"),
        *("autoencoder: MNIST", "autoencoder: Fashion-MNIST"),
        *("convolutions: CIFAR-10", "convolutions: CIFAR-100"),
    }
    assert failed["gelu"] == failed["mish"] == failed["silu"] == {"picture: texture"}
    assert failed["sine"] == failed["tanh"] == failed["gauss"] == set()


def test_what_the_page_says_of_equations_and_the_classifier_is_in_the_scoreboard():
    text = text_of_page()
    of = {}
    for label, standing in standings().items():
        for score in standing["on"]:
            if score["ratio"]:
                of[label, score["name"].replace("chosen by loss, block ", "")] = short(
                    score["ratio"]
                )
    of_sines = "An equation whose solution is made of sines.**"
    assert f"{of_sines} Sine has {of['sine', 'equation: waves']} times GELU's error." in text
    digits, clothes = (of["sine", f"classifier: {name}"] for name in ("MNIST", "Fashion-MNIST"))
    assert f"has {digits} times GELU's error on MNIST, and {clothes} times on Fashion-MNIST" in text
    assert f"a ridge.** Sine has {of['sine', 'equation: hills']} times GELU's error." in text
    others = [of[label, "equation: hills"] for label in ("silu", "mish", "tanh", "relu_squared")]
    said = "SiLU {}, Mish {}, tanh {} and ReLU² {}.".format(*others)
    assert f"The ratios of the others are: {said}" in text
    runs = pd.read_csv(FOLDER / "equations/values.csv").query("block == 'hills'")
    medians = runs.groupby(UNIT)["test/relative_error@last"].median()
    assert [*medians.nsmallest(2).index] == ["gelu", "sine"]
    assert f"GELU ({medians['gelu']:.4f}) and sine ({medians['sine']:.4f}) have the lowest" in text

    assert "Sine is third there, and seventh on MNIST." in text
    for folder, place in (("mnist", 7), ("fashion_mnist", 3)):
        medians = medians_of(f"scoreboard/{folder}", "test/error@last")
        assert medians.rank()["sine"] == place


def test_what_the_page_says_of_processors_follows_from_the_runs():
    rows = [
        line.split("|")[1:-1] for line in (FOLDER / "processors.md").read_text().splitlines()[-5:]
    ]
    same = {row[0].strip(): float(row[3]) for row in rows}
    other = [float(row[4]) for row in rows]
    assert round(100 * same.pop("equation")) == 2
    assert round(100 * same.pop("classifier")) == 5
    assert max(same.values()) < 0.001
    assert [round(100 * min(other)), round(100 * max(other))] == [2, 16]


def own(kept, label, **rows):
    """Tables of a user, with a row of the label on each data set: a known one's, or values."""
    tables = {}
    for (task, data), known in kept.items():
        given = rows.get(data, "sine")
        mine = (
            copy.deepcopy(next(r for r in known if r["point"][UNIT] == given))
            if isinstance(given, str)
            else given
        )
        mine["point"][UNIT] = label
        table = tables_by_hand.table(task, UNIT, [mine], own=[label])
        tables[task, data] = tables_by_hand.as_record(table)
    return tables


def test_activations_stand_in_the_order_of_their_ranks_failures_last(kept):
    scoreboard = scores.load()
    gelu, sine, relu = scoreboard.standings
    assert (gelu.label, sine.label, relu.label) == ("gelu", "sine", "relu")
    assert [standing.rank.mean for standing in scoreboard.standings] == [2, 1, 3]
    assert [standing.rank.place for standing in scoreboard.standings] == [2, 1, 3]
    assert [str(data.ratio)[:5] for data in sine.on] == ["0.900", "0.500", "0.100"]
    assert sine.over.here.value == pytest.approx((0.9 * 0.5 * 0.1) ** (1 / 3), rel=1e-3)
    assert (sine.better, gelu.better, relu.better) == (1, 0.5, 0)
    assert relu.failures == ["equation: waves"]  # where no run is better than chance
    assert relu.tasks["equation"].fails
    assert relu.over is None  # a mean of the other tasks would be another quantity
    said = sentences.sentence(relu, scoreboard)
    assert "Rank 3 of 3 on these 3 data sets of 3 tasks, with a mean rank of 3.0." in said
    assert "equation fails" in said
    assert said.endswith("It fails on equation: waves.")


def test_a_known_activation_under_another_name_lands_where_it_stands(kept):
    scoreboard = scores.load(own(kept, "mine"))
    standings = {standing.label: standing for standing in scoreboard.standings}
    assert standings["mine"].over == standings["sine"].over
    assert standings["mine"].rank == standings["sine"].rank
    assert [*standings] == ["gelu", "sine", "mine", "relu"]
    said = "\n".join(sentences.lines(scoreboard))
    assert "text: words: 0.900 [" in said
    assert "better, p " in said
    assert "Rank 1 of 4 on these 3 data sets of 3 tasks" in said
    first = "1.00 [0.969, 1.03] times the error of sine, which ranks first (simultaneous interval)."
    assert f"Its error is {first}" in said


def test_an_activation_that_ranks_first_is_compared_with_unless_it_is_the_reference():
    """The reference has its ratios in the sentences before."""
    first = "which ranks first"
    later = scores.load()
    assert later.best == later.reference
    assert first not in "\n".join(sentences.lines(later))
    earlier = scores.load(version=1)
    assert earlier.best == "sine"
    said = [sentences.sentence(s, earlier) for s in earlier.standings if s.over]
    assert [first in sentence for sentence in said] == [
        s.label != "sine" for s in earlier.standings if s.over
    ]


def test_a_bad_activation_is_last_and_one_that_diverges_is_marked(kept):
    diverging = row("mine", [None] * 5 + [0.9] * 3)
    mine = own(kept, "mine", words=diverging, waves=row("mine", spread(3.0)), photo="relu")
    scoreboard = scores.load(mine)
    last = scoreboard.standings[-1]
    assert last.label == "mine"
    assert last.over is None
    assert last.rank.place == 4
    assert last.failures == ["text: words", "equation: waves"]
    assert "text: words: failed in 5 of 8 runs." in sentences.lines(scoreboard)


def test_a_gain_of_less_than_a_tenth_of_the_best_is_a_failure(kept):
    """From chance, 1, to sine's 0.05 a tenth of the way ends at 0.905."""
    for middle, fails in ((0.95, True), (0.85, False)):
        mine = own(kept, "mine", waves=row("mine", spread(middle)))
        standing = next(s for s in scores.load(mine).standings if s.own)
        assert (standing.failures == ["equation: waves"]) is fails
        assert (standing.over is None) is fails

    # A user's own best does not make others fail
    scoreboard = scores.load(own(kept, "mine", waves=row("mine", spread(1e-9))))
    assert [s.label for s in scoreboard.standings if s.failures] == ["relu"]


def test_where_the_reference_fails_nobody_has_a_ratio(kept, tmp_path):
    file = tmp_path / "waves/table.json"
    table = json.loads(file.read_text())
    table["rows"][0] = row("gelu", spread(0.95))
    file.write_text(json.dumps(table))
    scoreboard = scores.load(own(kept, "mine"))
    gelu, *others = scoreboard.standings
    assert gelu.failures == ["equation: waves"]
    for standing in others:
        (waves,) = [score for score in standing.on if score.name == "equation: waves"]
        assert waves.ratio is None
        assert waves.better == (0.5 if standing.label == "relu" else 1.0)
        assert standing.over.tasks == 2  # the same ones for all
        assert not standing.tasks["equation"].fails
    said = "\n".join(sentences.lines(scoreboard))
    assert "equation: waves: no ratio, because gelu fails; better, p " in said
    assert "text 0.900 [" in said
    assert "equation –" in said


def test_settings_of_further_data_are_those_of_the_first(kept, state, tmp_path):
    """An edge and an unstable selection are marked on all data sets of a task."""
    first = json.loads((tmp_path / "words/table.json").read_text())
    selected = {"seeds": 3, "score": 1.0, "again": 0.6, "elsewhere": 1.0}
    first["rows"][2] |= {"edges": ["model.optimizer.lr"], "choice": selected}
    (tmp_path / "words/table.json").write_text(json.dumps(first))
    content = yaml.safe_load(Path(definition.FILES[definition.CURRENT]).read_text())
    content["tasks"]["text"]["data"]["more"] = {"table": str(tmp_path / "photo")}
    state(content)
    sine = next(s for s in scores.load().standings if s.label == "sine")
    marks = {score.name: (score.edge, score.unstable) for score in sine.on}
    assert marks["text: words"] == marks["text: more"] == (True, True)
    assert marks["picture: photo"] == (False, False)
    text = page.to_markdown(scores.load())
    assert text.count("(edge, unstable)") == 2
    assert "Unstable.** Fewer than 80 %" in text


def test_a_run_that_diverged_is_left_out_of_the_ratio_and_said(kept):
    few = row("mine", [None, *spread(0.9)[1:]])
    said = sentences.lines(scores.load(own(kept, "mine", words=few)))
    assert any(
        line.startswith("text: words: 0.9") and "1 of 8 runs failed" in line for line in said
    )


def test_the_word_on_a_data_set_counts_the_runs_that_failed(kept):
    """Three of eight runs fail, the others are a little better: p and the word cover all runs."""
    scoreboard = scores.load(own(kept, "mine", words=row("mine", [None] * 3 + spread(0.99)[2:7])))
    (mine,) = [standing for standing in scoreboard.standings if standing.own]
    words = next(score for score in mine.on if score.name == "text: words")
    assert words.ratio.value < 1
    assert words.better < 0.5
    assert "; worse, p 0.001 after" in sentences.verdict(replace(words, p=0.001), scoreboard)
    assert "; undecided, p 0.9 after" in sentences.verdict(replace(words, p=0.9), scoreboard)


def test_the_files_hold_every_ratio_and_mark_ones_own(kept, tmp_path):
    files = page.write(scores.load(own(kept, "mine")), tmp_path / "out")
    assert [file.name for file in files] == [
        *(f"scoreboard.{kind}" for kind in ("md", "json", "svg", "png")),
        "index.html",
    ]
    text = files[0].read_text()
    assert "| relu | 4 of 4 | 4.0 | 0.00 | 0.00 | 0.00 | 0.00 |" in text
    assert re.search(r"^\| relu \| 1\.10 \[.+\] \| fails \| 2\.00 \[.+\] \| fails \|$", text, re.M)
    assert "| gelu | 1 | 1 | 1 |" in text
    assert text.index("| rank |") < text.index("| geometric mean |") < text.index("text: words |")
    standings = json.loads(files[1].read_text())["standings"]
    assert {standing["label"]: standing["own"] for standing in standings} == {
        "gelu": False,
        "mine": True,
        "sine": False,
        "relu": False,
    }
    assert files[2].read_text().count("rank over tasks") == 1


def test_an_activation_has_one_label_however_studies_spell_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spellings = (
        ("./mine.py:U", "elu", {"name": "soi", "p": 1, "q": 2}, "./other.py:V"),
        (
            str(tmp_path / "mine.py:U"),
            {"name": "elu"},
            {"q": 2, "p": 1, "name": "soi"},
            "./more.py:V",
        ),
    )
    stored = []
    for values in spellings:
        rows = [row(value, spread(0.1)) for value in values]
        stored.append(tables_by_hand.as_record(tables_by_hand.table("a study", UNIT, rows)))
    labels = [*labels_of(stored).values()]
    assert labels == ["U", "elu", "soi(p=1, q=2)", "./other.py:V", "./more.py:V"]
