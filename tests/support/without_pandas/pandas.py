"""No pandas: users of the pipeline have none, and `tests/run` installs it for Spark Connect."""

raise ModuleNotFoundError("No module named 'pandas'", name="pandas")
