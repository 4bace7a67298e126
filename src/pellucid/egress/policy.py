"""What may be fetched, and from where; and what may be handed on to somebody else who fetches it.

* http and https only, without credentials in the URL, and with a host that can be read in one way only: `0x7f.1` and
  `2130706433` are nobody's name for a host.
* Names are resolved here, and only what was judged here is connected to: a name that answers differently the next time
  is judged again then.
* Public addresses are fetched from; others where `allow` names the host, a network it is in, or `*`.
* A host that does not exist and one that is private are told apart to nobody: that would be a map of the network.
* What is handed on is judged as well as it can be from here: by what is written out, by names that no public host has,
  and by the addresses that a name has here. Whoever fetches it looks the name up again; a name that is not known here
  is theirs to know. Other schemes go where `allow` names them (`s3://`).

Which addresses are nobody else's business: everything that is not the public internet.

The rows are IANA's special-purpose registries, and the few public addresses at which clouds keep their secrets. Of IPv6
only 2000::/3 is public to begin with. An address that stands for an IPv4 address is judged as that one.

Why something was not fetched.

No message quotes more of a URL than its scheme, host and port: paths and queries carry keys.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

from yarl import URL

from ..errors import ConfigError, ErrorKind, RequestError


class EgressError(RequestError):
    """What a request asked this server to fetch was not, or could not be, fetched.

    Codes: `egress_refused` (kind forbidden), `bad_url`, `egress_failed`, `bad_media_type` (invalid_request),
    `egress_too_large` (too_large), `egress_timeout` (timeout).
    """

    def __init__(self, message: str, *, kind: ErrorKind, code: str, param: str | None = None) -> None:
        super().__init__(message, kind=kind, code=code, param=param)


def refused_error(reason: str) -> EgressError:
    return EgressError(
        f"{reason}; this server fetches from public addresses, and others only where its operator allows it",
        kind="forbidden",
        code="egress_refused",
    )


def bad_url_error(reason: str) -> EgressError:
    return EgressError(
        f"{reason}; it must be an absolute http or https URL, without credentials",
        kind="invalid_request",
        code="bad_url",
    )


def fetch_failed_error(message: str) -> EgressError:
    return EgressError(message, kind="invalid_request", code="egress_failed")


Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

_V4: list[tuple[str, str]] = [
    ("0.0.0.0/8", "an address of this host"),
    ("10.0.0.0/8", "a private address"),
    ("100.64.0.0/10", "an address of a carrier's own network"),
    ("127.0.0.0/8", "a loopback address"),
    ("168.63.129.16/32", "an address of cloud metadata"),
    ("169.254.0.0/16", "a link-local address"),
    ("172.16.0.0/12", "a private address"),
    ("192.0.0.0/24", "a special address"),
    ("192.0.2.0/24", "an address for documentation"),
    ("192.31.196.0/24", "a special address"),
    ("192.52.193.0/24", "a special address"),
    ("192.88.99.0/24", "a special address"),
    ("192.168.0.0/16", "a private address"),
    ("192.175.48.0/24", "a special address"),
    ("198.18.0.0/15", "an address for benchmarks"),
    ("198.51.100.0/24", "an address for documentation"),
    ("203.0.113.0/24", "an address for documentation"),
    ("224.0.0.0/4", "a multicast address"),
    ("240.0.0.0/4", "a reserved address"),
]
_V6: list[tuple[str, str]] = [
    ("::/128", "an address of this host"),
    ("::1/128", "a loopback address"),
    ("fc00::/7", "a private address"),
    ("fe80::/10", "a link-local address"),
    ("ff00::/8", "a multicast address"),
    ("2001::/23", "a special address"),
    ("2001:db8::/32", "an address for documentation"),
    ("2620:4f:8000::/48", "a special address"),
    ("3fff::/20", "an address for documentation"),
]
_SPECIAL_PURPOSE_NETWORKS: list[tuple[Network, str]] = [(ip_network(text), why) for text, why in _V4 + _V6]
_GLOBAL_UNICAST = IPv6Network("2000::/3")

_IPV4_EMBEDDINGS: list[tuple[IPv6Network, int]] = [
    (IPv6Network("::ffff:0:0/96"), 0),
    (IPv6Network("::ffff:0:0:0/96"), 0),
    (IPv6Network("64:ff9b::/96"), 0),
    (IPv6Network("2002::/16"), 80),
]
"""IPv6 networks whose addresses stand for IPv4 ones (mapped, translated, NAT64, 6to4), and how far up those stand."""

_ISATAP = (0x00005EFE, 0x02005EFE)


def effective_address(address: Address) -> Address:
    """The address that is reached: the IPv4 one that an IPv6 one stands for, or itself."""
    if isinstance(address, IPv4Address):
        return address
    for network, shift in _IPV4_EMBEDDINGS:
        if address in network:
            return IPv4Address(int(address) >> shift & 0xFFFFFFFF)
    if int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def special_purpose(address: Address) -> str | None:
    """What kind of address it is, if it is not a public one."""
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        return "a link-local address"
    address = effective_address(address)
    for network, purpose in _SPECIAL_PURPOSE_NETWORKS:
        if address in network:
            return purpose
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return "a reserved address"
    return None


def parse_literal(host: str) -> Address | None:
    """The address that `host` writes out, in the one form in which it is unmistakable; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""The addresses of a name; none, or an `OSError`, if there are none."""

_NAME = re.compile(
    r"(?=.{1,253}\Z)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\Z"
)
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://\Z")
_LOCAL_NAME = re.compile(r"(?:[^.]*|.*\.(?:localhost|local|internal|intranet|private|corp|home|lan|home\.arpa))\Z")
"""Names that no public host has (RFC 6761, 6762 and 8375, and those of one label)."""
_NUMBER = re.compile(r"(?:\d+|0x[0-9a-f]*)\Z")
_UNSAFE_CHARACTERS = re.compile(r"[\x00-\x20\x7f\\]")

LOOKUP_TIMEOUT_SECONDS = 5.0
"""How long the name of a host is looked up whose URL is handed on."""


async def resolve_with_system(host: str) -> list[str]:
    """What the system says."""
    entries = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in entries]


class EgressPolicy:
    """`allow` holds host names (`files.example.com`, `*.example.com`), addresses, networks (`10.1.0.0/16`), or `*`;
    and schemes (`s3://`) of URLs that are handed on.

    Raises `ConfigError` for an entry that is none of these.
    """

    def __init__(self, allow: Sequence[str] = (), *, resolve: Resolve = resolve_with_system) -> None:
        self._resolve = resolve
        self._allows_all = False
        self._networks: list[Network] = []
        self._names: set[str] = set()
        self._suffixes: list[str] = []
        self._schemes: set[str] = set()
        mistakes: list[str] = []
        for entry in allow:
            try:
                self._allow(entry)
            except ValueError:
                mistakes.append(
                    f"egress allows {entry!r}, which is no host name (`files.example.com`, `*.example.com`), "
                    "address, network (`10.1.0.0/16`), `*` or scheme (`s3://`)"
                )
        if mistakes:
            raise ConfigError(mistakes)

    def _allow(self, entry: str) -> None:
        name = entry.strip().lower().removesuffix(".")
        if name == "*":
            self._allows_all = True
        elif (scheme := _SCHEME.match(name)) and scheme[1] not in ("http", "https"):
            self._schemes.add(scheme[1])
        elif "/" in name or ":" in name or parse_literal(name) is not None:
            self._networks.append(ip_network(name))
        elif name.startswith("*.") and _is_name(name[2:]):
            self._suffixes.append(name[1:])
        elif _is_name(name):
            self._names.add(name)
        else:
            raise ValueError(entry)

    def check_url(self, url: str | URL) -> URL:
        """The URL, if it may be fetched as far as can be seen without resolving it. Raises `EgressError`."""
        if isinstance(url, str):
            if _UNSAFE_CHARACTERS.search(url):
                raise bad_url_error("the URL holds white space, control characters or backslashes")
            try:
                # To the letter, where it can be: signed URLs are not to be written in another way.
                url = URL(url, encoded=url.isascii())
                _ = url.port
            except ValueError:
                raise bad_url_error("this is no URL") from None
        if url.scheme not in ("http", "https"):
            raise bad_url_error(
                f"a URL of the scheme {url.scheme[:20]!r} is not fetched" if url.scheme else "this is no URL"
            )
        if url.raw_user is not None or url.raw_password is not None:
            raise bad_url_error("the URL holds credentials")
        host = _host_of(url)
        if not url.port:
            raise bad_url_error("the URL has the port 0")
        if (address := parse_literal(host)) is not None:
            self.check_address(address, host)
        elif _NUMBER.match(host.rpartition(".")[2]) or not _is_name(host):
            # Resolvers read `0x7f.1` and `2130706433` as addresses; whoever looks at the name does not.
            raise bad_url_error(f"{host[:100]!r} is neither a host name nor an address in its usual form")
        return url

    def check_address(self, address: Address, host: str) -> None:
        """Raises `EgressError` for an address that may not be connected to under this name."""
        if not self._allows(address, host):
            purpose = special_purpose(address)
            raise refused_error(f"{host} is {purpose}" if parse_literal(host) is not None else _no_public_address(host))

    async def check_forwarded(self, url: str) -> None:
        """Judge a URL that is handed on to somebody who fetches it. Raises `EgressError`."""
        scheme, colon, _ = url.partition("://")
        if colon and scheme.lower() in self._schemes:
            return
        host = _host_of(self.check_url(url))
        if parse_literal(host) is not None or self._allows_name(host):
            return
        if _LOCAL_NAME.match(host):
            raise refused_error(_no_public_address(host))
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_SECONDS):
                resolved = [ip_address(entry) for entry in await self._resolve(host)]
        except (OSError, UnicodeError, ValueError):
            return
        if not all(self._allows(address, host) for address in resolved):
            raise refused_error(_no_public_address(host))

    def _allows_name(self, host: str) -> bool:
        return self._allows_all or host in self._names or any(host.endswith(suffix) for suffix in self._suffixes)

    def _allows(self, address: Address, host: str) -> bool:
        if special_purpose(address) is None or self._allows_name(host):
            return True
        effective = effective_address(address)
        return any(effective in network or address in network for network in self._networks)

    async def allowed_addresses(self, host: str) -> list[Address]:
        """The addresses of `host` that may be connected to. Raises `EgressError` if there are none."""
        host = host.lower().removesuffix(".")
        if (address := parse_literal(host)) is not None:
            self.check_address(address, host)
            return [address]
        try:
            resolved = [ip_address(entry) for entry in await self._resolve(host)]
        except (OSError, UnicodeError, ValueError):
            resolved = []
        allowed = [address for address in dict.fromkeys(resolved) if self._allows(address, host)]
        if not allowed:
            raise refused_error(_no_public_address(host))
        return allowed


def _host_of(url: URL) -> str:
    """As it is resolved. Raises `EgressError` for a URL without one."""
    try:
        host = url.raw_host
    except ValueError:
        host = None
    if not host:
        raise bad_url_error("the URL names no host")
    return host.lower().removesuffix(".")


def _is_name(host: str) -> bool:
    return _NAME.match(host) is not None


def _no_public_address(host: str) -> str:
    return f"the host {host[:100]!r} has no public address"
