"""How pre-training a BERT scales over ranks; tools/scale says what this is for.

It is train_bert: for real with its own sizes and 16 samples a step, in virtual time BERT-Base in BF16
with 512 tokens, which has 256 samples a step in its paper. Weak scaling has 16 for each rank, or 32.
`-- --layers 24 --heads 16 --width 1024` is BERT-Large. Ranks are data-parallel but for --tp,
--cp and --pp, which are lowered where there are fewer ranks: with `--ranks 1,2,4,8,16 -- --cp 8` up to
8 share each text, and 16 the batch as well.
"""
import importlib.util
import pathlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location(
    "scale_of_gpt", pathlib.Path(__file__).resolve().parent.parent / "11_gpt_3d/scale.py")
gpt = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gpt)

TITLE = "12_encoders: pre-training a BERT"
TARGET = "train_bert"
KINDS, IN_VIRTUAL_TIME, default_ranks = gpt.KINDS, gpt.IN_VIRTUAL_TIME, gpt.default_ranks
BERT_BASE = ["--layers", "12", "--heads", "12", "--width", "768", "--context", "512", "--precision", "bf16"]


def train(build, flags):
    """What train_bert prints. It has all flags of train_gpt that are used there but one."""
    if "--sample-tokens" in flags:
        where = flags.index("--sample-tokens")
        flags = flags[:where] + flags[where + 2:]
    done = subprocess.run([build / "12_encoders/train_bert", *flags], capture_output=True,
                          encoding="utf-8", timeout=3600)
    if done.returncode:
        sys.exit(f"scale: train_bert {' '.join(flags)}: {done.stderr.strip()}")
    return done.stdout


gpt.train = train


def lowered(words, ranks):
    """These flags for so many ranks: of stages, of those that share layers and texts at most as many."""
    left, words = ranks, [part for word in words for part in re.split(r"(?<=^--[tcp]p)=", word)]
    for i, word in enumerate(words[:-1]):
        if word in ("--tp", "--cp", "--pp"):
            words[i + 1] = str(min(int(words[i + 1]), left))
            left //= int(words[i + 1])
    alone = ("--tp", "1") in zip(words, words[1:])
    return [word for word in words if not (alone and word == "--sp")]


def measure(build, ranks, kind, machine, numbers, words):
    """Seconds of a step, and of its parts on rank 0."""
    batch = ("256" if kind == "strong" else "32") if machine else "16"
    flags = [*(BERT_BASE if machine else []), "--batch", batch, *lowered(words, ranks)]
    return gpt.measure(build, ranks, kind, machine, numbers, flags)
