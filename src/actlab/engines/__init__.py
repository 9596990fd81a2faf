"""How the runs of a study are trained and evaluated: run folders, engines, packing, cost."""
