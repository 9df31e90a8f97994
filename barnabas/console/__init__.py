"""The console: pages about a cluster for people, in a process of its own.

It speaks to any cluster by `barnabas.client` alone; only `barnabas console` imports it.
"""
