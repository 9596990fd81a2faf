"""Train and evaluate the runs of a study: workers, stacks, recording, probes, costs."""
