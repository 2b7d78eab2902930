"""Cluster API (CAPI): makes groups of its objects, and *plays*, that is simulates, its Machines.

    object --scalable.read_scalable--> Scalable --derive.derive--> CapiGroup, CapiFinding

A *scalable* is a MachineDeployment, a MachineSet or a MachinePool: cluster-autoscaler's (CA's)
provider `clusterapi` makes a node group of each. The rules follow the sources of this provider in
CA 1.32 to 1.37; where versions differ, the newest counts. Bugs of CA are reproduced, and reported
as findings.
"""
