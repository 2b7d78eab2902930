"""What a Node of a simulated cloud looks like, and what is written into one as its life goes on."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator import constants
from kwok_operator.cloud.annotations import Mark, mark_of
from kwok_operator.cloud.api.cloud import Interruptions
from kwok_operator.cloud.draws import instance_seed
from kwok_operator.cloud.life import (
    ComingResource,
    DesiredNode,
    End,
    Life,
    PassingTaint,
    Spells,
    draw_life,
)
from kwok_operator.cloud.shaping import (
    DesiredShape,
    Hold,
    born,
    carried_over,
    changes,
    needs_shaping,
    shown_text,
    shows_notice,
)
from kwok_operator.formats.times import format_time, parse_time
from kwok_operator.nodegroups.api.template import GuardTaint, Taint, Template
from kwok_operator.nodegroups.inplace import Patch, after, make_patches
from kwok_operator.nodegroups.template import KubeletEndpoint, render, resolve
from tests.fakes.store import merge_patch
from tests.unit.clouds import CLOUDS, GROUP, QUICK

Json = dict[str, Any]
BORN = parse_time("2026-01-02T03:04:05Z")
SECOND = 1_000
GPU = "nvidia.com/gpu"
ENDPOINT = KubeletEndpoint((("Hostname", "localhost"),), 10247)
NOTICE = Interruptions().taint
AGENT = PassingTaint("agent", "", "NoSchedule", 40 * SECOND)
COMING = ComingResource(GPU, "4", 90 * SECOND)
BOOT = Life(BORN, ready_after=20 * SECOND)
FLAPPING = Life(BORN, spells=Spells(period=600 * SECOND, length=60 * SECOND, first=60 * SECOND))
SPOT = Life(BORN, end=End(after=300 * SECOND, notice=120 * SECOND, reason="Interrupted"))
LATE = Life(BORN, taints=(AGENT,), resources=(COMING,))


def template(**shape: Any) -> Template:
    return Template.model_validate({"shape": {"gpu": {"type": GPU, "count": 4}, **shape}})


def body(*, ready: bool = True, of: Template | None = None) -> bytes:
    """A Node that a group's template makes."""
    rendered = render(
        resolve(of or template(), guard=GuardTaint()),
        group=GROUP,
        uid="group-uid",
        provider_id_prefix="kwok:",
        endpoint=ENDPOINT,
    )
    now = format_time(BORN)
    return rendered.body("node-0", requested_at=now, now=now, ready=ready)


def birth(life: Life, *, at: int = 0, hold: Hold = Hold.STAGE, ready: bool = True) -> Json:
    """The Node as the API server holds it after its first write, `at` seconds old."""
    made = born(
        body(ready=ready),
        life=life,
        desired=seen(life, at),
        hold=hold,
        interruption_taint=NOTICE,
        now=format_time(BORN + at * SECOND),
    )
    node: Json = json.loads(made)
    return node


def seen(life: Life, at: int, *, outage: bool = False) -> DesiredNode:
    now = BORN + at * SECOND
    return life.desired(now, outage_since=now if outage else None)


def shape(
    life: Life | None, view: DesiredNode, *, hold: Hold = Hold.STAGE, at: int = 0
) -> DesiredShape:
    return DesiredShape(view, life, hold, NOTICE, format_time(BORN + at * SECOND))


def todo(node: Json, life: Life, at: int, *, hold: Hold = Hold.STAGE) -> tuple[Patch, ...]:
    return changes(node, shape(life, seen(life, at), hold=hold, at=at))


def written(node: Json, patches: tuple[Patch, ...]) -> Json:
    for subresource, patch in patches:
        assert set(patch) <= ({"status"} if subresource else {"metadata", "spec"})
        node = merge_patch(node, patch)
    return node


def aged(node: Json, life: Life, *ages: int, hold: Hold = Hold.STAGE) -> Json:
    """The Node, looked at when it is so many seconds old."""
    for at in ages:
        node = written(node, todo(node, life, at, hold=hold))
    return node


def mark(node: Json) -> Mark | None:
    meta = node["metadata"]
    return mark_of(labels=meta["labels"], annotations=meta["annotations"])


def misshapen(node: Json, view: DesiredNode, *, hold: Hold = Hold.STAGE) -> bool:
    return needs_shaping(mark(node), view, ready=ready(node) == "True", hold=hold)


def condition(node: Json, kind: str = "Ready") -> Json:
    found: list[Json] = [c for c in node["status"].get("conditions", ()) if c["type"] == kind]
    return found[0] if found else {}


def ready(node: Json) -> str:
    return str(condition(node).get("status", ""))


def taints(node: Json) -> list[str]:
    return [f"{t['key']}:{t['effect']}" for t in node["spec"]["taints"]]


def shown(node: Json) -> str:
    return str(node["metadata"]["annotations"].get(constants.SHOWN_ANNOTATION, ""))


def held(node: Json) -> bool:
    return constants.HOLD_LABEL in node["metadata"]["labels"]


def by_kwok(node: Json) -> Json:
    """The Node, made Ready by kwok."""
    others = [c for c in node["status"].get("conditions", ()) if c["type"] != "Ready"]
    status = {
        "conditions": [*others, {"type": "Ready", "status": "True"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10247}},
    }
    return {**node, "status": {**node["status"], **status}}


GUARD = "kwok-provider:NoSchedule"
INTERRUPTION = "kwok-operator.io/interruption:NoSchedule"


class TestShownText:
    @pytest.mark.parametrize(
        ("life", "at", "text"),
        [
            (Life(BORN), 0, "Ready"),
            (BOOT, 0, "NotReady/Booting"),
            (BOOT, 20, "Ready"),
            (Life(BORN, ready_after=None), 0, "NotReady/NeverReady"),
            (FLAPPING, 60, "NotReady/Flapping"),
            (LATE, 0, f"Ready;taints=agent:NoSchedule;lacks={GPU}"),
            (LATE, 40, f"Ready;lacks={GPU}"),
            (SPOT, 179, "Ready"),
            (SPOT, 180, "Ready;notice"),
            (replace(SPOT, ready_after=None), 180, "NotReady/Interrupted;notice"),
        ],
    )
    def test_it_says_what_there_is_to_see(self, life: Life, at: int, text: str) -> None:
        assert shown_text(seen(life, at), Hold.STAGE) == text

    def test_whether_it_tells_of_notice(self) -> None:
        taints = tuple(replace(AGENT, key=str(n) * 100, after=500 * SECOND) for n in range(3))
        for life in (SPOT, replace(SPOT, ready_after=None), replace(SPOT, taints=taints)):
            node = birth(life)
            assert not shows_notice(mark(node))
            assert shows_notice(mark(aged(node, life, 180)))
        assert not shows_notice(None)

    def test_long_ones_are_cut_and_differ_all_the_same(self) -> None:
        many = [PassingTaint("k" * 300 + str(n), "", "NoSchedule", SECOND) for n in range(2)]
        texts = {shown_text(seen(Life(BORN, taints=(taint,)), 0), Hold.STAGE) for taint in many}
        assert len(texts) == 2
        assert max(map(len, texts)) <= 200


class TestBirth:
    def test_a_perfect_life_leaves_the_body_as_it_is(self) -> None:
        made = body()
        view = seen(Life(BORN), 0)
        same = born(
            made, life=Life(BORN), desired=view, hold=Hold.STAGE, interruption_taint=None, now=""
        )
        assert same is made

    @pytest.mark.parametrize("with_endpoint", [True, False])
    @pytest.mark.parametrize("hold", Hold)
    def test_it_is_never_ready_where_its_life_is_not(self, hold: Hold, with_endpoint: bool) -> None:
        node = birth(BOOT, hold=hold, ready=with_endpoint)
        assert (ready(node), held(node)) == ("False", hold is Hold.STAGE)

    def test_it_has_startup_taints_beside_its_own(self) -> None:
        node = birth(Life(BORN, taints=(replace(AGENT, value="starts"),)))
        assert taints(node) == [GUARD, "agent:NoSchedule"]
        assert node["spec"]["taints"][1]["value"] == "starts"
        assert ready(node) == "True"

    def test_a_short_life_begins_under_notice(self) -> None:
        life = Life(BORN, end=End(after=SECOND, notice=120 * SECOND, reason="Interrupted"))
        node = birth(life)
        assert INTERRUPTION in taints(node)
        assert condition(node, "Interruption") == {
            "type": "Interruption",
            "status": "True",
            "reason": "Interrupted",
            "message": "the simulated cloud takes this instance back at 2026-01-02T03:06:05Z",
            "lastHeartbeatTime": "2026-01-02T03:04:05Z",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }
        assert ready(node) == "True"

    def test_in_an_outage_a_perfect_life_begins_not_ready_without_a_record(self) -> None:
        life = Life(BORN)
        view = seen(life, 0, outage=True)
        node = json.loads(
            born(
                body(),
                life=life,
                desired=view,
                hold=Hold.STAGE,
                interruption_taint=NOTICE,
                now="now",
            )
        )
        assert (ready(node), held(node), shown(node)) == ("False", True, "NotReady/Outage")
        assert constants.LIFE_ANNOTATION not in node["metadata"]["annotations"]


class TestALiveNode:
    def test_foreign_taints_stay_and_startup_taints_that_somebody_took_off_stay_off(self) -> None:
        node = birth(LATE)
        foreign = {"key": "agent", "effect": "NoExecute"}
        node["spec"]["taints"] = [foreign]
        assert taints(aged(node, LATE, 10, 50)) == ["agent:NoExecute"]

    def test_a_taint_of_the_template_does_not_pass(self) -> None:
        node = birth(LATE)
        node["metadata"]["annotations"][constants.TEMPLATE_TAINTS_ANNOTATION] += ",agent:NoSchedule"
        assert "agent:NoSchedule" in taints(aged(node, LATE, 40))

    def test_what_is_missing_stays_away_whoever_writes_it(self) -> None:
        node = birth(LATE)
        node["status"]["capacity"][GPU] = "8"
        node = aged(node, LATE, 10)
        assert GPU not in node["status"]["capacity"]

    def test_what_is_there_already_keeps_its_amount(self) -> None:
        node = birth(LATE)
        node["status"]["capacity"][GPU] = "8"
        node = aged(node, LATE, 90)
        assert (node["status"]["capacity"][GPU], node["status"]["allocatable"][GPU]) == ("8", "4")

    @pytest.mark.parametrize("amount", ["", "many", "-1", "1" * 300])
    def test_what_is_no_amount_does_not_come(self, amount: str) -> None:
        life = Life(BORN, resources=(replace(COMING, amount=amount),))
        node = aged(birth(life), life, 90)
        assert GPU not in node["status"]["capacity"]
        assert not misshapen(node, seen(life, 90))

    def test_notice_is_a_taint_a_condition_and_where_it_is_given_late_a_time(self) -> None:
        node = birth(SPOT)
        late = replace(shape(SPOT, seen(SPOT, 180)), noticed_at=BORN + 200 * SECOND)
        node = written(node, changes(node, late))
        assert taints(node) == [GUARD, INTERRUPTION]
        assert condition(node, "Interruption")["reason"] == "Interrupted"
        assert (ready(node), len(node["status"]["conditions"])) == ("True", 6)
        known = mark(node)
        assert known is not None
        assert known.noticed_at == BORN + 200 * SECOND
        assert changes(node, replace(late, now="later")) == ()

    def test_notice_has_the_taint_of_the_group(self) -> None:
        taint = Taint.model_validate({"key": "spot", "value": "2m", "effect": "NoExecute"})
        node = birth(SPOT)
        patches = changes(node, replace(shape(SPOT, seen(SPOT, 180)), taint=taint))
        added = written(node, patches)["spec"]["taints"][-1]
        assert added == {"key": "spot", "value": "2m", "effect": "NoExecute"}

    def test_a_node_without_a_record_needs_nothing(self) -> None:
        node, view = json.loads(body()), seen(Life(BORN), 100)
        assert changes(node, shape(None, view)) == ()
        assert not needs_shaping(None, view, ready=True, hold=Hold.STAGE)
        assert not needs_shaping(None, view, ready=False, hold=Hold.STAGE)

    @pytest.mark.parametrize("status", [{}, {"conditions": None, "capacity": None}])
    def test_a_node_with_next_to_nothing_in_it_is_shaped_too(self, status: Json) -> None:
        bare = {"metadata": {"name": "node-0"}, "spec": {}, "status": status}
        node = written(bare, changes(bare, shape(SPOT, seen(SPOT, 180, outage=True))))
        assert (ready(node), taints(node)) == ("False", [INTERRUPTION])


class TestReadiness:
    def test_a_node_is_held_before_it_is_made_not_ready(self) -> None:
        hold, status = todo(birth(FLAPPING), FLAPPING, 60)
        assert hold[1]["metadata"]["labels"] == {constants.HOLD_LABEL: constants.HOLD_LABEL_VALUE}
        assert (hold[0], status[0]) == ("", "/status")
        node = written(birth(FLAPPING), (hold, status))
        assert (ready(node), condition(node)["reason"]) == ("False", "Flapping")
        assert condition(node)["lastTransitionTime"] == "2026-01-02T03:05:05Z"
        assert condition(node, "MemoryPressure")["status"] == "False"

    def test_and_made_ready_before_it_is_let_go(self) -> None:
        node = aged(birth(FLAPPING), FLAPPING, 60)
        status, letting_go = todo(node, FLAPPING, 120)
        assert (status[0], letting_go[0]) == ("/status", "")
        node = written(node, (status, letting_go))
        assert (ready(node), held(node), shown(node)) == ("True", False, "Ready")
        assert condition(node)["reason"] == "KubeletReady"
        assert condition(node)["lastTransitionTime"] == "2026-01-02T03:06:05Z"

    def test_one_that_kwok_has_not_initialised_is_only_let_go(self) -> None:
        node = birth(BOOT, ready=False)
        patches = todo(node, BOOT, 20)
        node = written(node, patches)
        assert (ready(node), held(node), shown(node), len(patches)) == ("False", False, "Ready", 1)
        # That kwok takes its time, or is not there, is no reason to write again.
        assert not misshapen(node, seen(BOOT, 20))

    def test_another_reason_is_no_other_transition(self) -> None:
        life = replace(SPOT, ready_after=None)
        node = aged(birth(life), life, 180)
        assert (ready(node), condition(node)["reason"]) == ("False", "Interrupted")
        assert condition(node)["lastTransitionTime"] == "2026-01-02T03:04:05Z"

    def test_what_is_unknown_stays_so(self) -> None:
        node = birth(FLAPPING)
        condition(node)["status"] = "Unknown"
        node = aged(node, FLAPPING, 60)
        assert (ready(node), held(node)) == ("Unknown", True)
        assert ready(aged(node, FLAPPING, 120)) == "Unknown"

    def test_a_node_that_is_not_ready_for_reasons_of_others_is_not_made_ready(self) -> None:
        node = birth(LATE)
        condition(node)["status"] = "False"
        assert ready(aged(node, LATE, 90)) == "False"

    def test_what_kwok_undid_is_done_again_as_long_as_the_stage_holds(self) -> None:
        node = by_kwok(birth(BOOT))
        assert misshapen(node, seen(BOOT, 1))
        assert ready(aged(node, BOOT, 1)) == "False"

    def test_an_outage_holds_and_lets_go_of_nodes_without_a_record(self) -> None:
        node, life = json.loads(body()), Life(BORN)
        out, over = seen(life, 5, outage=True), seen(life, 9)
        assert needs_shaping(mark(node), out, ready=True, hold=Hold.STAGE)
        node = written(node, changes(node, shape(None, out)))
        assert (ready(node), held(node)) == ("False", True)
        assert not misshapen(node, out)
        assert misshapen(node, over)
        node = written(node, changes(node, shape(None, over)))
        assert (ready(node), held(node), misshapen(node, over)) == ("True", False, False)

    @pytest.mark.parametrize(
        ("at", "kwok_alive", "left"),
        [(10, True, True), (20, False, True), (20, True, False)],
        ids=["held", "kwok is silent", "let go"],
    )
    def test_a_node_that_is_let_go_takes_pods(self, at: int, kwok_alive: bool, left: bool) -> None:
        node = birth(BOOT)
        new = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        others = [*node["spec"]["taints"], {**new, "effect": "NoExecute"}]
        node["spec"]["taints"] = [new, *others]
        patches = changes(node, replace(shape(BOOT, seen(BOOT, at)), kwok_alive=kwok_alive))
        after_them = written(node, patches)
        assert after_them["spec"]["taints"] == ([new, *others] if left else others)
        assert after(patches, ready=False, tainted=True) == (at == 20, left)


ALL = replace(
    LATE,
    ready_after=20 * SECOND,
    spells=Spells(period=90 * SECOND, length=30 * SECOND, first=10 * SECOND),
    end=SPOT.end,
)
LIVES = st.builds(
    lambda cloud, serial: draw_life(
        cloud, instance_seed(cloud, group=GROUP, serial=serial), born=BORN, capacity={GPU: "4"}
    ),
    CLOUDS,
    st.integers(0, 20),
)


class TestConvergence:
    @QUICK
    @given(
        life=st.one_of(LIVES, st.just(ALL)),
        ages=st.lists(st.integers(0, 1_000), min_size=1, max_size=6),
        holds=st.lists(st.sampled_from(Hold), min_size=7, max_size=7),
        lost=st.sets(st.integers(0, 5)),
        kwok=st.sets(st.integers(0, 5)),
        outages=st.sets(st.integers(0, 5)),
    )
    def test_a_node_ends_as_its_view_says_whatever_got_lost_before(
        self,
        life: Life,
        ages: list[int],
        holds: list[Hold],
        lost: set[int],
        kwok: set[int],
        outages: set[int],
    ) -> None:
        """In each step kwok may be quicker, and a second patch be lost."""
        node = birth(life, hold=holds[-1])
        for step, (at, hold) in enumerate(zip(sorted(ages), holds, strict=False)):
            view = seen(life, at, outage=step in outages)
            if view.gone:
                return
            wanted = shape(life, view, hold=hold, at=at)
            if step in kwok and not held(node):
                node = by_kwok(node)
            if not misshapen(node, view, hold=hold):
                assert changes(node, wanted) == ()
            patches = changes(node, wanted)
            if step in lost:
                node = written(node, patches[:1])
                if len(patches) > 1:
                    assert misshapen(node, view, hold=hold)
                    node = written(node, changes(node, wanted))
            else:
                node = written(node, patches)
            assert changes(node, wanted) == ()
            assert not misshapen(node, view, hold=hold)
            assert held(node) is (hold is Hold.STAGE and not view.ready)
            if hold is Hold.STAGE and not view.ready:
                assert ready(node) == "False"
            assert {f"{t.key}:{t.effect}" for t in life.taints} & set(taints(node)) <= {
                f"{t.key}:{t.effect}" for t in view.taints
            }
            assert not {r.name for r in view.missing} & set(node["status"]["capacity"])
            assert (INTERRUPTION in taints(node)) is view.noticed


class TestAnEditedTemplate:
    def updated(self, node: Json, edited: Template, *, missing: tuple[str, ...] = ()) -> Json:
        wanted = json.loads(body(of=edited, ready=False))
        node["metadata"]["managedFields"] = [
            {
                "manager": "kwok-operator",
                "fieldsV1": {
                    "f:metadata": {
                        f"f:{part}": {f"f:{key}": {} for key in node["metadata"][part]}
                        for part in ("labels", "annotations")
                    }
                },
            }
        ]
        patches = make_patches(
            node, carried_over(wanted, node, missing=missing), manager="kwok-operator"
        )
        for patch in (patches.status, patches.rest):
            node = merge_patch(node, patch or {})
        return node

    def test_what_is_missing_comes_later_and_as_many_as_the_edit_says(self) -> None:
        node = self.updated(
            birth(LATE), template(gpu={"type": GPU, "count": 8}, cpu=4), missing=(GPU,)
        )
        assert node["status"]["capacity"]["cpu"] == "4"
        assert GPU not in node["status"]["capacity"]
        life = mark(node).life  # type: ignore[union-attr]
        assert life is not None
        assert aged(node, life, 90)["status"]["capacity"][GPU] == "8"

    def test_what_is_there_follows_the_edit(self) -> None:
        node = self.updated(aged(birth(LATE), LATE, 90), template(gpu={"type": GPU, "count": 8}))
        assert node["status"]["capacity"][GPU] == "8"

    def test_what_the_edit_took_away_does_not_come(self) -> None:
        node = self.updated(birth(LATE), Template(), missing=(GPU,))
        life = mark(node).life  # type: ignore[union-attr]
        assert life is not None
        assert not life.resources
        assert GPU not in aged(node, life, 90)["status"]["capacity"]

    def test_what_stands_of_its_life_stays(self) -> None:
        life = replace(ALL, resources=())
        node = aged(birth(life), life, 215)
        before = mark(node)
        edited = self.updated(node, template(cpu=4))
        assert mark(edited) == before
        assert taints(edited) == taints(node) == [GUARD, INTERRUPTION]
        assert held(node) is held(edited) is True

    def test_a_taint_that_has_passed_stays_off_and_one_that_has_not_stays_on(self) -> None:
        node = birth(LATE)
        assert "agent:NoSchedule" in taints(self.updated(node, template(cpu=4), missing=(GPU,)))
        node = aged(node, LATE, 90)
        assert taints(self.updated(node, template(cpu=4))) == [GUARD]

    def test_a_node_without_a_life_is_as_the_template_says(self) -> None:
        node, wanted = json.loads(body()), json.loads(body(of=template(cpu=4)))
        assert carried_over(wanted, node, missing=()) == wanted
