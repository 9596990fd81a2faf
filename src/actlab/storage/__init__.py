"""File access: atomic writes, digests, checkpoints, YAML, recorded series and packaged resources."""
