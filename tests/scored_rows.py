"""The stored data sets of the scoreboard, and rows of tables by hand, with eight runs each."""

import math

import tables_by_hand

UNIT = "model.activation"
SEEDS = [str(seed) for seed in range(5, 13)]
# Folder in `results`, column and chance level of each data set with stored runs
STORED = {
    ("text", "Bible"): ("gpt_gates", "test/loss@last", 3.15),
    ("text", "C sources"): ("scoreboard/glibc", "test/loss@last", 3.63),
    ("equation", "chosen by loss"): ("scoreboard/equations", "test/relative_error@last", 1.0),
    ("picture", "CIFAR-10 mosaic"): ("inr_image", "test/psnr@last", 12.26),
    ("picture", "photograph"): ("scoreboard/photograph", "test/psnr@last", 10.86),
    ("picture", "page of text"): ("scoreboard/page", "test/psnr@last", 10.89),
    ("picture", "texture"): ("scoreboard/texture", "test/psnr@last", 12.89),
    ("picture", "cat"): ("scoreboard/cat", "test/psnr@last", 18.0),
    ("picture", "coffee"): ("scoreboard/coffee", "test/psnr@last", 12.14),
    ("picture", "tissue"): ("scoreboard/tissue", "test/psnr@last", 14.08),
    ("classifier", "MNIST"): ("scoreboard/mnist", "test/error@last", 0.886),
    ("classifier", "Fashion-MNIST"): ("scoreboard/fashion_mnist", "test/error@last", 0.899),
    ("tabular", "letter"): ("scoreboard/tabular_letter", "test/error@last", 0.955),
    ("tabular", "satimage"): ("scoreboard/tabular_satimage", "test/error@last", 0.726),
    ("tabular", "penbased"): ("scoreboard/tabular_penbased", "test/error@last", 0.892),
    ("tabular", "optdigits"): ("scoreboard/tabular_optdigits", "test/error@last", 0.881),
    ("tabular", "magic"): ("scoreboard/tabular_magic", "test/error@last", 0.353),
    ("tabular", "spambase"): ("scoreboard/tabular_spambase", "test/error@last", 0.38),
    ("tagging", "Twitter POS"): ("scoreboard/tagging", "test/error@last", 0.853),
    ("autoencoder", "MNIST"): ("scoreboard/autoencoder_mnist", "test/loss@last", 0.067),
    ("autoencoder", "Fashion-MNIST"): (
        "scoreboard/autoencoder_fashion_mnist",
        "test/loss@last",
        0.086,
    ),
    ("convolutions", "CIFAR-10"): ("scoreboard/convolutions_cifar10", "test/error@last", 0.9),
    ("convolutions", "CIFAR-100"): ("scoreboard/convolutions_cifar100", "test/error@last", 0.99),
}


def row(label, values, **column):
    numbers = [math.inf if value is None else value for value in values]
    middle = sorted(numbers)[len(numbers) // 2]
    cell = tables_by_hand.cell(
        dict(zip(SEEDS, values, strict=True)),
        None if math.isinf(middle) else middle,
        percent=False,
        **column,
    )
    return {"point": {UNIT: label}, "chosen": {}, "edges": [], "columns": [cell]}


def spread(middle):
    return [middle * (1 + 0.01 * number) for number in range(-4, 4)]


def noisy(middle):
    return [middle + 0.1 * number for number in range(-4, 4)]  # decibels
