"""Reports: what the runs wrote, as tables, figures and W&B histories. They read results and run nothing."""
