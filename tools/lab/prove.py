"""What must hold of a lab before its grades mean anything: stubs score nothing, and fail for no other
reason than that they are stubs; the solution scores everything; each test grades one exercise; and
what an exercise says it is used by runs its code."""
from .build import Build
from .exercises import LabError
from .grading import (NOT_ASSESSED, NOT_WRITTEN, PASSED, SLOWER, Program, assemble, grade_exercise,
                      matches)
from .run import list_tests
from .setup import prepare
from .stubs import stubs_of
from .used import prove_used


MOST_OF_STATED = 2  # of lab.toml's seconds: machines differ


def prove(lab, folder=None, seeds=(1, 2)):
    """Yields (what was proved, what is wrong with it or '') and ('', reason) for what is not
    assessed."""
    for preset in dict.fromkeys(e.preset for e in lab.exercises):
        build = prepare(lab, preset, folder if preset == "release" else None,
                        targets=[f"{lab.module}_test"])
        if not isinstance(build, Build):
            yield "", f"lab {lab.number}, preset {preset}: {build}"
            continue
        exercises = [e for e in lab.exercises if e.preset == preset]
        solution = Program(build.folder / "tests" / f"{lab.module}_test", {})
        if preset == "release":
            yield from partition(lab, list_tests(solution.path))
            yield from prove_used(lab, build)
        stubs = assemble(lab, build, stubs_of(lab))
        try:
            for e in exercises:
                yield (f"{e.id} {e.title}: the stub scores nothing, for being a stub",
                       wrong_with_stub(lab, e, stubs))
        finally:
            stubs.path.unlink()
        for e in exercises:
            for seed in seeds:
                row = grade_exercise(lab, e, solution, seed=seed)
                if row.status == NOT_ASSESSED:
                    yield "", f"{e.id} {e.title}: {row.message}"
                    break
                wrong = "" if row.status == PASSED else f"{row.status}: {row.message}"
                most = MOST_OF_STATED * e.seconds * SLOWER[e.preset]
                if not wrong and row.cpu_seconds > most:
                    wrong = (f"its tests take {row.cpu_seconds:.1f} s of CPU time, where lab.toml says "
                             f"seconds = {e.seconds:g}")
                yield f"{e.id} {e.title}: the solution passes (sizes of seed {seed})", wrong


def partition(lab, names):
    """Each test grades one exercise, or tests what is given."""
    def owners(name):
        filters = [(e.id, e.tests) for e in lab.exercises if e.preset == "release"]
        return [owner for owner, tests in [*filters, ("given", lab.given)] if matches(name, tests)]

    wrong = [f"{name} grades {' and '.join(owners(name)) or 'nobody'}"
             for name in names if len(owners(name)) != 1]
    yield f"lab {lab.number}: each of {len(names)} tests grades one exercise", "; ".join(wrong)
    without = {e.id for e in lab.exercises} - {m.exercise for m in lab.mutants}
    yield (f"lab {lab.number}: each exercise has a mutant",
           f"without one: {' '.join(sorted(without))}" if without else "")


def wrong_with_stub(lab, exercise, stubs):
    try:
        row = grade_exercise(lab, exercise, stubs)
    except LabError as error:
        return str(error)
    if row.points or not row.tests:
        return f"{row.points:g} points, {row.status}: {row.message}"
    for test in row.tests:
        if test.result != "failed":
            return f"{test.name} {test.result}"
        if not all(NOT_WRITTEN.search(failure) for failure in test.failures):
            return f"{test.name} fails for another reason: {test.failures[0]}"
    return ""
