"""Where nodes stand: racks, blocks and other levels of a data centre, as labels of nodes.

    api:     the field spec.template.topology, and what status records of it
    layout:  a place (a number) ──> the labels of a node that stands there
    record:  which requested instances have which places, in status and back
    step:    the part of a pass: each new instance gets the lowest free place of its domain

A *place* is a number from 0: with racks of 18, place 40 is in rack 2. A serial is never used twice,
but a place is, like that of a repaired machine: the next instance gets the lowest free place. The
place is recorded in status, with the serial, before the node exists; then the node's annotation
says it. Groups that name one `domain` fill the same places together.
"""
