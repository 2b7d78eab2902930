"""Makes GPU devices as their DRA driver publishes them: for `shape.gpu` with `dra: true`.

    Gpu (spec) --gpu_pools--> devices and counter sets, as they stand in ResourceSlices

Names of devices, attributes, capacities and counters are those of dra-driver-nvidia-gpu 0.4
(cmd/gpu-kubelet-plugin: deviceinfo.go, mig.go, partitions.go; cmd/compute-domain-kubelet-plugin:
driver.go, deviceinfo.go). Values of whole GPUs, and where they are on PCI, are those that it
publishes on a machine with 8 H100. For GB200 they are those that nvidia-smi prints on compute trays
of an NVL72 (NVIDIA/k8s-test-infra, qx-gb200.xml; NVIDIA/ISV-NCP-Validation-Suite), in the form that
the driver gives them. Profiles, their engines and where they may lie are from NVIDIA's guide to
MIG, for an H100 of 80 GB.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kwok_operator.nodegroups.api.template import Gpu, GpuProfile

DRIVER: Final = "gpu.nvidia.com"
DOMAIN_DRIVER: Final = "compute-domain.nvidia.com"
UID_PATTERN: Final = "{uid}"
_MEMORY_SLICES: Final = 8


@dataclass(frozen=True, slots=True)
class _Model:
    """What all GPUs of a model have in common, and the PCI addresses of the GPUs of one board."""

    attributes: Mapping[str, Any]
    memory: str
    places: Sequence[tuple[int, int, int]]
    """For each GPU of a board its PCI domain, its bus, and the bus of its root complex."""
    domains_of_a_board: int

    def of(self, minor: int) -> dict[str, Any]:
        """Returns the attributes that a GPU and its partitions have in common."""
        board, place = divmod(minor, len(self.places))
        domain, bus, root = self.places[place]
        domain += board * self.domains_of_a_board
        return {
            "resource.kubernetes.io/pciBusID": {"string": f"{domain:04x}:{bus:02x}:00.0"},
            "resource.kubernetes.io/pcieRoot": {"string": f"pci{domain:04x}:{root:02x}"},
            **self.attributes,
        }


_H100: Final = _Model(
    {
        "productName": {"string": "NVIDIA H100 80GB HBM3"},
        "brand": {"string": "Nvidia"},
        "architecture": {"string": "Hopper"},
        "cudaComputeCapability": {"version": "9.0.0"},
        "driverVersion": {"version": "580.105.8"},
        "cudaDriverVersion": {"version": "13.0.0"},
        "addressingMode": {"string": "HMM"},
    },
    memory="81559Mi",
    places=[(0, 0x53 + 0x11 * n, 0x44 + 0x11 * n) for n in range(8)],
    domains_of_a_board=1,
)
_GB200: Final = _Model(
    {
        "productName": {"string": "NVIDIA GB200"},
        "brand": {"string": "Nvidia"},
        "architecture": {"string": "Blackwell"},
        "cudaComputeCapability": {"version": "10.0.0"},
        "driverVersion": {"version": "580.173.2"},
        "cudaDriverVersion": {"version": "13.0.0"},
        "addressingMode": {"string": "ATS"},
    },
    memory="189471Mi",
    places=[(0x08, 1, 0), (0x09, 1, 0), (0x18, 1, 0), (0x19, 1, 0)],
    domains_of_a_board=0x20,
)
_COUNTER_NAMES: Final = {
    "multiprocessors": "multiprocessors",
    "copyEngines": "copy-engines",
    "decoders": "decoders",
    "encoders": "encoders",
    "jpegEngines": "jpeg-engines",
    "ofaEngines": "ofa-engines",
    "memory": "memory",
}


@dataclass(frozen=True, slots=True)
class _MigProfile:
    """A MIG profile; `starts` are the memory slices at which an instance of `size` slices may
    begin."""

    name: str
    number: int
    starts: Sequence[int]
    size: int
    multiprocessors: int
    copy_engines: int
    decoders: int
    """The number of decoders. JPEG engines are as many."""
    memory: str
    ofa_engines: int = 0

    @property
    def capacity(self) -> dict[str, str]:
        return {
            "multiprocessors": str(self.multiprocessors),
            "copyEngines": str(self.copy_engines),
            "decoders": str(self.decoders),
            "encoders": "0",
            "jpegEngines": str(self.decoders),
            "ofaEngines": str(self.ofa_engines),
            "memory": self.memory,
        }


_PARTITIONS: Final = (
    _MigProfile("1g.10gb", 19, range(7), 1, 16, 1, 1, "9984Mi"),
    _MigProfile("1g.10gb+me", 20, range(7), 1, 16, 1, 1, "9984Mi", ofa_engines=1),
    _MigProfile("1g.20gb", 15, (0, 2, 4, 6), 2, 26, 1, 1, "20096Mi"),
    _MigProfile("2g.20gb", 14, (0, 2, 4), 2, 32, 2, 2, "20096Mi"),
    _MigProfile("3g.40gb", 9, (0, 4), 4, 60, 3, 3, "40448Mi"),
    _MigProfile("4g.40gb", 5, (0,), 4, 64, 4, 4, "40448Mi"),
    _MigProfile("7g.80gb", 0, (0,), 8, 132, 8, 7, "81152Mi", ofa_engines=1),
)
_WHOLE: Final = {
    "multiprocessors": "132",
    "copyEngines": "8",
    "decoders": "7",
    "encoders": "0",
    "jpegEngines": "7",
    "ofaEngines": "1",
    "memory": _H100.memory,
}


@dataclass(frozen=True, slots=True)
class GpuPool:
    """What a driver publishes on a node: devices, and the counter sets that they use.

    {uid} stands for the node's uid.
    """

    driver: str
    devices: Sequence[Mapping[str, Any]]
    counters: Sequence[Mapping[str, Any]] = ()


def gpu_pools(gpu: Gpu) -> list[GpuPool]:
    """Returns the pools of a node with these GPUs: one of the GPU driver, and with NVLink one of
    the compute-domain driver."""
    if gpu.profile is GpuProfile.H100_MIG:
        devices = [each for minor in range(gpu.count) for each in _partitioned(minor)]
        every = _counters(_WHOLE, range(_MEMORY_SLICES))
        sets = [{"name": _set_of(n), "counters": every} for n in range(gpu.count)]
        return [GpuPool(DRIVER, devices, sets)]
    model = _GB200 if gpu.profile is GpuProfile.GB200 else _H100
    memory = {"memory": {"value": model.memory}}
    pools = [GpuPool(DRIVER, [{**_gpu(model, n), "capacity": memory} for n in range(gpu.count)])]
    if gpu.profile in (GpuProfile.H100_NVLINK, GpuProfile.GB200):
        pools.append(GpuPool(DOMAIN_DRIVER, [_of_domain("channel"), _of_domain("daemon")]))
    return pools


def _of_domain(kind: str) -> dict[str, Any]:
    """Returns a device by which a pod joins a compute domain, whose GPUs are connected by
    NVLink."""
    return {"name": f"{kind}-0", "attributes": {"type": {"string": kind}, "id": {"int": 0}}}


def _gpu(model: _Model, minor: int) -> dict[str, Any]:
    attributes = {"type": {"string": "gpu"}, "uuid": {"string": _uuid(minor)}, **model.of(minor)}
    return {"name": f"gpu-{minor}", "attributes": attributes}


def _partitioned(minor: int) -> Iterator[dict[str, Any]]:
    """Yields a whole GPU, and all its partitions that can be used instead."""
    yield {**_gpu(_H100, minor), **_taken(minor, _WHOLE, range(_MEMORY_SLICES))}
    for profile in _PARTITIONS:
        attributes = {
            "type": {"string": "mig"},
            "parentUUID": {"string": _uuid(minor)},
            "profile": {"string": profile.name},
            **_H100.of(minor),
        }
        called = profile.name.replace(".", "").replace("+", "-")
        for start in profile.starts:
            name = f"gpu-{minor}-mig-{called}-{profile.number}-{start}"
            taken = _taken(minor, profile.capacity, range(start, start + profile.size))
            yield {"name": name, "attributes": attributes, **taken}


def _taken(minor: int, capacity: Mapping[str, str], slices: range) -> dict[str, Any]:
    counters = _counters(capacity, slices)
    return {
        "capacity": {name: {"value": value} for name, value in capacity.items()},
        "consumesCounters": [{"counterSet": _set_of(minor), "counters": counters}],
    }


def _counters(capacity: Mapping[str, str], slices: range) -> dict[str, Any]:
    found = {_COUNTER_NAMES[name]: {"value": value} for name, value in capacity.items()}
    return found | {f"memory-slice-{n}": {"value": "1"} for n in slices}


def _set_of(minor: int) -> str:
    return f"gpu-{minor}-counter-set"


def _uuid(minor: int) -> str:
    return f"GPU-{UID_PATTERN}-{minor}"
