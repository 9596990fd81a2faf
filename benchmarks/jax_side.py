"""The opponent of the stacks: R MNIST classifiers in JAX, ``vmap`` over members, jitted ``scan``.

    python benchmarks/jax_side.py DATA.npz --members R [--dropout P]

What a careful user of JAX writes: images on the device as float32, a new permutation an epoch and
member, Adam of optax, validation where the engine validates and the test set at the end, with
dropout the clean training loss before each update, all in one compiled call whose state is donated.
For every line on standard input it trains one epoch and prints its seconds; `sides.Jax` holds the
other end.

Shapes: ``R`` members, ``N`` samples, ``B`` batch, ``U`` updates an epoch.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

WIDTHS = (784, *[128] * 8, 10)
BATCH, RATE = 128, 1e-3
ADAM = optax.adam(RATE)
Data = dict[str, tuple[jax.Array, jax.Array]]  # train, val, test: images (N, 784), labels (N,)
Network = list[tuple[jax.Array, jax.Array]]


def initial(key: jax.Array) -> tuple[Network, Any]:
    """Parameters and Adam's state of one member."""
    keys = jax.random.split(key, len(WIDTHS) - 1)
    shapes = zip(keys, pairwise(WIDTHS), strict=True)
    network = [(jax.random.normal(k, (d, out)) / d**0.5, jnp.zeros(out)) for k, (d, out) in shapes]
    return network, ADAM.init(network)


def logits(network: Network, x: jax.Array, dropout: float, key: jax.Array | None) -> jax.Array:
    """Of images ``(B, 784)``; without a key nothing is dropped."""
    for number, (weight, bias) in enumerate(network[:-1]):
        x = jax.nn.gelu(x @ weight + bias, approximate=False)
        if key is not None:
            kept = jax.random.bernoulli(jax.random.fold_in(key, number), 1 - dropout, x.shape)
            x = jnp.where(kept, x / (1 - dropout), 0)
    weight, bias = network[-1]
    return x @ weight + bias


def mean_loss(
    network: Network, x: jax.Array, y: jax.Array, dropout: float, key: jax.Array | None
) -> jax.Array:
    """Mean cross-entropy of a batch."""
    return optax.softmax_cross_entropy_with_integer_labels(
        logits(network, x, dropout, key), y
    ).mean()


def evaluated(network: Network, data: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Mean loss and error over a data set."""
    x, y = data
    found = logits(network, x, 0.0, None)
    losses = optax.softmax_cross_entropy_with_integer_labels(found, y)
    return losses.mean(), (found.argmax(-1) != y).mean()


def epoch(
    dropout: float, checks: tuple[int, int], state: Any, key: jax.Array, data: Data
) -> tuple[Any, Any]:
    """Train one member for an epoch.

    Args:
        dropout: drop probability.
        checks: how many validations, and updates before each.
        state: parameters and Adam's state.
        key: of the epoch and member.
        data: shared by all members.

    Returns:
        The state, and the training, validation and test metrics.
    """
    images, labels = data["train"]

    def update(state: Any, step: tuple[jax.Array, jax.Array]) -> tuple[Any, Any]:
        (network, moments), (rows, key) = state, step
        x, y = images[rows], labels[rows]
        clean = mean_loss(network, x, y, 0.0, None) if dropout else 0.0
        given = key if dropout else None
        loss, gradient = jax.value_and_grad(mean_loss)(network, x, y, dropout, given)
        change, moments = ADAM.update(gradient, moments)
        return (optax.apply_updates(network, change), moments), (loss, clean)

    def section(state: Any, steps: Any) -> tuple[Any, Any]:
        state, losses = jax.lax.scan(update, state, steps)
        return state, (losses, evaluated(state[0], data["val"]))

    updates, (number, between) = len(images) // BATCH, checks
    order = jax.random.permutation(key, len(images))[: updates * BATCH].reshape(updates, BATCH)
    steps = order, jax.random.split(key, updates)
    first = jax.tree.map(
        lambda a: a[: number * between].reshape(number, between, *a.shape[1:]), steps
    )
    state, (losses, validated) = jax.lax.scan(section, state, first)
    state, rest = jax.lax.scan(update, state, jax.tree.map(lambda a: a[number * between :], steps))
    means = jax.tree.map(lambda a, b: (a.sum() + b.sum()) / updates, losses, rest)
    return state, (means, validated, evaluated(state[0], data["test"]))


def program(members: int, dropout: float, data: Data, interval: float) -> Callable[[], float]:
    """What trains all members for one epoch, the metrics fetched, and returns its seconds."""
    between = int(len(data["train"][0]) // BATCH * interval)
    checks = len(data["train"][0]) // BATCH // between, between
    mapped = jax.vmap(partial(epoch, dropout, checks), in_axes=(0, 0, None))
    compiled = jax.jit(mapped, donate_argnums=0)
    state = jax.vmap(initial)(jax.random.split(jax.random.key(0), members))
    number = 0

    def run() -> float:
        nonlocal state, number
        start = time.perf_counter()
        number += 1
        state, metrics = compiled(state, jax.random.split(jax.random.key(number), members), data)
        losses = np.asarray(jax.device_get(metrics)[0][0])
        assert losses.shape == (members,)
        assert np.isfinite(losses).all()
        jax.block_until_ready(state)
        return time.perf_counter() - start

    return run


def read(path: str) -> Data:
    """Images to float32 in [0, 1], onto the device."""
    with np.load(path) as file:
        return {
            part: (
                jnp.asarray(file[f"{part}_images"].reshape(-1, WIDTHS[0]), jnp.float32) / 255,
                jnp.asarray(file[f"{part}_labels"], jnp.int32),
            )
            for part in ("train", "val", "test")
        }


def main() -> None:
    """Train an epoch for every line read."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", help="images uint8 and labels, NAME_images and NAME_labels")
    parser.add_argument("--members", type=int, default=15)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument(
        "--interval", type=float, default=0.334, help="validate after this part of an epoch"
    )
    args = parser.parse_args()
    run = program(args.members, args.dropout, read(args.data), args.interval)
    for _ in sys.stdin:
        print(run(), flush=True)


if __name__ == "__main__":
    main()
