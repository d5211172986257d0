"""How training scales where each rank keeps a shard of the model; tools/scale says what this is for.

It is the main program in stage 3, with the flags of module 11's scale.py: char-10m's GPT for real or
any in virtual time. Behind `--`, --zero 0, 1 or 2 choose another stage.
"""
import importlib.util
import pathlib
import sys

sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location(
    "scale_of_gpt", pathlib.Path(__file__).resolve().parent.parent / "11_gpt_3d/scale.py")
gpt = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gpt)

TITLE = "04_sharding: training in shards"
TARGET, KINDS, IN_VIRTUAL_TIME = gpt.TARGET, gpt.KINDS, gpt.IN_VIRTUAL_TIME
default_ranks = gpt.default_ranks


def measure(build, ranks, kind, machine, numbers, words):
    """Seconds of a step, and of its parts on rank 0."""
    return gpt.measure(build, ranks, kind, machine, numbers, ["--zero", "3", *words])
