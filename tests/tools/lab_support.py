"""What the tests of the lab tools share: texts that students might write, and who grades them."""
import json
import os
import shutil
import uuid

from case import BUILD, ROOT, Case, run
from lab.exercises import find_lab
from lab.stubs import make_stub, regions

MODULE = ROOT / "01_mutex_mae"
SOURCE = "mae.cpp"
# Exercises of the module in SOURCE: the model that the tests are written on.
CHUNK, SERIAL, RACY, MUTEX, ATOMIC, REDUCTION = ("01.1", "01.2", "01.3", "01.4", "01.5", "01.6")
EXERCISES = [CHUNK, SERIAL, RACY, MUTEX, ATOMIC, REDUCTION]


class LabCase(Case):
    """Tests on the module 01_mutex_mae, with its tests as they are built."""

    def setUp(self):
        super().setUp()
        if not (MODULE / "solution" / SOURCE).exists():
            self.skipTest(f"not assessed: {MODULE.name} has no solution here")
        if not (BUILD / "build.ninja").exists():
            self.skipTest(f"not assessed: {BUILD} is no build folder")
        self.lab = find_lab("01")

    def hand_in(self, folder, text=None):
        """A lab folder with `text` in the file that the tests change, all else solved."""
        for name in self.lab.files():
            self.write(f"{folder}/{name}", solution(name))
        if text is not None:
            self.write(f"{folder}/{SOURCE}", text)
        return self.folder / folder

    def grade(self, folder, *words, expect, env=None):
        """({exercise: row of --json}, what grade said)"""
        rows = self.folder / f"{uuid.uuid4().hex}.json"
        said = self.call(ROOT / "tools/grade", "--build", BUILD, "--lab", folder, "--json", rows,
                         *words, expect=expect, env=env)
        return {row["exercise"]: row for row in json.loads(rows.read_text(encoding="utf-8"))}, said


def read_only(folders, *command):
    """A command that sees folders as they are when nobody may write them, whoever calls."""
    mounts = 'while [ "$1" != -- ]; do mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" || ' \
             'exit 99; shift; done; shift; exec "$@"'
    return ["unshare", "-m" if os.geteuid() == 0 else "-rm", "sh", "-c", mounts, "sh", *folders, "--",
            *command]


def why_not_read_only():
    """Why read_only() cannot be had here, or ""."""
    if not shutil.which("unshare") or run(*read_only([ROOT], "test", "!", "-w", ROOT)).returncode != 0:
        return "not assessed: no one may mount a folder read-only here (unshare)"
    return ""


def solution(name=SOURCE):
    return (MODULE / "solution" / name).read_text(encoding="utf-8")


def stub(name=SOURCE):
    return make_stub(solution(name), f"{MODULE.name}/solution/{name}")


def with_lines(**changes):
    """The solution with a line at the head of the first region of an exercise, as in
    with_lines(e01_3="return;"). Headers are included, as a student would."""
    text = solution()
    lines = text.splitlines()
    wanted = {name[1:].replace("_", "."): line for name, line in changes.items()}
    for region in reversed(regions(text, SOURCE)):
        if line := wanted.pop(region.exercise, None):
            lines.insert(region.first + 1, line)
    assert not wanted, wanted
    first = next(i for i, line in enumerate(lines) if line.startswith("#include"))
    more = ["csignal", "cstdio", "cstdlib", "cstring", "filesystem", "fstream", "stdexcept",
            "vector", "sys/wait.h", "unistd.h"]
    return "\n".join(lines[:first + 1] + [f"#include <{name}>" for name in more]
                     + lines[first + 1:]) + "\n"


def body_replaced(text, exercise, body):
    """A text with other lines in an exercise's first region."""
    lines = text.splitlines()
    region = next(r for r in regions(text, SOURCE) if r.exercise == exercise)
    lines[region.first + 1:region.last] = [body]
    return "\n".join(lines) + "\n"
