"""The 61 phones of TIMIT's transcriptions and the 39 classes that they are folded into.

K.-F. Lee & H.-W. Hon, "Speaker-Independent Phone Recognition Using Hidden Markov Models", IEEE Transactions on
Acoustics, Speech, and Signal Processing 37(11), 1989: training merges the 61 phones into 48 (§II). Confusions
within some groups of these 48 do not count as errors (Table I), which leaves 39 classes. The glottal stop ``q``
is deleted.
"""

from __future__ import annotations

# Columns: one of the 61 phones, its class of 48, its class of 39. Phones that are not listed do not change.
_FOLDED = """
ao    ao   aa
ax    ax   ah
ax-h  ax   ah
axr   er   er
ix    ix   ih
ux    uw   uw
el    el   l
em    m    m
en    en   n
nx    n    n
eng   ng   ng
hv    hh   hh
zh    zh   sh
pcl   cl   sil
tcl   cl   sil
kcl   cl   sil
bcl   vcl  sil
dcl   vcl  sil
gcl   vcl  sil
epi   epi  sil
h#    sil  sil
pau   sil  sil
"""
_KEPT = """
aa ae ah aw ay b ch d dh dx eh er ey f g hh ih iy jh k l m n ng ow oy p r s sh t th uh uw v w y z
"""
DELETED, SILENCE = "q", "h#"  # SILENCE begins and ends a sentence

FOLDING: dict[str, tuple[str, str]] = {phone: (phone, phone) for phone in _KEPT.split()} | {
    phone: (of_48, of_39) for phone, of_48, of_39 in map(str.split, _FOLDED.strip().splitlines())
}
PHONES = (*sorted([*FOLDING, DELETED]),)
CLASSES = (*sorted({of_39 for _, of_39 in FOLDING.values()}),)

NO_CLASS = -1  # class of a frame that is not a target
CLASS_OF = {phone: CLASSES.index(of_39) for phone, (_, of_39) in FOLDING.items()} | {DELETED: NO_CLASS}
