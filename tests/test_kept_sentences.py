"""The numbers in the sentences of pages on results, recomputed from data and tables there."""

import itertools
import re
from typing import Any

import pandas as pd
import pytest

from actlab.analysis.columns import ratio_text
from actlab.analysis.differences import Flips
from actlab.analysis.power import detectable, power
from kept_results import (
    DROPOUT,
    FIG6,
    LR,
    RESULTS,
    ROOT,
    UNIT,
    UNITS,
    assert_same,
    cell,
    curve,
    curves,
    rows,
    short,
    table,
    tables_of,
    theirs,
    two_digits,
    values,
)
from recomputed import below, holm, two_sided, within


def differences(study: str, key: str, left: str, right: str, name: str) -> Any:
    found = values(study)
    found = found[found[DROPOUT] == 0] if DROPOUT in found and key == UNIT else found
    of = [found[found[key] == side].set_index("seed")[name] for side in (left, right)]
    return (of[0] - of[1]).to_numpy()


def of_soi_mnist() -> list[str]:
    d = differences("soi_mnist", "block", "SOI map", "ReLU, tuned dropout", "test/error@last")
    assert set(values("soi_mnist").query("block == 'ReLU, tuned dropout'")[DROPOUT]) == {0.0}
    assert within(d, 0.0015) > 0.05
    return [
        f"two one-sided tests: p {short(within(d, 0.0015), 3)}",
        f"by 0.15 points (p {short(below(d - 0.0015), 3)})",
    ]


def of_gelu_mnist_classifier() -> list[str]:
    ps = [
        within(differences("gelu_mnist_classifier", UNIT, unit, "relu", "test/error@last"), 0.0015)
        for unit in ("gelu_tanh", "elu")
    ]
    plain = (
        values("gelu_mnist_classifier")
        .query(f"`{DROPOUT}` == 0")
        .groupby(UNIT)["val/loss@best"]
        .median()
    )
    paper = theirs("gelu_mnist_classifier", "val/loss", "best")
    return [
        f"p {short(ps[0], 3)} for GELU, {short(ps[1], 2)} for ELU",
        f"{short(plain.min(), 4)} to {short(plain.max(), 4)} here",
        f"{short(min(paper), 4)} to {short(max(paper), 4)} published",
    ]


def of_gelu_mnist_autoencoder() -> list[str]:
    study, off = "gelu_mnist_autoencoder", {}
    for lr, unit in itertools.product((1e-3, 1e-4, 1e-5), FIG6):
        where: dict[str, Any] = {"model__activation": unit, "model__optimizer__lr": lr}
        for paper in theirs(study, "test/loss", 25, **where):
            off[lr, unit] = 100 * (rows(study, 3, **where)["test/loss@25"].median() / paper - 1)
    below = [-value for (lr, _), value in off.items() if lr > 1e-5]
    return [
        f"{min(below):.1f} to {max(below):.1f} % below",
        f"GELU lies {off[1e-5, 'gelu_tanh']:.1f} % above and ELU {-off[1e-5, 'elu']:.1f} % below",
    ]


def of_gelu_twitter_pos() -> list[str]:
    dev = curves("gelu_twitter_pos").query("metric == 'val/loss'")
    lowest = dev.loc[dev.groupby("line")["median"].idxmin()].set_index("line")["x"]
    gelu, relu, elu = (f"{lowest[unit]:.1f}" for unit in FIG6)
    return [f"epochs {gelu} (GELU), {relu} (ReLU) and {elu} (ELU)"]


def of_elu_mnist_units() -> list[str]:
    losses = curves("elu_mnist_units").query("metric == 'train/clean_loss'")
    ahead = losses.pivot_table(index="x", columns="line", values="median").idxmin(axis=1)
    return [f"From epoch {ahead.index[ahead != 'relu'].max() + 1:.0f} on, ReLU has the lowest"]


def of_epochs_4_and_5() -> list[str]:
    paper = pd.read_csv(ROOT / "data/published/gelu_curves.csv")
    paper = paper.query("panel == 'MNIST no-dropout' and curve == 'heldout' and epoch in (4, 5)")
    above = [
        100 * (value / curve("gelu_mnist_classifier", "val/loss", UNITS[unit], epoch)["median"] - 1)
        for unit, epoch, value in paper[["act", "epoch", "value"]].to_numpy()
    ]
    assert len(above) == 6
    return [f"{min(above):.0f} to {max(above):.0f} % above ours"]


def of_power_on_tweets() -> list[str]:
    cells = [cell("gelu_twitter_pos", "test/error@last", unit) for unit in ("gelu_tanh", "elu")]
    spreads = [one["paired"]["sd"] for one in cells]
    assert [round(1 / power(15, 0.002 / spread, 2)) for spread in spreads] == [3, 3]
    return [
        "detect a difference of 0.2 points about one time in three",
        f"{100 * (detectable(15, 2) or 0) * max(spreads):.2f} points with 80 % power",
    ]


def of_machines() -> list[str]:
    """How long an update with GELU's tanh form takes, in ReLUs, on each of the two machines."""
    ratios: dict[str, list[float]] = {}
    of = {}
    for study in sorted(
        path.parent.name
        for path in RESULTS.glob("*_*/table.json")
        if "claim" not in path.parent.name
    ):
        costs = {
            tuple(row["point"].items()): row["cost"] for row in table(study)["rows"] if row["cost"]
        }
        (of[study],) = {
            cost["hardware"].partition(" ")[0].partition("(")[0] for cost in costs.values()
        }
        for point, cost in costs.items():
            other = tuple((key, "relu" if value == "gelu_tanh" else value) for key, value in point)
            if other != point:
                ratios.setdefault(of[study], []).append(
                    cost["seconds_per_update"] / costs[other]["seconds_per_update"]
                )
    xeon = [f"`{study}`" for study, machine in of.items() if machine == "Intel"]
    slow, fast = (f"{min(ratios[m]):.2f} to {max(ratios[m]):.2f}" for m in ("Intel", "AMD"))
    return [
        f"The times of {', '.join(xeon[:-1])} and {xeon[-1]} were measured with their runs",
        f"takes {slow} times as long as with ReLU",
        f"it takes {fast} times as long. With the former function it took 1.08",
    ]


def of_speed() -> list[str]:
    text = " ".join((RESULTS / "elu_bias_shift/README.md").read_text(encoding="utf-8").split())
    (said,) = re.findall(
        r"(\d+) minutes of processor time for training and about (\d+) for the probes", text
    )
    trained, probed = said
    return [
        f"bias shift | {trained} minutes of processor time to train, "
        f"about {probed} for its probes |"
    ]


def of_quoted_verdict() -> list[str]:
    (said,) = (
        v["text"]
        for v in table("gelu_mnist_classifier")["verdicts"]
        if v["name"] == "elu (dropout 0)"
    )
    sentence = str(said).removeprefix("elu (dropout 0): ").partition(" An update")[0]

    # The stored sentence is older than its present wording.
    sentence = sentence.replace("four times in five", "with 80 % power")
    return [sentence.replace("as a further look", "including the correction for a further look")]


def of_overview(both: str) -> list[str]:
    """What the front page and the page of results say of the SOI map, and of errors on tweets."""
    mnist = {
        name: 100 * v
        for name, v in values("soi_mnist").groupby("block")["test/error@last"].median().items()
    }
    tweets = values("soi_twitter_pos").groupby("block")["test/error@last"].median() * 100
    above = [
        tweets[name] - 100 * theirs("soi_twitter_pos", "test/error", "last", block=name)[0]
        for name in ("SOI map", "ReLU")
    ]
    for unit in FIG6:
        ours = values("gelu_twitter_pos").query(f"`{UNIT}` == @unit")["test/error@last"].median()
        above.append(
            100
            * (ours - theirs("gelu_twitter_pos", "test/error", "last", model__activation=unit)[0])
        )
    said = [f"{min(above):.1f} to {max(above):.1f} points higher than published"]
    numbers = [mnist["SOI map"], mnist["ReLU, tuned dropout"], mnist["linear layers"]]
    fine = [f"{value:.2f}" for value in numbers]
    coarse = [
        f"{tweets[name]:.1f}" for name in ("SOI map", "linear layers", "ReLU", "ReLU, dropout 0.5")
    ]
    return [*said, *(sentence.format(*fine, *coarse) for sentence in both.split("|"))]


FRONT = (
    "its error is {0} %, against {1} % for ReLU with tuned dropout and {2} % for linear layers"
    "|its error is {3} %, against {6} % for ReLU with dropout and {4} % for linear layers"
)
WHOLE = (
    "error of {0} %, ReLU has {1} %, and linear layers have {2} %"
    "|error of {3} %, and linear layers have {4} %|ReLU has {5} % without dropout and {6} %"
)


def of_quoted_rows() -> list[str]:
    """The rows of test error without dropout, without medians of differences."""
    kept = (RESULTS / "gelu_mnist_classifier/table.md").read_text(encoding="utf-8")
    _, _, primary = kept.partition("## test error")
    rows = [
        re.findall(rf"^\| {unit} \| 0 \| (.+) \|$", primary, re.M)[0] for unit in ("relu", "elu")
    ]
    cut = [re.sub(r" / [-+.\d]+(?= \| \d\.\d+ \[)", "", row) for row in rows]
    return [f"| {unit} | {row} |" for unit, row in zip(("relu", "elu"), cut, strict=True)]


def of_scoreboard() -> list[str]:
    """The sentences over tasks that the page quotes, and what they say in words."""
    kept = (RESULTS / "scoreboard/scoreboard.md").read_text(encoding="utf-8")
    (said,) = re.findall(r"^- (silu: .+)$", kept, re.M)
    low, high = re.findall(r"geometric mean over [^.]+ is \S+ \[(1\.\d+), (1\.\d+)\]", said)[0]
    return [
        said,
        f"lie {100 * (float(low) - 1):.0f} to {100 * (float(high) - 1):.0f} % above GELU's",
    ]


SENTENCES = {
    "README.md": [of_epochs_4_and_5, lambda: of_overview(FRONT)],
    "docs/guide/scoreboard.md": [of_scoreboard],
    "docs/concepts/verdicts.md": [of_quoted_verdict, of_quoted_rows],
    "docs/concepts/stacks.md": [of_speed],
    "docs/results.md": [lambda: of_soi_mnist()[:1], of_epochs_4_and_5, lambda: of_overview(WHOLE)],
    "results/README.md": [of_machines],
    "results/soi_mnist/README.md": [of_soi_mnist],
    "results/gelu_mnist_classifier/README.md": [of_gelu_mnist_classifier, of_epochs_4_and_5],
    "results/gelu_mnist_autoencoder/README.md": [of_gelu_mnist_autoencoder],
    "results/gelu_twitter_pos/README.md": [of_gelu_twitter_pos, of_power_on_tweets],
    "results/elu_mnist_units/README.md": [of_elu_mnist_units],
}


@pytest.mark.parametrize("path", SENTENCES)
def test_sentences_have_the_numbers_that_the_data_give(path):
    text = " ".join((ROOT / path).read_text(encoding="utf-8").split())
    for recomputed in SENTENCES[path]:
        for words in recomputed():
            assert words in text


FIG2, NOISE, TWEETS, SOI = (
    "gelu_mnist_classifier",
    "gelu_mnist_noise",
    "gelu_twitter_pos",
    "soi_mnist",
)
ON_TWEETS, UNIT_MEANS = "soi_twitter_pos", "elu_mnist_units"
SGD, SILU = "gelu_mnist_momentum", "gelu_mnist_silu"
TEST, BEST, LATE = "test/error@last", "val/loss@best", "train/clean_loss@last"
LOSSES = "train/clean_loss@mean 5-50"
NOISY, NOISIER = (f"noise/test/error[noise={strength}]@last" for strength in (1, 2))
MEANS = "units/distance_of_means@mean"
TODAY = ("relu", "silu", "relu_squared", "mish", "tanh", "elu", "leaky_relu", "sine", "identity")
GATES, INIT, LOSS = "gpt_gates", "gpt_plain_init", "test/loss@last"
EQUATION, IMAGE = "pinn_helmholtz", "inr_image"
ERROR, PSNR = "test/relative_error@last", "test/psnr@last"
# What a README says of comparisons, by study and column: values of the compared point, and words
# with p alone, after Holm and of equivalence, and the interval; d, l and h are the difference with
# its interval in points.
COMPARED: dict[tuple[str, str], list[tuple[Any, ...]]] = {
    (FIG2, LOSSES): [
        ("gelu_tanh", 0.0, "interval {1:.4f} to {0:.4f}, p {holm} after Holm"),
        ("gelu_tanh", 0.0, "is lower than ReLU's by {mean:.4f} (95 % interval"),
    ],
    (FIG2, LATE): [
        ("gelu_tanh", 0.0, "without dropout (p {p} alone and after Holm"),
    ],
    (FIG2, TEST): [
        ("gelu_tanh", 0.0, "p {p} alone for GELU and"),
        ("elu", 0.0, "and {p} for ELU, {holm} after Holm's correction for 4 comparisons"),
    ],
    (NOISE, NOISY): [
        ("gelu_tanh", "p {p} alone and after Holm's correction for 2"),
        ("elu", "points at 1, p {holm} after Holm"),
        ("gelu_tanh", "by {d:.2f} points (95 % interval {h:.2f} to"),
        ("elu", "(by {d:.1f} points at 1,"),
    ],
    (NOISE, NOISIER): [
        ("gelu_tanh", "p {holm} after Holm"),
        ("gelu_tanh", "by {d:.2f} points ({h:.2f} to {l:.2f},"),
    ],
    (TWEETS, TEST): [
        ("gelu_tanh", "p {p} alone, {holm} after Holm's correction). - ELU"),
        ("elu", "p {p} alone, {holm} after Holm's correction). - **Equivalence"),
        ("gelu_tanh", "two one-sided tests, p {equivalent} for GELU and"),
        ("elu", "and {equivalent} for ELU, after Holm"),
        ("gelu_tanh", "is +{d:.2f} points (95 % interval −{l:.2f} to +{h:.2f},"),
        ("elu", "ELU − ReLU is +{d:.2f} points (−{l:.2f} to +{h:.2f},"),
    ],
    (TWEETS, "val/error@best_epoch"): [
        ("elu", "(ELU − ReLU: p {holm} after Holm"),
    ],
    (SOI, TEST): [
        ("SOI map", "p {p} alone and after Holm"),
        ("SOI map", "{d:.2f} points lower in the mean (95 % interval −{l:.2f} to +{h:.2f},"),
    ],
    (SOI, BEST): [
        ("SOI map", "({1:.4f} to {0:.4f}, p {holm} after Holm"),
        ("SOI map", "is lower than ReLU's by {mean:.4f}"),
    ],
    (SOI, "val/loss@best_epoch"): [
        ("SOI map", "(interval {0:.0f} to {1:.0f}, p {holm} after Holm"),
        ("SOI map", "at its best {mean:.0f} epochs later"),
    ],
    (ON_TWEETS, TEST): [
        ("ReLU, dropout 0.25", "In all three comparisons, p is {holm} after Holm"),
        (
            "ReLU",
            "without dropout.** The error of the SOI map is {d:.1f} points lower (95 % interval "
            "{l:.1f} to {h:.1f})",
        ),
    ],
    (ON_TWEETS, "val/loss@best_epoch"): [
        ("ReLU", "(p {holm} each after Holm"),
    ],
    (ON_TWEETS, "val/error@best_epoch"): [
        ("ReLU, dropout 0.25", "Against dropout 0.25 it is open (p {holm})"),
    ],
    (UNIT_MEANS, MEANS): [
        ("relu", "p {p} each before correction"),
        ("relu", "than ReLU's by {mean:.3f} [{0:.3f}, {1:.3f}]"),
    ],
    (UNIT_MEANS, "train/clean_loss@below 0.01"): [
        ("relu", "p is at most {holm} after Holm's correction in this table"),
    ],
    (SGD, LATE): [
        ("gelu_tanh", 0.9, "p {p} before correction"),
        ("gelu_tanh", 0.9, "higher by {mean:.4f} (95 % interval −{0:.4f} to +{1:.4f},"),
    ],
    (SGD, BEST): [
        ("gelu_tanh", 0.9, "({1:.4f} to {0:.4f}, p {holm} after Holm"),
        ("gelu_tanh", 0.9, "with momentum, by {mean:.4f}"),
    ],
    (SILU, BEST): [
        ("relu", "({0:.4f} to {1:.4f}, p {p} alone, {holm} after Holm"),
        ("relu", "lower than ReLU's by {mean:.4f}"),
    ],
    (SILU, LOSSES): [
        ("gelu", "(each p {holm} after Holm"),
    ],
    (UNIT_MEANS, BEST): [
        ("relu", "lower by {mean:.3f} [{0:.3f}, {1:.3f}] than ReLU's"),
    ],
    ("gelu_mnist_sigmoid", BEST): [
        ("sigmoid", "lower by {mean:.3f} [{0:.3f}, {1:.3f}]"),
    ],
    (GATES, LOSS): [
        (
            "plain",
            "sine",
            "Sine is better than GELU by {mean:.3f} nats ({1:.3f} to {0:.3f}; p {holm})",
        ),
        ("gated", "sine", "Sine is better by {mean:.3f} nats ({1:.3f} to {0:.3f}; p {holm})"),
        ("plain", "mish", "- Mish by {mean:.3f} - ReLU"),
        ("plain", "relu", "- ReLU by {mean:.3f} - SiLU"),
        ("plain", "relu", "(each p ≤ {holm}): - Mish"),
        ("plain", "silu", "- SiLU by {mean:.3f} - leaky ReLU"),
        ("plain", "leaky_relu", "- leaky ReLU by {mean:.3f} - tanh"),
        ("plain", "tanh", "- tanh by {mean:.3f} - ELU"),
        ("plain", "elu", "- ELU by {mean:.3f} - identity"),
        ("plain", "identity", "- identity by {mean:.3f} - **Plain, undecided"),
        ("gated", "identity", "lies {mean:.3f} above GELU's (−{0:.3f} to +{1:.3f})"),
    ],
    (INIT, LOSS): [
        (
            "relu_squared",
            "is better than GELU by {mean:.3f} nats ({1:.3f} to {0:.3f}; p {holm} after",
        ),
        ("silu", "is worse than GELU by {mean:.3f} ({0:.3f} to {1:.3f}; p {holm} after Holm"),
        ("relu", "undecided (−{0:.3f} to +{1:.3f})"),
    ],
    (EQUATION, ERROR): [
        ("sine", "**Sine** has an error {mean} times GELU's ({0} to {1}; p {holm})"),
        ("silu", "undecided ({0} to {1} times)"),
        ("tanh", "networks, has {mean} times GELU's error ({0} to {1}; p {holm})"),
        ("mish", "**Mish** has {mean} times GELU's error ({0} to {1}; p {holm})"),
        ("relu_squared", "**ReLU²** has {mean} times GELU's error ({0} to {1}; p {holm})"),
    ],
    (IMAGE, PSNR): [
        ("sine", "**Sine** lies {mean:.1f} dB above GELU ({0:.1f} to {1:.1f}; p {holm})"),
        ("gauss", "by {mean:.1f} dB in the fourteen pairs in which both succeed (p {holm})"),
        ("tanh", "**Tanh** is better by {mean:.1f} dB ({0:.1f} to {1:.1f}; p {holm})"),
        ("relu", "**ReLU** is worse by {mean:.3f} dB ({1:.3f} to {0:.3f}; p {holm})"),
        ("leaky_relu", "- leaky ReLU by {mean:.3f} dB"),
        ("mish", "- Mish by {mean:.3f} dB"),
        ("silu", "- SiLU by {mean:.3f} dB"),
        ("elu", "- ELU by {mean:.2f} dB"),
        ("relu_squared", "- ReLU² by {mean:.2f} dB"),
        ("identity", "- identity by {mean:.2f} dB"),
        ("identity", "(each p {holm}): - leaky ReLU"),
    ],
}


def test_comparisons_in_sentences_are_those_of_the_table():
    wrong = []
    rows = [(*of, *row) for of, compared in COMPARED.items() for row in compared]
    for study, name, *point, words in rows:
        found = cell(study, name, *point)
        ps = {"p": found["p"], "holm": found["p_holm"], "equivalent": found["p_equivalent_holm"]}
        paired: list[Any] = [found["paired"][key] for key in ("mean", "low", "high")]
        known: dict[str, Any] = {key: two_digits(p) for key, p in ps.items() if p}
        mean: Any
        ends: list[Any]
        if found.get("scale") == "log":
            mean, *ends = (ratio_text(value) for value in paired)
            said = words.format(*ends, mean=mean, **known)
        else:
            mean, *ends = (value and abs(value) for value in paired)
            known |= {
                of: 100 * value for of, value in zip("dlh", (mean, *ends), strict=True) if value
            }
            said = words.format(*ends, mean=mean, **known)
        text = " ".join((RESULTS / study / "README.md").read_text(encoding="utf-8").split())
        if said not in text:
            wrong.append((study, said))
    assert wrong == []


# The rows of the table in docs/guide/which_activation.md: study, column, and the values after the
# activation.
ANSWERS: list[tuple[str, str, tuple[Any, ...]]] = [
    (FIG2, TEST, (0.0,)),
    (FIG2, TEST, (0.5,)),
    (NOISE, NOISY, ()),
    (NOISE, NOISIER, ()),
    (TWEETS, TEST, ()),
]


def outcome_of(study: str, name: str, unit: str, *rest: Any) -> str:
    """The outcome of a verdict of ``table.json``."""
    named = f"{unit} (dropout {rest[0]:g})" if rest else unit
    (found,) = (v for v in table(study)["verdicts"] if (v["name"], v["column"]) == (named, name))
    return str(found["outcome"])


def apart(study: str, name: str, *point: Any) -> tuple[str, str]:
    """How far a side lies from the reference, and the interval: ``.058`` and ``(.039 to .076``."""
    low, mean, high = sorted(
        abs(cell(study, name, *point)["paired"][key]) for key in ("mean", "low", "high")
    )
    return short(mean, 3), f"({short(low, 3)} to {short(high, 3)}"


def answers() -> list[str]:
    """What the sentences of the page have from the tables."""
    error = TEST
    relu, sigmoid = cell(SILU, error, "relu"), cell("gelu_mnist_sigmoid", error, "sigmoid")
    tweets = cell(ON_TWEETS, error, "ReLU, dropout 0.5")
    assert outcome_of(SOI, error, "SOI map") == "undecided"
    assert {v["outcome"] for v in table(SILU)["verdicts"]} == {"undecided"}
    assert sigmoid["paired"]["mean"] > 0 > tweets["paired"]["mean"]
    silu, soi, tuned = (
        f"{100 * cell(study, error, name)['median']:.2f} %"
        for study, name in ((SILU, "silu"), (SOI, "SOI map"), (SOI, "ReLU, tuned dropout"))
    )
    spread = max(cell(FIG2, error, unit, 0.0)["paired"]["sd"] for unit in ("gelu_tanh", "elu"))
    rates = (
        values(FIG2, "choose")
        .query(f"`{UNIT}` == 'relu' and `{DROPOUT}` == 0")
        .groupby(LR)[error]
        .median()
    )
    loss = [short(cell(FIG2, LOSSES, unit, 0.0)["median"], 4) for unit in FIG6]
    (low, mean, high), (least, middle, most) = (
        sorted(abs(100 * one["paired"][key]) for key in ("mean", "low", "high"))
        for one in (sigmoid, tweets)
    )
    return [
        f"a difference of {100 * (detectable(15, 4) or 0) * spread:.2f} points with 80 % power",
        f"{silu} on MNIST against {100 * relu['median']:.2f} % for ReLU",
        f"(p = {relu['p']:.2g} alone, {relu['p_holm']:.2g} after correction)",
        f"by {mean:.2f} points ({low:.2f} to {high:.2f})",
        f"{soi} against {tuned} for ReLU",
        f"an error {middle:.2f} points lower ({least:.2f} to {most:.2f})",
        f"{loss[0]} against {loss[1]} over epochs 5 to 50, and ELU's higher, {loss[2]}",
        f"is {100 * rates[1e-3]:.2f} % at 1e-3 and {100 * rates[1e-5]:.2f} % at 1e-5",
        f"tanh form takes {taking(FIG2, 'gelu_tanh', 0.0)} as long as with ReLU",
        f"with ELU {taking(FIG2, 'elu', 0.0)}",
        f"with the SOI map {taking(SOI, 'SOI map')}",
        "is {} nats lower than ReLU's {})".format(*apart(GATES, LOSS, "plain", "relu")),
        "{} lower than ELU's {})".format(*apart(GATES, LOSS, "plain", "elu")),
        "{} higher than sine's {})".format(*apart(GATES, LOSS, "plain", "sine")),
        "sine is better by {} {}".format(*apart(GATES, LOSS, "gated", "sine")),
        "ReLU² is better than GELU by {} {})".format(*apart(INIT, LOSS, "relu_squared")),
    ]


def test_verdicts_on_the_page_of_todays_networks_are_those_of_the_tables():
    text = " ".join((ROOT / "docs/guide/today.md").read_text(encoding="utf-8").split())
    distances = {unit: apart(GATES, LOSS, "plain", unit)[0] for unit in TODAY}
    forms = itertools.product(("plain", "gated"), TODAY)
    outcomes = {(f, unit): outcome_of(GATES, LOSS, f"{unit} (block {f})") for f, unit in forms}
    undecided = {("plain", "relu_squared")} | {
        ("gated", unit)
        for unit in ("silu", "relu_squared", "mish", "tanh", "leaky_relu", "identity")
    }
    assert {at for at, outcome in outcomes.items() if outcome == "undecided"} == undecided
    assert {at for at, outcome in outcomes.items() if outcome == "better"} == {
        ("plain", "sine"),
        ("gated", "sine"),
    }
    assert outcomes["gated", "relu"] == outcomes["gated", "elu"] == "equivalent"
    for words in (
        "sine is better by {} nats per byte {};".format(*apart(GATES, LOSS, "plain", "sine")),
        "sine is better by {} {};".format(*apart(GATES, LOSS, "gated", "sine")),
        "SiLU are worse by {mish}, {relu} and {silu} (each".format(**distances),
        "identity are worse by {leaky_relu} to {identity} (each".format(**distances),
        "ReLU² is better than GELU by {} nats {};".format(*apart(INIT, LOSS, "relu_squared")),
        "SiLU is worse by {} {};".format(*apart(INIT, LOSS, "silu")),
    ):
        assert words in text


def test_verdicts_on_functions_of_coordinates_are_those_of_the_tables():
    text = " ".join((ROOT / "docs/guide/today.md").read_text(encoding="utf-8").split())
    # The others' runs failed, or nothing is said of them
    compared = (
        "sine",
        "mish",
        "tanh",
        "relu_squared",
    )
    error = {unit: ratio_text(cell(EQUATION, ERROR, unit)["paired"]["mean"]) for unit in compared}
    psnr = {unit: abs(cell(IMAGE, PSNR, unit)["paired"]["mean"]) for unit in (*TODAY, "gauss")}
    for words in (
        f"is {error['sine']} times GELU's (",
        "Mish has {mish} times GELU's error, tanh {tanh} "
        "and ReLU² {relu_squared} times (each".format(**error),
        f"Sine is better by {psnr['sine']:.1f} dB (9.9 to 10.1; p 0.00061)",
        f"The Gaussian is better by {psnr['gauss']:.1f} dB over",
        f"Tanh is better by {psnr['tanh']:.1f} dB (p",
        f"are worse by {short(psnr['relu'], 2)} to {psnr['relu_squared']:.2f} dB.",
    ):
        assert words in text
    outcomes = {unit: outcome_of(IMAGE, PSNR, unit) for unit in (*TODAY, "gauss")}
    assert {unit for unit, outcome in outcomes.items() if outcome == "better"} == {
        "sine",
        "gauss",
        "tanh",
    }
    assert {*outcomes.values()} == {"better", "worse"}
    at_chance = {unit for unit in TODAY if cell(EQUATION, ERROR, unit)["at_chance"]}
    assert at_chance == {"elu", "identity", "relu", "leaky_relu"}
    assert outcome_of(EQUATION, ERROR, "sine") == "better"
    assert outcome_of(EQUATION, ERROR, "silu") == "undecided"


def taking(study: str, *point: Any) -> str:
    """The relative time of an update with its range over fifths of the rounds."""
    (cost,) = (
        row["cost"] for row in table(study)["rows"] if list(row["point"].values()) == list(point)
    )
    parts = cost["relative_in_parts"]
    return f"{cost['relative_to_reference']:.2f} times ({min(parts):.2f} to {max(parts):.2f})"


def test_which_activation_is_answered_by_the_tables():
    text = (ROOT / "docs/guide/which_activation.md").read_text(encoding="utf-8")
    ((head, *body),) = [table for table in tables_of(text) if table[0][0] == "test error %"]
    units = [UNITS[name] for name in head[1:4]]
    for row, (study, name, rest) in zip(body, ANSWERS, strict=True):
        for unit, said in zip(units, row[1:4], strict=True):
            assert_same(said, [100 * cell(study, name, unit, *rest)["median"]], f"{row[0]}, {unit}")
        assert row[4].split(", ") == [
            outcome_of(study, name, unit, *rest) for unit in (units[0], units[2])
        ]
    prose = " ".join(text.split())
    assert [words for words in answers() if words not in prose] == []


def test_the_gpt_on_its_validation_passage_is_recomputed():
    runs = values(GATES)
    losses = runs.pivot(index="seed", columns=["block", UNIT], values="val/loss@last")
    others = [(form, unit) for form in ("plain", "gated") for unit in TODAY]
    to_gelu = {of: losses[of] - losses[of[0], "gelu"] for of in others}
    p_holm = dict(zip(others, holm([two_sided(to_gelu[of]) for of in others]), strict=True))

    def behind(form: str, unit: str, digits: int = 3) -> str:
        return f"{abs(to_gelu[form, unit].mean()):.{digits}f}"

    def gated(unit: str, digits: int = 3) -> str:
        low, high = Flips(to_gelu["gated", unit]).interval()
        ends = " to ".join(f"{end:.{digits}f}" for end in (low, high))
        p = short(p_holm["gated", unit] or 0.0, 4 if unit == "relu_squared" else 3)
        return f"by {behind('gated', unit, digits)} ({ends}; p {p}"

    plain = [behind("plain", unit) for unit in ("sine", "relu", "elu", "identity")]
    means = losses.mean()
    spread = means["gated"].std() / means["plain"].std()
    said = " ".join((RESULTS / GATES / "README.md").read_text(encoding="utf-8").split())
    for words in (
        "(sine −{}, ReLU {}, ELU {}, identity {})".format(*plain),
        f"- ReLU² {gated('relu_squared')})",
        f"- ReLU {gated('relu')}) - leaky ReLU {gated('leaky_relu', 4)})",
        f"the ratio of spreads is {short(spread, 2)}",
    ):
        assert words in said, words
