"""cluster-autoscaler's externalgrpc protocol: server, service, the store it reads, the writer."""
