"""The 61 phones of TIMIT's transcriptions and the 39 classes that they are folded into.

K.-F. Lee & H.-W. Hon, "Speaker-Independent Phone Recognition Using Hidden Markov Models", IEEE
Transactions on Acoustics, Speech, and Signal Processing 37(11), 1989: training merges the 61 phones
into 48 (§II). Confusions within some groups of these 48 do not count as errors (Table I), which
leaves 39 classes. The glottal stop ``q`` is deleted.
"""

from __future__ import annotations

# A class, and the phones that are folded into it; all other phones are classes of their
# own.
_FOLDED = """
aa   ao
ah   ax ax-h
er   axr
hh   hv
ih   ix
l    el
m    em
n    en nx
ng   eng
sh   zh
sil  h# pau epi pcl tcl kcl bcl dcl gcl
uw   ux
"""
_CLASSES = """
aa ae ah aw ay b ch d dh dx eh er ey f g hh ih iy jh k l m n ng ow oy p r s sh t th uh uw v w y z
"""
DELETED = "q"
SILENCE = "h#"  # begins and ends a sentence
NO_CLASS = -1  # class of a frame that is not a target


def _folding() -> dict[str, str]:
    """Return the class of each phone."""
    # Each class is named by one of its phones.
    folding = {phone: phone for phone in _CLASSES.split()}
    for line in _FOLDED.strip().splitlines():
        kind, *phones = line.split()
        folding |= dict.fromkeys(phones, kind)
    return folding


FOLDING = _folding()
PHONES = tuple(sorted([*FOLDING, DELETED]))
CLASSES = tuple(sorted(set(FOLDING.values())))
# The number of each phone's class
CLASS_OF = {phone: CLASSES.index(kind) for phone, kind in FOLDING.items()}
CLASS_OF[DELETED] = NO_CLASS
