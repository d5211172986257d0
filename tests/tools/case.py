"""What tests that are scripts share: a folder of their own, how they call programs, how they end."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))  # whose modules are the graders'
BUILD = pathlib.Path(os.environ.get("AISC_BUILD", "build/release")).resolve()
SLOWER = int(os.environ.get("AISC_SLOWER", "1"))  # times as long as elsewhere: in an emulator
MPIRUN = shutil.which("mpirun") or shutil.which("mpiexec")
NO_MPI = ("not assessed: built without MPI" if os.environ.get("AISC_MPI") == "OFF" else
          "" if MPIRUN else "not assessed: mpirun was not found")
# Settings of Open MPI 4 and 5: more ranks than cores, no binding, root is welcome.
MPI_ENVIRONMENT = {
    **os.environ,
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1", "PRTE_MCA_hwloc_default_binding_policy": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}

# What a shell starts in the background ignores interrupts, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


def words_of(command):
    """A command as subprocess takes it: bytes stay, everything else is text."""
    return [word if isinstance(word, bytes) else str(word) for word in command]


def run(*command, **options):
    """The finished process, what it printed as text; options are those of subprocess.run."""
    return subprocess.run(words_of(command), **{
        "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
        "encoding": "utf-8", "errors": "replace", "timeout": 300 * SLOWER, "check": False, **options})


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


def send(process, number):
    """A signal, to a process that may have ended meanwhile."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


class Case(unittest.TestCase):
    prefix = "aisc test "

    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix=self.prefix, ignore_cleanup_errors=True)
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name).resolve()

    def write(self, path, text):
        path = self.folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def call(self, *command, expect=0, env=None, cwd=None):
        """stdout and stderr of a command that ends with the expected status."""
        done = run(*command, stderr=subprocess.STDOUT, timeout=500 * SLOWER, cwd=cwd,
                   env={**os.environ, **(env or {})})
        self.assertEqual(done.returncode, expect, f"{command}\n{done.stdout}")
        return done.stdout

    def start(self, *command, env=None):
        """A process with its output in self.output; it and its like are gone after the test."""
        self.output = tempfile.TemporaryFile()
        self.addCleanup(self.output.close)
        process = subprocess.Popen(words_of(command), stdin=subprocess.DEVNULL,
                                   stdout=self.output, stderr=subprocess.STDOUT,
                                   env={**os.environ, **(env or {})}, start_new_session=True)
        self.addCleanup(self.end, process)
        return process

    def new_token(self):
        """A word that no other process has among its arguments; who has it is killed in the end."""
        token = f"aisc-{uuid.uuid4().hex}"
        self.addCleanup(lambda: [send(p, signal.SIGKILL) for p in processes_with(token)])
        return token

    def end(self, process):
        if process.poll() is None:
            process.kill()
        process.wait()

    def said(self):
        self.output.seek(0)
        return self.output.read().decode(errors="replace")

    def wait_until(self, what, condition, seconds=300 * SLOWER, between=0.02):  # for compilers, too
        end = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), end, f"not within {seconds} s: {what}")
            time.sleep(between)


class ScoreCase(Case):
    """An open exercise: a program that scores the answer in a file of lines."""
    program = None

    def answer(self, lines):
        return self.write("mine.txt", "".join(line + "\n" for line in lines))

    def scored(self, lines, may_be_refused=False):
        """The score; None where an answer that may be was refused."""
        done = run(BUILD / self.program, self.answer(lines))
        if may_be_refused and done.returncode == 1:
            return None
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        score = float(re.search(r"(?m)^score (\d\.\d{3}): no ", done.stdout)[1])
        self.assertLessEqual(score, 1, done.stdout)
        return score

    def refused(self, lines, why):
        """The answer gets an error that says why, and no score."""
        said = self.call(BUILD / self.program, self.answer(lines), expect=1)
        self.assertIn(why, said)
        self.assertNotRegex(said, r"(?m)^score \d")

    def drawn(self, answers):
        """The scores of drawn answers that are not refused, none of which is above 1."""
        scores = [self.scored(lines, may_be_refused=True) for lines in answers]
        return [score for score in scores if score is not None]


class DemoCase(unittest.TestCase):
    """What a module shows: its programs, each of which runs once a class, and their figures."""
    module = None
    demo_flags = ()

    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = pathlib.Path(holder.name)

    def called(self, *command):
        """stdout of a command that ends well."""
        done = run(*command)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def numbers(self, program=None):
        """What a program, the demo if none is named, writes with --json."""
        program = program or f"demo_{self.module}"
        path = self.folder / f"{program}.json"
        if not path.exists():
            flags = self.demo_flags if program.startswith("demo") else ()
            said = self.called(BUILD / self.module / program, *flags, "--json", path)
            path.with_suffix(".txt").write_text(said, encoding="utf-8")
        return json.loads(path.read_bytes())

    def said(self, program=None):
        """And what it prints."""
        self.numbers(program)
        return (self.folder / f"{program or 'demo_' + self.module}.txt").read_text(encoding="utf-8")

    def draw(self, *programs, most_bytes=1_000_000):
        """{name: file} of the figures, SVG, that tools/plot draws of what these programs write."""
        drawn = {}
        for program in programs:
            self.numbers(program)
            done = run(ROOT / "tools/plot", self.module[:2], self.folder / f"{program}.json",
                       self.folder)
            if "matplotlib was not found" in done.stderr:
                self.skipTest(done.stderr.strip())
            self.assertEqual(done.returncode, 0, done.stderr)
            drawn.update((pathlib.Path(path).stem, pathlib.Path(path))
                         for path in done.stdout.splitlines())
        for path in drawn.values():
            xml.etree.ElementTree.parse(path)
            self.assertLess(path.stat().st_size, most_bytes)
        return drawn

    def draw_twice(self, *programs):
        """{name: bytes}, the same both times."""
        first, second = ({name: path.read_bytes() for name, path in self.draw(*programs).items()}
                         for _ in range(2))
        self.assertEqual(first, second)
        return first

    def speedups(self, *words):
        """What tools/scale prints, and {ranks: speed-up} of its rows."""
        if not (BUILD / "11_gpt_3d/train_gpt").exists():
            self.skipTest("train_gpt was not built")
        said = self.called(ROOT / "tools/scale", *words)
        rows = re.findall(r"(?m)^ *(\d+) +\S+ +([\d.]+) ", said)
        return said, {int(ranks): float(speedup) for ranks, speedup in rows}


def main():
    """Runs the tests named on the command line, or all; 77 where nothing was assessed."""
    cases = [case for case in vars(sys.modules["__main__"]).values() if isinstance(case, type)
             and issubclass(case, unittest.TestCase) and case.__module__ == "__main__"]
    names = [f"{case.__name__}.{name}" for name in sys.argv[1:] for case in cases
             if hasattr(case, name)] or [case.__name__ for case in cases]
    suite = unittest.defaultTestLoader.loadTestsFromNames(names, sys.modules["__main__"])
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    for _, reason in result.skipped:
        print(reason)
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if result.testsRun and len(result.skipped) == result.testsRun else 0)
