"""Stacked training: R runs of one network as one program."""
