"""Prints whether freed memory is kept, and the page faults of the last of forty tensors of one size."""

import resource

import torch

from actlab.runtime.devices import keep_freed


def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(4_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


print(keep_freed(), [faults() for _ in range(40)][-1])
