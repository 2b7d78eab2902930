"""The main job: creates, changes and deletes a group's nodes until they match the group's spec."""
