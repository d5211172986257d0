"""Stubs: what of a solution a student is given.

A region of solution/x.cpp

      // LAB 01.3: mae_racy
      // > A line for the student.
      ... code ...
      // END LAB 01.3

stands in lab/x.cpp with the lines for the student, and `throw NotImplemented(...)` in the place of
the code. A region that is not indented is not inside of a function: it is left out without a throw.
The first line of a stub carries a checksum of the others, so that a file that a student changed is
told from one that nobody touched.
"""
import dataclasses
import hashlib
import re

from .exercises import LabError

BEGIN = re.compile(r"( *)// LAB ([0-9]+\.[0-9]+): (.+)")
END = re.compile(r" *// END LAB ([0-9]+\.[0-9]+)")
FOR_STUDENTS = re.compile(r"( *// )> ?(.*)")
HEAD = re.compile(r"// Yours to write; from (\S+) \(stub ([0-9a-f]{12})\)\.\n")
COLUMNS = 100
KEEP = "// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay."
ERRORS = '#include "common/core/error.h"'


@dataclasses.dataclass
class Region:
    exercise: str
    title: str
    indent: str
    first: int  # the line of the first marker, from 0
    last: int  # the line of the last marker


def regions(text, name):
    """The marked regions of a file. Throws LabError where markers do not match."""
    found, open_region = [], None
    for number, line in enumerate(text.splitlines()):
        if begin := BEGIN.fullmatch(line):
            if open_region:
                raise LabError(f"{name}:{number + 1}: a region begins inside of another")
            open_region = Region(begin[2], begin[3], begin[1], number, number)
        elif end := END.fullmatch(line):
            if not open_region or open_region.exercise != end[1]:
                raise LabError(f"{name}:{number + 1}: END LAB {end[1]} ends no region")
            open_region.last = number
            found.append(open_region)
            open_region = None
        elif re.search(r"//\s*(END )?LAB\b", line):
            raise LabError(f"{name}:{number + 1}: expected '// LAB 01.3: title' or "
                           f"'// END LAB 01.3', found: {line.strip()}")
    if open_region:
        raise LabError(f"{name}:{open_region.first + 1}: the region does not end")
    return found


def without(lines, region, keep=lambda line: None):
    """The lines of a region as a stub has them; keep(line) is a line to keep, or None."""
    kept = [new for line in lines[region.first + 1:region.last] if (new := keep(line)) is not None]
    throw = [f'{region.indent}throw NotImplemented("lab {region.exercise}: {region.title}", '
             "__FILE__, __LINE__);"] if region.indent else []
    return [lines[region.first], *kept, *throw, lines[region.last]]


def line_for_student(line):
    match = FOR_STUDENTS.fullmatch(line)
    return (match[1] + match[2]).rstrip() if match else None


def make_stub(text, name):
    """The stub of a solution's text, or None if the file holds no exercise."""
    found = regions(text, name)
    if not found:
        return None
    lines = text.splitlines()
    for region in reversed(found):
        lines[region.first:region.last + 1] = without(lines, region, line_for_student)
    body = "\n".join([KEEP, *with_errors(lines)]) + "\n"
    stub = f"// Yours to write; from {name} (stub {checksum(body)}).\n{body}"
    for number, line in enumerate(stub.splitlines()):
        if len(line) > COLUMNS:  # .clang-format would break it
            raise LabError(f"{name}: line {number + 1} of its stub is longer than {COLUMNS} columns: "
                           f"{line.strip()}")
    return stub


def with_errors(lines):
    """NotImplemented needs common/core/error.h: among the project's headers, in order."""
    if ERRORS in lines:
        return lines
    ours = [i for i, line in enumerate(lines) if line.startswith('#include "')]
    after_own = ours[1:]
    if not after_own:
        place = max(i for i, line in enumerate(lines) if line.startswith("#include"))
        return lines[:place + 1] + ["", ERRORS] + lines[place + 1:]
    place = next((i for i in after_own if lines[i] > ERRORS), after_own[-1] + 1)
    return lines[:place] + [ERRORS] + lines[place:]


def checksum(text):
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def is_untouched(text):
    """Is this a stub as the tool has written it?"""
    head = HEAD.match(text)
    return bool(head) and checksum(text[head.end():]) == head[2]


def stubs_of(lab):
    """{file name: text} of a module: from its solution or, where that was not handed out, from the
    stubs that were kept beside it."""
    kept = {p.name: p.read_text(encoding="utf-8") for p in sorted(lab.folder.glob(".stubs/*.cpp"))}
    for path in sorted(lab.folder.glob("solution/*.cpp")):
        name = f"{lab.module}/solution/{path.name}"
        stub = make_stub(path.read_text(encoding="utf-8"), name)
        if stub is not None:
            kept[path.name] = stub
    return kept


def region_lines(text, region):
    return text.splitlines()[region.first:region.last + 1]


def written_in(text, stub, name):
    """Ids of the exercises of a file of which something was written: their regions are not the stub's.
    Throws LabError where a marker was lost."""
    untouched = {}
    for region in regions(stub, name):
        untouched.setdefault(region.exercise, []).append(region_lines(stub, region))
    mine = {}
    for region in regions(text, name):
        mine.setdefault(region.exercise, []).append(region_lines(text, region))
    return {exercise for exercise, parts in mine.items() if parts != untouched.get(exercise)}


def filled(text, solution, written, name):
    """A student's file with the solution's regions in the place of those of exercises that are not
    `written`."""
    theirs = {}
    for region in regions(solution, name):
        theirs.setdefault(region.exercise, []).append(region_lines(solution, region))
    lines, found = text.splitlines(), regions(text, name)
    for region in reversed(found):
        parts = theirs.get(region.exercise, [])
        if region.exercise not in written and parts:
            lines[region.first:region.last + 1] = parts.pop()
    return "\n".join(lines) + "\n"
