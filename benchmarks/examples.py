"""Each example from a clean environment with its extras, on three workers and alone on as many samples.

    python benchmarks/examples.py                       # all: minutes for each, most of it installing
    python benchmarks/examples.py digits_torch.py --runs 1 --keep /tmp/environments

A wheel is built, and for each example a new environment made in which nothing is installed but the wheel with the
extras that the example's first lines name. There it runs under ssp-redis launch in lock-step, with bounded and with
unbounded staleness, and as a single process; what is printed is what it learned, the medians of the workers. The run
fails if an example fails, or learns less than the single process does by more than is said below.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import NamedTuple

from ssp_redis.cli.format import table
from ssp_redis.server import EmbeddedServer

ROOT = Path(__file__).resolve().parent.parent
WORKERS = 3
#: Workers and staleness.
PLACES = [(1, "0"), (WORKERS, "0"), (WORKERS, "3"), (WORKERS, "inf")]


class Example(NamedTuple):
    """How an example is run."""

    #: What its number is.
    what: str
    #: By how much three workers may be worse; with a sign: + more is better, - less is.
    tolerance: float
    #: Arguments, where ``each`` stands for this many steps of a worker.
    arguments: tuple[str, ...] = ()
    steps: int = 0


EXAMPLES = {
    "digits_torch.py": Example("accuracy", 0.01),
    "digits_sklearn.py": Example("accuracy", 0.01),
    "digits_jax.py": Example("accuracy", 0.01),
    "digits_keras.py": Example("accuracy", 0.01),
    "linreg_tensorflow.py": Example("error of the parameters", -0.05),
    "matrix_factorization.py": Example("error", -0.01, ("--users", "600", "--items", "200", "--ratings", "30000")),
    "evolution.py": Example("steps held, of 500", 25, ("--steps", "each"), 300),
    "clock_only.py": Example("largest lead", -math.inf, ("folder", "--steps", "each"), 300),
}


def run(*command: str | Path, **more: str) -> str:
    """What a command prints; it must end well."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "KERAS_BACKEND")}
    done = subprocess.run(
        list(map(str, command)),
        env=kept | more,
        capture_output=True,
        text=True,
        timeout=1800,
        cwd=tempfile.gettempdir(),
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def environment(folder: Path, wheel: Path, example: str, constraints: list[str]) -> Path:
    """The interpreter of a new environment with what the example says it needs."""
    needs = re.search(r"Needs ssp-redis(\[[\w,]+\])", (ROOT / "examples" / example).read_text())
    place = folder / example.removesuffix(".py")
    if not place.exists():
        venv.create(place, with_pip=True)
        limits = [word for limit in constraints for word in ("-c", limit)]
        run(place / "bin/pip", "install", "-q", *limits, f"ssp-redis{needs[1] if needs else ''} @ {wheel.as_uri()}")
    return place / "bin/python"


def learned(python: Path, example: str, url: str, workers: int, staleness: str) -> list[float]:
    """The number that each worker prints."""
    how = EXAMPLES[example]
    with tempfile.TemporaryDirectory() as folder:
        words = {"each": str(how.steps // workers), "folder": folder}
        arguments = [words.get(word, word) for word in how.arguments]
        name = f"examples-{os.getpid()}-{workers}-{staleness}"
        command = ["-m", "ssp_redis", "launch", "-q", "--url", url, "--job", name, "-n", str(workers), "-s", staleness]
        text = run(python, *command, ROOT / "examples" / example, *arguments, OMP_NUM_THREADS="1")
        run(python, "-m", "ssp_redis", "delete", "--url", url, "--job", name)
    found = [float(number) for number in re.findall(r"worker \w+: [a-z ]*([0-9.]+)", text)]
    if len(found) != workers:
        sys.exit(f"{example} on {workers} workers printed:\n{text}")
    return found


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("examples", nargs="*", metavar="EXAMPLE", help="names; all if none is given")
    parser.add_argument("--runs", type=int, default=3, help="of which the median counts [3]")
    parser.add_argument("-c", "--constraint", action="append", default=[], metavar="FILE", help="for pip; repeatable")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="make environments here, and use what is there")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if strangers := set(options.examples) - set(EXAMPLES):
        parser.error(f"there is no example {', '.join(sorted(strangers))}")
    found: dict[str, dict[str, list[list[float]]]] = {}
    with tempfile.TemporaryDirectory() as scratch, EmbeddedServer() as server:
        run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", scratch, ROOT)
        (wheel,) = Path(scratch).glob("*.whl")
        for example in options.examples or EXAMPLES:
            python = environment((options.keep or Path(scratch)).resolve(), wheel, example, options.constraint)
            found[example] = {
                f"{workers} at {staleness}": [
                    learned(python, example, server.url, workers, staleness) for _ in range(options.runs)
                ]
                for workers, staleness in PLACES
            }
    if options.json:
        print(json.dumps(found))
        return
    rows = [["example", "", "1 process", *[f"{workers}, staleness {s}" for workers, s in PLACES[1:]]]]
    worse = []
    for example, cells in found.items():
        middle = [statistics.median(map(statistics.median, runs)) for runs in cells.values()]
        rows.append([example, EXAMPLES[example].what, *[f"{number:.3f}" for number in middle]])
        sign, most = math.copysign(1, EXAMPLES[example].tolerance), abs(EXAMPLES[example].tolerance)
        worse += [example] * any(sign * (middle[0] - number) > most + 1e-9 for number in middle[1:])
    print(table(rows, left=(0, 1)))
    if worse:
        sys.exit(f"{', '.join(worse)}: three workers do not reach what one process reaches")


if __name__ == "__main__":
    main()
