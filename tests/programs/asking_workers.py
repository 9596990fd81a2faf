"""Asks two workers for a hash and a module of the current folder."""

import sys
from pathlib import Path

from actlab.engines import workers

workers._PRELOADED = []  # asking takes no library

if __name__ == "__main__":
    sys.path += [str(Path.cwd()), str(Path(__file__).parent)]
    for _ in range(2):
        with workers.Worker() as worker:
            print(
                worker.call("folder_of_mine:start"), worker.call("asking_workers:hashed"), sep=","
            )


def hashed():
    """Return the hash of a text."""
    return hash("a text")
