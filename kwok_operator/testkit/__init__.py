"""Fixtures for the tests of other projects, in `plugin`, which pytest finds by itself.

    kwok_cluster --> cluster: a process of its own, `host` --> rehearsal.testbed
    kwok_groups ---> groups: made, waited for, deleted by kubectl
    rehearse ------> rehearsed: `kwok-operator rehearse` as a process, and its verdict

The process of the tests imports no large module and runs no event loop. If it is killed, the other
processes notice, clean up and end (`processes`).
"""
