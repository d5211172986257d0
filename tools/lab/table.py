"""Grades as people and other programs read them: a table, JSON, Gradescope's results.json, CSV."""
import json
import os
import pathlib
import shutil
import textwrap

from .grading import FAILED, NOT_ASSESSED, PASSED, TIMEOUT


def number(points):
    return f"{points:g}"


def print_row(row):
    """The row as soon as it is known."""
    points = "-" if row.status == NOT_ASSESSED else number(row.points)
    print(f"{row.exercise:<7} {row.title:<24} {points + '/' + number(row.possible):>7}   {row.status}"
          + (", the solution seen" if row.solution_seen else ""), flush=True)
    width = min(shutil.get_terminal_size((100, 24)).columns, 110)
    for line in row.message.splitlines():
        indent = " " * (8 + len(line) - len(line.lstrip()))
        print(textwrap.fill(line.strip(), width, initial_indent=indent, subsequent_indent=indent + "  ",
                            break_long_words=False, break_on_hyphens=False), flush=True)


def print_head(lab, seed):
    drawn = f"   (sizes of seed {seed})" if seed is not None else ""
    print(f"lab {lab.number}: {lab.title}{drawn}\n\n{'':<7} {'exercise':<24} {'points':>7}   status")


def print_summary(lab, rows, exercises):
    """What the points add up to, and what to do next."""
    got, most = sum(r.points for r in rows), sum(r.possible for r in rows)
    left_out = sum(r.possible for r in rows if r.status == NOT_ASSESSED)
    print()
    if left_out:
        print(f"{number(left_out)} points not assessed: neither passed nor failed")
    open_rows = [r for r in rows if r.status in (FAILED, TIMEOUT)]
    if not open_rows:
        print(f"All tests that could be run pass: {number(got)} of {number(most - left_out)} points")
        return
    print(f"{number(got)} of {number(most - left_out)} points")
    by_id = {e.id: e for e in exercises}
    first = by_id[open_rows[0].exercise]
    place = f"{lab.module}/lab/{first.file}".rstrip("/")
    print(f"next: {first.id} {first.title} in {place}\n"
          f"      look at {first.look_at}\n"
          f"      ./aisc hint {first.id}")


def exit_status(rows):
    """0: complete, 1: incomplete, 77: nothing could be assessed."""
    if any(r.status in (FAILED, TIMEOUT) for r in rows):
        return 1
    return 0 if any(r.status == PASSED for r in rows) else 77


def as_json(rows):
    return json.dumps([r.as_json() for r in rows], indent=2)


def write_json(path, rows):
    write(path, as_json(rows) + "\n")


def write_gradescope(path, rows):
    """The format of results.json in Gradescope's autograder specification. What is not assessed has
    no score there: it is neither a pass nor a zero."""
    tests = []
    for row in rows:
        test = {"name": f"{row.exercise} {row.title}", "number": row.exercise,
                "output": row.message or row.status, "visibility": "visible"}
        if row.status != NOT_ASSESSED:
            test |= {"score": row.points, "max_score": row.possible,
                     "status": "passed" if row.status == PASSED else "failed"}
        else:
            test["output"] = f"not assessed: {row.message}"
        tests.append(test)
    write(path, json.dumps({"score": sum(r.points for r in rows), "tests": tests,
                            "output": "Public tests only.",
                            "execution_time": round(sum(r.seconds for r in rows))}, indent=2) + "\n")


def write(path, text):
    """Whole, or not at all."""
    path = pathlib.Path(path)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
