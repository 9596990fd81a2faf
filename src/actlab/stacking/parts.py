"""Continue some members of a stack as a smaller stack, from the checkpoint of the whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from actlab.stacking.layers import PerMember
from actlab.stacking.task import PLACES, StackedTask
from actlab.tasks.complete import record_stateless


def part_of(checkpoint: Mapping[str, Any], part: StackedTask, start: int) -> dict[str, Any] | None:
    """Return the checkpoint of the members of a stack from number ``start`` on, as many as ``part`` has.

    None if there is none: a scheduler of torch knows the optimiser's groups, of which the part has fewer.
    """
    (whole,) = checkpoint["optimizer_states"]
    optimizer = _optimizer(whole, checkpoint[PLACES], part, start)
    if checkpoint["lr_schedulers"] and len(optimizer["param_groups"]) < len(whole["param_groups"]):
        return None
    weights = {
        name: _weight(name, own, checkpoint["state_dict"], part, start)
        for name, own in part.state_dict().items()
    }
    plateaus = {}
    for key, values in checkpoint["plateaus"].items():
        member, _, setting = key.partition(" ")
        if start <= int(member) < start + len(part.members):
            plateaus[f"{int(member) - start} {setting}"] = values
    found = {**checkpoint, "state_dict": weights, "plateaus": plateaus, "optimizer_states": [optimizer]}
    record_stateless(found)
    return found


def _weight(name: str, own: Any, whole: Mapping[str, Any], part: StackedTask, start: int) -> Any:
    """Return a part's tensor: some rows of the whole's, or the whole's under the number of the member there."""
    for path, module in part.network.named_modules(prefix="network"):
        if isinstance(module, PerMember) and name.startswith(f"{path}.members."):
            number, _, inner = name.removeprefix(f"{path}.members.").partition(".")
            return whole[f"{path}.members.{int(number) + start}.{inner}"]
    return whole[name][start : start + len(own)].clone() if isinstance(own, Tensor) else own


def _optimizer(
    whole: Mapping[str, Any], places: list[tuple[str, int, int]], part: StackedTask, start: int
) -> dict[str, Any]:
    """Return the state of a part's optimiser; its parameters lie within those of the whole's optimiser."""
    groups = {number: group for group in whole["param_groups"] for number in group["params"]}
    optimizer, _ = part.optimizer_of_all()
    found: dict[str, Any] = {"state": {}, "param_groups": []}
    for group in optimizer.state_dict()["param_groups"]:
        for own in group["params"]:
            name, first, last = part.slices.places[own]
            first, last = first + start, last + start
            number = next(n for n, (other, a, b) in enumerate(places) if other == name and a <= first < b)
            _, a, b = places[number]
            if number in whole["state"]:
                state = whole["state"][number].items()
                found["state"][own] = {key: _rows(value, first - a, last - a, b - a) for key, value in state}
        found["param_groups"].append({**groups[number], "params": group["params"]})
    return found


def _rows(value: Any, first: int, last: int, size: int) -> Any:
    """Return rows of a tensor with a row for each of ``size`` runs; other values, such as a step, unchanged."""
    of_runs = isinstance(value, Tensor) and value.dim() > 0 and len(value) == size and last - first < size
    return value[first:last].clone() if of_runs else value
