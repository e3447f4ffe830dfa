"""Fuzz one reader with atheris, in a separate process: guided_fuzz READER N SEED."""

import json
import os
import signal
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["circuits", "retrieval_interp"]):
    from benchmarks.robustness.fuzz import Tried
    from benchmarks.robustness.readers import READERS
    from benchmarks.robustness.watched import alarmed


def main() -> None:
    name, n, seed = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    scratch = Path(tempfile.mkdtemp())
    whole = scratch / "whole"
    whole.mkdir()
    for number, content in enumerate(READERS[name].whole()):
        (whole / str(number)).write_bytes(content)
    tried = Tried(READERS[name], scratch / "folder")

    def give(content: bytes) -> None:
        tried(content)
        if tried.files == n:
            print(f"\n{json.dumps(tried.to_json())}", flush=True)
            os._exit(0)

    signal.signal(signal.SIGALRM, alarmed)
    options = ["-runs=-1", "-verbosity=0", "-handle_alrm=0", "-handle_int=0", "-max_len=20000", "-rss_limit_mb=0"]
    atheris.Setup(["fuzz", *options, f"-seed={int(seed) + 1}", str(whole)], give)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
