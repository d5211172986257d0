"""How a step of a deep MLP scales over data-parallel ranks; tools/scale says what this is for."""
import os
import re
import subprocess
import sys

TITLE = "03_data_parallel: an MLP of 12 x 1024"
TARGET = "mlp"
KINDS = ("strong", "weak")
IN_VIRTUAL_TIME = True
SAMPLES = 512


def default_ranks():
    return "1,2" if len(os.sched_getaffinity(0)) > 1 else "1"


def samples_of(ranks, kind, words):
    """Of the flags, else 512; of weak scaling so many for each rank."""
    given = re.findall(r"--samples[= ](\d+)", " ".join(words))
    return int(given[-1] if given else SAMPLES) * (ranks if kind == "weak" else 1)


def measure(build, ranks, kind, machine, numbers, words):
    """Seconds of a step, and of its parts on rank 0."""
    if numbers:
        sys.exit("scale: the MLP has no numbers in virtual time")
    command = [build / "03_data_parallel/mlp", *words, "--ranks", str(ranks), "--samples",
               str(samples_of(ranks, kind, words)), *(["--machine", machine] if machine else [])]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=3600)
    if done.returncode:
        sys.exit(f"scale: {done.stderr.strip()}")
    parts = re.findall(r"^(\S.*?) {2,}([\d.]+) +[\d.]+ %$", done.stdout, re.M)
    return {"seconds": float(re.search(r"^a step +([\d.e+-]+) s$", done.stdout, re.M)[1]),
            "parts": {part: float(seconds) for part, seconds in parts}}
