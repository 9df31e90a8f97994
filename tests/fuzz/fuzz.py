"""Runs a fuzz target under atheris (`pip install atheris`), which needs no part of the suite.

    python tests/fuzz/fuzz.py request -runs=1000000 /tmp/found tests/fuzz/corpus/request

Arguments behind the target are libFuzzer's; the first directory collects what it finds. An input
that was refused wrongly belongs into the corpus, which `test_corpus.py` replays with every test
run.
"""

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(include=["barnabas.protocol", "tests.fuzz"]):
    from barnabas.protocol.codec import decoder
    from barnabas.protocol.schema import api
    from tests.fuzz import targets


def main() -> None:
    target, *options = sys.argv[1:]
    if target == "request":
        for key, version in targets.REQUESTS:
            # Compiled codecs come from no import, so they are instrumented one by one.
            known = api(key).request._decoders
            known[version] = atheris.instrument_func(decoder(api(key).request, version))
    atheris.Setup([sys.argv[0], *options], lambda data: targets.run(target, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
