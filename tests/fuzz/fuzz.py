"""A runner of fuzz targets with atheris (`pip install atheris`), outside of the test suite.

    python tests/fuzz/fuzz.py request -runs=1000000 /tmp/found tests/fuzz/corpus/request

Arguments after the target are libFuzzer's; it saves new inputs in the first directory. An input
that was refused with another exception than `REFUSALS` belongs in the corpus, which
`test_corpus.py` replays in every test run.
"""

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(
    include=[
        "barnabas.protocol",
        "barnabas.pipeline.columns",
        "barnabas.security.sasl",
        "tests.fuzz",
    ]
):
    from barnabas.protocol.codec import decoder
    from barnabas.protocol.schema import api
    from tests.support import fuzz_targets as targets


def main() -> None:
    target, *options = sys.argv[1:]
    if target == "request":
        for key, version in targets.REQUESTS:
            # Compiled codecs are not imported modules, so they are instrumented one by one.
            known = api(key).request._decoders
            known[version] = atheris.instrument_func(decoder(api(key).request, version))
    atheris.Setup([sys.argv[0], *options], lambda data: targets.run(target, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
