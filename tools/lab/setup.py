"""The build folders that a lab is graded in, with everything in them but the student's code."""
import subprocess

from .build import Build
from .exercises import ROOT, LabError
from .grading import what_is_missing


def builds_for(lab, presets, folder=None, root=ROOT):
    """{preset: Build, or why it cannot be assessed}. `folder` is a build folder in the place of
    build/release."""
    return {preset: prepare(lab, preset, folder if preset == "release" else None, root)
            for preset in dict.fromkeys(presets)}


class LazyBuilds(dict):
    """As builds_for, but a preset is built when it is first asked for."""

    def __init__(self, lab, folder=None, root=ROOT):
        super().__init__()
        self.lab, self.folder, self.root = lab, folder, root

    def __missing__(self, preset):
        folder = self.folder if preset == "release" else None
        self[preset] = prepare(self.lab, preset, folder, self.root)
        return self[preset]


def prepare(lab, preset, folder=None, root=ROOT, targets=()):
    missing = what_is_missing(preset)
    if missing:
        return missing
    wanted = [f"lab{lab.number}_given", *targets]
    if folder:
        build = Build(folder, root)
        build.make(*wanted)
        return build
    words = [word for target in wanted for word in ("--target", target)]
    if subprocess.run([root / "aisc", "build", preset, *words], check=False).returncode != 0:
        raise LabError(f"building {' '.join(wanted)} ({preset}) failed; what it said stands above")
    return Build(root / "build" / preset, root)
