"""Blocks of addresses (CIDRs), IPv4 and IPv6."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

_IPV4_BITS = 32
FEWEST_ADDRESSES = 4
"""The fewest addresses of a range for nodes. Its first and last addresses are never assigned."""
DEFAULT_BLOCK_SIZES: Mapping[int, int] = {_IPV4_BITS: 24, 128: 64}
"""The defaults of kube-controller-manager's --node-cidr-mask-size-ipv4 and -ipv6: bits of an
address -> prefix."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of addresses (a CIDR): of the `bits` in an address, the first `prefix` bits are
    fixed."""

    bits: int
    prefix: int
    first: int

    @classmethod
    def parse(cls, text: str) -> "Block":
        """Parses a CIDR. Raises ValueError for anything else, also if a bit after the prefix is
        set."""
        address, slash, prefix = text.partition("/")
        written = prefix.isascii() and prefix.isdigit() and str(int(prefix[:4])) == prefix
        if not (slash and written) or "%" in address:
            raise ValueError("must be a range of addresses, such as 10.0.0.0/8")
        network = ipaddress.ip_network(text, strict=False)
        if network.network_address != ipaddress.ip_address(address):
            raise ValueError(f"must begin where the range does, as {network} does")
        if getattr(network.network_address, "ipv4_mapped", None) is not None:
            raise ValueError("is IPv4 written as IPv6, which Kubernetes takes for no range")
        return cls(network.max_prefixlen, network.prefixlen, int(network.network_address))

    @property
    def size(self) -> int:
        """The number of addresses."""
        return 1 << (self.bits - self.prefix)

    @property
    def address(self) -> str:
        """The first address."""
        kind = ipaddress.IPv4Address if self.bits == _IPV4_BITS else ipaddress.IPv6Address
        return str(kind(self.first))

    def within(self, prefix: int) -> int:
        """Returns the index, counted from address 0, of the block of length `prefix` around this
        one.
        """
        return self.first >> (self.bits - prefix)

    def __str__(self) -> str:
        return f"{self.address}/{self.prefix}"
