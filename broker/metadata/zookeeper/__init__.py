"""ZooKeeper behind the metadata port; the only package that knows kazoo."""
