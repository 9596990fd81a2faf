"""Files: atomic writes, digests, checkpoints, YAML, recorded series and packaged resources."""
