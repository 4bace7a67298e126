"""Convert Gemini's grounding metadata: searches, retrieval, and fetched pages.

A search becomes a call and a return, as if it had come as parts; its results become citations of the text. Google's
offsets count bytes of UTF-8; sometimes they are off by one, and sometimes they count all text parts together. An
offset is used only if it selects the segment's own text; otherwise that text must occur exactly once.
"""

from __future__ import annotations

from typing import Any

from ...parts import BuiltinToolCallPart, BuiltinToolReturnPart
from ..lenient_json import objects_in

METADATA_ID_PREFIX = "metadata:"
"""Prefix of the ids of calls that are made from metadata. They never were parts, and are not returned."""

ToolParts = list[BuiltinToolCallPart | BuiltinToolReturnPart]


def search_parts(metadata: dict[str, Any], provider: str) -> ToolParts:
    """Return the calls and returns of the retrieval and the search in `groundingMetadata`."""
    chunks = objects_in(metadata.get("groundingChunks"))
    contexts = [chunk["retrievedContext"] for chunk in chunks if isinstance(chunk.get("retrievedContext"), dict)]
    pages = [_page(chunk["web"]) for chunk in chunks if isinstance(chunk.get("web"), dict)]
    parts: ToolParts = []
    if contexts:
        parts += _call_and_return("file_search", {}, contexts, provider)
    if metadata.get("webSearchQueries"):
        parts += _call_and_return(
            "web_search", {"queries": metadata["webSearchQueries"]}, pages if chunks else None, provider
        )
    return parts


def fetch_parts(metadata: dict[str, Any], provider: str) -> ToolParts:
    """Return the call and return of the page fetches in `urlContextMetadata`."""
    pages = objects_in(metadata.get("urlMetadata"))
    if not pages:
        return []
    urls = [page["retrievedUrl"] for page in pages if page.get("retrievedUrl")]
    results = [
        {"retrieved_url": page.get("retrievedUrl"), "url_retrieval_status": page.get("urlRetrievalStatus")}
        for page in pages
    ]
    return _call_and_return("web_fetch", {"urls": urls} if urls else None, results, provider)


def _call_and_return(tool: str, args: dict[str, Any] | None, content: Any, provider: str) -> ToolParts:
    call_id = METADATA_ID_PREFIX + tool
    return [
        BuiltinToolCallPart(tool, args, call_id, provider_name=provider),
        BuiltinToolReturnPart(tool, content, call_id, provider_name=provider),
    ]


def _page(web: dict[str, Any]) -> dict[str, Any]:
    return {name: web.get(name) for name in ("domain", "title", "uri")}


def citations(metadata: dict[str, Any], text: str, bytes_before: int) -> list[dict[str, Any]]:
    """Return the citations of `text` in OpenAI's form.

    Args:
        metadata: The answer's `groundingMetadata`.
        text: The last text part of the answer.
        bytes_before: UTF-8 bytes of the answer's text before `text`.
    """
    sources = [_source(chunk) for chunk in objects_in(metadata.get("groundingChunks"))]
    annotations: list[dict[str, Any]] = []
    text_bytes = text.encode("utf-8", "surrogatepass")
    for support in objects_in(metadata.get("groundingSupports")):
        segment, chunk_indexes = support.get("segment"), support.get("groundingChunkIndices")
        span = _span(segment, text, text_bytes, bytes_before) if isinstance(segment, dict) else None
        if span is None or not isinstance(chunk_indexes, list):
            continue
        cited_sources = [
            sources[number] for number in chunk_indexes if isinstance(number, int) and 0 <= number < len(sources)
        ]
        annotations += [
            {"type": "url_citation", "start_index": span[0], "end_index": span[1], **s} for s in cited_sources if s
        ]
    return annotations


def _source(chunk: dict[str, Any]) -> dict[str, Any]:
    """Return URL and title of a chunk from a page or a map; empty if it has no URL."""
    source: dict[str, Any] = next((chunk[name] for name in ("web", "maps") if isinstance(chunk.get(name), dict)), {})
    return {"url": source["uri"], "title": source.get("title") or ""} if source.get("uri") else {}


def _span(segment: dict[str, Any], text: str, text_bytes: bytes, bytes_before: int) -> tuple[int, int] | None:
    """Return the segment's first character and the one after its last; None if it cannot be located."""
    segment_text = segment.get("text")
    if not isinstance(segment_text, str) or not segment_text:
        return None
    segment_bytes = segment_text.encode("utf-8", "surrogatepass")
    start_index = segment.get("startIndex")
    for offset in (0, bytes_before):
        start = (start_index if isinstance(start_index, int) else 0) - offset
        if start >= 0 and text_bytes.startswith(segment_bytes, start):
            first = len(text_bytes[:start].decode("utf-8", "replace"))
            return first, first + len(segment_text)
    first = text.find(segment_text)
    if first < 0 or text.find(segment_text, first + 1) >= 0:
        return None
    return first, first + len(segment_text)
