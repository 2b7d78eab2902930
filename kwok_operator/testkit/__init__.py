"""What tests of others use: the fixtures of `plugin`, which pytest finds of itself.

    kwok_cluster --> cluster: a process of its own, `host` --> rehearsal.stage
    kwok_groups ---> groups: made, waited for, deleted by kubectl
    rehearse ------> rehearsed: `kwok-operator rehearse` as a process, and its verdict

In the process of the tests nothing heavy is imported, and no event loop runs. If it is killed,
the others end in order (`processes`).
"""
