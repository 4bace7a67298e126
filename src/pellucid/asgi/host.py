"""Which Host and which Origin may use an application that asks for no credentials.

A browser sends requests for any page. A page of another origin names itself (`Origin`). A page whose name its owner
points at this machine (DNS rebinding) has the same origin as the application, and only that name, in `Host`, differs.
So without credentials, an application is used under an address, under localhost, under the name of the machine, or
under a name that the operator lists.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from ipaddress import ip_address
from typing import Any

from ..errors import RequestError
from ..unicode import truncate

_HOST = re.compile(r"(?:\[(?P<bracketed>[^][]*)\]|(?P<name>[^][:]*))(?::[0-9]*)?")
"""A Host: a name or an address, optionally with a port, and nothing else."""


class HostRule:
    """The Hosts and origins that an application accepts."""

    def __init__(self, hosts: Iterable[str], origins: Iterable[str], hosts_setting: str, origins_setting: str) -> None:
        """Create a rule.

        Args:
            hosts: Names that are accepted in addition to addresses, localhost and the machine's name, with or without a
                port; `*` for all.
            origins: Origins of other pages that are accepted, such as `https://app.example.com`; `*` for all.
            hosts_setting: The setting that holds `hosts`, for error messages.
            origins_setting: The setting that holds `origins`.
        """
        self._origins = frozenset(origins)
        named = {origin.partition("://")[2] for origin in self._origins if "://" in origin}
        self._hosts = frozenset(host.lower() for host in {*hosts, *named})
        self._allows_all = "*" in self._hosts or "*" in self._origins
        self._hosts_setting = hosts_setting
        self._origins_setting = origins_setting

    def check_host(self, scope: Mapping[str, Any]) -> None:
        """Refuse a Host that a page may have chosen. Raises `RequestError`."""
        host = host_of(scope)
        if self._allows_all or is_local(host) or host.lower() in self._hosts or _name_of(host) in self._hosts:
            return
        raise RequestError(
            f"this request is for the host {truncate(host)!r}, which is not an IP address and not this machine's name; "
            f"if it is yours, add {truncate(_name_of(host) or host)!r} to {self._hosts_setting}, or require keys",
            kind="forbidden",
            code="foreign_host",
        )

    def check_origin(self, scope: Mapping[str, Any]) -> None:
        """Refuse a page of another origin that is not listed. Raises `RequestError`."""
        origin = origin_of(scope)
        if origin is None or "*" in self._origins or origin in self._origins:
            return
        if is_same_origin(scope) is False:
            raise RequestError(
                foreign_origin_message(origin, self._origins_setting), kind="forbidden", code="foreign_origin"
            )


def foreign_origin_message(origin: str, setting: str) -> str:
    """Return the message of the error for a page of another origin.

    Args:
        origin: The origin of the page.
        setting: The setting that lists the origins of other pages.
    """
    return f"this request comes from a web page of the origin {truncate(origin)!r}; other origins must be in {setting}"


def origin_of(scope: Mapping[str, Any]) -> str | None:
    """Return the `Origin` of a request; None if it has none."""
    origin: bytes | None = dict(scope["headers"]).get(b"origin")
    return None if origin is None else origin.decode("latin-1")


def is_same_origin(scope: Mapping[str, Any]) -> bool | None:
    """Return whether the `Origin` of a request is the one of its `Host`; None if it has no `Origin`."""
    headers = dict(scope["headers"])
    origin: bytes | None = headers.get(b"origin")
    return None if origin is None else origin.partition(b"://")[2] == headers.get(b"host")


def host_of(scope: Mapping[str, Any]) -> str:
    """Return the Host of a request (RFC 9110, 7.2). Raises `RequestError` if there are several, or none."""
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    if len(hosts) != 1:
        problem = "the request has no Host header" if not hosts else "the request has several Host headers"
        raise RequestError(f"{problem}; it must have one", code="invalid_host")
    host = str(hosts[0], "latin-1").strip(" \t")
    if not host:
        raise RequestError("the Host header is empty; it must name the host", code="invalid_host")
    return host


@lru_cache(maxsize=64)
def is_local(host: str) -> bool:
    """Return whether a Host is an address, localhost or this machine's name: no owner can point them elsewhere."""
    name = _name_of(host)
    if name is None:
        return False
    if name == "localhost" or name.endswith(".localhost") or name in _machine_names():
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_host(text: str) -> bool:
    """Return whether a text is a Host: a name or an address, with or without a port."""
    return bool(_name_of(text)) and not any(c.isspace() or c in "/@?#" for c in text)


def _name_of(host: str) -> str | None:
    match = _HOST.fullmatch(host.lower())
    # A name may end with a dot, which is the root of the DNS.
    return str(match["bracketed"] or match["name"] or "").removesuffix(".") if match is not None else None


@cache
def _machine_names() -> frozenset[str]:
    name = socket.gethostname().lower()
    return frozenset({name, f"{name}.local"} - {""})
