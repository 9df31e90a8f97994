"""Requests to the HTTP endpoints of brokers: what is no whole response is an OSError."""

import socket
import threading

import pytest

from barnabas.operations.broker_http import HttpAccess


@pytest.mark.parametrize(
    "answer",
    [
        # An alert of TLS, and a broker that was killed while it answered.
        b"\x15\x03\x03\x00\x02\x02\x46",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n100\r\nab",
        b"",
    ],
)
def test_response_that_is_not_whole_is_an_error_that_callers_expect(answer: bytes) -> None:
    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve)
        serving.start()
        with pytest.raises(OSError, match="no whole HTTP response"):
            HttpAccess().ask(f"http://127.0.0.1:{listener.getsockname()[1]}/metrics")
        serving.join()
