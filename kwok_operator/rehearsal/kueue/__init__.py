"""What Kueue's manager needs of its manifests when it runs outside the cluster."""
