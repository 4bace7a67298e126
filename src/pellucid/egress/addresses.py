"""Which addresses are nobody else's business: everything that is not the public internet.

The rows are IANA's special-purpose registries, and the few public addresses at which clouds keep their secrets. Of IPv6
only 2000::/3 is public to begin with. An address that stands for an IPv4 address is judged as that one.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

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
_SPECIAL: list[tuple[Network, str]] = [(ip_network(text), why) for text, why in _V4 + _V6]
_GLOBAL = IPv6Network("2000::/3")

_EMBEDS: list[tuple[IPv6Network, int]] = [
    (IPv6Network("::ffff:0:0/96"), 0),
    (IPv6Network("::ffff:0:0:0/96"), 0),
    (IPv6Network("64:ff9b::/96"), 0),
    (IPv6Network("2002::/16"), 80),
]
"""IPv6 networks whose addresses stand for IPv4 ones (mapped, translated, NAT64, 6to4), and how far up those stand."""

_ISATAP = (0x00005EFE, 0x02005EFE)


def meant(address: Address) -> Address:
    """The address that is reached: the IPv4 one that an IPv6 one stands for, or itself."""
    if isinstance(address, IPv4Address):
        return address
    for network, shift in _EMBEDS:
        if address in network:
            return IPv4Address(int(address) >> shift & 0xFFFFFFFF)
    if int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def special(address: Address) -> str | None:
    """What kind of address it is, if it is not a public one."""
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        return "a link-local address"
    address = meant(address)
    for network, why in _SPECIAL:
        if address in network:
            return why
    if isinstance(address, IPv6Address) and address not in _GLOBAL:
        return "a reserved address"
    return None


def literal(host: str) -> Address | None:
    """The address that `host` writes out, in the one form in which it is unmistakable; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None
