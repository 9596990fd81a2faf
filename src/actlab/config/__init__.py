"""What a config says: its keys, the classes it names, what of it counts, and its record in checkpoints."""
