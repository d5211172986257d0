"""Compiles a changed text of one source, and links a test program with it: with the commands that
CMake gave for the original, and everything else as it was built."""
import concurrent.futures
import fcntl
import hashlib
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile
import time

from .exercises import ROOT, LabError

CORES = len(os.sched_getaffinity(0))
COMPILE_SECONDS = 120
OBJECTS_LIVE_SECONDS = 2 * 24 * 3600


def call(command, cwd=None, timeout=COMPILE_SECONDS):
    """(succeeded, all it said)"""
    try:
        done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=timeout)
    except subprocess.TimeoutExpired:
        return False, f"{command[0]} did not end within {timeout} seconds"
    return done.returncode == 0, done.stdout


def fast_linker():
    for program, name in (("mold", "mold"), ("ld.lld", "lld"), ("ld.gold", "gold")):
        if shutil.which(program):
            return [f"-fuse-ld={name}"]
    return []


class Build:
    """A build folder of CMake and Ninja, as far as a lab needs it."""

    def __init__(self, folder, root=ROOT):
        self.folder = pathlib.Path(folder).resolve()
        self.root = root
        self._commands = None
        self._headers = None
        self.scratch = self.folder / "labs"

    def make(self, *targets):
        """Builds targets of CMake; throws LabError with the first error."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        with open(self.scratch / "lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done, text = call(["cmake", "--build", self.folder, "--parallel", str(CORES),
                               "--target", *targets], timeout=3600)
        if not done:
            raise LabError(f"building {' '.join(targets)} in {self.folder} failed:\n"
                           + "\n".join(text.splitlines()[-60:]))
        self._commands = None
        for old in self.scratch.glob("objects/*.o"):
            if time.time() - old.stat().st_mtime > OBJECTS_LIVE_SECONDS:
                old.unlink(missing_ok=True)

    def compile_command(self, source):
        """The words of the command that compiles `source`, up to its -o and -c."""
        if self._commands is None:
            path = self.folder / "compile_commands.json"
            try:
                self._commands = {e["file"]: e["command"]
                                  for e in json.loads(path.read_text(encoding="utf-8"))}
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
            for pattern in ("common/**/*.h", "[0-9][0-9]_*/*.h"):
                for path in sorted(self.root.glob(pattern)):
                    info = path.stat()
                    state.update(f"{path} {info.st_size} {info.st_mtime_ns}\n".encode())
            self._headers = state.hexdigest()
        return self._headers

    def compile(self, source, text, options=()):
        """Compiles `text` as if it stood in `source`. Returns (object file or None, what the
        compiler said). An object that was compiled before is not compiled again."""
        command = self.compile_command(source) + list(options)
        key = hashlib.sha256("\0".join([*command, text, self.headers()]).encode()).hexdigest()[:24]
        folder = self.scratch / "objects"
        folder.mkdir(parents=True, exist_ok=True)
        out = folder / f"{key}.o"
        if out.exists():
            out.touch()
            return out, ""
        copy = folder / f"{key}.{os.getpid()}.cpp"
        copy.write_text(f'#line 1 "{source}"\n{text}', encoding="utf-8")
        new = copy.with_suffix(".o")
        try:
            done, said = call([*command, "-o", new, "-c", copy], cwd=self.folder)
            if not done:
                return None, said
            new.replace(out)
        finally:
            copy.unlink()
            new.unlink(missing_ok=True)
        return out, said

    def compile_all(self, texts, options=()):
        """{source: text} -> {source: (object or None, what the compiler said)}, a core each."""
        with concurrent.futures.ThreadPoolExecutor(CORES) as pool:
            done = pool.map(lambda item: self.compile(*item, options), texts.items())
            return dict(zip(texts, done))

    def link(self, target, objects, library, keep_library=False):
        """Links the program `target` with `objects` in the place of `library` (a name such as
        libaisc_01_mutex_mae_lab.a), or before it: then they win over what it holds. The program is
        the caller's to delete. Returns (program or None, what the linker said)."""
        done, text = call(["ninja", "-C", self.folder, "-t", "commands", target])
        lines = [line for line in text.splitlines() if f" -o tests/{target} " in line]
        if not done or not lines:
            raise LabError(f"ninja -t commands {target} in {self.folder}: {text[-500:]}")
        words = shlex.split(lines[-1].removeprefix(": && ").removesuffix(" && :"))
        place = next(i for i, word in enumerate(words) if word.endswith(f"/{library}"))
        words[place:place + 1] = [*map(str, objects), *([words[place]] if keep_library else [])]
        descriptor, program = tempfile.mkstemp(prefix=f"{target}-", dir=self.scratch)
        os.close(descriptor)
        words[words.index("-o") + 1] = program
        done, said = call([*words, *fast_linker()], cwd=self.folder)
        if not done:
            os.unlink(program)
        return (pathlib.Path(program) if done else None), said
