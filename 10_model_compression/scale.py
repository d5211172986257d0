"""How training in F16 scales beside F32; tools/scale says what this is for.

It is the main program with --precision f16, and the flags of module 11's scale.py. Gradients have half
of F32's bytes, and so has what ranks send; PyTorch's loss scale keeps them above what F16 loses. For
real it trains char-10m's GPT unless flags behind `--` give a size; in virtual time the size is the
flags' alone. --precision f32 there is what it is to be compared with.
"""
import importlib.util
import pathlib
import sys

sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location(
    "scale_of_gpt", pathlib.Path(__file__).resolve().parent.parent / "11_gpt_3d/scale.py")
gpt = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gpt)

TITLE = "10_model_compression: training in F16"
TARGET, KINDS, IN_VIRTUAL_TIME = gpt.TARGET, gpt.KINDS, gpt.IN_VIRTUAL_TIME
default_ranks, words_for = gpt.default_ranks, gpt.words_for
CHAR_10M = ["--layers", "6", "--heads", "6", "--width", "384", "--context", "256"]


def measure(build, ranks, kind, machine, numbers, words):
    """Seconds of a step, and of its parts on rank 0."""
    sized = machine or {word.split("=")[0] for word in words} & set(CHAR_10M[::2])
    flags = ["--precision", "f16", *([] if sized else CHAR_10M), *words]
    return gpt.measure(build, ranks, kind, machine, numbers, flags)
