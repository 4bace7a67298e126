"""What is sent: the target that a URL names, and the head of a POST request to it.

* The URL goes out to the letter, `%3A` included: what was signed is what must be sent. A fragment is not sent; a URL
  that is not plain ASCII is normalised first (RFC 3986, section 6).
* The client alone frames the request: a `Content-Length` or `Transfer-Encoding` of the caller is left out
  (RFC 9112, section 6.3).
* A control character in a header is refused, as it could begin another header or request (RFC 9110, section 5.5).
* `Accept-Encoding: identity`, unless the caller asks for something else: a compressed stream arrives in lumps.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from yarl import URL

from .errors import InvalidURL

_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Endpoint(NamedTuple):
    """Where to connect to. Connections to equal endpoints are interchangeable."""

    host: str
    """A name in its ASCII form (IDNA), or an address without brackets."""
    port: int
    is_tls: bool


class Target(NamedTuple):
    """What a URL names."""

    endpoint: Endpoint
    request_line: bytes
    host_header: bytes
    authorization: bytes | None
    """The value of an `Authorization` header for the user and password in the URL."""


@lru_cache(maxsize=256)
def parse_url(url: str) -> Target:
    """The target of a POST request to `url`. Raises `InvalidURL`."""
    try:
        parsed = URL(url, encoded=True) if url.isascii() and url.isprintable() and " " not in url else URL(url)
        port, host, authority = parsed.port, parsed.raw_host, parsed.host_port_subcomponent
        path = parsed.raw_path_qs
    except ValueError as error:
        raise InvalidURL(str(error)) from error
    if parsed.scheme not in _DEFAULT_PORTS or not host or not authority or port is None or not 0 <= port <= 65535:
        raise InvalidURL("it needs the scheme http or https, and a host")
    if not (host.isascii() and path.isascii() and authority.isascii()) or _CONTROL_CHARACTERS.search(path + authority):
        raise InvalidURL("it has characters that must be escaped")
    if not _is_valid_host(host):
        raise InvalidURL("its host is neither a name nor an address in its usual form")
    authorization = None
    if parsed.raw_user or parsed.raw_password:
        userinfo = f"{unquote(parsed.raw_user or '')}:{unquote(parsed.raw_password or '')}"
        authorization = b"Basic " + base64.b64encode(userinfo.encode("utf-8"))
    return Target(
        Endpoint(host.lower(), port, parsed.scheme in ("https", "wss")),
        b"POST %b HTTP/1.1\r\n" % path.encode("ascii"),
        authority.encode("ascii"),
        authorization,
    )


def encode_head(target: Target, headers: Mapping[str, str], body_bytes: int) -> bytes:
    """The head of a POST request, with the empty line that ends it.

    Args:
        target: from `parse_url`.
        headers: the caller's; they replace the client's own of the same name, but for those that frame the request. Of
            names that differ only in upper and lower case, the last counts.
        body_bytes: the length of the body.

    Raises:
        ValueError: a name or value contains a control character.
    """
    caller_fields = {name.lower(): (name, value) for name, value in headers.items()}
    fields = [
        target.request_line,
        b"Host: ",
        _encode_value(caller_fields["host"][1]) if "host" in caller_fields else target.host_header,
    ]
    if "accept-encoding" not in caller_fields:
        fields.append(b"\r\nAccept-Encoding: identity")
    for lower_name, (name, value) in caller_fields.items():
        if lower_name not in _CLIENT_FIELDS:
            fields += (b"\r\n", _encode_value(name), b": ", _encode_value(value))
    if "accept" not in caller_fields:
        fields.append(b"\r\nAccept: */*")
    if "user-agent" not in caller_fields:
        fields.append(b"\r\nUser-Agent: pellucid")
    if target.authorization is not None and "authorization" not in caller_fields:
        fields += (b"\r\nAuthorization: ", target.authorization)
    if "content-type" not in caller_fields:
        fields.append(b"\r\nContent-Type: application/octet-stream")
    fields.append(b"\r\nContent-Length: %d\r\n\r\n" % body_bytes)
    return b"".join(fields)


def wants_close(headers: Mapping[str, str]) -> bool:
    """Whether the caller's headers say that the connection ends with this request (RFC 9112, section 9.6)."""
    return any(name.lower() == "connection" and has_token(value, "close") for name, value in headers.items())


def has_token(value: str, token: str) -> bool:
    """Whether a comma-separated list holds a token, in upper or lower case (RFC 9110, section 5.6.1)."""
    return token in (one.strip().lower() for one in value.split(","))


_CLIENT_FIELDS = frozenset({"host", "content-length", "transfer-encoding"})


def _encode_value(text: str) -> bytes:
    if _CONTROL_CHARACTERS.search(text) is not None:
        raise ValueError("Forbidden control character detected in headers. Potential header injection attack.")
    return text.encode("utf-8", "ignore")


def _is_valid_host(host: str) -> bool:
    """Whether it can be looked up: an address, or a name whose labels have a possible length (RFC 1035, 2.3.4).

    The old numeric forms (`127.1`, `2130706433`) are refused: a policy that reads the host would not know them.
    """
    if ":" in host:
        return True
    if host.replace(".", "").isdigit():
        try:
            return str(ipaddress.IPv4Address(host)) == host
        except ValueError:
            return False
    return all(0 < len(label) < 64 for label in host.rstrip(".").split("."))
