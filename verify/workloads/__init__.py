"""The workloads: each does to a cluster what applications do, no value twice."""
