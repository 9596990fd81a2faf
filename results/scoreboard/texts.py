"""Write the second and third text of the scoreboard from the files of two Debian packages.

    apt-get download glibc-source perl-doc
    for package in *.deb; do dpkg-deb -x $package packages; done
    python results/scoreboard/texts.py packages texts

``packages`` has the packages' files, ``texts`` gets ``glibc.txt`` and ``perl.txt``. Files follow
each other in the order of the SHA-256 of their names, so that training, validation and test text
are of the same kinds.
"""

import hashlib
import sys
import tarfile
from pathlib import Path

FOLDERS = ("libio", "nptl", "posix", "stdio-common", "string")  # of the sources of glibc
TABLES = ("perltoc.pod", "perluniprops.pod")  # tables in the manual of Perl


def sources_of_glibc(packages: Path) -> dict[str, bytes]:
    """Return the C files of some folders by name."""
    (file,) = packages.glob("usr/src/glibc/glibc-*.tar.xz")
    with tarfile.open(file) as archive:
        names = {member.name: member for member in archive if member.isfile()}
        wanted = [
            n
            for n in names
            if n.endswith(".c") and n.split("/")[1] in FOLDERS and n.count("/") == 2
        ]
        return {name: archive.extractfile(names[name]).read() for name in wanted}


def manual_of_perl(packages: Path) -> dict[str, bytes]:
    """Return the pages of Perl's manual by name, without release notes and tables."""
    (folder,) = packages.glob("usr/share/perl/*/pod")
    pages = (page for page in folder.glob("perl[a-z]*.pod") if page.name not in TABLES)
    return {page.name: page.read_bytes() for page in pages}


def joined(files: dict[str, bytes]) -> bytes:
    """Return one text of all files, in the order of the digests of their names."""
    return b"".join(
        files[name] for name in sorted(files, key=lambda n: hashlib.sha256(n.encode()).digest())
    )


def main(packages: Path, texts: Path) -> None:
    """Write both texts, and print what identifies them."""
    texts.mkdir(parents=True, exist_ok=True)
    for name, files in {
        "glibc": sources_of_glibc(packages),
        "perl": manual_of_perl(packages),
    }.items():
        text = joined(files)
        (texts / f"{name}.txt").write_bytes(text)
        print(
            f"{name}.txt: {len(files)} files, {len(text):,} bytes, sha256 "
            f"{hashlib.sha256(text).hexdigest()}"
        )


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
