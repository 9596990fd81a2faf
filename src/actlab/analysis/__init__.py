"""What finished runs say: values, chosen settings, medians, tests. Reads files only."""
