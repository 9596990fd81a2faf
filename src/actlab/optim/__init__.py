"""An Adam variant that torch lacks, parameter groups with weight decay, and schedules."""

from actlab.optim.adam import AdamEpsilonInRoot
from actlab.optim.groups import KINDS, L2, Kind, groups, kinds, penalty
from actlab.optim.scheduler import SETTINGS, Scheduler
from actlab.optim.schedules import (
    By,
    Cosine,
    Linear,
    Plateau,
    Schedule,
    Steps,
    Warmup,
    is_stateful,
)

__all__ = [
    "KINDS",
    "L2",
    "SETTINGS",
    "AdamEpsilonInRoot",
    "By",
    "Cosine",
    "Kind",
    "Linear",
    "Plateau",
    "Schedule",
    "Scheduler",
    "Steps",
    "Warmup",
    "groups",
    "is_stateful",
    "kinds",
    "penalty",
]
