"""What a wrong solution usually is. NN_name/often.json has the `why` of each mutant under what the
tests say of it: whose code fails exactly as a mutant does, the same tests with the same words, is
told so. What nobody's code has brought about stays unreadable: a text's key is what the tests said.
"""
import base64
import hashlib
import itertools
import json
import re

from .words import first_of


NUMBER = re.compile(r"(?<![\w.])[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?(?!\w|\.[0-9])")


def fingerprint(failed):
    """Of tests that failed, the first one in front: their names and what the first says, without
    the lines of files. Numbers have six digits: GoogleTest writes 2376123.0 as 2.37612e+06 until
    1.12, as 2376123 from 1.13 on."""
    said = re.sub(r"^\S+:[0-9]+(:|$)", "", first_of(failed[0].failures), flags=re.M)
    said = NUMBER.sub(lambda number: f"{float(number[0]):.6g}", said)
    return "\n".join([said, *sorted(test.name for test in failed)])


def key_of(text, purpose):
    return hashlib.sha256(f"{purpose}\n{text}".encode()).digest()


def mixed(data, text):
    """`data` with a stream of bytes that only `text` gives; twice is as it was."""
    blocks = (key_of(text, f"block {number}") for number in itertools.count())
    stream = itertools.chain.from_iterable(blocks)
    return bytes(byte ^ other for byte, other in zip(data, stream))


def path_of(lab):
    return lab.folder / "often.json"


def write_often(lab, known):
    """`known`: {fingerprint: whys}."""
    table = {key_of(text, "name").hex()[:16]:
             base64.b64encode(mixed("; or ".join(dict.fromkeys(whys)).encode(), text)).decode()
             for text, whys in known.items()}
    path_of(lab).write_text(json.dumps(dict(sorted(table.items())), indent=0) + "\n",
                            encoding="utf-8")


def often(lab, failed):
    """What code that fails in this way usually does, or ""."""
    try:
        table = json.loads(path_of(lab).read_text(encoding="utf-8"))
        text = fingerprint(failed)
        return mixed(base64.b64decode(table[key_of(text, "name").hex()[:16]]), text).decode()
    except (OSError, ValueError, KeyError, TypeError):
        return ""
