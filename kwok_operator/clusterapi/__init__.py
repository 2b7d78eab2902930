"""Cluster API (CAPI): what its objects mean for cluster-autoscaler (CA) and for groups.

    object --scalable.read_scalable--> Scalable --derive.derive--> CapiGroup, CapiFinding

A *scalable* is a MachineDeployment, a MachineSet or a MachinePool: what CA's provider `clusterapi`
makes a node group of. The rules are those of its sources in CA 1.32 to 1.37; where versions differ,
the newest holds. What a bug of CA's makes of an object is followed, and told in a finding.

    keys       names of labels and annotations
    findings   what users should know of
    discovery  --node-group-auto-discovery=clusterapi:...
    capacity   what the nodes have, and what CA takes them to have while there are none
"""

"""Cluster API: its objects as groups, and Machines that are played."""
