"""How a step of the classifier scales over ranks that share a batch; tools/scale says what this is for.

It is the benchmark's part "ranks", one thread each, with batch norm over all ranks: strong scaling has
64 images a step on any number of ranks, weak scaling as many for each. Flags behind `--` choose others
(--images, --width). Only for real: layers of images compute on the host alone and tell no clock what
they cost, so that in virtual time a step would take none.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

TITLE = "13_vision: a step of the classifier, data-parallel"
TARGET = "bench_13_vision"
KINDS = ("strong", "weak")
IN_VIRTUAL_TIME = False
IMAGES = 64


def default_ranks():
    return "1,2" if len(os.sched_getaffinity(0)) > 1 else "1"


def measure(build, ranks, kind, machine, numbers, words):
    """Seconds of a step, and of its parts on rank 0."""
    given = re.findall(r"--images[= ](\d+)", " ".join(words))
    images = int(given[-1] if given else IMAGES) * (ranks if kind == "weak" else 1)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "step.json"
        done = subprocess.run(
            [build / "13_vision/bench_13_vision", "--part", "ranks", "--rounds", "21", *words,
             "--images", str(images), "--ranks", str(ranks), "--threads", str(ranks), "--json", path],
            capture_output=True, encoding="utf-8", timeout=3600)
        if done.returncode:
            sys.exit(f"scale: bench_13_vision --ranks {ranks}: {done.stderr.strip()}")
        row = json.loads(path.read_bytes())["ranks"][0]
    return {"seconds": 1e-3 * row["ms"],
            "parts": {"layers": 1e-3 * row["layers ms"], "communication": 1e-3 * row["gradients ms"],
                      "update": 1e-3 * row["update ms"]}}
