"""The console: pages about a cluster for people, in a separate process.

It speaks to any cluster, only through `barnabas.client` and `barnabas.operations`. Only
`barnabas console` imports it.
"""
