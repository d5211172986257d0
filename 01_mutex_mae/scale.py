"""How the sum of errors scales over threads; tools/scale says what this is for."""
import json
import os
import subprocess
import sys

TITLE = "01_mutex_mae: the sum by reduction, 256 MiB"
TARGET = "bench_01_mutex_mae"
KINDS = ("strong",)
IN_VIRTUAL_TIME = False


def default_ranks():
    count, cores = 1, len(os.sched_getaffinity(0))
    ranks = []
    while count <= cores:
        ranks.append(str(count))
        count *= 2
    return ",".join(ranks)


def measure(build, ranks, kind, machine, numbers, words):
    """Seconds of one sum with so many threads."""
    command = [build / "01_mutex_mae/bench_01_mutex_mae", "--benchmark_format=json",
               "--benchmark_min_time=0.2",
               f"--benchmark_filter=^sum/256MiB/reduction/threads:{ranks}/", *words]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=600)
    found = json.loads(done.stdout)["benchmarks"] if done.returncode == 0 and done.stdout else []
    if not found:
        sys.exit(f"scale: no benchmark with {ranks} threads: {done.stderr.strip()}")
    seconds = found[0]["real_time"] * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3}[found[0]["time_unit"]]
    return {"seconds": seconds, "parts": {"sum": seconds}}
