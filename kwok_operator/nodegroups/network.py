"""Addresses of nodes: which block of a range a node gets, and which blocks are taken.

    template.network, name of the group, serial  ──> NodeNetwork ──> podCIDR, address of a node
    podCIDR and address of existing nodes        ──> HeldAddresses ──> whether they are taken

A node's block is computed from its serial (the number in its name), so nothing is recorded: the
nodes themselves show which blocks are taken, as they do for kube-controller-manager
(pkg/controller/nodeipam/ipam). The group's name decides where its blocks begin, so groups with the
same range seldom collide. If they do, the serial is skipped.
"""

import zlib
from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache

from kwok_operator.errors import TemplateError
from kwok_operator.formats.cidr import DEFAULT_BLOCK_SIZES, FEWEST_ADDRESSES, Block
from kwok_operator.nodegroups.api.template import Network

FIELD = "spec.template.network"
MOST_PLACES = 2**56
"""The most blocks of a group. Serials have at most 18 digits, and skip all blocks that lie within a
large block of another node."""


@dataclass(frozen=True, slots=True)
class NodeNetwork:
    """The addresses of a group's nodes: a range that is cut into `places` blocks for pods, one for
    each node, and as many InternalIPs if the nodes have addresses of their own."""

    pods: Block
    block_size: int
    nodes: Block | None
    start: int

    @classmethod
    def of(cls, network: Network | None, *, group: str) -> "NodeNetwork | None":
        """Returns a group's network; None if the template gives its nodes no addresses. Raises
        TemplateError."""
        return None if network is None else _node_network(network, group)

    @property
    def places(self) -> int:
        places = 1 << (self.block_size - self.pods.prefix)
        return places if self.nodes is None else min(places, self.nodes.size - 2)

    def block(self, serial: int) -> Block:
        first = self.pods.first + (self.place(serial) << (self.pods.bits - self.block_size))
        return Block(self.pods.bits, self.block_size, first)

    def address(self, serial: int) -> str:
        """Returns the node's InternalIP; "" if kwok assigns one."""
        if self.nodes is None:
            return ""
        return self._host(self.nodes, serial).address

    def host(self, serial: int) -> Block | None:
        """Returns the node's InternalIP as a block of one address."""
        return None if self.nodes is None else self._host(self.nodes, serial)

    def _host(self, nodes: Block, serial: int) -> Block:
        return Block(nodes.bits, nodes.bits, nodes.first + 1 + self.place(serial))

    def place(self, serial: int) -> int:
        return (self.start + serial) % self.places


class HeldBlocks:
    """The pod blocks of existing nodes, by the node's name.

    From the first query about a block size on, the number of nodes in each block of that size is
    kept up to date, so that a query takes the same time for any number of nodes.
    """

    def __init__(self) -> None:
        self._held: dict[str, Block] = {}
        self._exact: dict[_Size, Counter[int]] = {}
        self._within: dict[_Size, Counter[int]] = {}

    def put(self, name: str, pod_cidr: str) -> None:
        """Enters a node's block, or removes it if the text is no CIDR."""
        try:
            block = Block.parse(pod_cidr)
        except ValueError:
            self.remove(name)
        else:
            if self._held.get(name) != block:
                self.remove(name)
                self._held[name] = block
                self._count(block, 1)

    def remove(self, name: str) -> None:
        block = self._held.pop(name, None)
        if block is not None:
            self._count(block, -1)

    def taken(self, block: Block, *, node: str) -> int:
        """Returns 0 if no other node has an address of the block. Otherwise returns how many
        blocks, from this one on, are certainly taken: 1, or all up to the end of another node's
        larger block."""
        if self._held.get(node) == block:
            return 0
        size = (block.bits, block.prefix)
        if size not in self._within:
            counter = self._within[size] = Counter()
            for held in self._held.values():
                if held.bits == block.bits and held.prefix >= block.prefix:
                    counter[held.within(block.prefix)] += 1
        number = block.within(block.prefix)
        for (bits, prefix), counter in self._exact.items():
            if bits == block.bits and prefix < block.prefix and counter[block.within(prefix)]:
                many = 1 << (block.prefix - prefix)
                return many - number % many
        return 1 if self._within[size][number] else 0

    def _count(self, block: Block, change: int) -> None:
        exact = self._exact.setdefault((block.bits, block.prefix), Counter())
        _add(exact, block.within(block.prefix), change)
        for (bits, prefix), counter in self._within.items():
            if bits == block.bits and prefix <= block.prefix:
                _add(counter, block.within(prefix), change)


class HeldAddresses:
    """The pod blocks of nodes, and the nodes' own addresses."""

    def __init__(self) -> None:
        self._pods, self._nodes = HeldBlocks(), HeldBlocks()

    def put(self, name: str, pod_cidr: str, address: str) -> None:
        self._pods.put(name, pod_cidr)
        self._nodes.put(name, f"{address}/{128 if ':' in address else 32}")

    def remove(self, name: str) -> None:
        self._pods.remove(name)
        self._nodes.remove(name)

    def taken(self, network: NodeNetwork, serial: int, *, node: str) -> int:
        """Returns 0 if no other node has the serial's block or address. Otherwise returns a number
        of serials, from this one on, that are certainly taken."""
        found = self._pods.taken(network.block(serial), node=node)
        host = network.host(serial)
        if host is not None and not found:
            found = self._nodes.taken(host, node=node)
        return min(found, network.places - network.place(serial))


_Size = tuple[int, int]
"""The number of bits of an address (32 or 128), and the length of the prefix."""


def _add(counter: Counter[int], number: int, change: int) -> None:
    counter[number] += change
    if not counter[number]:
        del counter[number]


@lru_cache(maxsize=1_000)
def _node_network(network: Network, group: str) -> NodeNetwork:
    pods = _range("podCIDR", network.pod_cidr)
    size = network.block_size if network.block_size is not None else DEFAULT_BLOCK_SIZES[pods.bits]
    if not pods.prefix <= size <= pods.bits:
        raise TemplateError(
            field=f"{FIELD}.blockSize",
            value=size,
            problem=f"must be from {pods.prefix}, the range's own, to {pods.bits}",
            remedy="each node gets a block of so many bits of prefix",
        )
    nodes = _range("nodeCIDR", network.node_cidr) if network.node_cidr is not None else None
    if nodes is not None and nodes.size < FEWEST_ADDRESSES:
        raise TemplateError(
            field=f"{FIELD}.nodeCIDR",
            value=network.node_cidr,
            problem="has no addresses for nodes, as its first and last are not given away",
            remedy="make the range larger",
        )
    node_network = NodeNetwork(pods, size, nodes, start=0)
    if node_network.places > MOST_PLACES:
        raise TemplateError(
            field=f"{FIELD}.blockSize",
            value=size,
            problem="makes more blocks of the range than serials can count",
            remedy=f"write at most {pods.prefix + MOST_PLACES.bit_length() - 1}",
        )
    return replace(node_network, start=zlib.crc32(group.encode()) % node_network.places)


def _range(field: str, text: str) -> Block:
    try:
        return Block.parse(text)
    except ValueError as error:
        raise TemplateError(field=f"{FIELD}.{field}", value=text, problem=str(error)) from None
