"""Process-level support for training: signals, calls of third-party code, matmul backends, module modes."""
