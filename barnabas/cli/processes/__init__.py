"""The broker processes that `barnabas serve` and `barnabas cluster` run."""
