"""The checks: each is one linear pass over a run, independent of the others."""
