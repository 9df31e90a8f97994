"""An HTTPS server in a thread, whose answers a test chooses."""

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from tests.support.certificates import Authority, Stores


class Asked(NamedTuple):
    """A request that the server has got."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class WebServer:
    """A server, and the requests that it has got."""

    def __init__(self, stores: Stores) -> None:
        self.asked: list[Asked] = []
        self.answer: Callable[[Asked], tuple[int, bytes]] = lambda _: (404, b"")
        self.stores = stores
        self.port = 0

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}/path?query"

    @property
    def trust(self) -> str:
        """The options of a login module that trusts the server."""
        return " ".join(f'{key}="{text}"' for key, text in self.stores.trust().items())


@contextmanager
def web_server(directory: Path, authority: Authority | None = None) -> Iterator[WebServer]:
    stores = Stores(directory, authority)
    server = WebServer(stores)

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked = Asked(self.command, self.path, dict(self.headers), body)
            server.asked.append(asked)
            code, text = server.answer(asked)
            self.send_response(code)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = answer

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Ignore clients that refuse the certificate."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(stores.write("web.pem", stores.authority.issue().pem))
    with Server(("127.0.0.1", 0), Handler) as listening:
        listening.socket = context.wrap_socket(
            listening.socket, server_side=True, do_handshake_on_connect=False
        )
        server.port = listening.server_address[1]
        thread = threading.Thread(target=listening.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown()
            thread.join()
