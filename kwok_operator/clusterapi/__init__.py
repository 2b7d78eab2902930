"""Cluster API (CAPI): its objects as groups, and Machines that are played.

    object --scalable.read_scalable--> Scalable --derive.derive--> CapiGroup, CapiFinding

A *scalable* is a MachineDeployment, a MachineSet or a MachinePool: cluster-autoscaler's (CA's)
provider `clusterapi` makes a node group of each. The rules are those of its sources in CA 1.32 to
1.37; where versions differ, the newest holds. Where CA has a bug, its result is taken, and a
finding says so.
"""
