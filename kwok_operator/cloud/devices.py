"""Computes when a node's devices are published and fail, or that they never appear.

    spec.cloud.devices, the instance, when its Node was made  --device_course-->  DeviceCourse

Nothing is recorded: a course is drawn anew each time, and is the same each time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kwok_operator.cloud.api.cloud import Cloud
from kwok_operator.cloud.arrival import happens
from kwok_operator.cloud.draws import drawn, instance_seed


@dataclass(frozen=True, slots=True)
class DeviceCourse:
    """When a node's devices are published (None: never), and when some fail, by name.

    Times are milliseconds since the epoch.
    """

    published: int | None
    failing: Mapping[str, int] = field(default_factory=dict)

    def failed(self, now: int) -> frozenset[str]:
        return frozenset(name for name, at in self.failing.items() if at <= now)

    def next_change(self, now: int) -> int | None:
        times = [*self.failing.values()] if self.published is not None else []
        if self.published is not None:
            times.append(self.published)
        return min((at for at in times if at > now), default=None)


def device_course(
    cloud: Cloud | None, *, group: str, serial: int, made: int, devices: Iterable[str]
) -> DeviceCourse:
    """Draws the course of a node's devices. `made` is when the node was created."""
    wanted = cloud.devices if cloud is not None else None
    if cloud is None or wanted is None:
        return DeviceCourse(made)
    who = instance_seed(cloud, group=group, serial=serial)
    if happens(wanted.never_published, who, what="devices/never"):
        return DeviceCourse(None)
    published = made + drawn(wanted.after, who, what="devices/after")
    failures, failing = wanted.failures, dict[str, int]()
    for name in devices if failures is not None else ():
        if happens(failures, who, what=f"devices/{name}/fails"):
            after = failures.after if failures is not None else None
            failing[name] = published + drawn(after, who, what=f"devices/{name}/fails-after")
    return DeviceCourse(published, failing)
