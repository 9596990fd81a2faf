"""Runs first in processes that a test spawns: actlab comes before Lightning, as in a script."""

import actlab  # noqa: F401
