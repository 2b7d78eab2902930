"""What deploy/ renders to."""

import argparse
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kwok_operator.constants import ALIKE_LABEL
from kwok_operator.offline.validation import validate
from kwok_operator.settings import add_run_flags, run_settings
from kwok_operator.shim.settings import add_shim_flags, shim_settings
from tests.e2e.deploying import (
    COMPONENTS,
    DEPLOY,
    OVERLAYS,
    ROOT,
    Container,
    Key,
    Object,
    Tree,
    by_key,
    containers,
    deployments,
    find,
    with_what_they_use,
)
from tests.e2e.kubectl import Kubectl

pytestmark = pytest.mark.core

NAMESPACE = "kwok-operator"
ELSEWHERE = {"kube-node-lease", "default"}
EVERYTHING = "everything"


@pytest.fixture(scope="module")
def tree(kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return Tree(kubectl=kubectl, directory=tmp_path_factory.mktemp("deploy"))


@pytest.fixture(scope="module")
def everything(tree: Tree) -> list[Object]:
    """The base with every component."""
    return tree.render(tree.combine(EVERYTHING, COMPONENTS))


def test_every_overlay_renders_what_the_operator_needs(tree: Tree) -> None:
    needed = {
        "Namespace",
        "CustomResourceDefinition",
        "ServiceAccount",
        "ClusterRole",
        "Role",
        "Deployment",
        "Service",
        "PodDisruptionBudget",
    }
    for overlay in OVERLAYS:
        items = tree.render(overlay)
        assert {item["kind"] for item in items} >= needed, overlay
        own = find(items, "Namespace", "fake-nodes" if overlay == "custom" else NAMESPACE)
        assert namespaces(items) == {own["metadata"]["name"], *ELSEWHERE}, overlay
        assert placed(items) == {
            (kind, namespace, "kwok-operator")
            for kind in ("Role", "RoleBinding")
            for namespace in ELSEWHERE
        }, overlay


@pytest.fixture(scope="module")
def alone(tree: Tree) -> dict[str, set[Key]]:
    """What there is with one component, or with it and what it uses."""
    return {
        component: set(by_key(tree.render(tree.combine("alone", with_what_they_use(component)))))
        for component in COMPONENTS
    }


def test_components_add_up(everything: list[Object], alone: dict[str, set[Key]]) -> None:
    """Each renders without the others, and all of them together: so no two are in conflict."""
    assert set(by_key(everything)) == set.union(*alone.values())


def test_any_components_go_together_in_any_order(
    tree: Tree, everything: list[Object], alone: dict[str, set[Key]]
) -> None:
    for seed in range(3):
        draw = random.Random(seed)
        order = draw.sample(COMPONENTS, len(COMPONENTS))
        assert by_key(tree.render(tree.combine("shuffled", order))) == by_key(everything), order
        some = with_what_they_use(*draw.sample(COMPONENTS, draw.randint(2, len(COMPONENTS) - 1)))
        together = set(by_key(tree.render(tree.combine("some", some))))
        assert together == set.union(*(alone[component] for component in some)), some


def test_all_objects_can_be_found_by_one_label(everything: list[Object]) -> None:
    label = "app.kubernetes.io/part-of"
    assert {item["metadata"]["labels"][label] for item in everything} == {"kwok-operator"}


def test_what_runs_is_fit_for_a_shared_cluster(everything: list[Object]) -> None:
    for container in containers(everything):
        pod = container.pod["securityContext"]
        assert (pod["runAsNonRoot"], pod["runAsUser"]) == (True, 65532), container
        assert pod["seccompProfile"] == {"type": "RuntimeDefault"}, container
        assert container.spec["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, container
        resources = container.spec["resources"]
        assert set(resources["requests"]) == {"cpu", "memory"}, container
        assert set(resources["limits"]) == {"memory"}, container
    for deployment in deployments(everything):
        strategy = deployment["spec"]["strategy"]["rollingUpdate"]
        assert strategy == {"maxSurge": 1, "maxUnavailable": 0}
        pod = deployment["spec"]["template"]["spec"]
        # Kubernetes sets KWOK_OPERATOR_PORT and the like for a Service named kwok-operator, which
        # would be taken for flags.
        assert pod["enableServiceLinks"] is False
        rule = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        (term,) = rule["nodeSelectorTerms"]
        assert term["matchExpressions"] == [
            {"key": "kwok-operator.io/node-group", "operator": "DoesNotExist"},
            {"key": "type", "operator": "NotIn", "values": ["kwok"]},
        ], "no pod of ours goes to a fake node"


def settings_of(container: Container) -> Any:
    """What the program makes of the flags and the environment of a manifest."""
    command, *flags = container.spec["args"]
    declare, settings = {
        "run": (add_run_flags, run_settings),
        "shim": (add_shim_flags, shim_settings),
    }[command]
    parser = argparse.ArgumentParser()
    declare(parser)
    values = {"metadata.name": "pod-1", "metadata.namespace": NAMESPACE}
    environ = {
        e["name"]: e.get("value") or values[e["valueFrom"]["fieldRef"]["fieldPath"]]
        for e in container.spec.get("env", ())
    }
    return settings(parser.parse_args(flags), environ)


def test_probes_ask_where_the_program_listens(everything: list[Object]) -> None:
    ours = [c for c in containers(everything) if c.is_ours]
    assert sorted(map(str, ours)) == [
        "cluster-autoscaler/shim",
        "kwok-operator-shim/shim",
        "kwok-operator/operator",
    ]
    for container in ours:
        settings = settings_of(container)
        address = settings.listen if container.spec["args"][0] == "run" else settings.metrics_listen
        asked = {}
        for kind in ("livenessProbe", "readinessProbe"):
            probe = container.spec[kind]["httpGet"]
            asked[kind] = (container.port(probe["port"]), probe["path"])
        assert asked == {
            "livenessProbe": (address[1], "/healthz"),
            "readinessProbe": (address[1], "/readyz"),
        }, container


def test_the_operator_knows_its_pod_and_speaks_json(everything: list[Object]) -> None:
    operator = next(c for c in containers(everything) if c.spec["name"] == "operator")
    settings = settings_of(operator)
    assert settings.leader_elect
    assert settings.namespace == NAMESPACE
    assert settings.log_format == "json"
    assert settings.provider_config == "kwok-provider-config"
    assert "POD_NAME" in {e["name"] for e in operator.spec["env"]}


def test_the_shim_is_a_sidecar_that_shares_a_socket(everything: list[Object]) -> None:
    shim, autoscaler = (c for c in containers(everything) if c.workload == "cluster-autoscaler")
    assert shim.spec["restartPolicy"] == "Always"
    assert shim.spec["startupProbe"]["httpGet"]["path"] == "/readyz"
    config = yaml.safe_load(
        find(everything, "ConfigMap", "cluster-autoscaler-cloud-config")["data"][
            "cloud-config.yaml"
        ]
    )
    listen = settings_of(shim).listen
    assert config["address"] == str(listen)
    for container in (shim, autoscaler):
        mounts = {m["name"]: m["mountPath"] for m in container.spec["volumeMounts"]}
        assert mounts["socket"] == str(Path(listen.path).parent)


def test_both_sides_of_mutual_tls_have_what_they_need(everything: list[Object]) -> None:
    shim = next(c for c in containers(everything) if c.workload == "kwok-operator-shim")
    (mount,) = shim.spec["volumeMounts"]
    (volume,) = shim.pod["volumes"]
    certificates = settings_of(shim).certificates
    for file in (certificates.cert, certificates.key, certificates.cacert):
        assert str(Path(file).parent) == mount["mountPath"]
    server = find(everything, "Certificate", "kwok-operator-shim")["spec"]
    client = find(everything, "Certificate", "kwok-operator-shim-client")["spec"]
    assert volume["secret"]["secretName"] == server["secretName"]
    assert ("server auth" in server["usages"], "client auth" in client["usages"]) == (True, True)
    config = yaml.safe_load(
        find(everything, "ConfigMap", "kwok-operator-shim-cloud-config")["data"][
            "cloud-config.yaml"
        ]
    )
    host, _, port = config["address"].partition(":")
    assert host in server["dnsNames"]
    service = find(everything, "Service", "kwok-operator-shim")
    assert int(port) in {p["port"] for p in service["spec"]["ports"]}
    assert settings_of(shim).listen.port == int(port)


def test_two_replicas_stay_apart_where_they_can(tree: Tree) -> None:
    spec = find(tree.render("ha"), "Deployment", "kwok-operator")["spec"]
    assert spec["replicas"] == 2
    pod = spec["template"]["spec"]
    assert "requiredDuringScheduling" not in str(pod["affinity"]["podAntiAffinity"])
    (spread,) = pod["topologySpreadConstraints"]
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway"
    budget = find(tree.render("ha"), "PodDisruptionBudget", "kwok-operator")["spec"]
    assert budget["maxUnavailable"] == 1


def test_each_monitor_finds_its_services(everything: list[Object]) -> None:
    services = [item for item in everything if item["kind"] == "Service"]
    found: dict[str, set[str]] = {}
    for monitor in (item for item in everything if item["kind"] == "ServiceMonitor"):
        labels = monitor["spec"]["selector"]["matchLabels"].items()
        (endpoint,) = monitor["spec"]["endpoints"]
        for service in services:
            if labels <= service["metadata"]["labels"].items():
                assert endpoint["port"] in {p["name"] for p in service["spec"]["ports"]}
                found.setdefault(monitor["metadata"]["name"], set()).add(
                    service["metadata"]["name"]
                )
    assert found == {
        "kwok-operator": {"kwok-operator"},
        "kwok-operator-shim": {"kwok-operator-shim", "cluster-autoscaler-shim"},
        "cluster-autoscaler": {"cluster-autoscaler"},
    }


def test_services_reach_their_containers(everything: list[Object]) -> None:
    for service in (item for item in everything if item["kind"] == "Service"):
        selector = service["spec"]["selector"].items()
        (deployment,) = [
            d
            for d in deployments(everything)
            if selector <= d["spec"]["template"]["metadata"]["labels"].items()
        ]
        pod = deployment["spec"]["template"]["spec"]
        ports = [
            p for c in (*pod.get("initContainers", ()), *pod["containers"]) for p in c["ports"]
        ]
        for port in service["spec"]["ports"]:
            assert port["targetPort"] in {v for p in ports for v in (p["name"], p["containerPort"])}


def test_grafana_finds_the_dashboard(everything: list[Object]) -> None:
    dashboard = find(everything, "ConfigMap", "kwok-operator-dashboard")
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    (text,) = dashboard["data"].values()
    assert yaml.safe_load(text)["title"]


def namespaces(items: list[Object]) -> set[str]:
    """Where the objects are."""
    return {item["metadata"].get("namespace", "") for item in items} - {""}


def placed(items: list[Object]) -> set[Key]:
    return {key for key in by_key(items) if key[1] in ELSEWHERE}


def test_kustomizes_own_namespace_field_is_refused(kubectl: Kubectl, tree: Tree) -> None:
    """It would move the Roles of other namespaces too."""
    path = tree.path(tree.combine("moved-by-force", [], namespace="other"))
    assert "namespace transformation produces ID conflict" in kubectl.fails("kustomize", str(path))


def strings(value: object) -> Iterator[str]:
    """Every text in an object."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from (str(key), *strings(item))
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    else:
        yield str(value)


def images(items: list[Object]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {"ours": set(), "others": set()}
    for container in containers(items):
        ours = "cluster-autoscaler" not in container.spec["image"]
        found["ours" if ours else "others"].add(container.spec["image"])
    return found


def monitor_labels(items: list[Object]) -> set[str]:
    monitors = [i for i in items if i["apiVersion"] == "monitoring.coreos.com/v1"]
    assert {i["kind"] for i in monitors} == {"ServiceMonitor", "PrometheusRule"}
    return {i["metadata"]["labels"]["release"] for i in monitors}


def test_all_that_may_differ_changes_in_one_place(tree: Tree, everything: list[Object]) -> None:
    settings = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kwok-operator-settings"},
        "data": {"namespace": "elsewhere", "providerConfig": "mine"},
    }
    label = {
        "target": {"group": "monitoring.coreos.com"},
        "patch": "- {op: add, path: /metadata/labels/release, value: mine}",
    }
    renamed = [
        {"name": "kwok-operator", "newName": "registry.example.com/op", "newTag": "1.2.3"},
        {"name": "cluster-autoscaler", "newName": "registry.example.com/cluster-autoscaler"},
    ]
    patches = [{"patch": yaml.safe_dump(settings)}, label]
    mine = tree.render(tree.combine("mine", COMPONENTS, patches=patches, images=renamed))

    assert namespaces(mine) == {"elsewhere", *ELSEWHERE}
    assert placed(mine) == placed(everything)
    for item in mine:
        assert {subject["namespace"] for subject in item.get("subjects", ())} <= {"elsewhere"}
        if item["kind"] != "CustomResourceDefinition":
            named = [t for t in strings(item) if ".kwok-operator" in t and "io/" not in t]
            assert named == [], item["metadata"]["name"]
    assert len(mine) == len(everything)

    assert find(mine, "ConfigMap", "mine")["data"]["config"]
    operator = next(c for c in containers(mine) if c.spec["name"] == "operator")
    assert settings_of(operator).provider_config == "mine"

    assert (monitor_labels(everything), monitor_labels(mine)) == ({"prometheus"}, {"mine"})

    assert [len(names) for names in images(everything).values()] == [1, 1]
    assert images(mine)["ours"] == {"registry.example.com/op:1.2.3"}
    (autoscaler,) = images(mine)["others"]
    assert autoscaler.startswith("registry.example.com/cluster-autoscaler:")


def test_no_manifest_has_a_tag_of_its_own() -> None:
    """They stand in `images:` of a kustomization, and nowhere else."""
    files = [*DEPLOY.glob("base/*.yaml"), *DEPLOY.glob("components/*/*.yaml")]
    tagged = [
        (file.name, line)
        for file in files
        for line in file.read_text().splitlines()
        if line.strip().startswith("image:") and ":" in line.partition("image:")[2]
    ]
    assert tagged == []


def test_the_custom_overlay_changes_all_of_it(tree: Tree) -> None:
    items = tree.render("custom")
    assert find(items, "ConfigMap", "my-provider-config")
    assert monitor_labels(items) == {"my-prometheus"}
    for names in images(items).values():
        (name,) = names
        assert name.startswith("registry.example.com/")


def test_groups_and_templates_are_valid() -> None:
    for what in ("samples", "components/provider-config"):
        files = [(file.name, file.read_text()) for file in (DEPLOY / what).glob("*.yaml")]
        report = validate(files)
        assert report.findings == ()
        assert len(report.rows) >= 3


def test_balancing_compares_what_the_operator_has_compared(everything: list[Object]) -> None:
    autoscaler = next(c for c in containers(everything) if c.spec["name"] == "cluster-autoscaler")
    flags = [flag for flag in autoscaler.spec["args"] if "balanc" in flag]
    assert flags == ["--balance-similar-node-groups=true", f"--balancing-label={ALIKE_LABEL}"]


def test_helms_values_say_what_the_component_says(everything: list[Object]) -> None:
    values = yaml.safe_load((DEPLOY / "helm" / "cluster-autoscaler-values.yaml").read_text())
    shim, autoscaler = (c for c in containers(everything) if c.workload == "cluster-autoscaler")
    (sidecar,) = values["initContainers"]
    for field in shim.spec.keys() - {"image"}:
        assert sidecar[field] == shim.spec[field], field
    flags = {
        f"--{name.partition('_')[0]}={str(value).lower() if value is True else value}"
        for name, value in values["extraArgs"].items()
    }
    chart = {
        "--cloud-provider=externalgrpc",
        "--namespace=$(POD_NAMESPACE)",
        "--leader-elect=true",
    }
    assert flags | chart == set(autoscaler.spec["args"])
    assert values["extraVolumeMounts"] == autoscaler.spec["volumeMounts"]
    assert values["securityContext"] == shim.pod["securityContext"]
    assert values["containerSecurityContext"] == autoscaler.spec["securityContext"]
    assert values["affinity"] == shim.pod["affinity"]
    role = find(everything, "ClusterRole", "kwok-operator-shim")
    assert values["rbac"]["additionalRules"] == role["rules"]
    account = values["rbac"]["serviceAccount"]["name"]
    policy = find(everything, "ValidatingAdmissionPolicy", "kwok-operator-shim")
    assert account in policy["spec"]["matchConditions"][0]["expression"]
    (config,) = values["extraObjects"]
    ours = find(everything, "ConfigMap", "cluster-autoscaler-cloud-config")
    assert config["data"] == ours["data"]
    assert config["metadata"]["name"] in str(values["extraVolumes"])


def test_the_page_about_installation_names_all_that_there_is() -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    samples = [file.stem for file in DEPLOY.glob("samples/*.yaml") if "kustom" not in file.stem]
    for name in (*OVERLAYS, *COMPONENTS, *samples):
        assert f"| `{name}` |" in page, name
