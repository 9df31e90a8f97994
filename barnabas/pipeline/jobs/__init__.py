"""Jobs from a file: its specification, its errors, and the check of what a job wrote."""
