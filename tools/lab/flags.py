"""Numbers on the command line, checked when they are read: a limit that no right solution could
keep would fail a whole class."""
import argparse
import math

# Right solutions take up to 140 MiB and 19 threads (under ThreadSanitizer); their time depends on
# the machine.
SECONDS, MEMORY_MIB, PROCESSES = (1, 86400), (256, 1 << 24), (64, 1 << 20)
SEED = (0, 2**63 - 1)
JOBS = (1, 4096)


def number(least, most, kind=int):
    """A type for argparse: what it returns reads a number from `least` to `most`."""
    def read(text):
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:  # nor is nan
            what = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(
                f"found '{text}', expected {what} from {least} to {most}")
        return value
    return read
