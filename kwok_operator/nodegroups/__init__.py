"""The main job: a group's nodes are created, changed and deleted until they are as it says."""
