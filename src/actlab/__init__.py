"""actlab: activation functions and stochastic maps, compared honestly.

Importing this package is light: torch, Lightning and the rest load with the part that needs them.
"""

__version__ = "0.1.0"
