"""Grades a class: one folder a student, each in a scratch copy of the project in which only the lab
files are the student's.

What students hand in is compiled with the project's own commands and linked with its own tests.
Their programs have limits of time, memory and processes, an environment without the caller's
secrets, the scratch copy as their folder, and, when root calls, a user of their own: a mistake of
one is no other's. As many students are graded at once as there are slots: each slot has a user, cores
of its own as far as there are enough, and memory for what a program may take. Tests and code share a
process, though: who means to can forge a report.
"""
import concurrent.futures
import contextlib
import csv
import dataclasses
import io
import os
import pathlib
import pwd
import queue
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading

from . import table
from .build import CORES, Build, can_write
from .exercises import ROOT, WORK, LabError, find_lab
from .export import LEFT_OUT, export
from .grading import (FAILED, MOST_SOURCE_BYTES, NOT_ASSESSED, PASSED, TIMEOUT, Grader, Row,
                      as_text)
from .run import Cancelled, list_tests, read_regular
from .setup import prepare

NO_STUDENT = {"__MACOSX", "build", ".git"}
LOOK_SECONDS = 0.3
HIGHEST_USER, LOWEST_USER = 65533, 60000


# -- what a student handed in ---------------------------------------------------------------------

def folder_of(student, lab):
    """The folder with a student's files; LabError says why there is none, or which of several."""
    names, found, links = set(lab.files()), [], []
    for place, folders, files in os.walk(student):
        place = pathlib.Path(place)
        folders[:] = sorted(set(folders) - NO_STUDENT)
        links += [place / f for f in folders if f == "lab" and (place / f).is_symlink()]
        other = re.match(r"[0-9][0-9]_", place.parent.name) and place.parent.name != lab.module
        if place.name == "lab" and place != student and not other and names & set(files):
            found.append(place)
    found = [f for f in found if f.parent.name == lab.module] or found
    if len(found) > 1:
        several = " and ".join(str(f.relative_to(student)) for f in found[:2])
        raise LabError(f"which is it: {several}?")
    if found:
        return found[0]
    if any(os.path.lexists(student / name) for name in names):
        return student
    if links:
        raise LabError(f"{links[0].relative_to(student)} is a link, which is not followed")
    raise LabError(f"found neither lab/{lab.files()[0]} nor {lab.files()[0]}, nor another file of "
                   "this lab")


def read_student(student, lab):
    """({name: text or None}, {name: why there is none})"""
    folder = folder_of(student, lab)
    texts, problems = {}, {}
    for name in lab.files():
        path = folder / name
        texts[name] = None
        try:
            texts[name] = as_text(read_regular(path, MOST_SOURCE_BYTES, os.O_NOFOLLOW))
        except FileNotFoundError:
            problems[name] = f"{name} was not handed in"
        except UnicodeDecodeError:
            problems[name] = f"{name} is not UTF-8 text"
        except OSError:
            what = ("a link, which is not followed" if path.is_symlink()
                    else "no file of readable size")
            problems[name] = f"{name} is {what}"
    return texts, problems


# -- a class --------------------------------------------------------------------------------------

def available_mib():
    """Memory that programs can still have here: the machine's or, of a container or a job with less,
    its own."""
    def read(path):
        return pathlib.Path(path).read_text(encoding="utf-8")
    least = int(re.search(r"^MemAvailable: *(\d+) kB", read("/proc/meminfo"), re.M)[1]) >> 10
    groups = ""
    with contextlib.suppress(OSError):
        groups = read("/proc/self/cgroup")
    # "0::/a/b", or of version 1 "4:memory:/a": a group's limit, and those of the groups it is in.
    for controller, group in re.findall(r"^\d+:(|memory):/(.*)$", groups, re.M):
        limit = "memory/{}/memory.limit_in_bytes" if controller else "{}/memory.max"
        for folder in (pathlib.Path(group), *pathlib.Path(group).parents):
            with contextlib.suppress(OSError, ValueError):  # not there, or "max": no limit
                least = min(least, int(read("/sys/fs/cgroup/" + limit.format(folder))) >> 20)
    return least


def slots_for(jobs, students, memory_mib):
    """(how many students are graded at once, why they are fewer than wanted or "")"""
    wanted = min(jobs or (max(2, CORES // 2) if CORES > 1 else 1), students)
    available = available_mib()
    slots = max(1, min(wanted, available // memory_mib))
    return slots, "" if slots == wanted else (
        f"{slots} at once in place of {wanted}: {available} MiB of memory are there, and a program may "
        f"take {memory_mib} (--memory)")


def shares(cores, slots):
    """The cores of each slot: of its own, as far as there are enough."""
    if slots >= len(cores):
        return [(cores[slot % len(cores)],) for slot in range(slots)]
    return [tuple(cores[slot::slots]) for slot in range(slots)]


def spare_users(count):
    """{number of a user: what holds it for this grading}: users without a name and without
    processes, if root calls. All processes of such a user are killed when its program has ended."""
    if os.geteuid() != 0:
        return {"-": None}
    taken = {entry.pw_uid for entry in pwd.getpwall()}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            taken.add(folder.stat().st_uid)
        except OSError:  # it has ended meanwhile
            pass
    users = {}
    for number in (n for n in range(HIGHEST_USER, LOWEST_USER, -1) if n not in taken):
        held = socket.socket(socket.AF_UNIX)
        try:
            held.bind(f"\0aisc-user-{number}")  # a name in no folder; gone with this process
        except OSError:  # another grading holds it
            held.close()
            continue
        users[str(number)] = held
        if len(users) == count:
            break
    return users


class Class:
    """All that the students share: the project without solutions, built once, or a build that is there:
    --build, or that of the tree whose labs who calls grades elsewhere."""

    def __init__(self, lab, exercises, flags, limits, place, slots, jobs):
        self.exercises, self.flags, self.place = exercises, flags, place
        self.cancelled = threading.Event()
        self.limits = dataclasses.replace(limits, private=True, cancelled=self.cancelled)
        self.slots, self.free = slots, queue.Queue()
        self.held = spare_users(slots)
        if len(self.held) < slots and os.geteuid() == 0:
            raise LabError(f"only {len(self.held)} users are free between {LOWEST_USER} and "
                           f"{HIGHEST_USER}, and each of --jobs needs its own")
        cores = shares(sorted(os.sched_getaffinity(0)), slots)
        for slot in range(slots):  # (user, cores)
            self.free.put((list(self.held)[slot % len(self.held)], cores[slot]))
        self.jobs, self.compilers = jobs, threading.BoundedSemaphore(jobs)
        self.is_there = flags.build or WORK != ROOT or not can_write(ROOT / "build")
        os.chmod(place, 0o755)  # other users run programs in it
        self.project = place / "project"
        export(self.project, [lab.number], anyway=True, reference=False)
        self.lab = lab if self.is_there else find_lab(lab.number, self.project)
        (place / "programs").mkdir()
        os.chmod(place / "programs", 0o755)
        self.builds = {p: self._build(p) for p in dict.fromkeys(e.preset for e in exercises)}
        user = next(iter(self.held))
        self.listed = {preset: self._list(build, user) for preset, build in self.builds.items()
                       if isinstance(build, Build)}

    def _build(self, preset):
        if self.flags.build and preset != "release":
            return f"--build names a release build, this exercise is graded in {preset}"
        scratch = self.place / "scratch" if not can_write(WORK) else None
        build = prepare(self.lab, preset, self.flags.build, ROOT if self.is_there else self.project,
                        jobs=self.jobs, scratch=scratch)
        if isinstance(build, Build):
            build.strict, build.programs = True, self.place / "programs"
            build.compilers = self.compilers
        return build

    def _list(self, build, user):
        """All tests of the program with stubs: what a student's must have run."""
        limits = dataclasses.replace(self.limits, user=user)
        with Grader(self.lab, {}, limits) as grader:
            program = grader.programs[""] = grader.assemble(build, {})
            try:
                return list_tests(program.path, limits, self.place)
            except LabError as error:
                raise LabError(f"user {user} cannot run programs in {self.place} (TMPDIR must "
                               f"name a folder that all may enter): {error}" if user != "-"
                               else str(error)) from None

    def grade(self, student):
        """The rows of one student."""
        try:
            if student.is_symlink():
                raise LabError("the student's folder is a link, which is not followed")
            texts, problems = read_student(student, self.lab)
        except LabError as error:
            return self._all(FAILED if "found neither" in str(error) else NOT_ASSESSED, str(error))
        user, cores = slot = self.free.get()
        copy = pathlib.Path(tempfile.mkdtemp(prefix="student-", dir=self.place))
        try:
            self._fill(copy, texts, user)
            limits = dataclasses.replace(self.limits, user=user, cores=cores)
            rows = []
            with Grader(self.lab, self.builds, limits, self.flags.seed, copy,
                        self.listed) as grader:
                for exercise in self.exercises:
                    if self.cancelled.is_set():
                        raise Cancelled
                    if exercise.file in problems:
                        rows.append(self._row(exercise, FAILED, problems[exercise.file]))
                    else:
                        rows.append(grader.grade(exercise, texts))
            return rows
        except (LabError, OSError) as error:
            return self._all(NOT_ASSESSED, f"could not be graded: {error}")
        finally:
            shutil.rmtree(copy, ignore_errors=True)
            self.free.put(slot)

    def _fill(self, copy, texts, user):
        shutil.copytree(self.project, copy, symlinks=True, dirs_exist_ok=True,
                        ignore=lambda folder, _: LEFT_OUT)
        for name, text in texts.items():
            path = copy / self.lab.module / "lab" / name
            path.unlink()
            if text is not None:
                path.write_text(text, encoding="utf-8")
        copy.chmod(0o700)
        if user != "-":
            for place, folders, files in os.walk(copy):
                for name in ["."] + files:
                    os.chown(os.path.join(place, name), int(user), int(user), follow_symlinks=False)

    def _all(self, status, message):
        return [self._row(e, status, message) for e in self.exercises]

    @staticmethod
    def _row(exercise, status, message):
        return Row(exercise.id, exercise.title, exercise.points, status, message)


# -- grades ---------------------------------------------------------------------------------------

def name_of(student):
    """As text that every program can read."""
    return re.sub(r"[^\x20-\x7e\xa0-\U0010ffff]", "?",
                  os.fsencode(student.name).decode(errors="replace"))


def sums(rows):
    """(points, points that could be had)"""
    return (sum(r.points for r in rows), sum(r.possible for r in rows if r.status != NOT_ASSESSED))


def first_failure(rows):
    bad = ([r for r in rows if r.status in (FAILED, TIMEOUT)]
           or [r for r in rows if r.status == NOT_ASSESSED])
    if not bad:
        return ""
    message = bad[0].message.replace("\n", "; ")
    return f"{bad[0].exercise} {bad[0].title}: {bad[0].status}: {message}"


def write_csv(path, exercises, grades):
    """A line a student; what was not assessed has no points there, neither all nor none."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["student", "total", "possible",
                     *(word for e in exercises for word in (e.id, f"{e.id} status")), "message"])
    for student in sorted(grades):
        rows = grades[student]
        cells = (("" if r.status == NOT_ASSESSED else table.number(r.points), r.status)
                 for r in rows)
        writer.writerow([name_of(student), *map(table.number, sums(rows)),
                         *(word for pair in cells for word in pair), first_failure(rows)])
    table.write(path, text.getvalue())


def print_line(student, rows, count, of):
    got, possible = sums(rows)
    points = f"{table.number(got)}/{table.number(possible)}"
    passed = sum(r.status == PASSED for r in rows)
    print(f"{f'[{count}/{of}]':<9} {name_of(student):<24} {points:>8}   "
          f"{passed} of {len(rows)} passed"
          + (f"; {first_failure(rows)[:200]}" if passed < len(rows) else ""), flush=True)


def as_completed(futures, signals):
    """As that of concurrent.futures, until there is something in `signals`. (An exception that a
    handler of signals throws could come while the locks of futures are held, and leave them so.)"""
    rest = set(futures)
    while rest:
        done, rest = concurrent.futures.wait(rest, LOOK_SECONDS, concurrent.futures.FIRST_COMPLETED)
        yield from done
        if signals:
            raise KeyboardInterrupt


def interrupt(*_):
    raise KeyboardInterrupt


def grade_class(labs, flags, limits):
    """Grades all students of a folder. Returns the exit status."""
    if len(labs) != 1:
        raise LabError("--batch grades one lab: ./aisc grade 01 --batch FOLDER --csv FILE")
    folder = pathlib.Path(flags.batch)
    students = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not students:
        raise LabError(f"{folder} holds no folders of students")
    if os.geteuid() == 0 and folder.stat().st_mode & 0o005 == 0o005:
        print(f"grade: every user may read {folder}, students' programs, too: chmod 700 would hide "
              "it from them", file=sys.stderr)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    slots, fewer = slots_for(flags.jobs, len(students), limits.memory_mib)
    if fewer:
        print(f"grade: {fewer}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="aisc-class-", ignore_cleanup_errors=True) as place:
        mask = os.umask(0o022)  # what programs of other users run with, they have to read
        try:
            group = Class(*labs[0], flags, limits, pathlib.Path(place).resolve(), slots,
                          slots if fewer else flags.jobs or CORES)
        finally:
            os.umask(mask)
        grades, signals = {}, []
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: signals.append(number))
        pool = concurrent.futures.ThreadPoolExecutor(group.slots)
        try:
            futures = {pool.submit(group.grade, student): student for student in students}
            for future in as_completed(futures, signals):
                grades[futures[future]] = future.result()
                print_line(futures[future], future.result(), len(grades), len(students))
        finally:  # what is done so far is written, however often somebody interrupts
            group.cancelled.set()
            pool.shutdown(cancel_futures=True)
            write_csv(flags.csv, group.exercises, grades)
            if len(grades) < len(students):
                print(f"grade: {flags.csv} has {len(grades)} of {len(students)} students",
                      file=sys.stderr)
    return 0
