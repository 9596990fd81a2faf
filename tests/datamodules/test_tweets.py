"""Tweets: words as the vectors' corpus spells them, and files in the ARK format."""

import gzip

from hypothesis import given, settings
from hypothesis import strategies as st

from actlab.datamodules.lines import lines
from actlab.datamodules.tweets import LABELS, TAGS, normalize, read_tweets
from text_files import FUZZ, file_of, refusal

TOKENS = st.text(
    st.characters(exclude_characters="\t\n\r\ufeff", exclude_categories=["Cs"]), min_size=1
)
TWEETS = st.lists(st.lists(st.tuples(TOKENS, st.sampled_from(TAGS)), min_size=1), min_size=1)


def test_tokens_are_spelled_as_the_corpus_has_them():
    for token, normal in (
        ("Hello", "hello"),
        ("ÉTÉ", "été"),
        ("@user", "<@MENTION>"),
        ("@User_1", "<@MENTION>"),
        ("radio@webuildhits.com", "<@MENTION>"),
        ("@", "@"),
        ("(@", "(@"),
        ("http://bit.ly/e5hSx0", "<URL-bit.ly>"),
        ("https://www.southwesternfg.com/order/", "<URL-southwesternfg.com>"),
        ("http://www.youtube.com/watch?v=f", "<URL-youtube.com>"),
        ("http://youtu.be?a", "<URL-youtu.be>"),
        ("http://host.org:8080/x", "<URL-host.org>"),
        ("HTTP://OFA.BO/dontwait", "<URL-OFA.BO>"),
        ("http://ow", "<URL-ow>"),
        ("NYTimes.com", "<URL-NYTimes.com>"),
        ("www.ToolsUSA.com", "<URL-ToolsUSA.com>"),
        ("WWW.a.b", "<URL-a.b>"),
        ("hotels.com", "<URL-hotels.com>"),
        ("site.org/page", "<URL-site.org>"),
        ("is.gd/x", "<URL-is.gd>"),
        ("jbspins.blogspot.com/2010/10/a.html", "<URL-jbspins.blogspot.com>"),
        ("http", "http"),
        ("http://", "http://"),
        ("Ewww", "ewww"),
        ("u.s", "u.s"),
        ("10.27", "10.27"),
        ("...", "..."),
        ("#JBSpinshttp", "#jbspinshttp"),
        ("\xa0", "\xa0"),
    ):
        assert normalize(token) == normal


@given(st.text(min_size=1))
def test_any_token_has_a_spelling_in_lower_case(token):
    normal = normalize(token)
    assert normal
    assert normal == token.lower() or normal == "<@MENTION>" or normal.startswith("<URL-")


@settings(max_examples=40)
@given(
    st.sampled_from(["http://", "https://", "HTTP://", "http://www.", "www."]),
    st.from_regex(r"[A-Za-z0-9]{1,9}(\.[A-Za-z]{2,5}){1,2}", fullmatch=True).filter(
        lambda host: not host.lower().startswith("www.")
    ),
    st.from_regex(r"([/?#][!-~]*)?", fullmatch=True),
)
def test_a_url_is_its_host_in_the_case_that_it_has(scheme, host, path):
    assert normalize(scheme + host + path) == f"<URL-{host}>"


@settings(FUZZ, max_examples=50)
@given(TWEETS, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.booleans(), st.integers(0, 2))
def test_what_is_written_is_read(tmp_path, tweets, end, packed, marked, blanks):
    texts = ["".join(f"{token}\t{tag}{end}" for token, tag in tweet) for tweet in tweets]
    content = ("\ufeff" * marked + end * blanks + end.join(texts) + end * blanks).encode()
    path = file_of(tmp_path, gzip.compress(content, mtime=0) if packed else content)
    read = read_tweets(path)
    assert [
        list(zip(tweet.tokens, (TAGS[i] for i in tweet.labels), strict=True)) for tweet in read
    ] == tweets


PACKED = gzip.compress(b"a\tN\n", mtime=0)


def test_there_are_the_tags_of_the_paper():
    assert len(TAGS) == len(LABELS) == 25
    assert " ".join(TAGS) == "N O ^ S Z V A R ! D P & T X # @ ~ U E $ , G L M Y"


def test_a_damaged_file_of_tweets_is_named_with_its_line(tmp_path):
    for content, parts in (
        ("a\tN\nb\n", ["line 2", "expected a token", "got 'b'"]),
        ("\tN\n", ["line 1", "expected a token"]),
        ("a\tN\n\nb\tQ\n", ["line 3", "'b\\tQ'", "N O ^ S Z V"]),
        ("a\tN\tx\n", ["line 1", "'a\\tN\\tx'"]),
        ("a\tN\r\r\n", ["line 1", "'a\\tN\\r'"]),
        ("", ["an empty file", "a token, a tab and its tag"]),
        ("\n \n\n", ["an empty file"]),
        ("a\tN\nü\tN\n".encode("latin-1"), ["line 2", "expected UTF-8"]),
        ("a\tN\n".encode("utf-16"), ["line 1", "expected UTF-8"]),
        (PACKED[:-9], ["damaged", "Fetch it again"]),
        (PACKED[:-8] + bytes(8), ["damaged", "CRC"]),
        (b"\x1f\x8b", ["damaged"]),
    ):
        path = file_of(tmp_path, content)
        message = refusal(read_tweets, path)
        assert all(part in message for part in [str(path), *parts])


def test_a_folder_and_nothing_are_no_files(tmp_path):
    assert "not a regular file" in refusal(list, lines(tmp_path))
    assert "No such file" in refusal(list, lines(tmp_path / "nothing"))
