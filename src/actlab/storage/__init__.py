"""What lies on disk: its names, its digests and its records."""
