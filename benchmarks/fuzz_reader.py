"""Feed mutated image files to the reader and report what became of them.

Usage: python benchmarks/fuzz_reader.py [NUMBER] [SEED]
"""

import platform
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import mutations

from texseg.io.files import ImageReadError, ImageTooLargeError
from texseg.io.read import read_image

MAX_PIXELS = 10_000_000
SECONDS_ALLOWED = 5


class Hang(BaseException):
    pass


def _hang(*_):
    raise Hang


def outcome_of(path, mutation):
    """Return one word: whole, refused, partial, crash or hang."""
    path.write_bytes(mutation.content)
    signal.alarm(SECONDS_ALLOWED)
    try:
        pixels = read_image(path, max_pixels=MAX_PIXELS).pixels
    except (ImageReadError, ImageTooLargeError, ValueError):
        return "refused"
    except Hang:
        return "hang"
    except BaseException:
        return "crash"
    finally:
        signal.alarm(0)
    if mutation.way != "cut off":
        return "whole"
    path.write_bytes(mutation.original)
    return "whole" if np.array_equal(pixels, read_image(path).pixels) else "partial"


def main():
    import logging

    logging.getLogger("tifffile").setLevel(logging.CRITICAL)
    n_files = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    signal.signal(signal.SIGALRM, _hang)
    outcomes, slowest = Counter(), 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        for content in mutations.sound_files().values():  # load every codec before memory is measured
            path.write_bytes(content)
            try:
                read_image(path)
            except ValueError:
                pass
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for mutation in mutations.mutations(n_files, seed):
            start = time.perf_counter()
            outcomes[mutation.name.split()[0], outcome_of(path, mutation)] += 1
            slowest = max(slowest, time.perf_counter() - start)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    words = ("whole", "refused", "partial", "crash", "hang")
    print(f"{n_files} mutated files, seed {seed}, {platform.machine()}, Python {platform.python_version()}")
    print(f"{'format':8}" + "".join(f"{word:>9}" for word in words))
    for kind in sorted({kind for kind, _ in outcomes}):
        print(f"{kind:8}" + "".join(f"{outcomes[kind, word]:>9}" for word in words))
    print(
        f"{'all':8}"
        + "".join(f"{sum(n for (_, w), n in outcomes.items() if w == word):>9}" for word in words)
    )
    print(f"slowest {slowest:.2f} s, memory above the loaded codecs {(after - before) / 1024:.0f} MB")


if __name__ == "__main__":
    main()
