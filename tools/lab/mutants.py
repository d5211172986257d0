"""Who grades the graders: each mutant is a plausible wrong solution, and the test that it names must
fail for it, by an assertion or with the words that it states; not by a crash or an endless loop.

A mutant costs one compilation at low optimisation, without what its file includes, one link, one
test: nothing else is built anew.
"""
import collections
import concurrent.futures
import dataclasses
import re
import subprocess
import tempfile
import time

from .build import CORES
from .exercises import ROOT, LabError, Mutant, find_labs, tomllib
from .grading import NOT_WRITTEN, SLOWER, first_error, plain
from .run import Limits, run_tests

OPTIONS = ["-O1", "-g0", "-w"]
SECONDS = 30
# What may change what any module's tests notice. (That they pass is seen without mutants.)
COMMON = ("tests/support/",)
GRADERS = ("tools/lab/",)  # judge all labs alike: they are seen at work on the first


@dataclasses.dataclass
class Verdict:
    mutant: object
    killed: bool
    how: str  # the assertion that failed, or what went wrong in its place
    seconds: float


def mutate(lab, mutant):
    path = lab.source(mutant.file)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise LabError(f"mutant {mutant.id}: {error}") from None
    count = text.count(mutant.find)
    if count != 1:
        raise LabError(f"mutant {mutant.id}: its text occurs {count} times in {mutant.file}, "
                       "expected once")
    return text.replace(mutant.find, mutant.replace)


def judge_mutant(lab, mutant, build):
    begin = time.monotonic()
    try:
        killed, how = try_mutant(lab, mutant, build)
    except LabError as error:
        killed, how = False, str(error)
    return Verdict(mutant, killed, how, time.monotonic() - begin)


def try_mutant(lab, mutant, build):
    """(killed, how)"""
    source = lab.source(mutant.file)
    compiled, said = build.compile(source, mutate(lab, mutant), OPTIONS)
    if compiled is None:
        return False, f"does not compile: {first_error(said)}"
    given = "" if mutant.file in lab.files() else "_given"
    program, said = build.link(f"{lab.module}_test", [compiled], f"libaisc_{lab.module}{given}.a",
                               keep_library=True)
    if program is None:
        return False, f"does not link: {first_error(said)}"
    try:
        run = run_tests(program, [mutant.test], Limits(seconds=SECONDS * SLOWER[mutant.preset]))
    finally:
        program.unlink()
    return how_it_ended(mutant, run)


def how_it_ended(mutant, run):
    if run.exceeded:
        return False, f"{mutant.test} exceeded its {run.exceeded} limit: no assertion failed"
    failures = [f for test in run.tests for f in test.failures]
    if mutant.says:
        said = "\n".join([*failures, run.output])
        return (True, mutant.says) if mutant.says in said and (failures or run.status) else \
            (False, f"{mutant.test} does not say '{mutant.says}'")
    if not run.tests:
        return False, (f"{mutant.test} crashed (status {run.status})" if run.begun else
                       f"there is no test {mutant.test}")
    if not failures:
        return False, f"SURVIVED: {mutant.test} {run.tests[0].result}"
    if NOT_WRITTEN.search(failures[0]) or "C++ exception with description" in failures[0]:
        return False, f"killed by an exception that the mutant does not state: {plain(failures[0])}"
    return True, plain(failures[0]).replace("\n", "; ")


def judge_all(work):
    """Verdicts of [(lab, mutant, build)], in order, as they come; a core each."""
    sources = collections.Counter((lab.source(mutant.file), build)
                                  for lab, mutant, build in work)
    with tempfile.TemporaryDirectory(prefix="aisc mutants ") as folder, \
            concurrent.futures.ThreadPoolExecutor(CORES) as pool:
        list(pool.map(lambda item: item[1].precompile_includes(item[0], OPTIONS, folder),
                      [source for source, count in sources.items() if count > 2]))
        yield from pool.map(lambda item: judge_mutant(*item), work)


def changed_since(reference):
    """Paths that differ from a commit, or None where there is no such commit."""
    done = [subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
            for words in (["diff", "--name-only", reference, "--"],
                          ["ls-files", "--others", "--exclude-standard"])]
    if any(d.returncode for d in done):
        return None
    return [line for d in done for line in d.stdout.splitlines()]


def mutants_at(reference, lab):
    """The mutants that a lab had at a commit, as far as they can be read today."""
    done = subprocess.run(["git", "show", f"{reference}:{lab.module}/lab.toml"], cwd=ROOT,
                          capture_output=True, text=True, check=False)
    try:
        return [Mutant(**table) for table in tomllib.loads(done.stdout).get("mutant", [])]
    except (tomllib.TOMLDecodeError, TypeError):
        return []


def holds_suite(path, suite):
    try:
        return re.search(rf"\b{suite}\b", (ROOT / path).read_text(encoding="utf-8")) is not None
    except OSError:
        return True


def is_concerned(lab, mutant, paths, before):
    """May the verdict on a mutant have changed with these paths? `before` are those that there were."""
    if paths is None or mutant not in before:
        return True
    suite = mutant.test.split(".")[0].split("/")[-1]
    for path in paths:
        if path.startswith(COMMON) or ROOT / path == lab.source(mutant.file):
            return True
        if path.startswith(GRADERS) and lab.module == find_labs()[0].module:
            return True
        if path.startswith(f"tests/{lab.module}/") and path.endswith(".h"):
            return True
        if re.fullmatch(rf"tests/{lab.module}/\w+_test\.cpp", path) and holds_suite(path, suite):
            return True
    return False
