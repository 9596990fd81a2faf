"""Recorded speech with phone labels: files of a corpus become frames of features, once."""
