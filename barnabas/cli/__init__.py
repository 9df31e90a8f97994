"""The command line. Each command speaks Kafka's protocol through `client/`, to any cluster."""
