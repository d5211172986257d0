"""What compilers, linkers, GoogleTest and ThreadSanitizer say, in plain words."""
import re

from .exercises import ROOT

# How a communicator says that it waited in vain (common/comm/backend/diagnose.cpp).
WAITED = re.compile(r"has not (arrived at|met rank)|ranks wait for each other|"
                    "though no rank is missing")


def first_error_line(said, source):
    found = re.search(re.escape(str(source)) + r":([0-9]+):(?:[0-9]+:)? (?:fatal )?error", said)
    return int(found[1]) if found else 0


def first_error(said):
    """The compiler's or the linker's first error, paths from the project's root."""
    lines = said.splitlines()
    error = next((line for line in lines if re.search(r"\berror\b|undefined|multiple definition",
                                                      line)), lines[-1] if lines else "no output")
    return shown(error).strip()


def shown(text):
    """Paths from the project's root on."""
    return re.sub(r"(?<![\w/.])(?:\.\./)+", "", text.replace(f"{ROOT}/", ""))


def plain(text):
    """A failure of GoogleTest in one or two sentences."""
    thrown = re.match(r'(?:.*\n)?C\+\+ exception with description "(.*)" thrown in', text, re.S)
    if thrown:
        return f"threw: {thrown[1]}"
    place, _, rest = text.partition("\n")
    rest = rest if re.search(r":[0-9]+$", place) else text
    lines = [line.strip() for line in rest.splitlines() if line.strip()]
    # An assertion that says in sentences what is wrong, and what the test adds.
    said = re.match(r"Value of: .*?\n +Actual: (?:true|false) \((.*)\)\nExpected: (?:true|false)\n?(.*)",
                    rest, re.S)
    if said:
        return " ".join(" ".join(said.groups()).split())
    equal = re.match(r"Expected equality of these values:\n(.*)", rest, re.S)
    if equal:
        sides, said = [], []
        for line in lines[1:]:
            if line.startswith("Which is: ") and sides:
                sides[-1] += f" ({line.removeprefix('Which is: ')})"
            elif len(sides) < 2:
                sides.append(line)
            else:
                said.append(line)
        lines = [f"{' should equal '.join(sides)}", *said]
    where = shown(place) if rest is not text else ""
    return "; ".join(lines) + (f" ({where})" if where else "")


def first_failure(output):
    """(test, text) of the first test that failed, from what GoogleTest printed before the program
    was ended without a report; or None."""
    failure = re.search(r"^(\S+:[0-9]+): Failure\n(.*?)^\[", output, re.M | re.S)
    if not failure:
        return None
    begun = re.findall(r"^\[ RUN      \] (\S+)", output[:failure.start()], re.M)
    return (begun[-1], f"{failure[1]}\n{failure[2]}") if begun else None


def plain_race(what, output):
    """A report of ThreadSanitizer in a sentence: the places in the student's files."""
    places = re.findall(r"#[0-9]+ (\S+).*?([^/\s]+/lab/[^/\s:]+:[0-9]+)", output)
    where = list(dict.fromkeys(place for _, place in places))[:2]
    return f"ThreadSanitizer: {what}" + (f" between {' and '.join(where)}" if where else "")


def diagnosis(output):
    lines = [line.strip() for line in output.splitlines() if WAITED.search(line)]
    return f": {lines[0]}" if lines else ""


def reason_of_skip(output):
    lines = output.splitlines()
    for number, line in enumerate(lines[:-1]):
        if line.endswith(": Skipped") and lines[number + 1].strip():
            return lines[number + 1].strip()
    return "a test skipped itself without a reason"
