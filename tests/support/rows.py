"""The rows of the table of APIs, by their handler."""

from types import ModuleType

from barnabas.broker.routes import API_TABLE, ApiRow


def row_of(module: ModuleType) -> ApiRow:
    """Return the row of a handler's module."""
    (row,) = (row for row in API_TABLE if row.module is module)
    return row
