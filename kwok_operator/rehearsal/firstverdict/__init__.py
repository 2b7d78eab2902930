"""The first verdict on a copy of a cluster: does it hold, and does it survive a loss?"""
