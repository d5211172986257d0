"""How training scales over ranks that share each layer; tools/scale says what this is for.

It is the main program with all ranks in one tensor-parallel group and one sample a step: for real
with two blocks of gpt2-124m, in virtual time with four of 8192 columns. Weak scaling is a model
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

TITLE = "06_tensor_parallel: ranks that share each layer"
TARGET, KINDS, IN_VIRTUAL_TIME = gpt.TARGET, gpt.KINDS, gpt.IN_VIRTUAL_TIME
default_ranks = gpt.default_ranks


def measure(build, ranks, kind, machine, numbers, words):
    """Seconds of a step, and of its parts on rank 0."""
    def given(flag, default):
        found = re.findall(rf"{flag}[= ](\d+)", " ".join(words))
        return int(found[-1]) if found else default

    layers = given("--layers", 4 if machine else 2)
    size = (["--width", "8192", "--heads", "64", "--context", "2048", "--precision", "bf16"]
            if machine else ["--width", "768", "--heads", "12", "--context", "1024"])
    flags = [*size, *words, "--batch", str(given("--batch", 1)),
             "--layers", str(layers * (ranks if kind == "weak" else 1))]
    if ranks > 1:
        flags += ["--tp", str(ranks)]
    return gpt.measure(build, ranks, "strong", machine, numbers, flags)
