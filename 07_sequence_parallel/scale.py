"""How training scales over ranks that share each layer and the tokens between; tools/scale says what
this is for.

It is module 06's with `--sp`: the main program with all ranks in one group and one sample a step,
for real with two blocks of gpt2-124m, in virtual time with four of 8192 columns. Weak scaling is a
model with as many layers for each rank. Flags behind `--` choose others.
"""
import importlib.util
import pathlib
import sys

sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location(
    "scale_of_layers", pathlib.Path(__file__).resolve().parent.parent / "06_tensor_parallel/scale.py")
layers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(layers)

TITLE = "07_sequence_parallel: ranks that share each layer and its tokens"
TARGET, KINDS, IN_VIRTUAL_TIME = layers.TARGET, layers.KINDS, layers.IN_VIRTUAL_TIME
default_ranks = layers.default_ranks


def measure(build, ranks, kind, machine, numbers, words):
    """Seconds of a step, and of its parts on rank 0."""
    return layers.measure(build, ranks, kind, machine, numbers,
                          [*words, *(["--sp"] if ranks > 1 else [])])
