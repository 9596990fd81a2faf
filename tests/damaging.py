"""What disks, kills and people do to a file."""

import random

WAYS = ("cut", "bit", "zeros", "twice", "other")


def damaged(content: bytes, way: str, source: random.Random) -> bytes:
    """The content cut short, with a bit turned, a part zeroed or doubled, or replaced."""
    at = source.randrange(1, len(content) - 1)
    if way == "cut":
        return content[:at]
    if way == "bit":
        return content[:at] + bytes([content[at] ^ 1 << source.randrange(7)]) + content[at + 1 :]
    if way == "zeros":
        return content[:at] + bytes(min(20, len(content) - at)) + content[at + 20 :]
    if way == "twice":
        return content + content
    return source.choice([b"", b"{}", b"[]", b"null", b"[" * 100_000, b"\xff\xfe"])
