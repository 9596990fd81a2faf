"""HTML pages, each a single self-contained file that loads nothing from the network."""
