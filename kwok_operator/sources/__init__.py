"""The sources from which templates and groups are made: ConfigMaps, real nodes, the provider
config."""
