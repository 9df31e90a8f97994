"""The monitor of a job: its progress as a terminal view, as JSON lines and as a web page."""
