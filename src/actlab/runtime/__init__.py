"""The process around training: signals, third-party code, matmul backends, modes of modules."""
