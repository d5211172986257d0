"""Compiles a changed text of one source, and links a test program with it: with the commands that
CMake gave for the original, and everything else as it was built."""
import concurrent.futures
import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from .exercises import ROOT, WORK, LabError

CORES = len(os.sched_getaffinity(0))
COMPILE_SECONDS = 300
COMPILE_MIB = 8192
OBJECTS_LIVE_SECONDS, PROGRAMS_LIVE_SECONDS = 2 * 24 * 3600, 3600


def can_write(path):
    """May who calls write into a folder, or make it?"""
    path = pathlib.Path(path).absolute()
    return os.access(next(p for p in (path, *path.parents) if p.exists()), os.W_OK)


def call(command, cwd=None, timeout=COMPILE_SECONDS):
    """(succeeded, all it said, in English: it is read here). In a session of its own: an interrupt from
    the keyboard is this program's, which ends what it has started."""
    process = subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, encoding="utf-8", errors="replace",
                               env={**os.environ, "LC_ALL": "C"}, start_new_session=True)
    try:
        said, _ = process.communicate(timeout=timeout)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            return False, f"error: {command[0]} did not end within {timeout} seconds"
        raise
    return process.returncode == 0, said


def within_memory(command):
    """A compiler that is led astray must not take the machine's memory."""
    return ["sh", "-c", f'ulimit -v {COMPILE_MIB << 10}; exec "$@"', "sh", *map(str, command)]


def compiled_with(file):
    """The sources that CMake compiles as `file`: it alone, or those that are compiled together."""
    if "/Unity/unity_" not in file:
        return [file]
    text = pathlib.Path(file).read_text(encoding="utf-8")
    return re.findall(r'^#include "(.*)"$', text, re.MULTILINE)


def fast_linker():
    for program, name in (("mold", "mold"), ("ld.lld", "lld"), ("ld.gold", "gold")):
        if shutil.which(program):
            return [f"-fuse-ld={name}"]
    return []


def not_prepared(folder):
    """Of what is missing in a build folder that who calls may not write."""
    preset = f"{folder.name} " if folder.name in ("asan", "tsan") else ""
    return (f"is not built in {folder}, where you may not write: its owner has to run "
            f"./aisc build {preset}--labs")


class Build:
    """A build folder of CMake, as far as a lab needs it. A `strict` one refuses texts that include
    anything but headers of the project and of the system. Objects go to `scratch`, of students who work
    elsewhere in their own folder; test programs that are linked go to `programs`. `jobs` compilers run
    at once."""

    def __init__(self, folder, root=ROOT, strict=False, programs=None, jobs=CORES, scratch=None):
        self.folder = pathlib.Path(folder).resolve()
        self.root = root
        self.strict = strict
        self.jobs = jobs
        self.compilers = threading.BoundedSemaphore(jobs)  # others may share it
        self._commands = None
        self._headers = None
        self._links = {}  # target: words
        self._taken = {}  # target: names
        self.scratch = scratch or (self.folder if WORK == ROOT else
                                   WORK / "build" / self.folder.name) / "labs"
        self.programs = programs or self.scratch
        self._precompiled = {}  # (source, options): words that take what the source includes from there

    def make(self, *targets):
        """Builds targets of CMake; throws LabError with the first error. Where nothing may be written,
        they have to be programs that are there."""
        if not can_write(self.folder):
            if lacking := [target for target in targets if self.lacks(target)]:
                raise LabError(f"{' '.join(lacking)} {not_prepared(self.folder)}")
            return
        self.scratch.mkdir(0o700, parents=True, exist_ok=True)
        with open(self.scratch / "lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done, text = call(["cmake", "--build", self.folder, "--parallel", str(self.jobs),
                               "--target", *targets], timeout=3600)
        if not done:
            raise LabError(f"building {' '.join(targets)} in {self.folder} failed:\n"
                           + "\n".join(text.splitlines()[-60:]))
        self._commands, self._links, self._taken = None, {}, {}
        self.forget("objects/*.[os]*")

    def forget(self, pattern, seconds=OBJECTS_LIVE_SECONDS):
        """Deletes those of these files of scratch that nobody has used for so long."""
        for old in self.scratch.glob(pattern):
            with contextlib.suppress(FileNotFoundError):  # another call forgets, too
                if time.time() - old.stat().st_mtime > seconds:
                    old.unlink()

    def lacks(self, target, library=""):
        """What the program `target` is linked of that was not built, or "": all but a `library`."""
        try:
            words = self.link_command(target)
        except LabError:  # there is no build at all
            return target
        return next((word for word in words if word.endswith((".a", ".o"))
                     and not (library and word.endswith(f"/{library}"))
                     and not (self.folder / word).exists()), "")

    def compile_command(self, source):
        """The words of the command that compiles `source`, up to its -o and -c. A student's file is
        compiled as that of the project in whose place it stands."""
        if source.is_relative_to(WORK) and not source.is_relative_to(ROOT):
            source = ROOT / source.relative_to(WORK)
        if self._commands is None:
            path = self.folder / "compile_commands.json"
            try:
                self._commands = {source: e["command"]
                                  for e in json.loads(path.read_text(encoding="utf-8"))
                                  for source in compiled_with(e["file"])}
            except (OSError, ValueError) as error:
                raise LabError(f"{path}: {error}; ./aisc build makes it") from None
        if str(source) not in self._commands:
            raise LabError(f"{self.folder} does not know how to compile {source}")
        words = shlex.split(self._commands[str(source)])
        return words[:words.index("-o")]

    def headers(self):
        """Changes when a header of the project does."""
        if self._headers is None:
            state = hashlib.sha256()
            for pattern in ("common/**/*.h", "app/*.h", "formats/*.h", "[0-9][0-9]_*/*.h"):
                for path in sorted(self.root.glob(pattern)):
                    info = path.stat()
                    state.update(f"{path} {info.st_size} {info.st_mtime_ns}\n".encode())
            self._headers = state.hexdigest()
        return self._headers

    def compile(self, source, text, options=()):
        """Compiles `text` as if it stood in `source`. Returns (object file or None, what the
        compiler said). An object that was compiled before is not compiled again."""
        command = self.compile_command(source) + list(options)
        if self.strict:
            command.append("-MMD")  # beside the object: which files it was made from
        key = hashlib.sha256("\0".join([*command, text, self.headers()]).encode()).hexdigest()[:24]
        folder = self.scratch / "objects"
        self.scratch.mkdir(0o700, parents=True, exist_ok=True)  # no one else's business
        folder.mkdir(exist_ok=True)
        out = folder / f"{key}.o"
        warnings = out.with_suffix(".said")
        if out.exists() and warnings.exists():
            out.touch()
            warnings.touch()
            return out, warnings.read_text(encoding="utf-8")
        copy = folder / f"{key}.{os.getpid()}.{threading.get_ident()}.cpp"
        copy.write_text(f'#line 1 "{source}"\n{text}', encoding="utf-8")
        new, made_from = copy.with_suffix(".o"), copy.with_suffix(".d")
        command += self._precompiled.get((str(source), tuple(options)), [])
        try:
            with self.compilers:
                done, said = call(within_memory([*command, "-o", new, "-c", copy]), cwd=self.folder)
            if done and self.strict:
                done, refused = self._looks_only_at_headers(made_from, copy)
                said = said if done else refused
            if not done:
                return None, said
            warnings.write_text(said, encoding="utf-8")
            new.replace(out)
        finally:
            copy.unlink()
            new.unlink(missing_ok=True)
            made_from.unlink(missing_ok=True)
        return out, said

    def precompile_includes(self, source, options, folder):
        """Compiles what `source` includes once, into `folder`, for texts that stand in its place and
        are compiled with the same options: of a short text it is most of the work."""
        header = pathlib.Path(tempfile.mkdtemp(dir=folder)) / "included.h"
        words = self._precompiled[str(source), tuple(options)] = []
        lines = pathlib.Path(source).read_text(encoding="utf-8").splitlines()
        header.write_text("".join(f"{line}\n" for line in lines if line.startswith("#include")),
                          encoding="utf-8")
        done, _ = call(within_memory([*self.compile_command(source), *options, "-x", "c++-header",
                                      header, "-o", f"{header}.gch"]), cwd=self.folder)
        if done:
            words += ["-include", str(header)]

    def _looks_only_at_headers(self, made_from, copy):
        """(True, "") if a text includes nothing that is not for it: as a solution, or the files of
        others. System headers, which the compiler does not list, are."""
        more = ":".join(os.environ.get(name, "") for name in ("CPATH", "CPLUS_INCLUDE_PATH"))
        theirs = [os.path.realpath(f) for f in ["/usr", *more.split(":")] if f]
        rule = made_from.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")
        for word in shlex.split(rule.partition(": ")[2]):
            path = pathlib.Path(os.path.realpath(self.folder / word))
            ours = path.is_relative_to(self.root) and path.suffix == ".h"
            if path != copy and not ours and not any(path.is_relative_to(f) for f in theirs):
                return False, f"error: #include of {word}: only headers may be included"
        return True, ""

    def compile_all(self, texts, options=()):
        """{source: text} -> {source: (object or None, what the compiler said)}, a core each."""
        with concurrent.futures.ThreadPoolExecutor(CORES) as pool:
            done = pool.map(lambda item: self.compile(*item, options), texts.items())
            return dict(zip(texts, done))

    def link_command(self, target):
        """The words of the command that links a test program, in the build folder."""
        if target not in self._links:
            scripts = [path for folder in (".", "*") for path in
                       self.folder.glob(f"{folder}/CMakeFiles/{target}.dir/link.txt")]
            self._links[target] = (self._of_makefile(scripts[0]) if scripts else
                                   self._of_ninja(target))
        return list(self._links[target])

    def _of_ninja(self, target):
        done, text = call(["ninja", "-C", self.folder, "-t", "commands", target])
        lines = [line for line in text.splitlines() if re.search(rf" -o (\S*/)?{target} ", line)]
        if not done or not lines:
            raise LabError(f"ninja -t commands {target} in {self.folder}: {text[-500:]}")
        return shlex.split(lines[-1].removeprefix(": && ").removesuffix(" && :"))

    @staticmethod
    def _of_makefile(script):
        """Makefiles link in a folder below, which paths are made to begin with."""
        folder = script.parents[2]
        return [str(folder / word) if word.endswith((".o", ".a")) else word
                for word in shlex.split(script.read_text(encoding="utf-8"))]

    def link(self, target, objects, library, keep_library=False):
        """Links the program `target` with `objects` in the place of `library` (a name such as
        libaisc_01_mutex_mae_lab.a), or before it: then they win over what it holds. The program is
        the caller's to delete. Returns (program or None, what the linker said)."""
        words = self.link_command(target)
        place = next(i for i, word in enumerate(words) if word.endswith(f"/{library}"))
        here = [*map(str, objects), *([words[place]] if keep_library else [])]
        words[place:place + 1] = here
        return self._link(target, words)

    def _link(self, target, words):
        descriptor, program = tempfile.mkstemp(prefix=f"{target}-", dir=self.programs)
        os.close(descriptor)
        words[words.index("-o") + 1] = program
        with self.compilers:
            done, said = call([*words, *fast_linker()], cwd=self.folder)
        if not done:  # newer linkers delete it themselves
            pathlib.Path(program).unlink(missing_ok=True)
        return (pathlib.Path(program) if done else None), said

    def link_before(self, target, objects):
        """Links the program `target` with `objects` before all libraries: what they define wins. As
        link()."""
        words = self.link_command(target)
        place = next(i for i, word in enumerate(words) if word.endswith(".a"))
        words[place:place] = map(str, objects)
        return self._link(target, words)

    def link_instead(self, target, source, compiled):
        """Links the program `target` with an object in the place of that of its `source`. As link()."""
        words = self.link_command(target)
        own = [i for i, word in enumerate(words) if word.endswith(f"/{source.name}.o")]
        if not own:
            raise LabError(f"{target} is linked without {source.name}")
        words[own[0]] = str(compiled)
        return self._link(target, words)

    def taken(self, target, library):
        """Names that a test program has without `library`: from the tests, from what they stand on,
        and from the libraries of C and C++."""
        if target not in self._taken:
            words = self.link_command(target)
            files = [w for w in words if re.search(r"\.(o|a|so)([.0-9]*)$", w)
                     and not w.endswith(f"/{library}") and not w.startswith("-")]
            for name in ("libc.so.6", "libstdc++.so.6"):
                files.append(call([words[0], f"-print-file-name={name}"])[1].strip())
            self._taken[target] = {name for name, _ in self._names(files)}
        return self._taken[target]

    def clashes(self, target, library, objects):
        """Names in `objects` that would take the place of another's: main is the tests'."""
        mine = {name for name, kind in self._names(objects) if kind in "TDBRGS"}
        return sorted(mine & self.taken(target, library))

    def _names(self, files):
        """[(name, kind)] of what files define for others, as nm says."""
        said = ""
        for options in ([], ["-D"]):
            some = [f for f in map(str, files)
                    if bool(options) == bool(re.search(r"\.so[.0-9]*$", f))]
            if some:
                said += call(["nm", "-g", "--defined-only", "-P", *options, *some], self.folder)[1]
        found = (re.match(r"([^\s@]+)\S* ([A-Za-z])\b", line) for line in said.splitlines())
        return [(line[1], line[2]) for line in found if line]
