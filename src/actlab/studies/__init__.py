"""Studies: many runs from one file. Plan (pure) → engine (sequential, stacked) → results (from disk)."""
