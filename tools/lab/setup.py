"""The build folders that a lab is graded in, with everything in them but the student's code."""
import pathlib
import subprocess

from .build import Build
from .exercises import ROOT, LabError
from .grading import what_is_missing


class Builds(dict):
    """{preset: Build, or why it cannot be assessed}: each is built when it is first asked for.
    `folder` is a build folder in the place of build/release."""

    def __init__(self, lab, folder=None):
        super().__init__()
        self.lab, self.folder = lab, folder

    def __missing__(self, preset):
        self[preset] = prepare(self.lab, preset, self.folder if preset == "release" else None)
        return self[preset]


def prepare(lab, preset, folder=None, root=ROOT, targets=()):
    missing = what_is_missing(preset)
    if missing:
        return missing
    wanted = [f"lab{lab.number}_given", *targets]
    cache = pathlib.Path(folder or root / "build" / preset) / "CMakeCache.txt"
    if cache.exists() and "AISC_TESTS:BOOL=OFF" in cache.read_text(encoding="utf-8"):
        raise LabError(f"{cache.parent} was configured without the tests that grade: "
                       f"./aisc build {preset} -DAISC_TESTS=ON")
    if folder:
        build = Build(folder, root)
        build.make(*wanted)
        return build
    words = [word for target in wanted for word in ("--target", target)]
    if subprocess.run([root / "aisc", "build", preset, *words], check=False).returncode != 0:
        raise LabError(f"building {' '.join(wanted)} ({preset}) failed; what it said stands above")
    return Build(root / "build" / preset, root)
