"""What the fields of all resources share: the base class, selectors, taints."""
