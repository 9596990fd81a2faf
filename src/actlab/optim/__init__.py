"""What an optimiser is given: groups of parameters with their decay, and schedules of its settings."""

from actlab.optim.groups import KINDS, L2, Kind, groups, kinds
from actlab.optim.scheduler import SETTINGS, Scheduler, is_stateful
from actlab.optim.schedules import Cosine, Linear, Plateau, Schedule, Steps

__all__ = [
    "KINDS",
    "L2",
    "SETTINGS",
    "Cosine",
    "Kind",
    "Linear",
    "Plateau",
    "Schedule",
    "Scheduler",
    "Steps",
    "groups",
    "is_stateful",
    "kinds",
]
