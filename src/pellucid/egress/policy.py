"""The egress policy: which URLs may be fetched, and which may be forwarded to a provider that fetches them.

* Only http and https, without credentials in the URL. The host must be unambiguous: `0x7f.1` and `2130706433`, which
  some resolvers read as addresses, are refused.
* Host names are resolved here, and only the addresses that were checked are connected to. A name that resolves to other
  addresses the next time is checked again.
* Public addresses are allowed. Other addresses are allowed if `allow` names the host, a network that contains them,
  or `*`.
* The error is the same for a host that does not exist and for a private one. Otherwise a client could map the network.
  Where operators name the hosts, a host that does not exist has an error of its own (`names_unknown_hosts`).
* A forwarded URL is checked as far as possible: IP addresses in it, names that no public host has, and the addresses
  that its name has here. The provider resolves the name again, so a name that does not resolve here is allowed. Other
  schemes are allowed if `allow` names them (`s3://`).

Every address outside the public internet is refused by default. The tables hold IANA's special-purpose registries, and
the few public addresses of cloud metadata services. Of IPv6, only 2000::/3 is public. An IPv6 address that embeds an
IPv4 address is checked as that IPv4 address.

Error messages quote only scheme, host and port of a URL, because paths and queries may contain keys.
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
    """A URL in a request was refused, or could not be fetched.

    Codes, with their kinds: `egress_refused` (forbidden); `bad_url`, `egress_failed` and `bad_media_type`
    (invalid_request); `egress_too_large` (too_large); `egress_timeout` (timeout).
    """

    def __init__(self, message: str, *, kind: ErrorKind, code: str, param: str | None = None) -> None:
        super().__init__(message, kind=kind, code=code, param=param)


def refused_error(reason: str) -> EgressError:
    """Return the error for a URL or address that the policy refuses."""
    return EgressError(
        f"{reason}; this server fetches from public addresses, and others only where its operator allows it",
        kind="forbidden",
        code="egress_refused",
    )


def bad_url_error(reason: str) -> EgressError:
    """Return the error for a URL that cannot be fetched at all."""
    return EgressError(
        f"{reason}; it must be an absolute http or https URL, without credentials",
        kind="invalid_request",
        code="bad_url",
    )


def fetch_failed_error(message: str) -> EgressError:
    """Return the error for a fetch that failed."""
    return EgressError(message, kind="invalid_request", code="egress_failed")


Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

_V4: list[tuple[str, str]] = [
    ("0.0.0.0/8", "an address of this host"),
    ("10.0.0.0/8", "a private address"),
    ("100.100.100.200/32", "an address of cloud metadata"),
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
    ("fd00:ec2::/32", "an address of cloud metadata"),
    ("fd20:ce::/32", "an address of cloud metadata"),
    ("fc00::/7", "a private address"),
    ("fe80::/10", "a link-local address"),
    ("ff00::/8", "a multicast address"),
    ("2001::/23", "a special address"),
    ("2001:db8::/32", "an address for documentation"),
    ("2620:4f:8000::/48", "a special address"),
    ("3fff::/20", "an address for documentation"),
]
_SPECIAL_PURPOSE_NETWORKS: list[tuple[Network, str]] = [(ip_network(text), why) for text, why in _V4 + _V6]
"""The first network that contains an address counts."""
_OWN_NETWORK_PURPOSES = ("a private address", "a loopback address", "an address of a carrier's own network")
_GLOBAL_UNICAST = IPv6Network("2000::/3")

_IPV4_EMBEDDINGS: list[tuple[IPv6Network, int]] = [
    (IPv6Network("::ffff:0:0/96"), 0),
    (IPv6Network("::ffff:0:0:0/96"), 0),
    (IPv6Network("64:ff9b::/96"), 0),
    (IPv6Network("2002::/16"), 80),
]
"""IPv6 networks whose addresses embed an IPv4 address (mapped, translated, NAT64, 6to4), and its offset in bits."""

_ISATAP = (0x00005EFE, 0x02005EFE)


def effective_address(address: Address) -> Address:
    """Return the address that is reached: the IPv4 address that an IPv6 address embeds, or the address itself."""
    if isinstance(address, IPv4Address):
        return address
    for network, shift in _IPV4_EMBEDDINGS:
        if address in network:
            return IPv4Address(int(address) >> shift & 0xFFFFFFFF)
    if int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def special_purpose(address: Address) -> str | None:
    """Describe the special purpose of an address ("a private address"); None for a public address."""
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        return "a link-local address"
    address = effective_address(address)
    for network, purpose in _SPECIAL_PURPOSE_NETWORKS:
        if address in network:
            return purpose
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return "a reserved address"
    return None


def is_own_network(address: Address) -> bool:
    """Return whether an address is one that people give to servers of their own, which an operator may agree to.

    Link-local addresses, those of cloud metadata, and everything else outside the public internet are not.
    """
    return special_purpose(address) in _OWN_NETWORK_PURPOSES


def parse_literal(host: str) -> Address | None:
    """Parse an IP address in its standard form; None if `host` is not one."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def is_special(host: str) -> bool:
    """Return whether a host is an address outside the public internet, or a name that no public host has."""
    address = parse_literal(host)
    return special_purpose(address) is not None if address is not None else _LOCAL_NAME.match(host) is not None


Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""Resolves a host name to addresses. Returns an empty sequence, or raises `OSError`, if there are none."""

_NAME = re.compile(
    r"(?=.{1,253}\Z)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\Z"
)
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://\Z")
_LOCAL_NAME = re.compile(r"(?:[^.]*|.*\.(?:localhost|local|internal|intranet|private|corp|home|lan|home\.arpa))\Z")
"""Names that no public host has: those of RFC 6761, 6762 and 8375, and names of one label."""
_NUMBER = re.compile(r"(?:\d+|0x[0-9a-f]*)\Z")
_UNSAFE_CHARACTERS = re.compile(r"[\x00-\x20\x7f\\]")

LOOKUP_TIMEOUT_SECONDS = 5.0
"""Seconds for resolving the host of a forwarded URL."""


async def resolve_with_system(host: str) -> list[str]:
    """Resolve a host name with the system's resolver."""
    entries = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in entries]


class EgressPolicy:
    """Decides which URLs and addresses this server may fetch.

    Args:
        allow: Exceptions: host names (`files.example.com`, `*.example.com`), addresses, networks (`10.1.0.0/16`), or
            `*`. Schemes (`s3://`) are allowed for forwarded URLs only.
        resolve: Resolves host names. By default, the system's resolver.
        names_unknown_hosts: Whether `allowed_addresses` raises the resolver's error for a host that is not found.

    Raises:
        ConfigError: An entry of `allow` is none of these.
    """

    def __init__(
        self,
        allow: Sequence[str] = (),
        *,
        resolve: Resolve = resolve_with_system,
        names_unknown_hosts: bool = False,
    ) -> None:
        self._resolve = resolve
        self._names_unknown_hosts = names_unknown_hosts
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
                    f"egress allows {entry!r}, which is not a host name (`files.example.com`, `*.example.com`), "
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
        elif name.startswith("*.") and _NAME.match(name[2:]):
            self._suffixes.append(name[1:])
        elif _NAME.match(name):
            self._names.add(name)
        else:
            raise ValueError(entry)

    def check_url(self, url: str | URL) -> URL:
        """Check a URL without resolving its host.

        Returns:
            The parsed URL.

        Raises:
            EgressError: It may not be fetched.
        """
        if isinstance(url, str):
            if _UNSAFE_CHARACTERS.search(url):
                raise bad_url_error("the URL contains white space, control characters or backslashes")
            try:
                # Keep the URL exactly as written if possible, because a signature may cover it.
                url = URL(url, encoded=url.isascii())
                _ = url.port
            except ValueError:
                raise bad_url_error("this is not a URL") from None
        if url.scheme not in ("http", "https"):
            raise bad_url_error(
                f"a URL of the scheme {url.scheme[:20]!r} is not fetched" if url.scheme else "this is not a URL"
            )
        if url.raw_user is not None or url.raw_password is not None:
            raise bad_url_error("the URL contains credentials")
        host = _host_of(url)
        if not url.port:
            raise bad_url_error("the URL has the port 0")
        if (address := parse_literal(host)) is not None:
            self.check_address(address, host)
        elif _NUMBER.match(host.rpartition(".")[2]) or not _NAME.match(host):
            # Some resolvers read `0x7f.1` and `2130706433` as addresses.
            raise bad_url_error(f"{host[:100]!r} is neither a host name nor an address in its standard form")
        return url

    def check_address(self, address: Address, host: str) -> None:
        """Check an address of a host.

        Raises:
            EgressError: It may not be connected to under this host name.
        """
        if not self._allows(address, host):
            purpose = special_purpose(address)
            raise refused_error(f"{host} is {purpose}" if parse_literal(host) is not None else _no_public_address(host))

    async def check_forwarded(self, url: str) -> None:
        """Check a URL that is forwarded to a provider, which fetches it.

        Raises:
            EgressError: It may not be forwarded.
        """
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
                resolved = await self._addresses_of(host)
        except TimeoutError:
            return
        if not all(self._allows(address, host) for address in resolved):
            raise refused_error(_no_public_address(host))

    async def _addresses_of(self, host: str) -> list[Address]:
        """Resolve a host name; an empty list if that fails."""
        try:
            return [ip_address(entry) for entry in await self._resolve(host)]
        except (OSError, UnicodeError, ValueError):
            return []

    def _allows_name(self, host: str) -> bool:
        return self._allows_all or host in self._names or any(host.endswith(suffix) for suffix in self._suffixes)

    def _allows(self, address: Address, host: str) -> bool:
        if special_purpose(address) is None or self._allows_name(host):
            return True
        effective = effective_address(address)
        return any(effective in network or address in network for network in self._networks)

    async def own_network_addresses(self, host: str) -> list[Address]:
        """Resolve a host of which no address may be connected to, and return those that an operator may agree to.

        Returns:
            The addresses; empty if there are none, if the host was not found, or if it may be connected to anyway.
        """
        host = host.lower().removesuffix(".")
        address = parse_literal(host)
        resolved = [address] if address is not None else await self._addresses_of(host)
        if any(self._allows(one, host) for one in resolved):
            return []
        return [one for one in dict.fromkeys(resolved) if is_own_network(one)]

    async def allowed_addresses(self, host: str) -> list[Address]:
        """Resolve a host to the addresses that may be connected to.

        Raises:
            EgressError: There are none.
            OSError: The host was not found, and `names_unknown_hosts` is set.
        """
        host = host.lower().removesuffix(".")
        if (address := parse_literal(host)) is not None:
            self.check_address(address, host)
            return [address]
        resolved = await self._addresses_of(host)
        if not resolved and self._names_unknown_hosts:
            raise socket.gaierror(socket.EAI_NONAME, "the host was not found")
        allowed = [address for address in dict.fromkeys(resolved) if self._allows(address, host)]
        if not allowed:
            raise refused_error(_no_public_address(host))
        return allowed


def _host_of(url: URL) -> str:
    """Return the host of a URL in lower case, without a final dot. Raises `EgressError` if it has none."""
    try:
        host = url.raw_host
    except ValueError:
        host = None
    if not host:
        raise bad_url_error("the URL has no host")
    return host.lower().removesuffix(".")


def _no_public_address(host: str) -> str:
    return f"the host {host[:100]!r} has no public address"
