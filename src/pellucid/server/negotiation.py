"""What a client would rather have (RFC 9110 §12): a type, an encoding, or nothing new."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

ENCODINGS = ("br", "gzip", "identity")
"""The smallest first, for clients that do not mind."""


def prefers_html(accept: str | None) -> bool:
    """Whether HTML is wanted more than JSON. Who takes anything is a program."""
    wanted = dict(_weights(accept or ""))

    def quality(media: str) -> float:
        ranges = (media, f"{media.partition('/')[0]}/*", "*/*")
        return next((wanted[one] for one in ranges if one in wanted), 0.0)

    return quality("text/html") > quality("application/json")


def encoding_of(accept: str | None, there: Iterable[str]) -> str:
    """The encoding to answer in, of those that are there (`identity` always is)."""
    wanted = {"identity": 1e-4, **dict(_weights(accept or ""))}
    rest = wanted.get("*", 0.0)
    best = max((name for name in ENCODINGS if name in there), key=lambda name: wanted.get(name, rest))
    return best if wanted.get(best, rest) > 0 else "identity"


def matches(if_none_match: str | None, etag: str) -> bool:
    """Whether the client has it already."""
    if if_none_match is None:
        return False
    tags = (tag.strip().removeprefix("W/") for tag in if_none_match.split(","))
    return any(tag in (etag, "*") for tag in tags)


def _weights(header: str) -> Iterator[tuple[str, float]]:
    for entry in header.lower().split(","):
        name, *parameters = (piece.strip() for piece in entry.split(";"))
        quality = next((value[2:] for value in parameters if value.startswith("q=")), "1")
        try:
            weight = float(quality)
        except ValueError:
            weight = 0.0
        yield name, weight if 0 <= weight <= 1 else 0.0
