"""Values, selected settings, medians and tests of finished runs; only reads files."""
