"""Reports: tables, figures and W&B histories of finished runs; only read results."""
