"""Runs at the start of processes that a test spawns: actlab comes before Lightning, as in a user's script."""

import actlab  # noqa: F401
