"""What compilers, linkers, GoogleTest and ThreadSanitizer say, in plain words."""
import re

from .exercises import ROOT, WORK

# How a communicator says that it waited in vain (common/comm/backend/diagnose.cpp).
WAITED = re.compile(r"has not (arrived at|met rank)|ranks wait for each other|"
                    "though no rank is missing")


# What usually is behind a signal that ends a program.
SIGNALS = {
    "SIGSEGV": "it read or wrote memory that is not there, perhaps behind the end of a list",
    "SIGFPE": "it divided a whole number by 0",
}

MOST_PRINTED = 12  # lines of what somebody's code says that are shown
LONG = 100  # characters of a message that still is one line


def first_error_line(said, source):
    """The line of the file that the compiler's first error is in, or that asked for it; or 0."""
    found = re.search(re.escape(str(source)) + r":([0-9]+):(?:[0-9]+:)? (?:fatal )?error", said)
    return int(found[1]) if found else int((asking(said, source) or ":0").rpartition(":")[2])


def asking(said, source):
    """file:line of what asked a template for that in which the first error is, or "": GCC names it
    before the error, Clang after it."""
    lines = said.splitlines()
    at = error_in(lines)
    if at is None or f"{source}:" in lines[at]:
        return ""
    own = re.compile(re.escape(str(source)) + ":[0-9]+(?=:)")
    around = [line for line in lines[:at][::-1] + lines[at + 1:]
              if not re.match(r"(In file included)? +from ", line)]
    return next((found[0] for line in around if (found := own.search(line))), "")


def error_in(lines):
    return next((number for number, line in enumerate(lines)
                 if re.search(r"\berror\b|undefined|multiple definition", line)), None)


def first_error(said, source=None):
    """The compiler's or the linker's first error, paths from the project's root; where it is not in
    the file itself, with the line there that asked for it."""
    lines = said.splitlines() or ["no output"]
    at = error_in(lines)
    error = shown(lines[-1 if at is None else at]).strip()
    asked = asking(said, source) if source else ""
    return f"{shown(asked)} asks for what does not compile: {error}" if asked else error


def warnings_in(said, source):
    """[(line, text)] of the compiler's warnings in the file itself, paths from the project's root."""
    place = re.escape(str(source)) + r":([0-9]+):(?:[0-9]+:)?"
    return [(int(found[1]), shown(found[0]))
            for found in re.finditer(rf"^{place} warning: .*$", said, re.M)]


def shown(text):
    """Paths from the project's root on, or from that of the student's folder."""
    for root in sorted({f"{ROOT}/", f"{WORK}/"}, key=len, reverse=True):  # one may be in the other
        text = text.replace(root, "")
    return re.sub(r"(?<![\w/.])(?:\.\./)+", "", text)


def first_of(failures):
    """The first of a test's failures. Ranks are threads, and which of them says first what all of them
    find differs from run to run: of those of one line it is that of the lowest rank."""
    def place(text):
        return text.partition("\n")[0]

    def in_order(text):
        return [int(word) if word.isdigit() else word for word in re.split("([0-9]+)", text)]
    return min((f for f in failures if place(f) == place(failures[0])), key=in_order)


def plain(text):
    """A failure of GoogleTest in plain words: first what the test says of its case, else the compared
    expressions, then what was found and expected. What is long has a line for each side and one for
    where they differ first."""
    thrown = re.match(r'(?:.*\n)?C\+\+ exception with description "(.*)" thrown in', text, re.S)
    if thrown:
        return f"threw: {thrown[1]}"
    place, _, rest = text.partition("\n")
    rest = rest if re.search(r":[0-9]+$", place) else text
    where = f" ({shown(place)})" if rest is not text and shown(place) else ""
    rest, traced = without_trace(rest)
    text = plain_failure(rest, where)
    return "\n".join([*traced, text])


def without_trace(text):
    """(text, what the test says of where it is, outermost first)"""
    text, _, trace = text.partition("\nGoogle Test trace:\n")
    return text, re.findall(r"^\S+:[0-9]+: (.*)$", trace, re.M)[::-1]


def plain_failure(rest, where):
    # An assertion that says in sentences what is wrong, and what the test adds.
    said = re.match(r"Value of: .*?\n +Actual: (?:true|false) \((.*)\)\nExpected: (?:true|false)\n?(.*)",
                    rest, re.S)
    if said:
        return "\n".join(line.rstrip() for part in said.groups() for line in part.splitlines()
                         if line.strip())
    lines = [line.strip() for line in rest.splitlines() if line.strip()]
    if lines and lines[0] == "Expected equality of these values:":
        return plain_equality(lines[1:], where)
    if lines and lines[0] == "Failed" and len(lines) > 1:
        return "\n".join(lines[1:]) + where
    if matched := MATCHER.fullmatch(rest.strip()):
        said = [line.strip() for line in matched["said"].splitlines() if line.strip()]
        expected, found = elements_expected(matched["y"]), matched["x"].partition("}, ")[0] + "}"
        if expected:
            return compared(said or [matched["a"]], numbers_in(found), numbers_in(expected), where)
    for pattern, found, expected, otherwise in COMPARISONS:
        if match := pattern.fullmatch(rest.strip()):
            words = {name: value.strip() for name, value in match.groupdict().items()}
            said = [line.strip() for line in words["said"].splitlines() if line.strip()]
            if not said:
                return otherwise.format(**words) + where
            if not found:  # true or false: the sentences say it
                return "\n".join(said) + where
            return compared(said, found.format(**words), expected.format(**words), where)
    return "; ".join(lines) + where


# Of GoogleTest's other comparisons: what was found, what expected, and a sentence where the test
# says nothing of its own.
COMPARISONS = [
    (re.compile(r"Expected: \((?P<a>.*)\) (?P<op>[<>!=]=?) \((?P<b>.*)\), actual: (?P<x>.*) vs "
                r"(?P<y>[^\n]*)(?P<said>(?s:.*))"), "{x}", "{op} {y}", "{a} ({x}) should be {op} {b} ({y})"),
    (re.compile(r"The difference between (?P<a>.*) and (?P<b>.*) is (?P<d>\S+), which exceeds (?P<t>.*), "
                r"where\n.* evaluates to (?P<x>.*),\n.* evaluates to (?P<y>.*), and\n.* evaluates to "
                r"(?P<z>.*)\.(?P<said>(?s:.*))"), "{x}", "{y} within {z}",
     "{a} ({x}) should be {b} ({y}) within {z}"),
    (re.compile(r"Value of: (?P<a>.*)\n +Actual: (?P<x>true|false)\nExpected: (?P<y>true|false)"
                r"(?P<said>(?s:.*))"), "", "", "{a} should be {y}"),
]


# GoogleMock's of lists, element by element.
MATCHER = re.compile(r"Value of: (?P<a>.*)\nExpected: (?P<y>(?s:.*?))\n +Actual: (?P<x>\{.*)(?P<said>(?s:.*))")


def elements_expected(text):
    """The list that a matcher of GoogleMock describes, or ""."""
    pairs = re.fullmatch(r"contains .* values, where each value and its corresponding value in (\{.*\}) "
                         r"are an almost-equal pair", text)
    if pairs:
        return pairs[1]
    elements = re.findall(r"element #[0-9]+ (?:is equal to|is approximately) (.*?)(?:,$|,\n|$)", text, re.M)
    return "{ " + ", ".join(elements) + " }" if elements else ""


def numbers_in(text):
    """Small numbers that GoogleTest prints as characters or bytes, as numbers."""
    text = re.sub(r"'[^']*' \(([0-9]+)(?:, 0x[0-9A-F]+)?\)", r"\1", text).replace(r"'\0'", "0")
    return re.sub(r"[0-9]+-byte object <([0-9A-F -]+)>",
                  lambda found: str(int.from_bytes(bytes.fromhex(re.sub("[ -]", "", found[1])), "little")),
                  text)


def compared(said, found, expected, where):
    """`said`: the sentences of the test, at least one. They may name what was found and expected."""
    *first, last = said
    if any("expected" in line for line in said):
        return "\n".join(said) + where
    line = "\n".join([*first, f"{last.rstrip(':.')}: found {found}, expected {expected}{where}"])
    if len(line.splitlines()[-1]) - len(where) <= LONG and not found.startswith("{"):
        return line
    return "\n".join([*first, f"{last.rstrip(':.')}{where}", f"found     {found}",
                      f"expected  {expected}", *first_difference(found, expected)])


def plain_equality(lines, where):
    """Of the two sides as GoogleTest prints them, and what the test adds."""
    names, values, said = [], [], []
    for line in lines:
        if line.startswith("Which is: ") and names and not said:
            values[-1] = line.removeprefix("Which is: ")
        elif len(names) < 2:
            names.append(line)
            values.append("")
        else:
            said.append(line)
    found, expected = (numbers_in(value or name) for name, value in zip(names, values))
    if said:
        return compared(said, found, expected, where)
    sides = [name + (f" ({value})" if value else "") for name, value in zip(names, values)]
    short = " should equal ".join(sides)
    if len(short) <= LONG and not found.startswith("{"):
        return short + where
    return "\n".join([" should equal ".join(names) + where, f"found     {found}",
                      f"expected  {expected}", *first_difference(found, expected)])


def elements_of(value):
    """Those of a list as GoogleTest prints it, "{ 1, { 2, 3 } }"; of what is none, nothing."""
    if not value.startswith("{ ") or not value.endswith(" }"):
        return []
    elements, depth = [""], 0
    for word in re.split(r'("(?:[^"\\]|\\.)*"|, |[{}])', value[2:-2]):
        depth += (word == "{") - (word == "}")
        if word == ", " and depth == 0:
            elements.append("")
        else:
            elements[-1] += word
    return elements


def first_difference(found, expected):
    """A line that says where two lists differ first; none of what is no list, or cut short."""
    one, other = elements_of(found), elements_of(expected)
    if not one or not other:
        return []
    for number, (mine, theirs) in enumerate(zip(one, other)):
        if "..." in (mine, theirs):
            return []
        if mine != theirs:
            return [f"the first difference is at [{number}]: {mine}, expected {theirs}"]
    if len(one) == len(other):
        return []
    return [f"found are {len(one)} elements, expected {len(other)}"]


def first_failure(output):
    """(test, text) of the first test that failed, from what GoogleTest printed before the program
    was ended without a report; or None."""
    failure = re.search(r"^(\S+:[0-9]+): Failure\n(.*?)(?=^\[|^\S+:[0-9]+: Failure$)", output,
                        re.M | re.S)
    if not failure:
        return None
    begun = re.findall(r"^\[ RUN      \] (\S+)", output[:failure.start()], re.M)
    return (begun[-1], f"{failure[1]}\n{failure[2].rstrip()}") if begun else None


def printed_by(test, output):
    """What a test's code printed until its first failure, the last lines of it, a line each."""
    own = re.search(rf"^\[ RUN      \] {re.escape(test)}\n(.*?)(?:^\S+:[0-9]+: Failure$|"
                    rf"^unknown file: Failure$|^\[  FAILED  \])", output, re.M | re.S)
    return as_printed(own[1]) if own else ""


def plain_signal(name, debug):
    """What a signal means, and how to see where it came from; `debug` is the exercise that can be
    debugged, or "". Of a signal that says nothing by itself, "".
    """
    if name not in SIGNALS:
        return ""
    where = f". `./aisc debug {debug}`, then `d 1`, `c` and `bt`, shows where" if debug else ""
    return f": {SIGNALS[name]}{where}"


def printed_last(output, begun):
    """What was printed before a program ended without a report: by the test that was under way, until
    its first failure, or, if none had `begun`, by the program."""
    rest = output.rpartition("[ RUN      ]")[2].partition("\n")[2] if begun else output
    rest = re.split(r"^\S+:[0-9]+: Failure$", rest, maxsplit=1, flags=re.M)[0]
    return as_printed("\n".join(line for line in rest.splitlines() if not line.startswith(
        ("[", "Note: Google Test", "Running main() from"))))


def as_printed(text):
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    left_out = ["..."] if len(lines) > MOST_PRINTED else []
    return "\n".join(["", "it printed:", *left_out, *lines[-MOST_PRINTED:]])


def plain_race(what, output):
    """A report of ThreadSanitizer in a sentence: the places in the student's files."""
    places = re.findall(r"#[0-9]+ (\S+).*?([^/\s]+/lab/[^/\s:]+:[0-9]+)", output)
    where = list(dict.fromkeys(place for _, place in places))[:2]
    return f"ThreadSanitizer: {what}" + (f" between {' and '.join(where)}" if where else "")


def plain_fault(output):
    """A report of AddressSanitizer or UndefinedBehaviorSanitizer in a sentence, with the line of the
    student's file nearest to it; or ""."""
    found = re.search(r"ERROR: AddressSanitizer: ([\w-]+)", output)
    if found:
        frames = re.findall(r"#[0-9]+ \S+ in (.*?) \S*?([^/\s]+/lab/[^/\s:]+:[0-9]+)", output[found.start():])
        where = f" in {frames[0][0].partition('(')[0]}, {frames[0][1]}" if frames else ""
        size = re.search(r"(READ|WRITE) of size [0-9]+", output[found.start():])
        return f"AddressSanitizer: {found[1]}{where}" + (f" ({size[0].lower()})" if size else "")
    found = re.search(r"(\S+:[0-9]+):[0-9]+: runtime error: (.*)", output)
    return f"{shown(found[1])}: {found[2]}" if found else ""


def diagnosis(output):
    lines = [line.strip() for line in output.splitlines() if WAITED.search(line)]
    return f": {lines[0]}" if lines else ""


def reason_of_skip(output):
    lines = output.splitlines()
    for number, line in enumerate(lines[:-1]):
        if line.endswith(": Skipped") and lines[number + 1].strip():
            return lines[number + 1].strip()
    return "a test skipped itself without a reason"
