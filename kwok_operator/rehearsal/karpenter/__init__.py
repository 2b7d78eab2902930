"""What groups are to Karpenter: instance types and NodePools. Pure: no cluster, no file."""
