"""What the tools remember between two calls, in .aisc: hints that were shown, how exercises went,
whose solution was looked at before they passed.
Nothing depends on it: what cannot be read or written is forgotten."""
import fcntl
import json

from .exercises import WORK
from .table import write


class State:
    def __init__(self, root=WORK):
        self.folder = root / ".aisc"

    def record(self, rows):
        """How the last grading of each exercise went."""
        self._add("grades", {r.exercise: r.status for r in rows})

    def status(self, exercise):
        """passed, failed ...; None if it was not graded yet."""
        return self._load("grades").get(exercise.id)

    def hints_shown(self, exercise):
        shown = self._load("hints").get(exercise.id, 0)
        return min(max(shown, 0), len(exercise.hints)) if isinstance(shown, int) else 0

    def show_hints(self, exercise, count):
        self._add("hints", {exercise.id: count})

    def give_up(self, exercise):
        self._add("given_up", {exercise.id: True})

    def gave_up(self, id):
        return self._load("given_up").get(id) is True

    def _load(self, name):
        try:
            found = json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _add(self, name, entries):
        """One call at a time: of two that grade, neither forgets what the other has found."""
        try:
            self.folder.mkdir(exist_ok=True)
            with open(self.folder / "lock", "w", encoding="utf-8") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                table = {**self._load(name), **entries}
                write(self.folder / f"{name}.json", json.dumps(table, indent=2) + "\n")
        except OSError:
            pass
