"""Make ``data/samples/text``: generated English-like sentences for models of bytes.

A small grammar makes them from the words of this file; no one wrote them. Several things can be
learnt: the letters of words, which words follow each other, the agreement of a verb with its
subject, and a name that comes back in the second half of a sentence.

    python data/make_text_sample.py [FOLDER]
"""

import random
import sys
from pathlib import Path

BYTES = 56_000
NAMES = "Anna Boris Clara David Emma Felix Greta Hugo Irma Jonas"
NOUNS = "river stone garden lantern harbour meadow letter window bridge orchard kettle ladder"
ANIMALS = "heron badger sparrow otter hare owl fox beetle"
ADJECTIVES = "old quiet silver narrow green heavy early distant wooden bright"
VERBS = "follow carry watch paint remember cross mend measure"
PLACES = "by the sea;behind the mill;under the hill;near the market;in the valley;along the wall"
TIMES = "In spring;At dawn;On Sunday;After the rain;Before noon;Every winter"
JOINTS = "and so;but;because;while;until"


def word(draw: random.Random, listed: str) -> str:
    """A word or phrase of a list."""
    return draw.choice(listed.split(";" if ";" in listed else " "))


def thing(draw: random.Random, plural: bool) -> str:
    """A noun with its article and sometimes an adjective."""
    noun = word(draw, NOUNS if draw.random() < 0.6 else ANIMALS)
    adjective = f"{word(draw, ADJECTIVES)} " if draw.random() < 0.4 else ""
    if not plural:
        return f"the {adjective}{noun}"
    ending = "es" if noun.endswith(("x", "s")) else "s"
    return f"{draw.choice(['two', 'three', 'many', 'the'])} {adjective}{noun}{ending}"


def agreeing(verb: str, plural: bool) -> str:
    """A verb in the present tense, in agreement with its subject."""
    return (
        verb
        if plural
        else f"{verb}es"
        if verb.endswith(("ss", "sh", "ch"))
        else f"{verb}s".replace("ys", "ies")
    )


def clause(draw: random.Random, subject: str, plural: bool) -> str:
    """A subject, its verb, an object and sometimes a place."""
    place = f" {word(draw, PLACES)}" if draw.random() < 0.35 else ""
    return (
        f"{subject} {agreeing(word(draw, VERBS), plural)} {thing(draw, draw.random() < 0.4)}{place}"
    )


def sentence(draw: random.Random) -> str:
    """One or two clauses, whose second one may be of the same person."""
    plural, named = draw.random() < 0.4, draw.random() < 0.5
    name = word(draw, NAMES)
    subject = name if named else thing(draw, plural)
    text = clause(draw, subject, plural and not named)
    if draw.random() < 0.45:
        other = name if named and draw.random() < 0.7 else word(draw, NAMES)
        text += f", {word(draw, JOINTS)} {clause(draw, other, False)}"
    start = f"{word(draw, TIMES)}, " if draw.random() < 0.25 else ""
    text = start + text
    return f"{text[0].upper()}{text[1:]}{'!' if draw.random() < 0.05 else '.'}"


def main() -> None:
    """Write the sample; the same bytes each time."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "samples" / "text"
    folder.mkdir(parents=True, exist_ok=True)
    draw, text = random.Random("sentences"), ""
    while len(text) < BYTES:
        text += " ".join(sentence(draw) for _ in range(draw.randint(3, 6))) + "\n"
    (folder / "sample.txt").write_text(text, encoding="ascii", newline="\n")


if __name__ == "__main__":
    main()
