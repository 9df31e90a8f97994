"""`barnabas benchmark` and its subcommands."""
