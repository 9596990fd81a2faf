"""Read corpora of recorded speech with phone labels and compute features of their frames."""
