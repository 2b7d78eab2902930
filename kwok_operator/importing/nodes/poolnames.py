"""Names for the groups that pools become: valid, different from each other, and readable.

A group is called like its pool. Where a pool has several groups, what tells them apart follows; and
where two pools would be called the same, a hash of what they are.
"""

import base64
import hashlib
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from kwok_operator.nodegroups.naming import group_name

Identity = tuple[str, str, tuple[str, ...]]
"""Source and name of a pool, and what tells its groups from each other: its parts, the zone."""

_HASH_LENGTH: Final = 5


def names_of(identities: Iterable[Identity]) -> dict[Identity, str]:
    """They depend on the identities alone, and not on their order."""
    pools: dict[tuple[str, str], list[Identity]] = defaultdict(list)
    for identity in identities:
        pools[identity[:2]].append(identity)
    titles = {
        identity: "-".join([identity[1], *_telling(identity, members)])
        for members in pools.values()
        for identity in members
    }
    found: dict[Identity, str] = {}
    taken: dict[str, list[Identity]] = defaultdict(list)
    for identity, title in titles.items():
        taken[group_name(title)].append(identity)
    for name, members in taken.items():
        for each in members:
            alone = len(members) == 1
            found[each] = name if alone else group_name(f"{titles[each]}-{_hash(each)}")
    return found


def _telling(identity: Identity, members: Iterable[Identity]) -> list[str]:
    """The parts in which the groups of a pool differ, without those that are empty."""
    columns = zip(*(parts for _, _, parts in members), strict=True)
    differ = [len(set(column)) > 1 for column in columns]
    return [part for part, tells in zip(identity[2], differ, strict=True) if tells and part]


def _hash(identity: Identity) -> str:
    digest = hashlib.sha256(repr(identity).encode(errors="surrogatepass")).digest()
    return base64.b32encode(digest).decode().lower()[:_HASH_LENGTH]
