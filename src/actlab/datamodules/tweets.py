"""Read tweets with part-of-speech tags in the ARK format, and normalise the spelling of tokens."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from actlab.datamodules.lines import lines
from actlab.errors import ActlabError

# The tags of Gimpel et al. 2011, Table 1; a label is the index of a tag.
TAGS = tuple("NO^SZVAR!DP&TX#@~UE$,GLMY")
LABELS = {tag: label for label, tag in enumerate(TAGS)}

_MENTION = re.compile(r"[@＠][A-Za-z0-9_]+")
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", re.ASCII)
_URL = re.compile(
    r"(?:https?://(?:www\.)?|www\.)(?P<host>[^\s/?#:]+)(?:[/?#:]\S*)?",
    re.IGNORECASE | re.ASCII,
)
# Without http:// or www., a word with a dot need not be a host, for example "u.s". A
# generic top-level domain makes the word a host; a country-code domain does so only if
# a path follows.
_BARE = re.compile(
    r"(?P<host>(?:[a-z0-9-]+\.)+"
    r"(?:(?:com|org|net|edu|gov|mil|int|info|biz|name|mobi|travel)(?=/|$)|[a-z]{2}(?=/)))"
    r"(?:/\S*)?",
    re.IGNORECASE | re.ASCII,
)


class Tweet(NamedTuple):
    """The tokens of a tweet as written, and their labels."""

    tokens: list[str]
    labels: list[int]


def normalize(token: str) -> str:
    """Return a token in the spelling of the 56-million-tweet corpus.

    User names and e-mail addresses become ``<@MENTION>``. A URL, with or without ``http://``,
    becomes ``<URL-host>``, with the host in its original case and without ``www.``. All other
    tokens become lower case. (A handful of the 26,594 tokens in the GELU authors' own files follow
    no rule.)

    Source: Owoputi et al. 2013; GELU §3.3.

    >>> tokens = "Hello", "@Bob", "http://www.NYTimes.com/x", "site.org/page"
    >>> [normalize(token) for token in tokens]
    ['hello', '<@MENTION>', '<URL-NYTimes.com>', '<URL-site.org>']
    """
    if _MENTION.fullmatch(token) or _EMAIL.fullmatch(token):
        return "<@MENTION>"
    url = _URL.fullmatch(token) or _BARE.fullmatch(token)
    if url:
        return f"<URL-{url['host']}>"
    return token.lower()


def read_tweets(path: Path) -> list[Tweet]:
    """Return the tweets of a file: one ``token TAB tag`` per line, an empty line after each tweet.

    Raises:
        ActlabError: if the file is malformed or empty.
    """
    tweets: list[Tweet] = []
    tweet = Tweet([], [])
    for number, line in lines(path):
        # An empty line ends a tweet.
        if not line.strip(" "):
            tweet = Tweet([], [])
            continue

        token, _, tag = line.partition("\t")
        if not token or tag not in LABELS:
            raise ActlabError(
                f"{path}, line {number}: expected a token, a tab and a tag of {' '.join(TAGS)}, "
                f"got {line[:60]!r}"
            )
        # The first token adds the tweet, so empty lines may repeat.
        if not tweet.tokens:
            tweets.append(tweet)
        tweet.tokens.append(token)
        tweet.labels.append(LABELS[tag])
    if not tweets:
        raise ActlabError(
            f"{path}: expected tweets (on each line a token, a tab and its tag), got an empty file"
        )
    return tweets
