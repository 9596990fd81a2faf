"""Train and evaluate the runs of a study: engines, packing into stacks, recording, probes, costs."""
