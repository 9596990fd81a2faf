"""Study files, the runs that they describe, and the files of each run."""
