"""What the fields of all our kinds share: the base class, selectors, taints."""
