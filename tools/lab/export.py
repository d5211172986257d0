"""The tree that an instructor hands out: the course without the solutions of the modules that are
to be solved, and without what their mutants would tell.

What is handed out is what git knows of, as it stands in the working tree; files that git does not
know stay behind. Students' files, NN_name/lab, are always fresh stubs. Modules from the lowest
chosen one on come without the files of solution/ that hold exercises, and with .stubs, from which
the tools then know what a stub is; what programs run is a library of the reference, prebuilt/. Modules
below it come with their solution, or with a library of it, too.
"""
import fcntl
import os
import pathlib
import platform
import re
import shutil
import subprocess

from .build import CORES, call
from .exercises import ROOT, Lab, LabError, find_lab, find_labs
from .stubs import regions, stubs_of

EARLIER = ("source", "prebuilt")
LEFT_OUT = {".git", ".aisc", ".cache", ".vscode", ".idea", "__pycache__", "build", "runs"}
MOST_NAMES = 8


def git(root, *words):
    """What git says, split at NULs; None where it knows nothing of `root`."""
    try:
        done = subprocess.run(["git", "-C", root, *words], stdin=subprocess.DEVNULL, encoding="utf-8",
                              errors="surrogateescape", capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return [word for word in done.stdout.split("\0") if word] if done.returncode == 0 else None


def files_of(root, anyway=False):
    """Relative paths of the course's files: those that git knows or, without git and `anyway`, all
    that are not known to be something else."""
    names = git(root, "ls-files", "-z", "--cached") if (root / ".git").exists() else None
    if names is not None:
        return [pathlib.Path(name) for name in names if os.path.lexists(root / name)]
    if not anyway:
        raise LabError(f"{root} is not a git checkout (or git is missing): which of its files "
                       "belong to the course is not known")
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in LEFT_OUT]
        found += [pathlib.Path(folder, name).relative_to(root) for name in files]
    return found


def uncommitted(root):
    """Sentences on what of the working tree is in no commit."""
    entries = git(root, "status", "--porcelain", "-z", "--no-renames") or []
    own = re.compile(r"[0-9][0-9]_\w+/lab/")  # fresh stubs go in their place
    names = [(entry[:2], entry[3:]) for entry in entries if not own.match(entry[3:])]
    changed = [name for state, name in names if state != "??"]
    unknown = [name for state, name in names if state == "??"]
    said = []
    for what, which in (("handed out as they are, though not committed", changed),
                        ("not handed out, since git does not know them", unknown)):
        if which:
            more = f" and {len(which) - MOST_NAMES} more" if len(which) > MOST_NAMES else ""
            said.append(f"{what}: {', '.join(which[:MOST_NAMES])}{more}")
    return said


def without_mutants(lab):
    """The text of lab.toml, up to its mutants: they tell what is wrong, so what is right."""
    lines = lab.path.read_text(encoding="utf-8").splitlines()
    first = next((i for i, line in enumerate(lines) if re.match(r"\s*\[\[\s*mutant\b", line)),
                 len(lines))
    for number, line in enumerate(lines[first:], first + 1):
        if re.match(r"\s*\[\[\s*exercise\b", line):
            raise LabError(f"{lab.module}/lab.toml:{number}: an [[exercise]] after the first "
                           "[[mutant]]: exercises come first, since students get no more")
    while first and re.fullmatch(r"\s*(#.*)?", lines[first - 1]):
        first -= 1
    return "\n".join(lines[:first]) + "\n"


def hidden_files(lab):
    """Names of the files of solution/ that hold exercises."""
    return {path.name for path in lab.folder.glob("solution/*.cpp")
            if regions(path.read_text(encoding="utf-8"), f"{lab.module}/solution/{path.name}")}


def prebuild(labs, root):
    """Libraries of solutions, for any processor of this machine's kind: {module: path}."""
    folder = root / "build" / "portable"
    compiler = subprocess.run([root / "tools" / "compiler"], capture_output=True,
                              encoding="utf-8", check=False).stdout.strip()
    steps = [["cmake", "-S", root, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
              "-DAISC_NATIVE=OFF", "-DAISC_TESTS=OFF", "-DCMAKE_OPTIMIZE_DEPENDENCIES=ON",
              *([f"-DCMAKE_CXX_COMPILER={compiler}"] if compiler else [])],
             ["cmake", "--build", folder, "--parallel", str(CORES), "--target",
              *(f"aisc_{lab.module}" for lab in labs)]]
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder.with_suffix(".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one export builds at a time
        for step in steps:
            done, said = call([str(word) for word in step], timeout=3600)
            if not done:
                raise LabError(f"building the libraries of solutions in {folder} failed:\n"
                               + "\n".join(said.splitlines()[-60:]))
    return {lab.module: folder / lab.module / f"libaisc_{lab.module}.a" for lab in labs}


def export(destination, chosen=(), earlier="source", root=ROOT, anyway=False, reference=True,
           answers=False, since=None):
    """Writes the tree, whole or not at all. `chosen` are numbers of modules, none: all with
    exercises. With `answers` the solutions lie in .answers, where nothing but ./aisc solution looks.
    With `since`, an earlier such tree, CHANGES.md says what is new. Without `reference` no program of
    theirs can be linked: what grades them needs none.
    Returns (labs to solve, labs that come with a solution)."""
    destination = pathlib.Path(destination).absolute()
    if os.path.lexists(destination) and not (destination.is_dir()
                                             and not any(destination.iterdir())):
        raise LabError(f"{destination} is there already, and is not an empty folder")
    labs = find_labs(root)
    if not labs:
        raise LabError(f"there are no labs in {root}")
    lowest = min((find_lab(number, root).number for number in chosen), default=labs[0].number)
    open_labs = [lab for lab in labs if lab.number >= lowest]
    solved = [lab for lab in labs if lab.number < lowest]
    files = files_of(root, anyway)
    closed = labs if earlier == "prebuilt" else open_labs
    prebuilt = prebuild(closed, root) if reference else {}
    destination.parent.mkdir(parents=True, exist_ok=True)
    temporary = destination.with_name(f".{destination.name}.{os.getpid()}.new")
    try:
        temporary.mkdir()
        copy_files(files, root, temporary,
                   {lab.module: hidden_files(lab) for lab in closed})
        for lab in labs:
            finish(lab, temporary / lab.module, lab in closed, prebuilt.get(lab.module))
            if answers and lab in closed:
                (temporary / lab.module / ".answers").mkdir()
                for name in hidden_files(lab):
                    shutil.copyfile(lab.folder / "solution" / name,
                                    temporary / lab.module / ".answers" / name)
        if since:
            (temporary / "CHANGES.md").write_text(changes(pathlib.Path(since), temporary),
                                                  encoding="utf-8")
        if destination.is_dir():
            destination.rmdir()  # empty; some file systems do not rename onto a folder
        temporary.rename(destination)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return open_labs, solved


def tree_of(root):
    """{relative path: bytes} of what a handed-out tree has, but what students or builds make."""
    found = {}
    for folder, folders, files in os.walk(root):
        folders[:] = [f for f in folders if f not in LEFT_OUT | {"lab", "prebuilt", ".answers"}]
        for name in files:
            path = pathlib.Path(folder, name)
            if not path.is_symlink():
                found[path.relative_to(root)] = path.read_bytes()
    found.pop(pathlib.Path("CHANGES.md"), None)
    return found


def changes(old, new):
    """CHANGES.md: what a tree that is handed out has that an earlier one, in a student's hands, has
    not. Stubs that changed are told apart: a file that was begun on the old one has to be carried
    over."""
    before, now = tree_of(old), tree_of(new)
    if not any(path.name == "lab.toml" for path in before):
        raise LabError(f"{old} is no tree that was handed out: it has no lab")
    kinds = {"Stubs, which files in lab/ began with": lambda p: ".stubs" in p.parts,
             "Handouts and documents": lambda p: p.suffix == ".md",
             "Exercises, hints and tests": lambda p: p.name == "lab.toml" or p.parts[0] == "tests",
             "Code that is given": lambda p: p.suffix in (".h", ".cpp", ".cu"),
             "Tools and the rest": lambda p: True}
    rows = {kind: [] for kind in kinds}
    for path in sorted({*before, *now}):
        if before.get(path) != now.get(path):
            how = "new" if path not in before else "gone" if path not in now else "changed"
            kind = next(kind for kind, holds in kinds.items() if holds(path))
            rows[kind].append(f"- {how}: {path}")
    said = [f"## {kind}\n\n" + "\n".join(lines) + "\n" for kind, lines in rows.items() if lines]
    return "# What is new\n\n" + ("\n".join(said) or "Nothing.\n")


def copy_files(files, root, target, hidden):
    """Copies all but students' files, what is made of them, and the solution's `hidden` ones."""
    labs = {path.parent.name for path in root.glob("[0-9][0-9]_*/lab.toml")}
    for path in files:
        module, inner = path.parts[0], path.parts[1:]
        if module == "tests" and path.name == "failures.txt":  # with what mutants would tell
            continue
        if module in labs and inner:
            if inner[0] in ("lab", ".stubs", ".answers", "prebuilt"):
                continue
            if inner[0] == "solution" and inner[-1] in hidden.get(module, ()):
                continue
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / path, target / path, follow_symlinks=False)


def finish(lab, folder, is_closed, library):
    """What a module gets that is made for it: stubs, the exercises alone, a library."""
    if not folder.exists():
        raise LabError(f"git knows no file of {lab.module}: git add {lab.module}")
    stubs = stubs_of(lab)
    for place in ("lab", ".stubs") if is_closed else ("lab",):
        (folder / place).mkdir()
        for name, text in stubs.items():
            (folder / place / name).write_text(text, encoding="utf-8")
    if not is_closed:
        return
    (folder / "lab.toml").write_text(without_mutants(lab), encoding="utf-8")
    if Lab(folder).mutants:
        raise LabError(f"{lab.module}/lab.toml: mutants begin with a line [[mutant]], after all "
                       "exercises: students must not get them")
    if library:
        (folder / "prebuilt").mkdir()
        shutil.copyfile(library, folder / "prebuilt" / library.name)
        (folder / "prebuilt/FOR").write_text(platform.machine() + "\n", encoding="utf-8")
