"""The console: pages about a cluster for people, in a process of its own.

It speaks to any cluster, by `barnabas.client` and `barnabas.operations` alone, and only
`barnabas console` imports it.
"""
