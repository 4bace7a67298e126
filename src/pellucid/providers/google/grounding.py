"""What a Gemini says beside its parts about where it looked: search, retrieval, pages.

Searches become a call and a return, as if they had come as parts; what they found becomes citations of the text.
Google's offsets are bytes of UTF-8, sometimes one off, sometimes over all text parts together: they count only where
they select the segment's own text, else that text must occur exactly once.
"""

from __future__ import annotations

from typing import Any

from ...parts import BuiltinToolCallPart, BuiltinToolReturnPart

FROM_METADATA = "metadata:"
"""How the ids of calls begin that never were parts, and so must not go back as such."""

Searches = list[BuiltinToolCallPart | BuiltinToolReturnPart]


def searches(metadata: dict[str, Any], provider: str) -> Searches:
    """The retrieval and the search that `groundingMetadata` tells of."""
    chunks = _objects(metadata.get("groundingChunks"))
    contexts = [chunk["retrievedContext"] for chunk in chunks if isinstance(chunk.get("retrievedContext"), dict)]
    pages = [_page(chunk["web"]) for chunk in chunks if isinstance(chunk.get("web"), dict)]
    found: Searches = []
    if contexts:
        found += _pair("file_search", {}, contexts, provider)
    if metadata.get("webSearchQueries"):
        found += _pair("web_search", {"queries": metadata["webSearchQueries"]}, pages if chunks else None, provider)
    return found


def fetches(metadata: dict[str, Any], provider: str) -> Searches:
    """The pages that `urlContextMetadata` tells of."""
    pages = _objects(metadata.get("urlMetadata"))
    if not pages:
        return []
    urls = [page["retrievedUrl"] for page in pages if page.get("retrievedUrl")]
    told = [
        {"retrieved_url": page.get("retrievedUrl"), "url_retrieval_status": page.get("urlRetrievalStatus")}
        for page in pages
    ]
    return _pair("web_fetch", {"urls": urls} if urls else None, told, provider)


def _pair(tool: str, args: dict[str, Any] | None, content: Any, provider: str) -> Searches:
    call_id = FROM_METADATA + tool
    return [
        BuiltinToolCallPart(tool, args, call_id, provider_name=provider),
        BuiltinToolReturnPart(tool, content, call_id, provider_name=provider),
    ]


def _page(web: dict[str, Any]) -> dict[str, Any]:
    return {name: web.get(name) for name in ("domain", "title", "uri")}


def citations(metadata: dict[str, Any], text: str, before: int) -> list[dict[str, Any]]:
    """The citations of `text`, before which the answer has `before` bytes, in OpenAI's shape."""
    sources = [_source(chunk) for chunk in _objects(metadata.get("groundingChunks"))]
    found: list[dict[str, Any]] = []
    encoded = text.encode("utf-8", "surrogatepass")
    for support in _objects(metadata.get("groundingSupports")):
        segment, numbers = support.get("segment"), support.get("groundingChunkIndices")
        span = _span(segment, text, encoded, before) if isinstance(segment, dict) else None
        if span is None or not isinstance(numbers, list):
            continue
        cited = [sources[number] for number in numbers if isinstance(number, int) and 0 <= number < len(sources)]
        found += [{"type": "url_citation", "start_index": span[0], "end_index": span[1], **s} for s in cited if s]
    return found


def _source(chunk: dict[str, Any]) -> dict[str, Any]:
    """Where a chunk is from: a page, or a place on a map; nothing if it has no address."""
    about: dict[str, Any] = next((chunk[name] for name in ("web", "maps") if isinstance(chunk.get(name), dict)), {})
    return {"url": about["uri"], "title": about.get("title") or ""} if about.get("uri") else {}


def _span(segment: dict[str, Any], text: str, encoded: bytes, before: int) -> tuple[int, int] | None:
    """Where the segment is, in characters."""
    said = segment.get("text")
    if not isinstance(said, str) or not said:
        return None
    wanted = said.encode("utf-8", "surrogatepass")
    told = segment.get("startIndex")
    for offset in (0, before):
        start = (told if isinstance(told, int) else 0) - offset
        if start >= 0 and encoded.startswith(wanted, start):
            first = len(encoded[:start].decode("utf-8", "replace"))
            return first, first + len(said)
    first = text.find(said)
    if first < 0 or text.find(said, first + 1) >= 0:
        return None
    return first, first + len(said)


def _objects(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
