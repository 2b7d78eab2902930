"""The main job: creates, changes and deletes a group's nodes until they are as its spec says."""
