"""Random numbers as functions of what they are for: seeds, streams, draws for samples."""
