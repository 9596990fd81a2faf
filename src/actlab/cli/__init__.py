"""The command line ``actlab``, with one module per command."""
