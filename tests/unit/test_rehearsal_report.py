"""report.html, and the commands `report` and `diff`."""

import base64
import gzip
import hashlib
import json
import random
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kwok_operator.cli.main import main
from kwok_operator.rehearsal import outputs
from kwok_operator.rehearsal.judge import observed
from kwok_operator.rehearsal.judge.figures import FIGURES
from kwok_operator.rehearsal.judge.recording import (
    CallLine,
    EventLine,
    GroupLine,
    GroupState,
    MarkLine,
    NodeClaimLine,
    NodeClaimState,
    NodeLine,
    PodLine,
    RecordedLine,
    RecordedTopology,
    WaitLine,
)
from kwok_operator.rehearsal.judge.story import MOST_CALLS, MOST_MARKS, MOST_SAMPLES, NodeCounts
from kwok_operator.rehearsal.judge.verdict import notes, verdict_json
from kwok_operator.rehearsal.outputs import page_script
from kwok_operator.rehearsal.report import livepage
from kwok_operator.rehearsal.report.charts import time_plots
from kwok_operator.rehearsal.report.figurenames import figure_in_words
from kwok_operator.rehearsal.report.livepage import lanes_data
from kwok_operator.rehearsal.report.page import GLANCE, page
from kwok_operator.rehearsal.report.plots import draw, live
from kwok_operator.rehearsal.report.rackmap import rack_map
from tests.fakes.rehearsed import content, gone, judge, node, pod, random_run, run
from tests.reportpages import HOSTILE, Seen

EXPECT: list[dict[str, Any]] = [
    {"figure": "pods.running", "atLeast": 1},
    {"figure": "nodes.total", "atMost": 1, "when": "always"},
    {"wait": "kng/a --for=condition=Ready"},
]


def hostile_run() -> list[RecordedLine]:
    return run(
        node(1, HOSTILE, HOSTILE, zone=HOSTILE, price=1.0),
        GroupLine(1, HOSTILE, GroupState(states={HOSTILE: 3})),
        pod(1, HOSTILE, created=1, workload=f"{HOSTILE}/{HOSTILE}/{HOSTILE}", why=HOSTILE),
        EventLine(2, HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE),
        CallLine(3, "NodeGroupIncreaseSize", HOSTILE, HOSTILE, HOSTILE),
        MarkLine(4, HOSTILE, HOSTILE),
        NodeClaimLine(
            4,
            HOSTILE,
            NodeClaimState(4, pool=HOSTILE, instance_type=HOSTILE, reason=HOSTILE, deleting=True),
        ),
        WaitLine(5, 2, False, HOSTILE),
    )


def drawn(lines: list[RecordedLine], **header: Any) -> Seen:
    return Seen(page(judge(lines, expect=EXPECT, **header)))


@pytest.mark.parametrize("alive", [False, True])
@pytest.mark.parametrize("lines", [random_run(5), hostile_run(), run(), []])
def test_it_asks_nobody_for_anything(lines: list[RecordedLine], alive: bool) -> None:
    found = judge(lines, expect=EXPECT, scenario=HOSTILE, teaches=HOSTILE, seed=HOSTILE)
    text = page(found, page_script() if alive else None)
    seen = Seen(text)
    names = {name for _, attributes in seen.tags for name in attributes}
    assert not names & {"src", "href", "srcset", "action", "data", "xlink:href", "background"}
    assert not any(name.startswith("on") for name in names)
    tags = {tag for tag, _ in seen.tags}
    assert not tags & {"link", "img", "iframe", "object", "embed", "use", "image", "a"}
    styles = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in styles and "@import" not in styles
    assert not any("url(" in str(attributes) for _, attributes in seen.tags)
    assert "default-src 'none'" in text
    allowed = set(re.findall(r"'sha256-([^']+)'", text))
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == sum(tag == "script" for tag, _ in seen.tags)
    run_by_browsers = [script for attributes, script in scripts if not attributes]
    hashes = {base64.b64encode(hashlib.sha256(each.encode()).digest()) for each in run_by_browsers}
    assert {each.decode() for each in hashes} == allowed
    assert len(allowed) == (2 if alive else 0)
    for attributes, script in scripts:
        if attributes:
            json.loads(script)
            assert not {"<", ">", "&"}.intersection(script)


@pytest.mark.parametrize("lines", [random_run(n) for n in range(4)])
def test_every_figure_is_that_of_the_verdict(lines: list[RecordedLine]) -> None:
    found = judge(lines, expect=EXPECT)
    verdict = verdict_json(found)
    parsed = Seen(page(found))
    assert {told["data-figure"] for told, _ in parsed.figures} == set(verdict["figures"])
    for told, shown in parsed.figures:
        figures = verdict["figures"]
        if "data-group" in told:
            figures = verdict["groups"][told["data-group"]]
        elif "data-nodepool" in told:
            figures = verdict["nodePools"][told["data-nodepool"]]
        elif "data-workload" in told:
            figures = verdict["workloads"][told["data-workload"]]
        wanted = figures.get(told["data-figure"])
        assert told["value"] == ("" if wanted is None else repr(wanted))
        if wanted is not None:
            number = float(shown.split()[0].replace(",", ""))
            scale = 100 if shown.endswith("%") else 1
            assert number == pytest.approx(wanted * scale, rel=0.05, abs=0.005)


def test_the_verdict_comes_first_and_says_why() -> None:
    parsed = drawn(random_run(6), scenario="spot-storm")
    body = " ".join(" ".join(parsed.texts).split())
    head = body[body.index("spot-storm failed") :]
    assert (
        head.index("failed") < head.index("the cluster was never asked") < head.index("At a glance")
    )
    titles = [told["aria-label"] for tag, told in parsed.tags if tag == "svg" and "role" in told]
    assert len(titles) == 5


def test_there_is_no_half_of_a_node() -> None:
    texts = drawn(run(node(1, "n-1"), pod(1, "w-1", created=1))).texts
    first = texts.index("Nodes by group and state")
    counts = texts[first : texts.index("Utilisation: requests over allocatable")]
    assert "1" in counts and not [text for text in counts if text.startswith("0.")]


def test_nodes_of_no_group_are_drawn_by_their_node_pool() -> None:
    pooled = node(1, "n-1", "", pool="spot-pool")
    for lines, by, drawn_is in (
        ([pooled], "Nodes by NodePool and state", "spot-pool"),
        ([pooled, node(2, "n-2", "a")], "Nodes by group and state", "all others"),
    ):
        texts = drawn(run(*lines)).texts
        assert drawn_is in texts[texts.index(by) : texts.index("Pods")]


def test_marks_and_what_the_autoscaler_did_are_drawn() -> None:
    calls = [
        CallLine(10, "NodeGroupIncreaseSize", "a", "3", "OK"),
        CallLine(20, "NodeGroupDeleteNodes", "a", "a-abcd-000001", "OK"),
        CallLine(25, "NodeGroups", "", "", "OK"),
        CallLine(26, "Refresh", "", "", "UNAVAILABLE"),
        *(CallLine(30, "NodeGroupIncreaseSize", "b", "1", "OK") for _ in range(MOST_CALLS)),
        CallLine(90, "NodeGroupIncreaseSize", "b", "1", "OK"),
    ]
    marks = (MarkLine(30, "scale", "web to 5"), MarkLine(40, "outage", "a"))
    parsed = drawn(run(node(1, "a-abcd-000001"), *calls, *marks))
    classes = [told.get("class", "") for tag, told in parsed.tags if tag == "path"]
    (path, *_) = [told["d"] for tag, told in parsed.tags if told.get("class") == "up"]
    assert path.count("M") == 3  # at 10, 30 and 90 s, though the last is in no row of the table
    plots = classes.count("up")
    assert plots == classes.count("down") > 0
    assert classes.count("mark") == 2 * plots
    assert {"web to 5", "deletes nodes", "a-abcd-000001"} <= set(parsed.texts)
    assert "NodeGroupDeleteNodes" in {told.get("title") for _, told in parsed.tags}
    assert "NodeGroups" not in parsed.texts
    assert parsed.texts.count("b") == 2  # calls that follow one another are one row
    at = parsed.texts.index("b")
    assert parsed.texts[at - 1] == "30\xa0s"
    assert parsed.texts[at + 2 : at + 4] == [f"+{MOST_CALLS}", str(MOST_CALLS)]
    assert "Refresh" in parsed.texts  # it failed


def test_a_thousand_node_claims_are_a_few_rows_and_triangles() -> None:
    lines = [
        NodeClaimLine(t, f"c-{n}", state)
        for n in range(1_000)
        for claim in [NodeClaimState(1 + n / 1_000, pool="p", instance_type=f"m.{n % 7}")]
        for registered in [replace(claim, launched=2, registered=20)]
        for t, state in (
            (claim.created, claim),
            (2, replace(claim, launched=2)),
            (20, registered),
            (60, replace(registered, reason="Empty", deleting=True) if n % 2 else registered),
            (70, None if n % 2 else registered),
        )
    ]
    parsed = drawn(run(*lines))
    texts = parsed.texts[parsed.texts.index("What the autoscaler did") :]
    rows = [texts[at - 1 : at + 4] for at, word in enumerate(texts) if word == "p"]
    types = "143 m.0, 143 m.1, 143 m.2, 143 m.3 and 3 more"
    assert rows[:2] == [
        ["2\xa0s", "p", "launched", "1,000", types],
        ["20\xa0s", "p", "registered", "1,000", types],
    ]
    assert rows[2][:4] == ["1:00\xa0min", "p", "disrupted: Empty", "500"]
    paths = [(told.get("class"), told.get("d", "")) for _, told in parsed.tags]
    # One for each pixel of that second.
    assert {d.count("M") for kind, d in paths if kind == "up"} == {4}
    assert {d.count("M") for kind, d in paths if kind == "down"} == {1}
    assert not [kind for kind, _ in paths if kind == "mark"]


def test_what_an_autoscaler_said_stands_with_what_it_did() -> None:
    told = [
        EventLine(3, "Normal", f"Reason{who}", "Pod/default/w-1", who, "m")
        for who in ("cluster-autoscaler", "karpenter", "kubelet")
    ]
    texts = drawn(run(*told)).texts
    did, others = texts.index("What the autoscaler did"), texts.index("Events of others")
    assert did < texts.index("Reasoncluster-autoscaler") < texts.index("Reasonkarpenter") < others
    assert texts.index("Reasonkubelet") > others


def test_however_long_the_run_the_page_is_small() -> None:
    lines: list[RecordedLine] = []
    for n in range(4_000):
        t, name = n / 10, f"{'n' * 200}-{n}"
        lines += [
            node(t, name, f"{'g' * 200}-{n % 700}", price=0.1, zone=name),
            pod(t, name, created=t, workload=f"Pod/default/{name}", why=f"{n} {'w' * 250}"),
            EventLine(t, "Normal", f"{'r' * 200}{n}", name, name, "m" * 290),
            CallLine(t, "NodeGroupIncreaseSize", name, "1" * 290, "OK"),
            MarkLine(t, "m" * 290, "d" * 290),
        ]
    expect = [{**EXPECT[0], "name": "'" * 300}] * 300
    found = judge(run(*lines, until=200_000.0), expect=expect)
    assert len(found.story.samples) <= MOST_SAMPLES + 1
    assert (len(found.story.calls), found.story.more_calls) == (
        MOST_CALLS,
        4_000 - MOST_CALLS,
    )
    assert (len(found.story.marks), found.story.more_marks) == (MOST_MARKS, 4_000 - MOST_MARKS)
    found.story.requested_at["up"].update(range(200_000))
    assert len(page(found, page_script()).encode()) < 500_000


def test_instances_under_way_are_counted() -> None:
    def group(t: float, target: int, name: str = "a", **states: int) -> GroupLine:
        return GroupLine(t, name, GroupState(target=target, states=states))

    claim = NodeClaimState(5, pool="p")
    cases: list[tuple[list[RecordedLine], tuple[int, ...]]] = [
        ([group(0, 3, Creating=2, Failed=1), node(1, "n-1", ready=False)], (1, 0, 1, 1, 3)),
        ([group(0, 2), node(1, "n-1"), node(1, "n-2")], (2, 2, 0, 0, 2)),
        ([group(0, 0), node(1, "n-1", ready=False)], (1, 0, 0, 0, 0)),
        ([group(0, 2), node(1, "n-1"), node(2, "n-2", deleting=True)], (2, 2, 1, 0, 2)),
    ]
    for lines, wanted in cases:
        found = judge(run(*lines))
        assert found.story.samples[-1].nodes == {"a": NodeCounts(*wanted)}
    claims = [NodeClaimLine(5, f"c-{n}", claim) for n in range(3)]
    found = judge(run(*claims, node(6, "n-1", "", pool="p", ready=False)))
    assert found.story.samples[-1].nodes == {"p": NodeCounts(1, 0, 2, 0, 3)}
    legend = drawn(run(group(0, 3, Creating=2, Failed=1), node(1, "n-1", ready=False))).texts
    assert {"lighter: not ready", "lightest: being created", "no node came", "target"} <= {*legend}


def test_what_never_was_a_node_is_given_back() -> None:
    never = NodeClaimState(1, pool="p", deleting=True)
    found = judge(
        run(
            node(1, "n-1"),
            CallLine(10, "NodeGroupDeleteNodes", "a", "kwok://n-7, kwok://n-8 and 4 more", "OK"),
            CallLine(20, "NodeGroupDecreaseTargetSize", "a", "-2", "OK"),
            CallLine(30, "NodeGroupDeleteNodes", "a", "n-1", "OK"),
            gone(31, "n-1"),
            CallLine(40, "NodeGroupDeleteNodes", "a", "n-1", "OK"),
            NodeClaimLine(50, "c-1", never),
            NodeClaimLine(60, "c-2", replace(never, registered=2)),
        )
    )
    assert found.story.requested_at["back"] == {10, 20, 50}
    assert found.story.requested_at["down"] == {30, 40, 60}
    seen = Seen(page(found))
    assert seen.texts.count("gives back what never became a node") == 2
    assert seen.texts.count("deletes nodes") == 1
    kinds = {told.get("class") for tag, told in seen.tags if tag == "path"}
    assert {"down", "back"} <= kinds


def unpacked(block: str) -> dict[str, Any]:
    packed = json.loads(block[block.index(">") + 1 : block.index("</script>")])
    found: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed)))
    return found


def test_lanes_have_each_life_or_say_what_is_left_out() -> None:
    told: dict[str, Any] = {"created": 2, "node": "n-1", "bound": 4, "running": 5}
    lines: list[RecordedLine] = [
        node(3, "n-1", ready=False, requested=1),
        node(6, "n-1"),
        node(8, "n-1", ready=False),
        gone(9, "n-1"),
        node(20, "n-1"),
        pod(2, "web-1", created=2),
        pod(2.5, "web-1", **{**told, "running": None}),  # before its node is seen
        pod(5, "web-1", **told),
        PodLine(7, "default/web-1", None),
        pod(30, "web-1", **{**told, "bound": 25, "running": None}),
        pod(40, "job-1", phase="Succeeded", **told),
    ]
    block, left_out = lanes_data(judge(run(*lines)).story.lanes, most=10_000)
    found = unpacked(block)
    assert found["nodes"]["name"] == ["n-1", "n-1"]
    assert found["nodes"]["came"] == [30, 200] and found["nodes"]["gone"] == [90, None]
    assert found["nodes"]["requested"] == [10, None]
    assert found["nodes"]["turns"] == [[60, 80], [200]]
    assert found["pods"]["node"] == [0, 1, 1]
    assert found["pods"]["bound"] == [40, 250, 40] and found["pods"]["ended"] == [70, None, 400]
    assert left_out == ""
    early: dict[str, Any] = {"created": 0, "node": "n-1", "bound": 1}
    late = run(
        pod(1, "web-1", **early, running=1, phase="Running"),  # and no further line
        pod(1, "web-2", **early),
        pod(1, "web-3", **early),
        PodLine(1.5, "default/web-2", None),
        node(2, "n-1"),
        pod(3, "web-3", **early, running=3, phase="Running"),
    )
    found = unpacked(lanes_data(judge(late).story.lanes, most=10_000)[0])
    assert found["pods"]["name"] == ["default/web-1", "default/web-3"]
    assert found["pods"]["bound"] == [10, 10] and found["pods"]["running"] == [10, 30]
    found = unpacked(lanes_data(judge([*late[:4], *late[5:]]).story.lanes, most=10_000)[0])
    assert (found["nodes"]["name"], found["nodes"]["came"]) == (["n-1"], [None])
    assert found["pods"]["name"] == ["default/web-1", "default/web-3"]
    many = judge(run(*(line for n in range(2_000) for line in _lane(n)))).story.lanes
    sizes = []
    for most in (100_000, 30_000, 15_000, 4_000):
        block, left_out = lanes_data(many, most=most)
        assert len(block) <= most
        found = unpacked(block)
        nodes, pods = (len(found[kind]["name"]) for kind in ("nodes", "pods"))
        assert (f"{nodes:,} of 2,000 nodes" in left_out) == (nodes < 2_000)
        assert (f"{pods:,} of 2,000 pods" in left_out) == (pods < 2_000)
        assert all(0 <= at < nodes for at in found["pods"]["node"])
        every = re.search(r"on one node in (\d+)", left_out)
        assert pods * int(every[1] if every else 1) == pytest.approx(2_000, rel=0.1)
        sizes.append((nodes, pods))
    assert sizes[0] == (2_000, 2_000) and sizes == sorted(sizes, reverse=True)
    assert sizes[-1][0] > 100 and len({*sizes}) == 4
    assert lanes_data(many, most=50) == ("", "")


def _lane(n: int) -> Iterator[RecordedLine]:
    draw = random.Random(n)
    name = f"n-{draw.randrange(16**8):08x}"
    yield node(draw.uniform(0, 90), name)
    yield pod(95, f"web-{draw.randrange(16**8):08x}", created=2, node=name, bound=90)


def test_racks_are_drawn_by_their_use_and_in_their_order() -> None:
    def rack(name: str, t: float, **state: Any) -> RecordedLine:
        return node(t, f"n-{name}", topology=("b", name), **state)

    lines = [
        *(rack(name, 0) for name in ("r<10", "r<9")),
        pod(20, "web-1", created=0, node="n-r<9", phase="Running"),
        rack("r<10", 40, ready=False),
    ]
    found = judge(run(*lines, until=60), topology=RecordedTopology(("a/block", "a/rack")))
    text = "".join(rack_map(found))
    paths = dict(re.findall(r'<path class="(\w+)" stroke-width="[^"]+" d="(M[1-9][^"]+)"', text))
    assert paths["r0"] == "M150.0 7.0h248.0M150.0 21.0h496.0M646.0 21.0h248.0"
    assert paths["r3"] == "M398.0 7.0h496.0"
    assert paths["hurt"].startswith("M646.0 ")
    assert re.findall(r">(r[^<]+)</text>", text) == ["r&lt;9", "r&lt;10"]
    assert not [*rack_map(judge(run(*lines)))]


def test_every_figure_has_a_name_in_words() -> None:
    words = [figure_in_words(name) for name in FIGURES]
    assert not [word for word in words if "." in word]
    # `nodes.max` is `nodes.total.max`.
    assert len(words) - len(set(words)) == 2
    found = Seen(page(judge(run(node(1, "n-1")))))
    hints = {told.get("title") for _, told in found.tags}
    assert set(GLANCE) <= hints
    assert figure_in_words("new.figure") == "new.figure"


def test_cost_is_extrapolated_and_says_so() -> None:
    lines = run(node(0, "n-1", price=0.5), node(50, "n-2", price=0.5), until=100)
    texts = drawn(lines, currency="EUR").texts
    assert {"0.0208\xa0EUR", "0.75\xa0EUR", "1\xa0EUR", "18\xa0EUR", "540\xa0EUR"} <= {*texts}
    assert "Extrapolated" in " ".join(texts)
    day = drawn(run(node(0, "n-1", price=1e9), until=86_399.9), currency="JPY").texts
    assert "1,000,000,000\xa0JPY" in day and "1,000,000,000.0\xa0JPY" not in day
    assert "No currency is named." in " ".join(drawn(lines).texts)


def test_utilisation_is_a_gap_while_there_is_no_node() -> None:
    found = judge(run(node(10, "n-1"), gone(20, "n-1"), node(30, "n-2"), until=40))
    plot = next(plot for plot in time_plots(found) if plot.percent)
    values = [dict(line.steps) for line in plot.lines]
    assert all(steps[20] is None and steps[10] == steps[30] == 0.0 for steps in values)
    lines = re.findall(r'class="line[^"]*" stroke="[^"]*" d="([^"]*)"', draw(plot, until=40))
    assert [path.count("M") for path in lines] == [2, 2]
    assert [line["values"][0] for line in next(live([plot]))["lines"]] == [None, None]


def test_triangles_are_where_the_calls_were_and_few() -> None:
    calls = [CallLine(t, "NodeGroupIncreaseSize", "a", "1", "OK") for t in (0.5, 2.56)]
    calls += [CallLine(t, "NodeGroupIncreaseSize", "a", "1", "Internal") for t in (1.5, 2.56)]
    plot = next(time_plots(judge(run(*calls))))
    assert plot.requested_at == {"up": [0.5, 2.6], "failed": [1.5, 2.6], "down": [], "back": []}
    assert 'class="failed"' in draw(plot, until=9)
    many = [CallLine(float(t), "NodeGroupIncreaseSize", "a", "1", "OK") for t in range(9_999)]
    ups = next(time_plots(judge(run(*many, until=9_999)))).requested_at["up"]
    assert 400 < len(ups) <= 501 and ups[0] == 0 and ups[-1] > 9_950


@pytest.mark.parametrize(("number", "shown"), [(None, "none"), (1.0, "1 EUR (incomplete)")])
def test_the_currency_follows_the_number(number: float | None, shown: str) -> None:
    missing = {} if number is None else {"cost": "of 1 node"}
    found = judge(run(node(1, "n-1")), currency="EUR")
    found = replace(found, figures={**found.figures, "cost": number}, incomplete=missing)
    cell = re.search(r'<dd><data data-figure="cost".*?</dd>', page(found))
    assert cell is not None and re.sub("<.*?>", "", cell[0]) == shown


@pytest.mark.parametrize(
    ("named", "currency", "told"),
    [
        (["EUR", "EUR"], "EUR", False),
        (["EUR", ""], "", False),
        (["EUR", "USD"], "", True),
    ],
)
def test_groups_name_the_currency(named: list[str], currency: str, told: bool) -> None:
    prices = [{"hourly": "0.5", "currency": each} for each in named]
    states = [observed.group({"spec": {"price": each}, "status": {}}) for each in prices]
    lines = [GroupLine(0, f"g{n}", state) for n, state in enumerate([*states, GroupState()])]
    found = judge(run(*lines))
    assert found.currency == currency
    assert any("prices are in EUR, USD" in sentence for _, sentence in notes(found)) is told
    assert judge(run(*lines), currency="JPY").currency == "JPY"


def test_a_row_has_its_time_however_long_the_run() -> None:
    lines = run(MarkLine(1_234_567.8, "scale"), MarkLine(5, "scale"), until=2_000_000)
    found = {told.get("data-from") for _, told in drawn(lines).tags}
    assert {"1234567.8", "5"} <= found


@pytest.mark.parametrize("price", [None, 2.0])
def test_plots_of_money_say_that_prices_are_missing(price: float | None) -> None:
    plots = [*time_plots(judge(run(node(1, "n-1", price=price), node(1, "n-2", price=1.0))))]
    of = "of the nodes with a price" if price is None else "of all nodes"
    assert plots[-1].lines[0].name == of
    assert [plot.title.endswith("(incomplete)") for plot in plots[-2:]] == [price is None] * 2


def test_groups_that_did_not_grow_say_why_as_far_as_is_known() -> None:
    state = GroupState(price=2.0)
    texts = drawn(
        run(
            *(
                GroupLine(0, name, state)
                for name in ("grown", "idle", "refused", "only read", "gone", "launched")
            ),
            CallLine(2, "NodeGroupGetOptions", "only read", "", "UNIMPLEMENTED"),
            CallLine(2, "NodeGroupDeleteNodes", "only read", "n-9", "INVALID_ARGUMENT"),
            GroupLine(60, "gone", None),
            NodeClaimLine(5, "c", NodeClaimState(5, group="launched", launched=5.0)),
            NodeClaimLine(60, "c", None),
            GroupLine(50, "sold-out", replace(state, states={"Failed": 3})),
            GroupLine(50, "full", replace(state, conditions={"Stalled": "True"})),
            CallLine(2, "NodeGroupIncreaseSize", "refused", "1", "RESOURCE_EXHAUSTED"),
            CallLine(2, "NodeGroupIncreaseSize", "sold-out", "3", "OK"),
            node(3, "n-1", "grown"),
        )
    ).texts
    at = texts.index("Groups")
    assert texts[texts.index("grown", at) + 1] == "2"  # the price
    start = texts.index("Groups that did not grow")
    texts = texts[start : texts.index("Groups", start)]
    reasons = {
        texts[at]: texts[at + 3] for at in range(len(texts)) if texts[at + 1 : at + 2] == ["2"]
    }
    assert reasons == {
        "idle": "no autoscaler asked for it",
        "only read": "no autoscaler asked for it",
        "gone": "deleted at 1:00 min; no autoscaler asked for it",
        "launched": "Karpenter launched 1 NodeClaim for it, and no node came",
        "refused": "the autoscaler asked, and the answer was RESOURCE_EXHAUSTED",
        "sold-out": "the autoscaler asked, and no node came; at the end 3 instances had failed",
        "full": "no autoscaler asked for it; at the end Stalled is True",
    }


@pytest.mark.parametrize("many", [70, 700])
def test_however_many_groups_there_are_all_are_counted(many: int) -> None:
    names = [f"g{n:04}" for n in range(many)]
    calls = [CallLine(3, "NodeGroupIncreaseSize", name, "1", name) for name in names]
    grown = [node(5, f"n-{name}", name) for name in names]
    groups = [GroupLine(6, name, GroupState()) for name in reversed(names)]
    texts = drawn(run(*grown, *groups)).texts
    assert "Groups that did not grow" not in texts
    assert f"and {many - 60} more" in texts[texts.index("Groups") :]
    texts = drawn(run(*calls, *groups)).texts
    start = texts.index("Groups that did not grow")
    told = texts[start : texts.index("Groups", start)]
    assert f"and {many - 60} more" in told and "no autoscaler asked for it" not in told


def test_a_group_that_was_refused_says_the_autoscalers_reason() -> None:
    found = replace(
        judge(run(GroupLine(0, "idle", GroupState()))),
        refusals={"idle": Counter({"max node group size reached": 4}), "p": Counter({"limit": 1})},
    )
    texts = Seen(page(found)).texts
    assert texts[texts.index("idle") + 3] == "max node group size reached (pods: 4)"
    assert texts[texts.index("NodePool p") + 3] == "limit (pods: 1)"


def test_what_an_autoscaler_refused_without_names_is_no_lack_of_need(tmp_path: Path) -> None:
    why = "pod didn't trigger scale-up: 2 Insufficient cpu, 1 node(s) had taint {a: b}"
    lines = run(
        GroupLine(0, "idle", GroupState()),
        pod(1, "web-1", created=1, why="0/1 nodes are available: 1 Insufficient cpu."),
        EventLine(2, "Normal", "NotTriggerScaleUp", "Pod/default/web-1", "cluster-autoscaler", why),
    )
    texts = Seen(page(outputs.judge(recorded(tmp_path / "a", lines)))).texts
    told = texts[texts.index("idle") + 3]
    assert told.startswith("no autoscaler asked for it; of some groups, which it doesn't name, ")
    assert "Insufficient cpu (pods: 1)" in told
    assert "NodePool" not in [text.strip() for text in texts]


def test_different_messages_of_one_kind_of_event_are_all_shown() -> None:
    said = [("in backoff", 3), ("anti-affinity", 1)]
    about = ("Pod/default/w-1", "cluster-autoscaler")
    lines = [
        EventLine(t, "Normal", "NotTriggerScaleUp", *about, *what) for t, what in enumerate(said)
    ]
    texts = drawn(run(*lines)).texts
    assert {"3 times: in backoff", "once: anti-affinity"} <= {*texts}
    both = [
        EventLine(5, "Normal", "NotTriggerScaleUp", f"Pod/default/w-{n}", *about[1:], "no")
        for n in (1, 2)
    ]
    (row,) = (told for _, told in drawn(run(*both)).tags if "event:" in told.get("data-is", ""))
    assert len(json.loads(row["data-is"])) == 1
    assert json.loads(row["data-of"]) == ["pod:default/w-1", "pod:default/w-2"]
    assert "in backoff" in drawn(run(lines[0])).texts


def test_vendored_files_are_those_that_are_noted() -> None:
    folder = Path(livepage.__file__).parent / "live" / "uplot"
    noted = dict(
        re.findall(
            r"^\| (\S+) \| .* \| ([0-9a-f]{64}) \|$", (folder / "README.md").read_text(), re.M
        )
    )
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    del sums["README.md"]
    assert noted == sums and len(sums) == 3


def test_a_level_that_lasts_is_drawn_when_it_was() -> None:
    lines = [node(t / 1000, f"n-{t}") for t in range(1000, 1400)]
    found = judge(run(*lines, *(gone(200, line.name) for line in lines), until=400))
    levels = {sample.t: sample.nodes.get("a", (0, 0))[0] for sample in found.story.samples}
    assert levels[1.399] == 400
    assert levels[200] == 0


def recorded(folder: Path, lines: list[RecordedLine], name: str = "recording.jsonl.gz") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_bytes(gzip.compress(content(lines, expect=EXPECT[:1])))
    return path


@pytest.mark.parametrize("given", ["file", "folder"])
def test_report_writes_the_same_files_again(tmp_path: Path, given: str) -> None:
    path = recorded(tmp_path / given, random_run(8))
    named = path if given == "file" else path.parent
    code = main(["report", str(named)])
    again = tmp_path / f"{given} again"
    assert main(["report", str(named), "--output", str(again)]) == code
    files = sorted(file.name for file in again.iterdir())
    assert files == ["junit.xml", "report.html", "summary.md", "trace.json.gz", "verdict.json"]
    for name in files:
        assert (again / name).read_bytes() == (path.parent / name).read_bytes()
    verdict = json.loads((again / "verdict.json").read_text())
    assert code == (0 if verdict["verdict"] == "passed" else 1)


def test_the_page_says_why_pods_waited(tmp_path: Path) -> None:
    path = recorded(tmp_path / "a", storm())
    found = outputs.judge(path)
    texts = Seen(page(found)).texts
    chain = found.chains["default/web-1"]
    at = texts.index(chain.cause.sentence)
    told = " ".join(texts[at:])
    assert len(chain.steps) >= 3 and all(step.text in told for step in chain.steps)
    assert all(line.strip() in texts for line in found.answers) and found.answers


def test_of_pods_with_one_name_the_chain_is_that_of_the_longest_wait(tmp_path: Path) -> None:
    lives = [(1, 6), (10, 60), (70, 72)]
    lines = [
        line
        for created, deleted in lives
        for line in (
            pod(created, "web-1", created=created),
            PodLine(deleted, "default/web-1", None),
        )
    ]
    found = outputs.judge(recorded(tmp_path / "a", run(*lines)))
    assert found.chains["default/web-1"].waited == 50


def test_exit_codes_of_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    up = pod(1, "web-1", created=1, bound=1, running=1, phase="Running")
    assert main(["report", str(recorded(tmp_path / "a", run(up)))]) == 0
    assert main(["report", str(recorded(tmp_path / "b", run()))]) == 1
    assert "passed" in capsys.readouterr().out
    bad = tmp_path / "bad"
    bad.write_text("no")
    for name in (bad, tmp_path / "missing"):
        assert main(["report", str(name)]) == 2
        assert str(name.name) in capsys.readouterr().err
    assert main(["report", str(tmp_path / "a"), "--output", str(bad)]) == 2


def storm(offset: float = 0.0, *, boot: float = 3.0, size: str = "2") -> list[RecordedLine]:
    """Group a grows to two; names of nodes are those of another uid, times later by `offset`."""
    uid = "abcd" if not offset else "efgh"
    t = 10 + offset
    names = [f"a-{uid}-00000{n}" for n in (1, 2)]
    return run(
        CallLine(t, "NodeGroupIncreaseSize", "a", size, "OK"),
        GroupLine(t, "a", GroupState(target=int(size))),
        *(node(t + 1, name, ready=False) for name in names),
        *(node(t + 1 + boot, name) for name in names),
        pod(t + 6, "web-1", created=9, bound=t + 6, node=names[0]),
        CallLine(t + 60, "NodeGroupDeleteNodes", "a", names[1], "OK"),
        NodeLine(t + 61, names[1], None),
        MarkLine(5, "scale"),
    )


@pytest.mark.parametrize(
    ("other", "parts"),
    [
        (storm(0.7), set()),
        (storm(0.7, boot=9.0), {"cloud"}),
        (storm(0.7, size="3"), {"autoscaler"}),
        ([*storm(0.7)[:-1], MarkLine(99, "outage"), storm()[-1]], {"scenario"}),
        (
            [
                *storm(0.7)[:-1],
                pod(99, "web-2", created=9, bound=99, node="a-efgh-000001"),
                storm()[-1],
            ],
            {"scheduler"},
        ),
        (
            [*storm(0.7)[:-1], node(99, "a-efgh-000003"), storm()[-1]],
            {"cloud"},
        ),
        (
            [*storm(0.7)[:-1], NodeClaimLine(99, "p-1", NodeClaimState(99, pool="p")), storm()[-1]],
            {"autoscaler"},
        ),
    ],
)
def test_diff_says_whose_part_differs(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    other: list[RecordedLine],
    parts: set[str],
) -> None:
    paths = [recorded(tmp_path / name, lines) for name, lines in (("a", storm()), ("b", other))]
    assert main(["diff", *map(str, paths)]) == (1 if parts else 0)
    told = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert {line.partition(":")[0] for line in told if "no difference" not in line} == parts
    assert len(told) == 4


def test_what_follows_from_other_requests_is_not_the_clouds_difference(tmp_path: Path) -> None:
    more = [*storm(0.7, size="3")[:-1], node(99, "a-efgh-000003"), storm()[-1]]
    paths = [recorded(tmp_path / name, lines) for name, lines in (("a", storm()), ("b", more))]
    from kwok_operator.rehearsal.judge.diff import compared, traits
    from kwok_operator.rehearsal.outputs import opened

    found = []
    for path in paths:
        with opened(path) as recording:
            found.append(traits(recording))
    assert {part.name for part in compared(*found) if part.differences} == {"autoscaler"}
