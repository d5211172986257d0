"""How training scales over the stages of a pipeline; tools/scale says what this is for.

It is the main program with one stage a rank, 1F1B and 16 micro-batches of one sample, for real with
a GPT of 12 layers and in virtual time with one of 64 and 64 micro-batches. Weak scaling is a model
with as many layers for each rank. Flags behind `--` choose others.
"""
import importlib.util
import pathlib
import re
import sys

sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location(
    "scale_of_gpt", pathlib.Path(__file__).resolve().parent.parent / "11_gpt_3d/scale.py")
gpt = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gpt)

TITLE = "05_pipeline: stages of a pipeline"
TARGET, KINDS, IN_VIRTUAL_TIME = gpt.TARGET, gpt.KINDS, gpt.IN_VIRTUAL_TIME
default_ranks = gpt.default_ranks


def measure(build, ranks, kind, machine, numbers, words):
    """Seconds of a step, and of its parts on rank 0."""
    def given(flag, default):
        found = re.findall(rf"{flag}[= ](\d+)", " ".join(words))
        return int(found[-1]) if found else default

    parts = given("--micro-batches", 64 if machine else 16)
    layers = given("--layers", 64 if machine and kind == "strong" else 12)
    flags = ["--width", "256", "--heads", "8", "--context", "256", *words,
             "--micro-batches", str(parts), "--batch", str(given("--batch", parts)),
             "--layers", str(layers * (ranks if kind == "weak" else 1))]
    if ranks > 1:
        flags += ["--pp", str(ranks)]
    return gpt.measure(build, ranks, "strong", machine, numbers, flags)
