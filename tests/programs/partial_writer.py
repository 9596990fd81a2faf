"""Writes half of the file that it is given, and the whole when its standard input ends."""

import os
import sys
from pathlib import Path

from actlab.storage.files import replacing

# As in another container, which numbers its processes from 1 as well
os.getpid = lambda: 999_999_999
with replacing(Path(sys.argv[1])) as partial:
    partial.write_text("half")
    print(partial, flush=True)
    sys.stdin.read()
    partial.write_text("whole")
