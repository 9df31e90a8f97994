"""The checks: each a linear pass over a run, none knows of another."""
