"""How training scales over ranks that each hold the model; tools/scale says what this is for."""
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

TITLE = "11_gpt_3d: training, data-parallel"
TARGET = "train_gpt"
KINDS = ("strong", "weak")
IN_VIRTUAL_TIME = True
STEPS = 12


def default_ranks():
    return "1,2" if len(os.sched_getaffinity(0)) > 1 else "1"


def words_for(ranks, kind, words):
    """Flags of all runs: strong scaling has the same batch on one rank and on many, one sample for each."""
    most = max(ranks)
    return ["--batch", str(most), *words] if kind == "strong" and most > 8 else words


def batch_of(ranks, kind, words):
    """Of the flags, else 8. Of weak scaling so many for each rank."""
    given = re.findall(r"--batch[= ](\d+)", " ".join(words))
    return int(given[-1] if given else 8) * (ranks if kind == "weak" else 1)


def train(build, flags):
    done = subprocess.run([build / "11_gpt_3d/train_gpt", *flags], capture_output=True,
                          encoding="utf-8", timeout=3600)
    if done.returncode:
        sys.exit(f"scale: train_gpt {' '.join(flags)}: {done.stderr.strip()}")
    return done.stdout


def measure(build, ranks, kind, machine, numbers, words):
    """Seconds of a step, and of its parts on rank 0."""
    flags = [*words, "--ranks", str(ranks), "--batch", str(batch_of(ranks, kind, words))]
    if machine:
        text = train(build, [*flags, "--machine", machine, *([] if numbers else ["--meta"])])
        seconds = float(re.search(r"^a step +([\d.e+-]+) s$", text, re.M)[1])
        parts = re.findall(r"^(\S.*?) {2,}([\d.]+) +[\d.]+ %$", text, re.M)
        return {"seconds": seconds, "parts": {part: float(value) for part, value in parts}}
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "run"
        train(build, [*flags, "--steps", str(STEPS), "--threads", str(ranks), "--out", str(out),
                      "--eval-interval", "0", "--eval-windows", "1", "--sample-tokens", "0",
                      "--checkpoint-interval", "0", "--trace", "0"])
        report = re.search(r'json" id="data">(.*?)</script>',
                           (out / "report.html").read_text(encoding="utf-8"), re.DOTALL)
        parts = json.loads(report[1])["parts"]
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_bytes().splitlines()]
    seconds = statistics.median(row["seconds"] for row in rows[2:])
    # Of the whole run, without what is no step, shared out over the steps.
    steps = {part: total / len(rows) for part, total in parts.items()
             if part not in ("evaluation", "sample", "checkpoint", "report")}
    return {"seconds": seconds, "parts": steps}
