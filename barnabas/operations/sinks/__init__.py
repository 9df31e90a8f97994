"""The sinks of pipelines as the cluster shows them: their decisions, which any client can read."""
