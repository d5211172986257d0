"""What the tests of the lab tools share: how a tool is called, texts that students might write."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("AISC_BUILD", "build/release")).resolve()
sys.path.insert(0, str(ROOT / "tools"))
from lab.exercises import find_lab  # noqa: E402
from lab.stubs import make_stub, regions  # noqa: E402

MODULE = ROOT / "01_mutex_mae"
SOURCE = "mae.cpp"
# Exercises of the module in SOURCE: the model that the tests are written on.
CHUNK, SERIAL, RACY, MUTEX, ATOMIC, REDUCTION = ("01.1", "01.2", "01.3", "01.4", "01.5", "01.6")
EXERCISES = [CHUNK, SERIAL, RACY, MUTEX, ATOMIC, REDUCTION]


# What a shell starts in the background ignores interrupts, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


class Case(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="aisc lab test ", ignore_cleanup_errors=True)
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name).resolve()

    def write(self, path, text):
        path = self.folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def call(self, *command, expect=0, env=None, cwd=None):
        """stdout and stderr of a command that ends with the expected status."""
        done = subprocess.run([str(word) for word in command], text=True, timeout=500, cwd=cwd,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False,
                              env={**os.environ, **(env or {})})
        self.assertEqual(done.returncode, expect, f"{command}\n{done.stdout}")
        return done.stdout

    def start(self, *command, env=None):
        """A process with its output in self.output; it and its like are gone after the test."""
        self.output = tempfile.TemporaryFile()
        self.addCleanup(self.output.close)
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                                   stdout=self.output, stderr=subprocess.STDOUT,
                                   env={**os.environ, **(env or {})}, start_new_session=True)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        process.wait()

    def said(self):
        self.output.seek(0)
        return self.output.read().decode(errors="replace")

    def wait_until(self, what, condition, seconds=300):  # compilers may be what it waits for
        end = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), end, f"not within {seconds} s: {what}")
            time.sleep(0.02)


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

    def new_token(self):
        """A word that no other process has among its arguments; who has it is killed in the end."""
        token = f"aisc-{uuid.uuid4().hex}"
        self.addCleanup(lambda: [os.kill(p, signal.SIGKILL) for p in processes_with(token)])
        return token

    def grade(self, folder, *words, expect, env=None):
        """({exercise: row of --json}, what grade said)"""
        rows = self.folder / f"{uuid.uuid4().hex}.json"
        said = self.call(ROOT / "tools/grade", "--build", BUILD, "--lab", folder, "--json", rows,
                         *words, expect=expect, env=env)
        return {row["exercise"]: row for row in json.loads(rows.read_text())}, said


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


def processes_with(token):
    """Processes that have this token in one of their arguments, zombies left out."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if token.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:  # it has ended meanwhile
            pass
    return found


def main(*cases):
    """Runs the tests named on the command line, or all; 77 where nothing was assessed."""
    names = [f"{case.__name__}.{name}" for name in sys.argv[1:] for case in cases
             if hasattr(case, name)] or [case.__name__ for case in cases]
    suite = unittest.defaultTestLoader.loadTestsFromNames(names, sys.modules["__main__"])
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    for _, reason in result.skipped:
        print(reason)
    if not result.wasSuccessful():
        return 1
    return 77 if result.testsRun and len(result.skipped) == result.testsRun else 0
