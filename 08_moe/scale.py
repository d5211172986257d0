"""How training scales over ranks that share experts; tools/scale says what this is for.

It is the main program with experts in every second block, which all ranks share (--ep): for real with
two blocks of 384 columns, in virtual time with four of 4096. Strong scaling has eight experts on any
number of ranks. Weak scaling adds experts with the ranks, four for each (in virtual time one): a token
meets as many FLOPs as before, and the model grows. More than 64 ranks are groups of 64, each with all
experts, of which one rank is run for all: 2,048 take a minute and 2 GB. Plans are those that the machine's
links are best for (--algorithm auto). Flags behind `--` choose others.
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

TITLE = "08_moe: ranks that share experts"
TARGET, KINDS, IN_VIRTUAL_TIME = gpt.TARGET, gpt.KINDS, gpt.IN_VIRTUAL_TIME
default_ranks, words_for = gpt.default_ranks, gpt.words_for
MOST_OF_A_GROUP = 64  # messages of an exchange grow with the square of a group


def experts_of(ranks, kind, machine, words):
    """(experts, ranks that share them), of the flags if these say so."""
    def given(flag, default):
        found = re.findall(rf"--{flag}[= ](\d+)", " ".join(words))
        return int(found[-1]) if found else default

    if kind == "strong":
        experts = given("experts", 8)
        return experts, given("ep", min(ranks, experts))
    group = given("ep", min(ranks, MOST_OF_A_GROUP))
    return given("experts", 1 if machine else 4) * group, group


def measure(build, ranks, kind, machine, numbers, words):
    """Seconds of a step, and of its parts on rank 0."""
    size = ("--layers 4 --width 4096 --heads 32 --context 2048 --precision bf16 --algorithm auto" if machine
            else "--layers 2 --width 384 --heads 6 --context 256").split()
    experts, group = experts_of(ranks, kind, machine, words)
    flags = [*size, *words, "--experts", str(experts), "--ep", str(group)]
    return gpt.measure(build, ranks, kind, machine, numbers, flags)
