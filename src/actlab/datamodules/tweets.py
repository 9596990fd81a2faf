"""Tweets with part-of-speech tags: reading the ARK format, and words as the vectors' corpus spells them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from actlab.datamodules.lines import decoded, lines
from actlab.errors import ActlabError

# The tags of Gimpel et al. 2011, Table 1; a label is a tag's place here.
TAGS = tuple("NO^SZVAR!DP&TX#@~UE$,GLMY")
LABELS = {tag: label for label, tag in enumerate(TAGS)}

_MENTION = re.compile(r"[@＠][A-Za-z0-9_]+")
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", re.ASCII)
_URL = re.compile(r"(?:https?://(?:www\.)?|www\.)(?P<host>[^\s/?#:]+)(?:[/?#:]\S*)?", re.IGNORECASE | re.ASCII)
# Without http:// or www. a word with a dot may be anything, such as "u.s": a general ending stands for a host
# by itself, a country's only before a path.
_BARE = re.compile(
    r"(?P<host>(?:[a-z0-9-]+\.)+(?:(?:com|org|net|edu|gov|mil|int|info|biz|name|mobi|travel)(?=/|$)|[a-z]{2}(?=/)))"
    r"(?:/\S*)?",
    re.IGNORECASE | re.ASCII,
)


class Tweet(NamedTuple):
    """The tokens of a tweet as written, and the label of each."""

    tokens: list[str]
    labels: list[int]


def normalize(token: str) -> str:
    """A token as the words of the 56-million-tweet corpus are spelled (Owoputi et al. 2013; GELU §3.3).

    Lower case; names of users and e-mail addresses become ``<@MENTION>``; a URL, with ``http://`` or without,
    becomes ``<URL-host>``, the host without ``www.`` and in the case that it has. (A handful of the 26,594
    tokens of the GELU authors' own files follow no rule.)

    >>> [normalize(token) for token in ("Hello", "@Bob", "http://www.NYTimes.com/x", "site.org/page")]
    ['hello', '<@MENTION>', '<URL-NYTimes.com>', '<URL-site.org>']
    """
    if _MENTION.fullmatch(token) or _EMAIL.fullmatch(token):
        return "<@MENTION>"
    if url := _URL.fullmatch(token) or _BARE.fullmatch(token):
        return f"<URL-{url['host']}>"
    return token.lower()


def read_tweets(path: Path) -> list[Tweet]:
    """The tweets of a file: ``token TAB tag`` a line, an empty line after each tweet.

    Raises:
        ActlabError: for a file that cannot be read or is empty, and for a line that has another form.
    """
    tweets = [Tweet([], [])]
    for number, raw in lines(path):
        line = decoded(raw, path, number)
        if line.strip(" "):
            token, label = _tagged(line, f"{path}, line {number}")
            tweets[-1].tokens.append(token)
            tweets[-1].labels.append(label)
        elif tweets[-1].tokens:
            tweets.append(Tweet([], []))
    if not tweets[-1].tokens:
        tweets.pop()
    if not tweets:
        raise ActlabError(f"{path} is empty; it needs tweets: a token, a tab and its tag a line")
    return tweets


def _tagged(line: str, where: str) -> tuple[str, int]:
    """A token and its label."""
    token, tab, tag = line.partition("\t")
    if not token or not tab or not tag:
        lacking = "tag" if token else "token"
        raise ActlabError(f"{where}: {line[:60]!r} has no {lacking}; needed are a token, a tab and its tag")
    if tag not in LABELS:
        raise ActlabError(f"{where}: unknown tag {tag[:60]!r}. Allowed: {' '.join(TAGS)}")
    return token, LABELS[tag]
