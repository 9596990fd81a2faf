"""Rows of tables for a scoreboard by hand, with eight runs each."""

import math

import tables_by_hand

UNIT = "model.activation"
SEEDS = [str(seed) for seed in range(5, 13)]


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
