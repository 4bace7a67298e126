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

    def __init__(self, hosts: Iterable[str], origins: Iterable[str], setting: str) -> None:
        """Create a rule.

        Args:
            hosts: Names that are accepted in addition to addresses, localhost and the machine's name, with or without a
                port; `*` for all.
            origins: Origins of other pages that are accepted, such as `https://app.example.com`; `*` for all.
            setting: The setting that holds `hosts`, for error messages.
        """
        self._origins = frozenset(origins)
        named = {origin.partition("://")[2] for origin in self._origins if "://" in origin}
        self._hosts = frozenset(host.lower() for host in {*hosts, *named})
        self._allows_all = "*" in self._hosts or "*" in self._origins
        self._setting = setting

    def check_host(self, scope: Mapping[str, Any]) -> None:
        """Refuse a Host that a page may have chosen. Raises `RequestError`."""
        host = host_of(scope)
        if self._allows_all or is_local(host) or host.lower() in self._hosts or _name_of(host) in self._hosts:
            return
        raise RequestError(
            f"this request is for the host {truncate(host)!r}, which is no address and not this machine's name; "
            f"without keys, other names must be in {self._setting}",
            kind="forbidden",
            code="foreign_host",
        )

    def check_origin(self, scope: Mapping[str, Any]) -> None:
        """Refuse a page of another origin that is not listed. Raises `RequestError`."""
        origin = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"origin"), None)
        if origin is None or "*" in self._origins or origin in self._origins:
            return
        if is_same_origin(scope) is False:
            raise RequestError(
                f"this request comes from a web page of the origin {truncate(origin)!r}, which is not allowed here",
                kind="forbidden",
                code="foreign_origin",
            )


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
    return str(hosts[0], "latin-1")


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


def _name_of(host: str) -> str | None:
    match = _HOST.fullmatch(host.lower())
    return str(match["bracketed"] or match["name"] or "") if match is not None else None


@cache
def _machine_names() -> frozenset[str]:
    name = socket.gethostname().lower()
    return frozenset({name, f"{name}.local"} - {""})
