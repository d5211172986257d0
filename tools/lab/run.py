"""Runs programs of GoogleTest within limits, and reads what became of each test."""
import dataclasses
import json
import math
import os
import pathlib
import re
import signal
import stat
import subprocess
import sys
import tempfile
import threading

from .exercises import ROOT, LabError
from .words import shown

# As ctest runs all tests (cmake/tests.cmake).
ENVIRONMENT = {
    "OMP_WAIT_POLICY": "passive",
    "TSAN_OPTIONS": "ignore_noninstrumented_modules=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "LSAN_OPTIONS": f"suppressions='{ROOT}/cmake/lsan.supp':print_suppressions=0",
}


# What a program that is not trusted is told of the environment: nothing that might be a secret.
PUBLIC = re.compile(r"PATH|LANG|LC_\w+|TZ|LD_LIBRARY_PATH|(OMP|OMPI|PRTE|CUDA|NCCL)_\w+")


MOST_REPORT_BYTES = 64 << 20


@dataclasses.dataclass
class Limits:
    seconds: float = 60
    memory_mib: int = 4096
    processes: int = 512  # with their threads
    user: str = "-"  # whom programs run as; "-": who calls
    private: bool = False  # the caller's environment is none of the program's business
    cancelled: threading.Event = None  # set by another thread: end what runs
    cpu_seconds: float = math.inf  # of all threads together
    cores: tuple = ()  # numbers of those that programs run on; (): all that the caller may use


class Cancelled(Exception):
    """Nothing is known of a run, since it was ended from outside."""


@dataclasses.dataclass
class Test:
    name: str
    result: str  # passed, failed or skipped
    failures: list  # texts of failed assertions and of exceptions


@dataclasses.dataclass
class Run:
    status: int  # None: it was killed for what it exceeded
    exceeded: str  # "", time, cpu, memory or processes
    seconds: float
    output: str
    tests: list
    reported: bool  # the program came to its end, where it reports on its tests
    begun: str  # the test that was under way when the program ended without a report
    cpu_seconds: float = 0  # of all threads together


def environment_for(limits, more, cwd):
    if not limits.private:
        return {**os.environ, **more}
    public = {name: value for name, value in os.environ.items() if PUBLIC.fullmatch(name)}
    return {**public, "HOME": str(cwd), "TMPDIR": str(cwd), **more}


def wait(supervisor, cancelled):
    """Until the supervisor ends; ends it where nobody wants to know any more."""
    try:
        while True:
            try:
                # With an end: a signal that comes just before a wait without one would be lost.
                supervisor.wait(timeout=0.1)
                return
            except subprocess.TimeoutExpired:
                if cancelled and cancelled.is_set():
                    raise Cancelled from None
    except BaseException:
        while supervisor.poll() is None:  # again: it may have begun with signals ignored
            supervisor.terminate()
            try:
                supervisor.wait(timeout=1)
            except subprocess.TimeoutExpired:
                pass
        raise


def run_limited(command, limits, env, cwd):
    """Returns (status, exceeded, seconds, CPU seconds, output)."""
    with tempfile.TemporaryDirectory(prefix="aisc-run-", ignore_cleanup_errors=True) as folder:
        report, output = pathlib.Path(folder) / "report", pathlib.Path(folder) / "output"
        with open(output, "wb") as file:
            words = [limits.seconds, limits.cpu_seconds, limits.memory_mib, limits.processes, limits.user,
                     ",".join(map(str, limits.cores)) or "-", "--"]
            # In a session of its own, where an interrupt from the keyboard does not reach it: who
            # has started it ends it.
            supervisor = subprocess.Popen(
                [sys.executable, "-S", pathlib.Path(__file__).with_name("limited.py"), report,
                 *(str(w) for w in words + list(command))],
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                env=environment_for(limits, env, cwd), cwd=cwd, start_new_session=True)
            wait(supervisor, limits.cancelled)
        if not report.exists():
            raise LabError(f"{command[0]}: {output.read_text('utf-8', 'replace')[-2000:]}")
        said = json.loads(report.read_text(encoding="utf-8"))
        text = output.read_bytes()[:1 << 20].decode(errors="replace")
    return said["status"], said["exceeded"], said["seconds"], said["cpu_seconds"], text


def run_tests(program, filters, limits=Limits(), seed=None, cwd=ROOT):
    """Runs the tests that match in one process. Paths in what is said are as `shown` has them: where
    the course lies may have spaces."""
    env = dict(ENVIRONMENT)
    if seed is not None:
        env["AISC_TEST_SEED"] = str(seed)
    with tempfile.TemporaryDirectory(prefix="aisc-test-", ignore_cleanup_errors=True) as folder:
        if limits.user != "-":
            os.chown(folder, int(limits.user), int(limits.user))
        report = pathlib.Path(folder) / "tests.json"
        status, exceeded, seconds, cpu_seconds, output = run_limited(
            [str(program), f"--gtest_filter={':'.join(filters)}", f"--gtest_output=json:{report}"],
            limits, env, cwd)
        tests = read_report(report)
    output = shown(output)
    begun = re.findall(r"^\[ RUN      \] (\S+)", output, re.M)
    return Run(status, exceeded, seconds, output, tests or [], tests is not None,
               begun[-1] if begun else "", cpu_seconds)


def read_regular(path, most_bytes, flags=0):
    """The bytes of a file that somebody else has made: no pipe, and none that never ends. With
    os.O_NOFOLLOW among the flags: no link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    with open(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_size > most_bytes:
            raise OSError(f"{path} is not a regular file of at most {most_bytes} bytes")
        return file.read(most_bytes)


def with_its_bytes(report):
    """Where char is signed, GoogleTest writes each byte of a letter such as ü as a character of its
    own (\\u00C3\\u00BC)."""
    return re.sub(rb"\\(?:u00([89A-Fa-f][0-9A-Fa-f])|.)",
                  lambda found: bytes.fromhex(found[1].decode()) if found[1] else found[0], report)


def read_report(path):
    """The tests in a report, or None where there is none that GoogleTest would write."""
    try:
        found = json.loads(with_its_bytes(read_regular(path, MOST_REPORT_BYTES, os.O_NOFOLLOW))
                           .decode(errors="replace"))
        return [read_test(suite["name"], test) for suite in found.get("testsuites", [])
                for test in suite.get("testsuite", [])]
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def as_everywhere(text):
    """What a test says in the same words on all machines. What 0/0 is has a sign on x86 and none on
    ARM. Where GoogleTest 1.12 writes 1e-12, 1.13 writes 9.9999999999999998e-13; 1.16 ends a text with
    an end of line."""
    text = re.sub(r"(?<![\w.])[0-9]+\.[0-9]{9,}(e[+-]?[0-9]+)?(?!\w|\.[0-9])",
                  lambda number: repr(float(number[0])), text)
    return shown(text).replace("-nan", "nan").rstrip("\n")


def read_test(suite, test):
    failures = [as_everywhere(f.get("failure", "")) for f in test.get("failures", [])]
    skipped = test.get("result") == "SKIPPED"
    return Test(f"{suite}.{test['name']}",
                "failed" if failures else "skipped" if skipped else "passed", failures)


def list_tests(program, limits=Limits(), cwd=ROOT):
    """Names of all tests of a program."""
    status, *_, output = run_limited([str(program), "--gtest_list_tests"], limits, ENVIRONMENT,
                                       cwd)
    if status != 0:
        raise LabError(f"{program} --gtest_list_tests (status {status}): {output.strip()[-500:]}")
    names, suite = [], ""
    for line in output.splitlines():
        word = line.split("#")[0].rstrip()
        if word.startswith("  "):
            names.append(suite + word.strip())
        elif word.endswith("."):
            suite = word
    return names


def signal_name(status):
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
