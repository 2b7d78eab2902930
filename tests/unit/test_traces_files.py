"""Files of traces."""

import gzip
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.errors import SettingsError, TraceError
from kwok_operator.importing.traces.files import Findings, TraceWriter, read_trace
from kwok_operator.importing.traces.foreign import GPU_MODEL_LABEL
from kwok_operator.importing.traces.trace import (
    Event,
    Happening,
    Header,
    Key,
    Line,
    Stop,
    TracedShape,
)
from kwok_operator.importing.traces.trace import encode as encoded
from tests.fakes.traced import CLEAN

LINES: list[Line] = [
    Header(start=0),
    TracedShape("a" * 12, {"spec": {}}),
    *(Event(n, Happening.CREATE, Key("Pod", "a", f"p-{n}"), "a" * 12) for n in range(200)),
    Stop(200),
]


def read(path: Path, findings: Findings | None = None) -> list[Line]:
    return [line for _, line in read_trace(path, clean=CLEAN, findings=findings or Findings())]


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.jsonl.gz"])
def test_what_was_flushed_can_be_read_meanwhile(name: str, tmp_path: Path) -> None:
    writer, findings = TraceWriter(tmp_path / name), Findings()
    writer.open_part()
    writer.write(LINES[:-1])
    writer.flush()
    # As if the recorder was killed now.
    assert read(writer.path, findings) == LINES[:-1]
    assert findings.cut == ([name] if name.endswith(".gz") else [])
    writer.write(LINES[-1:])
    writer.close()
    findings = Findings()
    assert read(writer.path, findings) == LINES
    assert findings.cut == []
    assert name.endswith(".gz") == (writer.path.read_bytes()[:2] == b"\x1f\x8b")


TEXT = "".join(f"{encoded(line)}\n" for line in LINES).encode()
ZIPPED = gzip.compress(TEXT, mtime=0)


@given(st.floats(0, 1), st.booleans())
def test_cut_anywhere_it_can_be_read(
    tmp_path_factory: pytest.TempPathFactory, share: float, zipped: bool
) -> None:
    whole = ZIPPED if zipped else TEXT
    kept = 10 + int(share * (len(whole) - 10))
    path, findings = tmp_path_factory.getbasetemp() / "cut.jsonl.gz", Findings()
    path.write_bytes(whole[:kept])
    found = read(path, findings)
    assert found == LINES[: len(found)]
    if zipped:
        assert bool(findings.cut) == (kept < len(whole))
    else:
        assert len(found) >= TEXT[:kept].count(b"\n")


class FullFor:
    """A file on a disk that is full for one write."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._full = True

    def write(self, data: bytes) -> None:
        if self._full:
            self._full = False
            raise OSError(28, "No space left on device")
        self._file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.jsonl.gz"])
def test_after_an_error_there_is_no_end(name: str, tmp_path: Path) -> None:
    writer, findings = TraceWriter(tmp_path / name), Findings()
    writer.open_part()
    writer.write(LINES[:2])
    writer.flush()
    writer._file = FullFor(writer._file)  # type: ignore[assignment]
    with pytest.raises(OSError, match="No space"):
        writer.write(LINES[2:50])
        writer.flush()
    writer.write(LINES[-1:])
    writer.close()
    assert read(writer.path, findings) == LINES[:2]


def test_a_place_that_is_none_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="choose another place"):
        TraceWriter(tmp_path / "none" / "trace.jsonl").open_part()


def test_files_one_after_the_other_in_one(tmp_path: Path) -> None:
    path = tmp_path / "both.gz"
    path.write_bytes(gzip.compress(TEXT[:5_000]) + gzip.compress(TEXT[5_000:]))
    assert read(path) == LINES


def test_lines_are_named_by_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(TEXT[: TEXT.index(b"\n") + 1] + b'\n{"line": "stop", "at": "now"}\n')
    with pytest.raises(TraceError) as caught:
        read(path)
    assert caught.value.where == "trace.jsonl:3"


def test_parts_get_numbers_and_nothing_is_overwritten(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "trace.jsonl.gz", parts=True)
    for _ in range(2):
        writer.open_part()
        assert writer.size == 0
        writer.write(LINES)
        writer.flush()
        assert writer.size == writer.path.stat().st_size > 0
    writer.close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["trace-0001.jsonl.gz", "trace-0002.jsonl.gz"]
    with pytest.raises(SettingsError, match=r"trace-0001\.jsonl\.gz is there already"):
        TraceWriter(tmp_path / "trace.jsonl.gz", parts=True).open_part()
    assert read(tmp_path / names[0]) == LINES


@pytest.mark.parametrize(
    "content",
    [
        b"no trace\n",
        b"a,b\n1,2\n",
        b"\x81",
        b"\x81\xa7version\x02",
        b"\xde\xff\xff" + b"\x81" * 5_000,
        ZIPPED[:50] + b"?" * 50,
        b'{"x": "' + b"y" * (2**24 + 2**17),
        b'name,cpu_milli,memory_mib,num_gpu,creation_time\n"' + b"x" * 200_000 + b'",1,1,1,1\n',
    ],
    ids=["text", "csv", "cut map", "no events", "deep", "damaged", "long line", "long"],
)
def test_what_is_no_trace_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(TraceError) as caught:
        read(path)
    assert caught.value.remedy
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_without_anything_was_cut(tmp_path: Path) -> None:
    path, findings = tmp_path / "file", Findings()
    path.write_bytes(b"")
    assert (read(path, findings), findings.cut) == ([], ["file"])


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        read(tmp_path / "nowhere")
    with pytest.raises(SettingsError):
        read(tmp_path)


OPENB = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
openb-pod-0002,4000,15258,1,220,nan,BE,Running,120,300,121
openb-pod-0001,88000,327680,8,1000,V100M16|V100M32,Burstable,Succeeded,100,150,100
openb-pod-0003,12000,16384,0,0,,LS,Pending,120,nan,
"""


def test_openb(tmp_path: Path) -> None:
    path = tmp_path / "openb_pod_list.csv"
    path.write_text(OPENB)
    lines = read(path)
    header, stop, shapes = (
        lines[0],
        lines[-1],
        {s.id: s for s in lines if isinstance(s, TracedShape)},
    )
    assert isinstance(header, Header) and header.at == 100
    assert stop == Stop(300)
    events = [line for line in lines if isinstance(line, Event)]
    assert [(e.at, e.happening.value, e.key.name[-4:]) for e in events] == [
        (100, "create", "0001"),
        (120, "create", "0002"),
        (120, "create", "0003"),
        (150, "delete", "0001"),
        (300, "delete", "0002"),
    ]
    large, shared, plain = (shapes[e.shape].body["spec"] for e in events[:3])
    assert large["containers"][0]["resources"]["requests"] == {
        "cpu": "88000m",
        "memory": "327680Mi",
        "nvidia.com/gpu": "8",
    }
    (term,) = large["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchExpressions"] == [
        {"key": GPU_MODEL_LABEL, "operator": "In", "values": ["V100M16", "V100M32"]}
    ]
    assert shared["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert "affinity" not in shared
    assert "nvidia.com/gpu" not in plain["containers"][0]["resources"]["limits"]


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("4000", "many", "cpu_milli"),
        ("15258", "-1", "memory_mib"),
        ("15258", "nan", "memory_mib"),
        ("120,300", ",300", "creation_time"),
        ("120,300", "120,later", "deletion_time"),
        ("openb-pod-0002", "../x", "name"),
    ],
)
def test_broken_rows_of_openb(old: str, new: str, field: str, tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_text(OPENB.replace(old, new))
    with pytest.raises(TraceError) as caught:
        read(path)
    assert (caught.value.where, caught.value.field) == ("list.csv:2", field)


def simkube(**fields: Any) -> bytes:
    def deployment(replicas: int) -> dict[str, Any]:
        template = {
            "metadata": {"labels": {"app": "nginx"}},
            "spec": {"containers": [{"image": "secret/nginx:1", "command": ["run"]}]},
        }
        selector = {"matchLabels": {"app": "nginx"}}
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "nginx", "namespace": "default", "annotations": {}},
            "spec": {"replicas": replicas, "selector": selector, "template": template},
        }

    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "bare", "namespace": "default"},
        "spec": {"containers": [{"image": "busybox"}]},
    }
    cron = {"kind": "CronJob", "metadata": {"name": "c", "namespace": "default"}}
    trace = {
        "version": 2,
        "config": {"trackedObjects": {}},
        "events": [
            {"ts": 1_700_000_000, "applied_objs": [deployment(2)], "deleted_objs": []},
            {"ts": 1_700_000_010, "applied_objs": [deployment(5), pod], "deleted_objs": []},
            {"ts": 1_700_000_030, "applied_objs": [cron], "deleted_objs": [deployment(5)]},
        ],
        "index": {},
        "pod_lifecycles": {},
        **fields,
    }
    packed: bytes = msgpack.packb(trace)
    # Keys of this map are pairs, which Python's packer can't write.
    life = {7: [{"Finished": [1_700_000_011, 1_700_000_021]}, {"Running": 1_700_000_012}]}
    pairs = msgpack.packb(["v1.Pod", "default/bare"]) + msgpack.packb(life)
    empty = msgpack.packb("pod_lifecycles") + b"\x80"
    return packed.replace(empty, empty[:-1] + b"\x81" + pairs)


def test_simkube(tmp_path: Path) -> None:
    path, findings = tmp_path / "trace.sktrace", Findings()
    path.write_bytes(simkube())
    lines = read(path, findings)
    events = [line for line in lines if isinstance(line, Event)]
    assert [(e.at, e.happening.value, str(e.key), e.replicas) for e in events] == [
        (0, "present", "Deployment default/nginx", 2),
        (10, "scale", "Deployment default/nginx", 5),
        (10, "create", "Pod default/bare", None),
        (21, "end", "Pod default/bare", None),
        (30, "delete", "Deployment default/nginx", None),
    ]
    assert findings.ignored == {"CronJob": 1}
    assert "secret" not in str(lines) and "run" not in str(
        [x for x in lines if type(x) is TracedShape]
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"version": 1},
        {"version": None},
        {"events": []},
        {"events": 7},
        {"events": [{"ts": "now", "applied_objs": []}]},
        {"events": [{"ts": 1, "applied_objs": {}}]},
        {"events": [7]},
    ],
)
def test_broken_traces_of_simkube(fields: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "trace.sktrace"
    path.write_bytes(simkube(**fields))
    with pytest.raises(TraceError):
        read(path)


def test_without_msgpack_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "msgpack", None)
    path = tmp_path / "trace.sktrace"
    path.write_bytes(simkube())
    with pytest.raises(SettingsError, match="pip install msgpack"):
        read(path)


def test_parts_that_are_there_are_reported_before_anything_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "t-0007.jsonl.gz").touch()
    with pytest.raises(SettingsError, match="t-0007"):
        TraceWriter(tmp_path / "t.jsonl.gz", parts=True).open_part()
    writer = TraceWriter(tmp_path / "other.jsonl.gz", parts=True)
    writer.open_part()
    writer.close()
