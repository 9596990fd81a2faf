"""Configs: their keys and classes, parsing, the identity of a run, and the record in its checkpoints."""
