"""How training scales where each rank's host updates its slice of the model; tools/scale says what
this is for.

It is the main program with --offload optimizer, and the flags of module 11's scale.py. For real it
trains char-10m's GPT unless flags behind `--` give a size; in virtual time the size is the flags'
alone. --offload all there leaves weights and activations on the host, too.
"""
import importlib.util
import pathlib
import sys

sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location(
    "scale_of_gpt", pathlib.Path(__file__).resolve().parent.parent / "11_gpt_3d/scale.py")
gpt = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gpt)

TITLE = "02_cpu_offload: training with the optimizer on the host"
TARGET, KINDS, IN_VIRTUAL_TIME = gpt.TARGET, gpt.KINDS, gpt.IN_VIRTUAL_TIME
default_ranks, words_for = gpt.default_ranks, gpt.words_for
CHAR_10M = ["--layers", "6", "--heads", "6", "--width", "384", "--context", "256"]


def measure(build, ranks, kind, machine, numbers, words):
    """Seconds of a step, and of its parts on rank 0."""
    sized = machine or {word.split("=")[0] for word in words} & set(CHAR_10M[::2])
    flags = ["--offload", "optimizer", *([] if sized else CHAR_10M), *words]
    return gpt.measure(build, ranks, kind, machine, numbers, flags)
