"""What surrounds training in a process: signals, calls of third-party code, matrix products, module modes."""
