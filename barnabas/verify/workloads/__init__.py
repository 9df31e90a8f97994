"""The workloads: each uses the cluster like an application; all values are unique."""
