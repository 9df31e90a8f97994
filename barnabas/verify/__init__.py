"""`barnabas verify`: it loads a cluster, records a history of all operations, and checks it."""
