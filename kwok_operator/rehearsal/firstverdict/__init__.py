"""The first verdict on a copy of a cluster: does it run as the original did, and survive a loss?"""
