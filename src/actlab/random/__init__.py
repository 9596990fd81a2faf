"""Random numbers determined by seed, purpose and position: seeds, streams, numbers for samples."""
