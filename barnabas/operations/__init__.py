"""Questions about a cluster that take several requests, for the command line and the console."""
