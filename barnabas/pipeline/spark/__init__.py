"""PySpark: everything of the pipeline that imports it."""
