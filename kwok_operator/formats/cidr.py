"""Ranges of addresses: CIDRs, IPv4 and IPv6."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

_IPV4_BITS = 32
FEWEST_ADDRESSES = 4
"""Of a range that nodes get addresses of: the first and the last are no node's."""
DEFAULT_BLOCK_SIZES: Mapping[int, int] = {_IPV4_BITS: 24, 128: 64}
"""As kube-controller-manager's --node-cidr-mask-size-ipv4 and -ipv6 are, by bits of an address."""


@dataclass(frozen=True, slots=True)
class Block:
    """A CIDR: `prefix` of the `bits` of its first address are the block's."""

    bits: int
    prefix: int
    first: int

    @classmethod
    def parse(cls, text: str) -> "Block":
        """Raises ValueError for what is no CIDR, also where bits of a host are set."""
        address, slash, prefix = text.partition("/")
        written = prefix.isascii() and prefix.isdigit() and str(int(prefix[:4])) == prefix
        if not (slash and written) or "%" in address:
            raise ValueError("must be a range of addresses, such as 10.0.0.0/8")
        found = ipaddress.ip_network(text, strict=False)
        if found.network_address != ipaddress.ip_address(address):
            raise ValueError(f"must begin where the range does, as {found} does")
        if getattr(found.network_address, "ipv4_mapped", None) is not None:
            raise ValueError("is IPv4 written as IPv6, which Kubernetes takes for no range")
        return cls(found.max_prefixlen, found.prefixlen, int(found.network_address))

    @property
    def size(self) -> int:
        """Addresses."""
        return 1 << (self.bits - self.prefix)

    @property
    def address(self) -> str:
        """The first."""
        kind = ipaddress.IPv4Address if self.bits == _IPV4_BITS else ipaddress.IPv6Address
        return str(kind(self.first))

    def within(self, prefix: int) -> int:
        """The number of the larger block of this prefix that it is in."""
        return self.first >> (self.bits - prefix)

    def __str__(self) -> str:
        return f"{self.address}/{self.prefix}"
