"""Grades the exercises of a lab: what is compiled, what runs, and what it says in plain words."""
import dataclasses
import os
import re
import subprocess

from .build import Build
from .exercises import ROOT, LabError
from .often import often
from .run import Limits, read_regular, run_tests, signal_name
from .stubs import regions, stubs_of, without
from .words import (WAITED, diagnosis, first_error, first_error_line, first_failure, first_of, plain,
                    plain_fault, plain_race, plain_signal, printed_by, printed_last, reason_of_skip, shown,
                    warnings_in)

PASSED, FAILED, TIMEOUT, NOT_ASSESSED = "passed", "failed", "timeout", "not assessed"
NOT_WRITTEN = re.compile(
    r'"lab (?P<id>[0-9.]+): (?P<title>.*) is not implemented yet \((?P<place>.*:[0-9]+)\)" thrown')
SLOWER = {"release": 1, "tsan": 5, "asan": 5}  # time limits under a sanitizer
# CPU time that code may take, in that of the solution: an endless loop ends soon, whatever else
# the machine does.
MOST_OF_SOLUTION, LEAST_CPU_SECONDS = 10, 5
MOST_SOURCE_BYTES = 1 << 20
# A circle of ranks that each wait for the next is seen as soon as it closes: nothing came late.
FOUND_AT_ONCE = re.compile(r"ranks wait for each other in a cycle: ")
# What is put into a student's file throws; the student may have taken the #include for it away.
WITH_ERRORS = ("-include", "common/core/error.h")


@dataclasses.dataclass
class Row:
    exercise: str
    title: str
    possible: float
    status: str
    message: str
    seconds: float = 0
    tests: list = dataclasses.field(default_factory=list)
    solution_seen: bool = False  # before it passed
    cpu_seconds: float = 0

    @property
    def points(self):
        return self.possible if self.status == PASSED else 0

    def as_json(self):
        return {"exercise": self.exercise, "title": self.title, "points": self.points,
                "possible": self.possible, "status": self.status, "message": self.message,
                "seconds": round(self.seconds, 3), "solution_seen": self.solution_seen}


@dataclasses.dataclass
class Program:
    """A test program with somebody's code in it; `broken` says which exercises are not in it, and
    `warned` of which the compiler has said what."""
    path: object
    broken: dict
    warned: dict = dataclasses.field(default_factory=dict)


def what_is_missing(preset):
    """Why nothing can be graded in this preset, or ''."""
    if preset in ("tsan", "asan") and subprocess.run(
            [ROOT / "tools/compiler", "--clang"], stdout=subprocess.DEVNULL).returncode != 0:
        return f"the {'thread' if preset == 'tsan' else 'address'} sanitizer needs clang++ 14 or " \
               "newer with its runtimes (./aisc doctor names the packages)"
    return ""


# -- from code to a program -----------------------------------------------------------------------

def read_lab(lab, folder):
    """{name: text or None} of a student's files; None: not there, or not text."""
    if not folder.is_dir():
        raise LabError(f"{folder} is not there; ./aisc lab {lab.number} makes it")
    texts = {}
    for name in lab.files():
        try:
            texts[name] = as_text(read_regular(folder / name, MOST_SOURCE_BYTES))
        except (OSError, UnicodeDecodeError):
            texts[name] = None
    return texts


def as_text(data):
    """A source as the tools read it, whatever the editor's line ends."""
    return data.decode("utf-8-sig").replace("\r\n", "\n")


def assemble(lab, build, texts, options=()):
    """Compiles a student's files and links the tests with them. What does not compile is replaced,
    region by region, else file by file, by the stub, and noted as broken."""
    stubs = stubs_of(lab)
    broken, warned, texts = {}, {}, dict(texts)
    for name in stubs:
        if texts.get(name) is None:
            texts[name] = stubs[name]
            note(lab, broken, name, f"{lab.module}/lab/{name} is missing or not UTF-8 text")
    sources = {name: lab.own / name for name in stubs}
    compiled = build.compile_all({sources[n]: texts[n] for n in stubs}, options)
    objects = {}
    for name in stubs:
        objects[name], said = compiled[sources[name]]
        warned |= warnings_of(name, texts[name], said, sources[name])
        if objects[name] is None:
            texts[name], objects[name] = salvage(lab, build, name, texts[name], said, stubs, broken)
    target, library = f"{lab.module}_lab_test", f"libaisc_{lab.module}_lab.a"
    for name in stubs:
        if clashes := build.clashes(target, library, [objects[name]]):
            note(lab, broken, name, f"{lab.module}/lab/{name} defines {clashes[0]}, which the "
                 "tests or what they stand on have already")
            texts[name] = stubs[name]
            objects[name], _ = build.compile(sources[name], stubs[name])
    program, said = build.link(target, objects.values(), library)
    if program is None:
        program = link_without(lab, build, texts, objects, first_error(said), stubs, broken)
    return Program(program, broken, warned)


def link_without(lab, build, texts, objects, said, stubs, broken):
    """The test program with the stubs in the place of what keeps it from linking: one exercise, if
    that is enough, else as many files as it takes."""
    target, library = f"{lab.module}_lab_test", f"libaisc_{lab.module}_lab.a"
    sources = {name: lab.own / name for name in stubs}
    changed = [name for name in stubs if texts[name] != stubs[name]]

    def linked_with(name, text):
        compiled, _ = build.compile(sources[name], text, WITH_ERRORS)
        return compiled and build.link(target, {**objects, name: compiled}.values(), library)[0]

    for name in changed:
        for region in regions(texts[name], name):
            lines = texts[name].splitlines()
            lines[region.first:region.last + 1] = blank(lines, region)
            if program := linked_with(name, "\n".join(lines) + "\n"):
                broken.setdefault(region.exercise, f"does not link: {said}")
                return program
    for name in changed:
        note(lab, broken, name, f"does not link: {said}")
        objects[name], _ = build.compile(sources[name], stubs[name])
        program, _ = build.link(target, objects.values(), library)
        if program is not None:
            return program
    raise LabError(f"{target} does not link, even with the stubs: {said}")


def warnings_of(name, text, said, source):
    """{exercise: the first warning in its region} of a file that compiles."""
    try:
        rest = regions(text, name)
    except LabError:
        return {}
    lines = {line: warning for line, warning in reversed(warnings_in(said, source))}
    found = {}
    for region in rest:
        # The brace behind it is where a value was to be returned.
        inside = sorted(line for line in lines if region.first < line - 1 <= region.last + 1)
        if inside:
            found.setdefault(region.exercise, lines[inside[0]])
    return found


def note(lab, broken, name, message):
    for exercise in lab.exercises:
        if exercise.file == name:
            broken.setdefault(exercise.id, message)


def salvage(lab, build, name, text, said, stubs, broken):
    """The most of a file that compiles: (text, object). Notes the exercises that are lost."""
    source = lab.own / name
    try:
        rest = regions(text, name)
    except LabError as error:
        note(lab, broken, name, f"the lines '// LAB' and '// END LAB' must stay: {error}")
        rest = []
    all_counts = "" if rest else " (without the lines '// LAB', all of the file counts)"
    while rest:
        line = first_error_line(said, source)
        message = f"does not compile: {first_error(said, source)}"
        at_fault = [r for r in rest if line and r.first < line - 1 <= r.last]
        # An error outside may come from within, as a brace that is missing does.
        for region in at_fault + [r for r in rest if r not in at_fault]:
            lines = text.splitlines()
            lines[region.first:region.last + 1] = blank(lines, region)
            tried = "\n".join(lines) + "\n"
            result, new_said = build.compile(source, tried, WITH_ERRORS)
            if result or (region in at_fault and first_error_line(new_said, source) != line):
                broken.setdefault(region.exercise, message)
                if result:
                    return tried, result
                text, said = tried, new_said
                rest.remove(region)
                break
        else:
            break
    note(lab, broken, name, f"does not compile: {first_error(said, source)}{all_counts}")
    result, said = build.compile(source, stubs[name])
    if result is None:
        raise LabError(f"the stub of {name} does not compile:\n{said}")
    return stubs[name], result


def blank(lines, region):
    """A region with a throw in it, as long as before: later lines keep their numbers."""
    stub = without(lines, region)
    return stub[:-1] + [""] * (region.last - region.first + 1 - len(stub)) + stub[-1:]


# -- from a program to an outcome -----------------------------------------------------------------

def grade_exercise(lab, exercise, program, limits=None, seed=None, cwd=ROOT, listed=()):
    """`listed`, if given, are the names of all tests of a program that can be trusted."""
    row = Row(exercise.id, exercise.title, exercise.points, FAILED, "")
    if exercise.id in program.broken:
        row.message = program.broken[exercise.id]
        return row
    limits = limits or Limits()
    slower = SLOWER[exercise.preset]
    limits = dataclasses.replace(
        limits, seconds=limits.seconds * slower,
        cpu_seconds=max(LEAST_CPU_SECONDS, MOST_OF_SOLUTION * exercise.seconds) * slower)
    run = run_tests(program.path, exercise.tests, limits, seed, cwd)
    row.seconds, row.tests, row.cpu_seconds = run.seconds, run.tests, run.cpu_seconds
    expected = [name for name in listed if matches(name, exercise.tests)]
    row.status, row.message = judge(lab, exercise, run, limits, expected)
    if row.status in (FAILED, TIMEOUT) and exercise.id in program.warned:
        row.message += f"\nthe compiler warns: {program.warned[exercise.id]}"
    return row


def matches(name, filters):
    """Does a filter of GoogleTest choose the test?"""
    patterns = (re.escape(f).replace(r"\*", ".*").replace(r"\?", ".") for f in filters)
    return any(re.fullmatch(pattern, name) for pattern in patterns)


def failed_tests(exercise, run):
    """What is worked by hand comes first, as its test's name says; then the order of lab.toml's filters
    and of the file."""
    return sorted((t for t in run.tests if t.result == "failed"),
                  key=lambda t: ("ByHand" not in t.name,
                                 next((number for number, f in enumerate(exercise.tests)
                                       if matches(t.name, [f])), len(exercise.tests))))


def judge(lab, exercise, run, limits, expected=()):
    """(status, message) of a run of an exercise's tests; `expected` are those known to be there."""
    failed = failed_tests(exercise, run)
    skipped = [t for t in run.tests if t.result == "skipped"]
    failure = None if run.reported else first_failure(run.output)
    before = f"{failure[0]}: {plain(failure[1])}\nthen " if failure else ""
    if run.exceeded == "time":
        return TIMEOUT, (f"{before}{run.begun or 'the program'} did not end within "
                         f"{limits.seconds:g} s{diagnosis(run.output)}")
    if run.exceeded == "cpu":
        return TIMEOUT, (f"{before}{run.begun or 'the program'} computed for more than "
                         f"{limits.cpu_seconds:g} s, where the solution takes "
                         f"{exercise.seconds:g} s or less: a loop that does not end?")
    if run.exceeded:
        most = (f"{limits.memory_mib} MiB of memory" if run.exceeded == "memory"
                else f"{limits.processes} processes and threads")
        return FAILED, f"{before}{run.begun or 'the program'} took more than {most}"
    race = re.search(r"WARNING: ThreadSanitizer: (.*?) \(pid=", run.output)
    if race:
        return FAILED, plain_race(race[1], run.output)
    if fault := plain_fault(run.output):
        return FAILED, f"{before}{run.begun or 'the program'}: {fault}"
    if failed:
        text = first_of(failed[0].failures)
        written = NOT_WRITTEN.search(text)
        if written and written["id"] == exercise.id:
            return FAILED, f"not written yet: {shown(written['place'])}"
        if written:
            return FAILED, f"needs {written['id']} {written['title']}, which is not written yet"
        said = f"{failed[0].name}: {plain(text)}{printed_by(failed[0].name, run.output)}"
        if usual := often(lab, failed):
            said += f"\noften: {usual}"
        owner = next((e for e in lab.exercises if e.file and matches(failed[0].name, e.tests)), None)
        if owner and not exercise.file:  # a sanitizer runs the tests of others
            return FAILED, f"needs {owner.id} {owner.title}, which does not pass: {said}"
        return TIMEOUT if WAITED.search(text) and not FOUND_AT_ONCE.search(text) else FAILED, said
    if not run.reported:
        how = signal_name(run.status) if run.status < 0 else f"status {run.status}"
        debug = exercise.id if exercise.file and exercise.preset == "release" else ""
        return FAILED, (f"{before}{run.begun or 'the program'} ended the program ({how})"
                        f"{plain_signal(how, debug)}{printed_last(run.output, run.begun)}")
    if missing := [name for name in expected if name not in {t.name for t in run.tests}]:
        return FAILED, f"{missing[0]} has not run"
    if not run.tests:
        raise LabError(f"{lab.module}: no test matches {exercise.id}'s {exercise.tests}")
    if run.status:
        return FAILED, f"the program ended with status {run.status}: {run.output[-300:].strip()}"
    if skipped:
        return NOT_ASSESSED, reason_of_skip(run.output)
    return PASSED, ""


class Grader:
    """Grades a folder of a student's files. Test programs are deleted at the end of the `with`."""

    def __init__(self, lab, builds, limits=None, seed=None, cwd=ROOT, listed=None, asan=False):
        self.lab, self.limits, self.seed, self.cwd = lab, limits, seed, cwd
        self.builds = builds  # {preset: Build, or why there is none}
        self.listed = listed or {}  # {preset: names of all tests}
        self.asan = asan  # what is graded in release is looked at by the address sanitizer
        self.programs = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for program in self.programs.values():
            program.path.unlink(missing_ok=True)

    def assemble(self, build, texts):
        program = assemble(self.lab, build, texts)
        if self.limits and self.limits.user != "-":
            os.chown(program.path, -1, int(self.limits.user))
            os.chmod(program.path, 0o750)
        return program

    def grade(self, exercise, texts):
        if self.asan and exercise.preset == "release":
            exercise = dataclasses.replace(exercise, preset="asan")
        build = self.builds[exercise.preset]
        if not isinstance(build, Build):
            return Row(exercise.id, exercise.title, exercise.points, NOT_ASSESSED, build)
        if exercise.preset not in self.programs:
            self.programs[exercise.preset] = self.assemble(build, texts)
        row = grade_exercise(self.lab, exercise, self.programs[exercise.preset], self.limits,
                             self.seed, self.cwd, self.listed.get(exercise.preset, ()))
        row.message = row.message.replace(f"{build.root}/", "")
        return row
