"""The example: a stream of orders, the job that sums them, and the page that shows both."""
