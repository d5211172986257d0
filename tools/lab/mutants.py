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
from .grading import NOT_WRITTEN, SLOWER, failed_tests, first_error, judge, matches, plain
from .often import fingerprint, write_often
from .run import Limits, run_tests

OPTIONS = ["-O1", "-g0", "-w"]
SECONDS = 30
# What may change what any module's tests notice. (That they pass is seen without mutants.)
COMMON = ("tests/support/",)
GRADERS = ("tools/lab/",)  # judge all labs alike: they are seen at work on the first
TYPICAL = 10  # wrong solutions of a module whose text for students is kept
TRIES = 2  # that have to give the same text
MOST_TRIES = 6  # of which one has to, on a machine that is busy with other things


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
    """(killed, how). Of a typical mistake all tests of its exercise are run, and what a student would
    read must be what is kept."""
    kept = kept_texts(lab).get(mutant.id)
    if kept is None:
        run, problem = run_mutant(lab, mutant, build, [mutant.test])
        return how_it_ended(mutant, run) if run else (False, problem)
    for _ in range(MOST_TRIES):
        run, problem = run_mutant(lab, mutant, build, lab.exercise(mutant.exercise).tests)
        if not run:
            return False, problem
        text = text_of(lab, mutant, run)
        if text == kept:
            break
    if text != kept:
        return False, (f"{texts_path(lab).relative_to(ROOT)} keeps another text (tools/authors/"
                       f"mutants --write {lab.number} writes it anew):\n{text}\nkept:\n{kept}")
    return how_it_ended(mutant, run)


def run_mutant(lab, mutant, build, filters):
    """(Run or None, why there is none)"""
    source = lab.source(mutant.file)
    compiled, said = build.compile(source, mutate(lab, mutant), OPTIONS)
    if compiled is None:
        return None, f"does not compile: {first_error(said)}"
    given = "" if mutant.file in lab.files() else "_given"
    program, said = build.link(f"{lab.module}_test", [compiled], f"libaisc_{lab.module}{given}.a",
                               keep_library=True)
    if program is None:
        return None, f"does not link: {first_error(said)}"
    try:
        return run_tests(program, filters, Limits(seconds=SECONDS * SLOWER[mutant.preset])), ""
    finally:
        program.unlink()


def how_it_ended(mutant, run):
    if run.exceeded:
        return False, f"{mutant.test} exceeded its {run.exceeded} limit: no assertion failed"
    tests = [test for test in run.tests if matches(test.name, [mutant.test])]
    failures = [f for test in tests for f in test.failures]
    if mutant.says:
        said = "\n".join([*failures, run.output])
        return (True, mutant.says) if mutant.says in said and (failures or run.status) else \
            (False, f"{mutant.test} does not say '{mutant.says}'")
    if not tests:
        return False, (f"{mutant.test} crashed (status {run.status})" if run.begun else
                       f"there is no test {mutant.test}")
    if not failures:
        return False, f"SURVIVED: {mutant.test} {tests[0].result}"
    if NOT_WRITTEN.search(failures[0]) or "C++ exception with description" in failures[0]:
        return False, f"killed by an exception that the mutant does not state: {plain(failures[0])}"
    return True, plain(failures[0]).replace("\n", "; ")


# -- what students see of mistakes -----------------------------------------------------------------

def texts_path(lab):
    return ROOT / "tests" / lab.module / "failures.txt"


def kept_texts(lab):
    """{mutant: what a student reads}"""
    path = texts_path(lab)
    parts = re.split(r"^## (\S+): .*\n", path.read_text(encoding="utf-8"), flags=re.M) \
        if path.exists() else [""]
    return {id: text.strip("\n") for id, text in zip(parts[1::2], parts[2::2])}


def text_of(lab, mutant, run):
    exercise = lab.exercise(mutant.exercise)
    _, message = judge(lab, exercise, run, Limits(seconds=SECONDS))
    return re.sub(r"(\.(?:cpp|h)):[0-9]+", r"\1", message)


def write_texts(lab, work):
    """often.json and failures.txt of a module, from [(lab, mutant, build)]. Returns how many texts
    were not the same each time, so that nobody can be told by them."""
    known, runs, drawn = collections.defaultdict(list), {}, 0
    with concurrent.futures.ThreadPoolExecutor(CORES) as pool:
        for (_, mutant, _), prints in zip(work, pool.map(lambda item: prints_of(*item), work)):
            if len({text for text, _ in prints}) == 1 and prints[0][0]:
                known[prints[0][0]].append(mutant.why)
                runs[mutant.id] = prints[0][1]
            drawn += len({text for text, _ in prints}) > 1
    write_often(lab, known)
    # The first mistake of each exercise, then the second, and so on.
    order = sorted((m for _, m, _ in work if m.id in runs and not m.by_chance), key=lambda m: m.id[-1])[:TYPICAL]
    texts = [f"## {m.id}: {m.why}\n{text_of(lab, m, runs[m.id])}\n"
             for m in sorted(order, key=lambda m: [e.id for e in lab.exercises].index(m.exercise))]
    texts_path(lab).write_text(
        f"What students see of typical wrong solutions of module {lab.number}: by tools/authors/"
        f"mutants --write {lab.number}, which also makes\n{lab.module}/often.json. The texts are "
        "there to be read; that they are still these, the mutants' judge looks at.\n\n"
        + "\n".join(texts), encoding="utf-8")
    return drawn


def prints_of(lab, mutant, build):
    """[(fingerprint or "", Run)] of several tries with all tests of the mutant's exercise."""
    if not any(e.id == mutant.exercise for e in lab.exercises):
        return [("", None)]
    exercise, found = lab.exercise(mutant.exercise), []
    for _ in range(TRIES):
        run, _ = run_mutant(lab, mutant, build, exercise.tests)
        failed = failed_tests(exercise, run) if run and run.reported else []
        found.append((fingerprint(failed) if failed else "", run))
    return found


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
    done = [subprocess.run(["git", *words], cwd=ROOT, capture_output=True, encoding="utf-8",
                           check=False)
            for words in (["diff", "--name-only", reference, "--"],
                          ["ls-files", "--others", "--exclude-standard"])]
    if any(d.returncode for d in done):
        return None
    return [line for d in done for line in d.stdout.splitlines()]


def mutants_at(reference, lab):
    """The mutants that a lab had at a commit, as far as they can be read today."""
    done = subprocess.run(["git", "show", f"{reference}:{lab.module}/lab.toml"], cwd=ROOT,
                          capture_output=True, encoding="utf-8", check=False)
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
