"""Print the status of a study, then which heavy packages that has loaded."""

import sys

from actlab.__main__ import main

assert main(["study", "status", *sys.argv[1:]]) == 0
heavy = {"torch", "pytorch_lightning", "pandas", "scipy", "matplotlib"} & sys.modules.keys()
print("loaded:", *(sorted(heavy) or ["nothing heavy"]))
