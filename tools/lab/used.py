"""Does the code of an exercise do work in a program? With the solution the command of `used_by` must
end well; with that exercise alone unwritten it must end by saying so."""
import os
import re
import shlex
import subprocess
import tempfile

from .exercises import ROOT, LabError
from .grading import first_error
from .stubs import regions

OPTIONS = ["-O1", "-g0", "-w"]
SECONDS = 120
UNWRITTEN = "AISC_UNWRITTEN"  # the exercise that throws
INCLUDES = '#include <cstdlib>\n#include <string_view>\n#include "common/core/error.h"\n'
# Of runs that are to be short, where the command does not say otherwise.
SHORT = {"--steps": "2", "--batch": "8", "--layers": "4", "--width": "32", "--eval-windows": "8",
         "--peak": "1"}
SHORT_BY_PROGRAM = {"train_gpt": {**SHORT, "--context": "16", "--sample-tokens": "0"},
                    "train_bert": {**SHORT, "--context": "32"}, "train_translation": SHORT,
                    "train_digits": {"--steps": "2", "--batch": "8", "--drawn": "20", "--test": "8",
                                     "--width": "4"}}
WITHOUT_FOLDER = {"train_digits"}  # programs that write no run folder


def switched(text, name):
    """A solution in which the exercise that the environment names throws as its stub does."""
    lines = text.splitlines()
    for region in reversed(regions(text, name)):
        if region.indent:
            lines.insert(region.first + 1, (
                f'if (const char* e = std::getenv("{UNWRITTEN}"); e && std::string_view(e) == '
                f'"{region.exercise}") throw NotImplemented("lab {region.exercise}: '
                f'{region.title}", __FILE__, __LINE__);'))
    return INCLUDES + "\n".join(lines) + "\n"


def program_of(lab, build, target):
    """The program with all exercises of a module switched; the caller's to delete."""
    texts = {}
    for name in lab.files():
        path = lab.folder / "solution" / name
        texts[path] = switched(path.read_text(encoding="utf-8"), name)
    compiled = build.compile_all(texts, OPTIONS)
    for path, (result, said) in compiled.items():
        if result is None:
            raise LabError(f"{path.relative_to(ROOT)} with a switch: {first_error(said)}")
    program, said = build.link_before(target, [result for result, _ in compiled.values()])
    if program is None:
        raise LabError(f"{target} with switches does not link: {first_error(said)}")
    return program


def run(program, command, folder, unwritten=""):
    """(exit status, what it said) of the command, made short."""
    name, *flags = shlex.split(command)
    short = SHORT_BY_PROGRAM.get(name, {})
    for flag, value in short.items():
        if flag not in flags:
            flags += [flag, value]
    if short and "--machine" not in flags:
        flags += ["--threads", "1"]
        if name not in WITHOUT_FOLDER:
            flags += ["--out", tempfile.mkdtemp(dir=folder)]
    # Files that the command writes.
    flags = [f"{folder}/{flag}" if flag.endswith("_config.json") else flag for flag in flags]
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive", "AISC_ROOT": str(ROOT)}
    environment[UNWRITTEN] = unwritten
    try:
        done = subprocess.run([program, *flags], cwd=ROOT, env=environment, timeout=SECONDS,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", check=False)
    except subprocess.TimeoutExpired:
        return None, f"it ran for more than {SECONDS} seconds"
    return done.returncode, done.stdout


def prove_used(lab, build):
    """Yields (what was proved, what is wrong with it or '')."""
    used = [e for e in lab.exercises if e.used_by]
    for target in dict.fromkeys(e.used_by.split()[0] for e in used):
        build.make(target)
        program = program_of(lab, build, target)
        try:
            yield from prove_with(program, [e for e in used if e.used_by.split()[0] == target])
        finally:
            program.unlink()


def prove_with(program, used):
    ran = {}  # by command: what is wrong with the solution
    with tempfile.TemporaryDirectory() as folder:
        for e in used:
            if e.used_by not in ran:
                status, said = run(program, e.used_by, folder)
                ran[e.used_by] = "" if status == 0 else f"status {status}: {said[-500:]}"
            status, said = run(program, e.used_by, folder, e.id)
            wrong = ran[e.used_by]
            stub = rf"lab {re.escape(e.id)}: .* is not implemented yet"
            if not wrong and (status == 0 or not re.search(stub, said)):
                wrong = f"without {e.id} it ends with status {status}: {said[-300:]}"
            yield f"{e.id} {e.title}: does its work in '{e.used_by}'", wrong
