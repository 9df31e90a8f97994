"""ZooKeeper as a metadata store; the only package that imports kazoo."""
