"""Warns of settings in KwokPodProfiles that are valid, but go badly together."""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from kwok_operator.constants import PROFILE_KIND
from kwok_operator.formats.words import few_names
from kwok_operator.podprofiles.api import KwokPodProfileSpec
from kwok_operator.podprofiles.compile import Profile, compile_profile
from kwok_operator.podprofiles.draws import RANGE
from kwok_operator.podprofiles.life import threshold
from kwok_operator.podprofiles.selectors import may_both_match

_SOME_NAMESPACES: Final = ("?",)
"""Stands for the namespaces that a namespaceSelector selects: files don't show which these are."""


def profile_notes(
    specs: Mapping[str, KwokPodProfileSpec], *, groups: Collection[str]
) -> Iterator[str]:
    """Yields warnings about the profiles in files, whose specs are given by name. `groups` are the
    names of the KwokNodeGroups in these files; a profile that names another group gets a warning.
    """
    every = sorted(
        (
            Profile.of(name, spec, namespaces=_SOME_NAMESPACES if spec.namespace_selector else None)
            for name, spec in specs.items()
        ),
        key=lambda each: each.rank,
    )
    for position, profile in enumerate(every):
        spec, where = profile.spec, f"{PROFILE_KIND}/{profile.name}"
        above = [
            other
            for other in every[:position]
            if may_both_match(other.spec.namespace_selector, spec.namespace_selector)
        ]
        compiled = compile_profile(profile, above=above)
        for problem in compiled.problems:
            yield f"{where}: {problem.message}"
        if compiled.overlapping and not compiled.problems:
            yield (
                f"{where}: pods that are also of {few_names(compiled.overlapping)} live by that;"
                " give this one a greater spec.priority to have it hold for them"
            )
        if sum(threshold(each.probability) for each in spec.failures) > RANGE:
            yield (
                f"{where}: spec.failures: their probabilities add up to more than 1; what is beyond"
                " doesn't count, so lower some"
            )
        for group in sorted(set(spec.node_groups) - set(groups)):
            yield (
                f"{where}: KwokNodeGroup {group} is not among the files; until it exists, no pod is"
                " on its nodes"
            )
