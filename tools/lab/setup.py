"""The build folders that a lab is graded in, with everything in them but the student's code."""
import os
import pathlib
import subprocess

from .build import CORES, Build, can_write, not_prepared
from .exercises import ROOT, WORK, LabError
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


def prepare(lab, preset, folder=None, root=ROOT, targets=(), jobs=CORES, scratch=None):
    missing = what_is_missing(preset)
    if missing:
        return missing
    wanted = [f"lab{lab.number}_given", *targets]
    place = pathlib.Path(folder or root / "build" / preset)
    cache = place / "CMakeCache.txt"
    if cache.exists() and "AISC_TESTS:BOOL=OFF" in cache.read_text(encoding="utf-8"):
        raise LabError(f"{place} was configured without the tests that grade: "
                       f"./aisc build {preset} -DAISC_TESTS=ON")
    build = Build(place, root, jobs=jobs, scratch=scratch)
    if not can_write(place):
        return as_it_is(lab, preset, build)
    if folder:
        build.make(*wanted)
        return build
    words = [word for target in wanted for word in ("--target", target)]
    if subprocess.run([root / "aisc", "build", preset, *words], check=False,
                      env={**os.environ, "AISC_JOBS": str(jobs)}).returncode != 0:
        raise LabError(f"building {' '.join(wanted)} ({preset}) failed; what it said stands above")
    return build


def as_it_is(lab, preset, build):
    """A build folder of somebody else, in which nothing can be built: what it lacks, its owner has to
    build. The rest is graded without what only a sanitizer would see."""
    if not can_write(build.scratch):
        raise LabError(f"you may not write in {build.scratch}: go to a folder of yours, and say there "
                       f"{ROOT}/aisc lab {lab.number}")
    if build.lacks(f"{lab.module}_lab_test", f"libaisc_{lab.module}_lab.a"):
        said = f"lab {lab.number} {not_prepared(build.folder)}"
        if preset == "release":
            raise LabError(said)
        return said
    build.forget("objects/*.[os]*")
    return build
