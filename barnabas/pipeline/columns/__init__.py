"""Record batches from and to Arrow columns, without a Python object for each record."""
