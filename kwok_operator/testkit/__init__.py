"""Fixtures for the tests of other projects, in `plugin`, which pytest finds by itself.

    kwok_cluster --> cluster.py: runs host.py as a process of its own --> rehearsal.testbed
    kwok_groups ---> groups.py: makes groups, waits for them, and deletes them by kubectl
    rehearse ------> rehearsed.py: runs `kwok-operator rehearse`, and reads its verdict

The process of the tests imports no large module and runs no event loop. If that process is killed,
the other processes notice, clean up and end (processes.py).
"""
