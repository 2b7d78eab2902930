"""Instance types and NodePools for Karpenter, made from groups; reads no cluster, no file."""
