"""Templates in kwok's language: what a Stage writes into a pod's status.

Each template writes what a kubelet would write at that moment, unless the pod has changed
meanwhile. A list of container statuses is written whole, as the API server can't merge it;
conditions are merged by type. Texts from a profile are quoted twice: for the template, then for
YAML.
"""

import json
from typing import Final

from kwok_operator.podprofiles.api import Failure, FailureType
from kwok_operator.podprofiles.life import exit_code

_NOW: Final = "{{ $now := Now }}\n"
_RUNNING: Final = "{running: {startedAt: {{ $now | Quote }}}}"
_WAITS: Final = "{waiting: {reason: PodInitializing}}"
EVICTED_MESSAGE: Final = "The node was low on resource: memory."
_SIDECAR: Final = '(eq (or $c.restartPolicy "") "Always")'

_ADDRESSES: Final = """\
{{ with NodeIPsWith .spec.nodeName }}
hostIP: {{ index . 0 | Quote }}
hostIPs: [{{ range . }}{ip: {{ . | Quote }}}, {{ end }}]
{{ end }}
{{ with PodIPsWith .spec.nodeName ( or .spec.hostNetwork false ) ( or .metadata.uid "" ) \
( or .metadata.name "" ) ( or .metadata.namespace "" ) }}
podIP: {{ index . 0 | Quote }}
podIPs: [{{ range . }}{ip: {{ . | Quote }}}, {{ end }}]
{{ end }}
startTime: {{ $now | Quote }}
"""


def unless_changed(status: str) -> str:
    """Returns a patch that is valid for one resourceVersion only. When kwok is behind, or lists the
    pods again, it plays a Stage a second time: that would change times, or undo later changes."""
    seen = "metadata: {resourceVersion: {{ .metadata.resourceVersion | Quote }}}"
    # textwrap.indent would also indent after characters other than a newline.
    indented = status.replace("\n", "\n  ")
    return f"{seen}\nstatus:\n  {indented}"


def quoted(value: str) -> str:
    """Returns a template expression that yields the text, quoted for YAML."""
    return "{{ " + json.dumps(value, ensure_ascii=False) + " | Quote }}"


def _condition(kind: str, status: str, reason: str = "", message: str = "") -> str:
    return (
        f'- {{type: {kind}, status: "{status}", lastTransitionTime: {{{{ $now | Quote }}}},'
        f' reason: "{reason}", message: {message or chr(34) * 2}}}\n'
    )


def _unready(reason: str) -> str:
    return _condition("Ready", "False", reason) + _condition("ContainersReady", "False", reason)


_READY: Final = (
    _condition("Ready", "True")
    + _condition("ContainersReady", "True")
    + "{{ range .spec.readinessGates }}\n"
    + _condition("{{ .conditionType | Quote }}", "True")
    + "{{ end }}\n"
)


def _if_open(then: str, otherwise: str) -> str:
    return f"{{{{ if $open }}}}\n{then}{{{{ else }}}}\n{otherwise}{{{{ end }}}}\n"


def _containers(*, ready: bool) -> str:
    """Returns the statuses of the containers: running; or, while the template variable `$open` is
    false, waiting for the init containers."""
    common = "- {name: {{ .name | Quote }}, image: {{ .image | Quote }}, restartCount: 0"
    shown = str(ready).lower()
    return (
        "containerStatuses:\n{{ range .spec.containers }}\n"
        + _if_open(
            f"{common}, ready: {shown}, started: true, state: {_RUNNING}}}\n",
            f"{common}, ready: false, started: false, state: {_WAITS}}}\n",
        )
        + "{{ end }}\nphase: {{ if $open }}Running{{ else }}Pending{{ end }}\n"
    )


def _conditions(*, ready: bool) -> str:
    opened = _READY if ready else _unready("ContainersNotReady")
    return "conditions:\n" + _if_open(
        _condition("Initialized", "True") + opened,
        _condition("Initialized", "False", "ContainersNotInitialized")
        + _unready("ContainersNotReady"),
    )


def start(*, inits_take_time: bool, ready: bool) -> str:
    """Returns the status when the first containers start: the init containers, if any, else the
    other ones."""
    common = "- {name: {{ $c.name | Quote }}, image: {{ $c.image | Quote }}, restartCount: 0"
    done = "{terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now | Quote }},"
    done += " finishedAt: {{ $now | Quote }}}}"
    first = (
        f"{common}, ready: false, started: true, state: {_RUNNING}}}\n{{{{ $open = false }}}}\n"
        if inits_take_time
        else f"{common}, ready: true, started: false, state: {done}}}\n"
    )
    return (
        f"{_NOW}{{{{ $open := true }}}}\n"
        "{{ if .spec.initContainers }}\ninitContainerStatuses:\n"
        "{{ range $c := .spec.initContainers }}\n"
        "{{ if not $open }}\n"
        f"{common}, ready: false, started: false, state: {_WAITS}}}\n"
        f"{{{{ else if {_SIDECAR} }}}}\n"
        f"{common}, ready: true, started: true, state: {_RUNNING}}}\n"
        f"{{{{ else }}}}\n{first}{{{{ end }}}}\n{{{{ end }}}}\n{{{{ end }}}}\n"
        f"{_conditions(ready=ready)}{_containers(ready=ready)}{_ADDRESSES}"
    )


def next_init(*, ready: bool) -> str:
    """Returns the status when the running init container ends and the next containers start."""
    return (
        f"{_NOW}{{{{ $open := true }}}}\n"
        "initContainerStatuses:\n"
        "{{ range $i, $c := .spec.initContainers }}\n"
        "{{ $s := index $.status.initContainerStatuses $i }}\n"
        f"{{{{ $sidecar := {_SIDECAR} }}}}\n"
        "{{ if or ( not $open ) $s.state.terminated ( and $sidecar $s.state.running ) }}\n"
        "{{ else if $s.state.running }}\n"
        '{{ $s = set $s "ready" true }}{{ $s = set $s "started" false }}\n'
        '{{ $s = set $s "state" ( dict "terminated" ( dict "exitCode" 0 "reason" "Completed"'
        ' "startedAt" $s.state.running.startedAt "finishedAt" $now ) ) }}\n'
        "{{ else }}\n"
        '{{ $s = set $s "ready" $sidecar }}{{ $s = set $s "started" true }}\n'
        '{{ $s = set $s "state" ( dict "running" ( dict "startedAt" $now ) ) }}\n'
        "{{ $open = $sidecar }}\n"
        "{{ end }}\n"
        "- {{ $s | toJson }}\n"
        "{{ end }}\n"
        f"{_conditions(ready=ready)}{_containers(ready=ready)}"
    )


def ready() -> str:
    """Returns the status when the running containers become Ready."""
    return (
        f"{_NOW}conditions:\n{_READY}containerStatuses:\n"
        "{{ range .status.containerStatuses }}\n"
        '- {{ if .state.running }}{{ set ( set . "ready" true ) "started" true | toJson }}'
        "{{ else }}{{ . | toJson }}{{ end }}\n"
        "{{ end }}\n"
    )


def _ended(code: str, reason: str, message: str = "") -> str:
    """Returns the template that sets the state of the running container status $s to terminated."""
    shown = f' "message" {message}' if message else ""
    return (
        '{{ $s = set ( set $s "ready" false ) "started" false }}\n'
        f'{{{{ $s = set $s "state" ( dict "terminated" ( dict "exitCode" {code} "reason" "{reason}"'
        f'{shown} "startedAt" $s.state.running.startedAt "finishedAt" $now ) ) }}}}\n'
    )


def _all_end(first: str, others: str, phase: str) -> str:
    """Returns the statuses and the phase when all containers end; `first` and `others` are the
    templates that end the first container and the other ones."""
    return (
        "containerStatuses:\n{{ range $i, $s := .status.containerStatuses }}\n"
        "{{ if not $s.state.running }}\n"
        f"{{{{ else if $i }}}}\n{others}{{{{ else }}}}\n{first}{{{{ end }}}}\n"
        "- {{ $s | toJson }}\n{{ end }}\n"
        "{{ with .status.initContainerStatuses }}\ninitContainerStatuses:\n"
        f"{{{{ range $s := . }}}}\n{{{{ if $s.state.running }}}}\n{others}{{{{ end }}}}\n"
        f"- {{{{ $s | toJson }}}}\n{{{{ end }}}}\n{{{{ end }}}}\nphase: {phase}\n"
    )


def succeeded() -> str:
    done = _ended("0", "Completed")
    return f"{_NOW}conditions:\n{_unready('PodCompleted')}{_all_end(done, done, 'Succeeded')}"


def evicted(failure: Failure) -> str:
    """Returns the status when the kubelet evicts the pod."""
    killed = _ended("137", "Error")
    message = quoted(failure.message or EVICTED_MESSAGE)
    target = _condition("DisruptionTarget", "True", "TerminationByKubelet", message)
    return (
        f"{_NOW}conditions:\n{_unready('PodFailed')}{target}"
        f"{_all_end(killed, killed, 'Failed')}reason: Evicted\nmessage: {message}\n"
    )


def killed() -> str:
    """Returns the status when a deleted pod's containers have ended. A kubelet writes it before the
    pod is removed, and a Job with podReplacementPolicy Failed waits for it."""
    done = _ended("143", "Error")
    return f"{_NOW}conditions:\n{_unready('PodFailed')}{_all_end(done, done, 'Failed')}"


def failed(failure: Failure) -> str:
    """Returns the status when the first container fails. The pod fails, or the container will be
    restarted."""
    first = _ended(str(exit_code(failure)), _reason(failure), _literal(failure.message))
    others = _ended("0", "Completed")
    waits = (
        '{{ $s = set $s "lastState" $s.state }}\n'
        '{{ $s = set $s "state" ( dict "waiting" ( dict "reason" "CrashLoopBackOff" "message"'
        ' ( printf "back-off restarting failed container=%s pod=%s_%s(%s)" $s.name'
        " $.metadata.name $.metadata.namespace $.metadata.uid ) ) ) }}\n"
    )
    return (
        f'{_NOW}{{{{ if eq .spec.restartPolicy "Never" }}}}\n'
        f"conditions:\n{_unready('PodFailed')}{_all_end(first, others, 'Failed')}"
        f"{{{{ else }}}}\nconditions:\n{_unready('ContainersNotReady')}"
        "containerStatuses:\n{{ range $i, $s := .status.containerStatuses }}\n"
        f"{{{{ if not $i }}}}\n{first}"
        # The first restart has no back-off.
        f"{{{{ if int $s.restartCount }}}}\n{waits}{{{{ end }}}}\n{{{{ end }}}}\n"
        "- {{ $s | toJson }}\n{{ end }}\n{{ end }}\n"
    )


def restarted(*, ready: bool) -> str:
    """Returns the status when the first container runs again."""
    return (
        f"{_NOW}conditions:\n{_READY if ready else _unready('ContainersNotReady')}"
        "containerStatuses:\n{{ range $i, $s := .status.containerStatuses }}\n"
        "{{ if not $i }}\n"
        '{{ if $s.state.terminated }}{{ $s = set $s "lastState" $s.state }}{{ end }}\n'
        '{{ $s = set $s "restartCount" ( add1 ( int $s.restartCount ) ) }}\n'
        f'{{{{ $s = set ( set $s "ready" {str(ready).lower()} ) "started" true }}}}\n'
        '{{ $s = set $s "state" ( dict "running" ( dict "startedAt" $now ) ) }}\n'
        "{{ end }}\n- {{ $s | toJson }}\n{{ end }}\n"
    )


_STUCK_MESSAGES: Final = {
    FailureType.IMAGE_PULL_BACK_OFF: 'printf "Back-off pulling image %q" $c.image',
    FailureType.CREATE_CONTAINER_CONFIG_ERROR: '"configmap or secret not found"',
}


def stuck(failure: Failure) -> str:
    """Returns the status when no container can start, and none ever will."""
    message = _literal(failure.message) or f"( {_STUCK_MESSAGES[failure.type]} )"
    return (
        f"{_NOW}conditions:\n{_condition('Initialized', 'True')}{_unready('ContainersNotReady')}"
        "containerStatuses:\n{{ range $c := .spec.containers }}\n"
        "- {name: {{ $c.name | Quote }}, image: {{ $c.image | Quote }}, restartCount: 0,"
        " ready: false, started: false, state: {waiting: {"
        f"reason: {failure.type.value}, message: {{{{ {message} | Quote }}}}}}}}}}\n"
        f"{{{{ end }}}}\nphase: Pending\n{_ADDRESSES}"
    )


def _reason(failure: Failure) -> str:
    return "OOMKilled" if failure.type is FailureType.OOM_KILLED else "Error"


def _literal(value: str | None) -> str:
    """Returns the text as an operand in a template expression; "" for None."""
    return "" if not value else quoted(value).removeprefix("{{ ").removesuffix(" | Quote }}")
