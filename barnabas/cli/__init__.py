"""The command line. Each command speaks Kafka's protocol to any cluster, through
`barnabas/client/`.
"""
