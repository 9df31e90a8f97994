"""From a frame to a handler and back to the bytes of an answer.

`Dispatcher` is handed its table by app.py. A handler answers with a response object, with None
where the protocol wants no answer, or with an awaitable of either when something must be waited
for: only then does a task exist. A KafkaError becomes the API's own error answer; anything else a
handler raises is UNKNOWN_SERVER_ERROR with a traceback in the log.
"""
