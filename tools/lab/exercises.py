"""What lab.toml says: exercises and mutants of a module, checked when they are read."""
import dataclasses
import os
import pathlib
import re
import string

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11
    try:
        import tomli as tomllib
    except ModuleNotFoundError:
        raise SystemExit("aisc: labs need Python 3.11 or newer, or tomli "
                         "(Debian and Ubuntu: python3-tomli)")

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Where students' files are, and all that is made of them: here, or a folder that ./aisc lab has made,
# whose ./aisc says so. Then nothing is written into ROOT.
WORK = pathlib.Path(os.environ.get("AISC_WORK") or ROOT).resolve()
PRESETS = ("release", "tsan")
LEAST_HINTS = 3
PROGRAMS = ("train_gpt", "train_bert", "train_translation", "train_digits", "waits", "meshes")


class LabError(Exception):
    """Something about a lab or its tools is wrong; not the student's solution."""


@dataclasses.dataclass
class Exercise:
    id: str  # "01.3"
    title: str
    points: float
    tests: list  # filters of GoogleTest
    hints: list
    look_at: str
    file: str = ""  # in solution/ and lab/; none: it looks at what other exercises have written
    used_by: str = ""  # "train_gpt --ranks 2 --zero 1": what runs this exercise's code
    alone: str = ""  # or why nothing does but its tests
    preset: str = "release"
    seconds: float = 0.5  # of CPU time that the tests of the solution take, at most


@dataclasses.dataclass
class Mutant:
    """A plausible wrong solution: a textual replacement, and the test that must notice it."""
    id: str  # "01.3a"; "04.more.1a" of what no exercise is about
    why: str
    file: str
    find: str
    replace: str
    test: str
    preset: str = "release"
    says: str = ""  # the diagnosis that kills it where no assertion does
    by_chance: bool = False  # which other tests fail, too, is chance: no text is kept of it

    @property
    def exercise(self):
        return self.id.rstrip(string.ascii_lowercase)


class Lab:
    """One module with exercises."""

    def __init__(self, folder):
        self.folder = folder
        self.module = folder.name  # "01_mutex_mae"
        self.number = self.module[:2]
        self.path = folder / "lab.toml"
        self.own = (WORK / self.module if folder.parent == ROOT else folder) / "lab"  # the student's
        try:
            table = tomllib.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise LabError(f"{self.module}/lab.toml: {error}") from None
        self.title = table.pop("title", self.module)
        self.given = table.pop("given", [])  # filters of tests that grade nobody
        alone = table.pop("alone", "")  # of all its exercises
        self.exercises = [self._record(Exercise, {**({"alone": alone} if alone else {}), **t})
                          for t in table.pop("exercise", [])]
        self.mutants = [self._record(Mutant, t) for t in table.pop("mutant", [])]
        if table:
            self._wrong(f"unknown words: {', '.join(table)}")
        self._check()

    def exercise(self, id):
        for exercise in self.exercises:
            if exercise.id == id:
                return exercise
        raise LabError(f"no exercise '{id}' in {self.module}; there are: "
                       f"{' '.join(e.id for e in self.exercises)}")

    def source(self, name):
        """The path of a mutant's file: of solution/, or with its folder "more/reshard.cpp"."""
        return self.folder / (name if "/" in name else f"solution/{name}")

    def files(self):
        """Names of the files that hold exercises, in the order of lab.toml."""
        return list(dict.fromkeys(e.file for e in self.exercises if e.file))

    def _wrong(self, what):
        raise LabError(f"{self.module}/lab.toml: {what}")

    def _record(self, kind, table):
        name = f"{kind.__name__.lower()} {table.get('id', '(without id)')}"
        fields = {f.name: f for f in dataclasses.fields(kind)}
        for word, value in table.items():
            if word not in fields:
                self._wrong(f"{name}: unknown word '{word}'")
            expected = {"points": (int, float), "seconds": (int, float), "tests": list,
                        "hints": list, "by_chance": bool}.get(word, str)
            if not isinstance(value, expected):
                self._wrong(f"{name}: {word} = {value!r} is of the wrong type")
        missing = [w for w, f in fields.items()
                   if w not in table and f.default is dataclasses.MISSING]
        if missing:
            self._wrong(f"{name}: {', '.join(missing)} is missing")
        return kind(**table)

    def _check(self):
        if not self.exercises:
            self._wrong("no exercises")
        ids = set()
        for each in self.exercises + self.mutants:
            if each.id in ids:
                self._wrong(f"{each.id} is there twice")
            ids.add(each.id)
            if each.preset not in PRESETS:
                self._wrong(f"{each.id}: preset '{each.preset}', expected one of "
                            f"{', '.join(PRESETS)}")
        for e in self.exercises:
            if not re.fullmatch(self.number + r"\.[1-9][0-9]*", e.id):
                self._wrong(f"exercise '{e.id}': expected {self.number}.1, {self.number}.2 ...")
            if not e.file and e.preset == "release":
                self._wrong(f"exercise {e.id}: file is missing")
            if bool(e.used_by) == bool(e.alone):
                self._wrong(f"{e.id}: expected used_by, the command that runs it, or alone, why "
                            "there is none")
            if e.used_by and e.used_by.split()[0] not in PROGRAMS:
                self._wrong(f"{e.id}: used_by = '{e.used_by}', expected one of "
                            f"{', '.join(PROGRAMS)} and its flags")
            if not e.seconds > 0:
                self._wrong(f"{e.id}: seconds = {e.seconds}, expected more than 0")
            if not e.points > 0:
                self._wrong(f"{e.id}: points = {e.points}, expected more than 0")
            if not e.tests or any(t.startswith("-") or ":" in t for t in e.tests):
                self._wrong(f"{e.id}: tests = {e.tests}, expected filters such as 'Suite.*'")
            if len(e.hints) < LEAST_HINTS:
                self._wrong(f"{e.id}: {len(e.hints)} hints, expected {LEAST_HINTS} or more")
        exercises = {e.id for e in self.exercises}
        for m in self.mutants:
            if m.exercise not in exercises and not re.fullmatch(
                    self.number + r"\.more\.[1-9][0-9]*", m.exercise):
                self._wrong(f"mutant '{m.id}': expected an exercise's id and a letter, or of a file "
                            f"in more/ {self.number}.more.1a, {self.number}.more.1b ...")
            if m.find == m.replace:
                self._wrong(f"mutant {m.id} changes nothing")


def find_labs(root=ROOT):
    """All modules with a lab.toml, in the order of their numbers."""
    return [Lab(path.parent) for path in sorted(root.glob("[0-9][0-9]_*/lab.toml"))]


def find_exercises(word, root=ROOT):
    """(lab, exercises): of '01' all, of '01.3' that one."""
    number, dot, inner = word.partition(".")
    lab = find_lab(number, root)
    return lab, [lab.exercise(f"{lab.number}.{inner}")] if dot else lab.exercises


def find_lab(number, root=ROOT):
    """The lab that '01', '1' or '01_mutex_mae' names."""
    wanted = number.zfill(2) if number.isdigit() else number
    there = sorted(root.glob("[0-9][0-9]_*/lab.toml"))
    for path in there:
        if wanted in (path.parent.name, path.parent.name[:2]):
            return Lab(path.parent)
    raise LabError(f"no lab '{number}'; there are: "
                   f"{' '.join(p.parent.name for p in there) or 'none'}")
