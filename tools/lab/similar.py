"""Submissions that are alike: runs of tokens that two students' exercises share, whatever their names
are, as Dick Grune's sim finds them. It points; whether one has copied, a person decides."""
import collections
import itertools
import pathlib
import re
import shutil
import subprocess
import tempfile

from .batch import read_student
from .exercises import LabError
from .stubs import region_lines, regions, stubs_of, written_in

TOOL = "sim_c++"
LEAST_TOKENS = 60  # of what is compared: short exercises look alike
LEAST_PERCENT = 60
LEAST_RUN = 12  # tokens that have to be the same in a row
TOKEN = re.compile(r"\w+|[^\w\s]")
REFERENCE = "the reference"


def code_of(lab, texts):
    """{exercise: the code between its markers, without comments} of what was written."""
    stubs, found = stubs_of(lab), {}
    for name, text in texts.items():
        if text is None or name not in stubs:
            continue
        try:
            written = written_in(text, stubs[name], name)
            for region in regions(text, name):
                if region.exercise in written:
                    own = "\n".join(region_lines(text, region)[1:-1])
                    found[region.exercise] = found.get(region.exercise, "") + own + "\n"
        except LabError:  # a marker was lost: nothing says which exercise is which
            continue
    return {id: re.sub(r"//.*", "", code) for id, code in found.items()
            if len(TOKEN.findall(re.sub(r"//.*", "", code))) >= LEAST_TOKENS}


def percentages(codes):
    """{(student, student): percent of the one that is in the other, the larger of both ways}"""
    names = list(codes)
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(names):
            (pathlib.Path(folder) / f"{number}.cpp").write_text(codes[name], encoding="utf-8")
        done = subprocess.run([TOOL, "-p", "-e", "-T", f"-r{LEAST_RUN}", f"-t{LEAST_PERCENT}",
                               *(f"{number}.cpp" for number in range(len(names)))],
                              cwd=folder, capture_output=True, encoding="utf-8", check=False)
    if done.returncode != 0:
        raise LabError(f"{TOOL}: {done.stderr.strip() or done.stdout.strip()}")
    found = collections.defaultdict(int)
    for one, percent, other in re.findall(r"^(\d+)\.cpp consists for (\d+) % of (\d+)\.cpp", done.stdout,
                                          re.M):
        pair = tuple(sorted((names[int(one)], names[int(other)])))
        found[pair] = max(found[pair], int(percent))
    return found


def similar(lab, exercises, folder):
    """[(student, student, {exercise: percent}, {exercise: percent that both share with the
    reference})], the most alike first."""
    if not shutil.which(TOOL):
        raise LabError(f"{TOOL} is not installed (package similarity-tester)")
    students = sorted(p for p in pathlib.Path(folder).iterdir()
                      if p.is_dir() and not p.is_symlink() and not p.name.startswith("."))
    codes = collections.defaultdict(dict)  # by exercise and student
    for student in students:
        try:
            texts, _ = read_student(student, lab)
        except LabError:  # hands in nothing
            continue
        for id, code in code_of(lab, texts).items():
            codes[id][student.name] = code
    solution = {name: (lab.folder / "solution" / name).read_text(encoding="utf-8")
                for name in lab.files() if (lab.folder / "solution" / name).exists()}
    for id, code in code_of(lab, solution).items():
        codes[id][REFERENCE] = code
    pairs, common = collections.defaultdict(dict), collections.defaultdict(dict)
    for exercise in exercises:
        found = percentages(codes[exercise.id]) if len(codes[exercise.id]) > 1 else {}
        for one, other in itertools.combinations([s.name for s in students], 2):
            if percent := found.get((one, other)):
                pairs[one, other][exercise.id] = percent
                theirs = [found.get(tuple(sorted((name, REFERENCE))), 0) for name in (one, other)]
                if min(theirs):
                    common[one, other][exercise.id] = min(theirs)
    return [(*pair, rows, common[pair]) for pair, rows in
            sorted(pairs.items(), key=lambda item: (-sum(item[1].values()), item[0]))]


def print_similar(lab, exercises, folder):
    rows = similar(lab, exercises, folder)
    print(f"lab {lab.number}: pairs of which an exercise of {LEAST_TOKENS} tokens or more is alike by "
          f"{LEAST_PERCENT} % or more")
    for one, other, percents, reference in rows:
        said = ", ".join(f"{id} {percent} %" + (f" (the reference {reference[id]} %)" if id in reference
                                                else "") for id, percent in percents.items())
        print(f"{one} and {other}: {said}")
    if not rows:
        print("none")
    return 0
