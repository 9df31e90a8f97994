"""The metrics of a broker, for tests that wait until one of them has a value."""

from urllib.request import urlopen

from tests.support.ports import free_port
from tests.support.transactor import until


class Figures:
    """The metrics page of one broker, which is started with `keys`."""

    def __init__(self) -> None:
        self._address = f"127.0.0.1:{free_port()}"
        self.keys = {"metrics.listener": self._address}

    def wait_for(self, series: str, value: int) -> None:
        """Wait until a series, with its labels as on the page, has the value."""
        until(lambda: self._read(series), lambda it: it == value)

    def _read(self, series: str) -> int | None:
        with urlopen(f"http://{self._address}/metrics", timeout=10) as page:
            for line in page.read().decode().splitlines():
                name, _, number = line.rpartition(" ")
                if name == series:
                    return int(float(number))
        return None
