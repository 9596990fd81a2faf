"""Make ``data/samples/twitter_pos``: generated tweets in the ARK format, and word clusters.

The real tweets may not travel with this project, so these are made by a small grammar and no one
wrote them. Each split holds all 25 tags. What can be learnt is of three kinds: words of one tag,
words whose tag the neighbours decide ("a play", "i play"), and words that have no cluster.

    python data/make_twitter_pos_sample.py [FOLDER]
"""

import random
import sys
from pathlib import Path

COUNTS = {"train": 120, "dev": 40, "test": 40}  # tweets
LEXICON = {
    "N": "dog cat game house pizza phone movie team tea bread river train garden picture lesson",
    "O": "I you he she we they it",
    "^": "Anna Paris London Monday Ravel Oslo Texas Friday",
    "S": "dog's team's teacher's city's",
    "Z": "Anna's London's Ravel's",
    "V": "like see want eat love need is was build paint",
    "A": "big small good new happy red quiet late",
    "R": "now very never here again soon",
    "!": "lol wow haha yes oh",
    "D": "the a this my our",
    "P": "in at with for of",
    "&": "and but or",
    "T": "up out down",
    "X": "there all both",
    "#": "#win #fun #news",
    "@": "@amy_1 @Ben @carl77",
    "~": "RT << ...",
    "U": "http://t.co/a1 http://t.co/b2 www.example.com/x example.org",
    "E": ":) ;) <3 :(",
    "$": "1 2 three 2011",
    ",": ". ! ? ,",
    "G": "-> | ily",
    "L": "I'm he's it's you're",
    "M": "Anna'll Ravel'll",
    "Y": "there's there'll",
}
AMBIGUOUS = "play watch call run"  # nouns after a determiner or adjective, verbs after a pronoun
UNCLUSTERED = {"lesson", "picture", "paint", "ravel"}
TWEETS = [
    "O V D A N ,",
    "~ @ ~ O V D N U",
    "@ ! L R A E",
    "^ V P ^ $ #",
    "Z N V R A ,",
    "D S N V T P D N",
    "Y $ N G",
    "M V D N & V O E",
    "X V D A N , !",
    "O V O R , O V P ^",
    "! , D N V A & A #",
    "~ @ ~ Z A N V T U",
    "L P D N P ^ , E",
    "O V X $ N U",
]
# The first bits of a tag's words
PREFIX = {tag: f"{place:05b}" for place, tag in enumerate(LEXICON)}
PREFIX_AMBIGUOUS = "11111"


def word_of(tag: str, left: str, draw: random.Random) -> str:
    """A word of a tag; one time in three, where its left neighbour decides, an ambiguous one."""
    decided = (tag == "N" and left in "DA") or (tag == "V" and left in "OX")
    return draw.choice((AMBIGUOUS if decided and draw.random() < 1 / 3 else LEXICON[tag]).split())


def tweet(draw: random.Random) -> list[tuple[str, str]]:
    """Tokens and tags."""
    template = draw.choice(TWEETS).split()
    lefts = ["~", *template]
    return [(word_of(tag, left, draw), tag) for tag, left in zip(template, lefts, strict=False)]


def spelled(word: str) -> str:
    """A word as the clusters have it."""
    if word.startswith("@"):
        return "<@MENTION>"
    for url, host in (
        ("http://t.co", "t.co"),
        ("www.", "example.com"),
        ("example.org", "example.org"),
    ):
        if word.startswith(url):
            return f"<URL-{host}>"
    return word.lower()


def clusters(draw: random.Random) -> list[str]:
    """A line ``path TAB word TAB count`` for each word; words of one tag share their first bits."""
    prefixes = {
        spelled(word): PREFIX[tag] for tag, listed in LEXICON.items() for word in listed.split()
    }
    prefixes |= dict.fromkeys(AMBIGUOUS.split(), PREFIX_AMBIGUOUS)
    rows = []
    for word, prefix in prefixes.items():
        if word not in UNCLUSTERED:
            tail = "".join(draw.choices("01", k=draw.randrange(2, 12)))
            rows.append((prefix + tail, word, draw.randrange(40, 5000)))
    return [f"{path}\t{word}\t{count}\n" for path, word, count in sorted(rows)]


def main() -> None:
    """Write the sample; the same bytes each time."""
    folder = (
        Path(sys.argv[1])
        if len(sys.argv) > 1
        else Path(__file__).parent / "samples" / "twitter_pos"
    )
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in COUNTS.items():
        draw = random.Random(f"tweets {split}")
        tweets = [tweet(draw) for _ in range(count)]
        text = "".join("".join(f"{word}\t{tag}\n" for word, tag in made) + "\n" for made in tweets)
        (folder / f"oct27.{split}").write_text(text, encoding="utf-8", newline="\n")
    text = "".join(clusters(random.Random("clusters")))
    (folder / "50mpaths2").write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
