"""Runs programs of GoogleTest within limits, and reads what became of each test."""
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

from .exercises import ROOT, LabError

# As ctest runs all tests (cmake/targets.cmake).
ENVIRONMENT = {
    "OMP_WAIT_POLICY": "passive",
    "TSAN_OPTIONS": "ignore_noninstrumented_modules=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "LSAN_OPTIONS": f"suppressions={ROOT}/cmake/lsan.supp:print_suppressions=0",
}


@dataclasses.dataclass
class Limits:
    seconds: float = 60
    memory_mib: int = 4096
    processes: int = 512  # with their threads
    user: str = "-"  # whom programs run as; "-": who calls


@dataclasses.dataclass
class Test:
    name: str
    result: str  # passed, failed or skipped
    failures: list  # texts of failed assertions and of exceptions


@dataclasses.dataclass
class Run:
    status: int  # None: it was killed for what it exceeded
    exceeded: str  # "", time, memory or processes
    seconds: float
    output: str
    tests: list
    begun: str  # the test that was under way when the program ended without a report


def run_limited(command, limits, env, cwd):
    """Returns (status, exceeded, seconds, output)."""
    with tempfile.TemporaryDirectory(prefix="aisc-run-") as folder:
        report, output = pathlib.Path(folder) / "report", pathlib.Path(folder) / "output"
        with open(output, "wb") as file:
            words = [limits.seconds, limits.memory_mib, limits.processes, limits.user, "--"]
            supervisor = subprocess.Popen(
                [sys.executable, "-S", pathlib.Path(__file__).with_name("limited.py"), report,
                 *(str(w) for w in words + list(command))],
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                env={**os.environ, **env}, cwd=cwd)
            try:
                supervisor.wait()
            except BaseException:
                supervisor.terminate()
                supervisor.wait()
                raise
        if not report.exists():
            raise LabError(f"{command[0]}: {output.read_text(errors='replace')[-2000:]}")
        said = json.loads(report.read_text(encoding="utf-8"))
        text = output.read_bytes()[:1 << 20].decode(errors="replace")
    return said["status"], said["exceeded"], said["seconds"], text


def run_tests(program, filters, limits=Limits(), seed=None, cwd=ROOT):
    """Runs the tests that match in one process."""
    env = dict(ENVIRONMENT)
    if seed is not None:
        env["AISC_TEST_SEED"] = str(seed)
    with tempfile.TemporaryDirectory(prefix="aisc-test-") as folder:
        if limits.user != "-":
            os.chmod(folder, 0o777)
        report = pathlib.Path(folder) / "tests.json"
        status, exceeded, seconds, output = run_limited(
            [str(program), f"--gtest_filter={':'.join(filters)}", f"--gtest_output=json:{report}"],
            limits, env, cwd)
        try:
            found = json.loads(report.read_text(encoding="utf-8", errors="replace"))
        except (OSError, ValueError):
            found = {}
    tests = [read_test(suite["name"], test) for suite in found.get("testsuites", [])
             for test in suite.get("testsuite", [])]
    begun = re.findall(r"^\[ RUN      \] (\S+)", output, re.M)
    return Run(status, exceeded, seconds, output, tests, begun[-1] if begun else "")


def read_test(suite, test):
    failures = [f.get("failure", "") for f in test.get("failures", [])]
    skipped = test.get("result") == "SKIPPED"
    return Test(f"{suite}.{test['name']}",
                "failed" if failures else "skipped" if skipped else "passed", failures)


def list_tests(program):
    """Names of all tests of a program."""
    done = subprocess.run([program, "--gtest_list_tests"], capture_output=True, text=True,
                          timeout=60, check=False)
    if done.returncode:
        raise LabError(f"{program} --gtest_list_tests: {done.stderr.strip()}")
    names, suite = [], ""
    for line in done.stdout.splitlines():
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
