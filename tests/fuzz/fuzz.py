"""A runner of fuzz targets with atheris (`pip install atheris`), outside of the test suite.

    python tests/fuzz/fuzz.py header -runs=1000000 /tmp/found tests/fuzz/corpus/header
    python tests/fuzz/fuzz.py all 100000000 /tmp/fuzz

Arguments after the target are libFuzzer's; it saves new inputs in the first directory. `all`
apportions a number of runs to all targets, by `TARGETS`, one process at a time. It prints the runs
and findings so far after each process, also into `counts` in the directory; what a process prints
is in TARGET.log there. The processes may be stopped and continued: only CPU time counts.

An input that was refused with another exception than `REFUSALS` belongs in the corpus, which
`test_corpus.py` replays in every test run.
"""

import gc
import logging
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
ROUNDS: Final = 2
"""The processes of a target in a run of all: between them the other targets have their turn."""
HANGS_S: Final = 5
"""The seconds of CPU time after which an input is a finding, even if it would never end."""
sys.path.insert(0, str(ROOT))


class Target(NamedTuple):
    """The settings of a target."""

    share: float
    """Its part of the runs of `all`: most of them go to the targets that are fast."""
    max_len: int
    instrumented: tuple[str, ...] = ("barnabas.protocol.",)
    """Prefixes of the modules whose coverage counts."""


_CODEC, _SASL = "barnabas.protocol.", "barnabas.security.sasl."
_SERVER = ("barnabas.broker.loop.", "barnabas.broker.server.", "barnabas.security.")
TARGETS: Final = {
    "header": Target(0.73, 64),
    "frame": Target(0.05, 128),
    "request": Target(0.04, 128),
    "batches": Target(0.01, 512),
    "columns": Target(0.001, 512, (_CODEC, "barnabas.pipeline.columns.")),
    "certificate": Target(0.02, 512, ("barnabas.security.",)),
    "sasl": Target(0.08, 512, (_SASL,)),
    "sasl_client": Target(0.06, 256, (_SASL,)),
    "authentication": Target(0.004, 512, (_CODEC, *_SERVER)),
    "tls": Target(0.001, 1024, _SERVER),
    "login": Target(0.004, 512, (_CODEC, _SASL, "barnabas.client.")),
}


def main() -> None:
    target, *options = sys.argv[1:]
    if target == "all":
        run_all(int(options[0]), Path(options[1]))
    else:
        fuzz(target, options)


def fuzz(target: str, options: list[str]) -> None:
    """Run libFuzzer in this process; it exits by itself."""
    import atheris

    with atheris.instrument_imports(["barnabas"], others(TARGETS[target].instrumented)):
        from barnabas.protocol.apis import api
        from barnabas.protocol.codec import decoder
        from barnabas.protocol.messages import api_versions, sasl_authenticate, sasl_handshake
        from tests.support import fuzz_targets as targets
    requests = targets.REQUESTS if target == "request" else []
    codecs = [(api(key).request, version) for key, version in requests]
    if target in ("authentication", "login"):
        for module in (api_versions, sasl_authenticate, sasl_handshake):
            message = module.API.request if target == "authentication" else module.API.response
            codecs += [(message, version) for version in module.API.versions]
    for message, version in codecs:
        # Compiled codecs are not imported modules, so they are instrumented one by one.
        message._decoders[version] = atheris.instrument_func(decoder(message, version))
    begun, seen = 0, -1

    def run(data: bytes) -> None:
        nonlocal begun
        begun += 1
        targets.run(target, data)

    def tick(*_signal: object) -> None:
        nonlocal seen
        if begun == seen:
            raise AssertionError(f"an input takes more than {HANGS_S} s")
        seen = begun

    signal.signal(signal.SIGVTALRM, tick)
    signal.setitimer(signal.ITIMER_VIRTUAL, HANGS_S, HANGS_S)
    # Lines of the log would take longer than the inputs. The targets format them by themselves.
    logging.getLogger().addHandler(logging.NullHandler())
    gc.freeze()
    # libFuzzer would measure the time of a stopped process too.
    atheris.Setup([sys.argv[0], "-timeout=1000000", *options], run)
    atheris.Fuzz()


def others(instrumented: tuple[str, ...]) -> list[str]:
    """Return the modules that are not instrumented: atheris includes whole packages only."""
    names = []
    for folder, _, files in os.walk(ROOT / "barnabas", followlinks=True):
        package = ".".join(Path(folder).relative_to(ROOT).parts)
        names += [f"{package}.{Path(file).stem}" for file in files if file.endswith(".py")]
    names = [name.removesuffix(".__init__") for name in names]
    return [name for name in names if not f"{name}.".startswith(instrumented)]


def run_all(runs: int, directory: Path) -> None:
    """Run all targets in turn; print the runs and the findings after each process."""
    done: Counter[str] = Counter()
    findings: Counter[str] = Counter()
    for round_ in range(ROUNDS):
        for name, target in TARGETS.items():
            found = directory / name
            found.mkdir(parents=True, exist_ok=True)
            options = [
                f"-runs={int(runs * target.share) * (round_ + 1) // ROUNDS - done[name]}",
                f"-max_len={target.max_len}",
                f"-artifact_prefix={directory}/finding-{name}-",
                "-print_final_stats=1",
                "-rss_limit_mb=1024",
            ]
            corpus = ROOT / "tests" / "fuzz" / "corpus" / name
            with (directory / f"{name}.log").open("a") as log:
                began = log.tell()
                command = [sys.executable, __file__, name, *options, str(found), str(corpus)]
                code = subprocess.run(command, stdout=log, stderr=log, check=False).returncode
            printed = (directory / f"{name}.log").read_bytes()[began:]
            counts = re.findall(rb"number_of_executed_units: (\d+)", printed)
            done[name] += int(counts[-1]) if counts else 0
            findings[name] += code != 0
            lines = [f"{each}: {done[each]:,} runs, {findings[each]} findings" for each in TARGETS]
            total = f"all: {done.total():,} runs, {findings.total()} findings"
            text = "\n".join([*lines, total])
            (directory / "counts").write_text(text + "\n")
            print(f"{name}: {done[name]:,} runs, {findings[name]} findings; {total}", flush=True)


if __name__ == "__main__":
    main()
