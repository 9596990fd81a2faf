"""How the benchmarks print what they measured."""

from collections.abc import Mapping


def show(figures: Mapping[str, float]) -> None:
    """Print one figure a line."""
    for name, value in figures.items():
        print(f"{name:36} {value:12.4g}", flush=True)
