"""Studies: many runs from one file, compared. Plan (pure) → engine (sequential, stacked) → results (from disk)."""
