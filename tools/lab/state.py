"""What the tools remember between two calls, in .aisc: hints that were shown, how exercises went,
whose solution was looked at before they passed.
Nothing depends on it: what cannot be read or written is forgotten."""
import json

from .exercises import ROOT
from .table import write


class State:
    def __init__(self, root=ROOT):
        self.folder = root / ".aisc"

    def record(self, rows):
        """How the last grading of each exercise went."""
        self._store("grades", {**self._load("grades"), **{r.exercise: r.status for r in rows}})

    def status(self, exercise):
        """passed, failed ...; None if it was not graded yet."""
        return self._load("grades").get(exercise.id)

    def hints_shown(self, exercise):
        shown = self._load("hints").get(exercise.id, 0)
        return min(max(shown, 0), len(exercise.hints)) if isinstance(shown, int) else 0

    def show_hints(self, exercise, count):
        self._store("hints", {**self._load("hints"), exercise.id: count})

    def give_up(self, exercise):
        self._store("given_up", {**self._load("given_up"), exercise.id: True})

    def gave_up(self, id):
        return self._load("given_up").get(id) is True

    def _load(self, name):
        try:
            found = json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _store(self, name, table):
        try:
            self.folder.mkdir(exist_ok=True)
            write(self.folder / f"{name}.json", json.dumps(table, indent=2) + "\n")
        except OSError:
            pass
