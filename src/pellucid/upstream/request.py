"""URL parsing and the encoding of a POST request's head.

* The URL is sent exactly as written, including escapes such as `%3A`, because a signature may cover it. A fragment is
  not sent. A URL that is not plain ASCII is normalised first (RFC 3986, section 6).
* Only the client frames the request: `Content-Length` and `Transfer-Encoding` of the caller are dropped
  (RFC 9112, section 6.3).
* A control character in a header is refused, because it could start another header or request (RFC 9110, section 5.5).
* `Accept-Encoding: identity` is sent unless the caller sets the field, because compression delays a stream.
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
_CLIENT_FIELDS = frozenset({"host", "content-length", "transfer-encoding"})
"""Fields that the caller's headers do not set as they are."""
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Endpoint(NamedTuple):
    """Host, port and TLS of a server. Connections to equal endpoints are interchangeable."""

    host: str
    """A host name in its ASCII form (IDNA), or an IP address without brackets."""
    port: int
    is_tls: bool


class Target(NamedTuple):
    """The parts of a URL that a request needs."""

    endpoint: Endpoint
    request_line: bytes
    host_header: bytes
    authorization: bytes | None
    """The value of `Authorization` for the user and password in the URL; None if it has none."""


@lru_cache(maxsize=256)
def parse_url(url: str) -> Target:
    """Parse the URL of a POST request.

    Raises:
        InvalidURL: No request can be sent to `url`.
    """
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
        raise InvalidURL("its host is neither a name nor an address in its standard form")
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
    """Encode the head of a POST request, including the empty line that ends it.

    Args:
        target: The result of `parse_url`.
        headers: The caller's fields. They replace the client's own fields of the same name, except the fields that
            frame the request. If names differ only in case, the last one is used.
        body_bytes: The length of the body.

    Raises:
        ValueError: A name or value contains a control character.
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
    """Return whether the headers contain `Connection: close` (RFC 9112, section 9.6)."""
    values = (value for name, value in headers.items() if name.lower() == "connection")
    return any(option.strip().lower() == "close" for value in values for option in value.split(","))


def _encode_value(text: str) -> bytes:
    if _CONTROL_CHARACTERS.search(text) is not None:
        raise ValueError("Forbidden control character detected in headers. Potential header injection attack.")
    return text.encode("utf-8", "ignore")


def _is_valid_host(host: str) -> bool:
    """Return whether a host is an IP address or a name with labels of valid length (RFC 1035, section 2.3.4).

    The legacy numeric forms (`127.1`, `2130706433`) are refused, because a policy that reads the host would not
    recognise them as addresses.
    """
    if ":" in host:
        return True
    if host.replace(".", "").isdigit():
        try:
            return str(ipaddress.IPv4Address(host)) == host
        except ValueError:
            return False
    return all(0 < len(label) < 64 for label in host.rstrip(".").split("."))
