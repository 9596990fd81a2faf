"""The command ``actlab``: one module a command."""
