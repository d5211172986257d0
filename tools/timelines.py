"""Who does what when, for the plot.py of modules: bars in the colours that a step's parts have in
every picture of the course (common/train/timeline.cpp, app/report/page.css); and the colours of
what lies in memory, and of lines that are neither."""

FORWARD, BACKWARD, WEIGHT_GRADIENT = "#0072B2", "#009E73", "#7F7F7F"
COMMUNICATION, UPDATE, IDLE = "#E69F00", "#CC79A7", "#ffffff"
DIM, TEXT, FRAME = "#5f6b7a", "#1f2933", "#d5d9de"
PARTS = {"forward": FORWARD, "backward": BACKWARD, "weight gradient": WEIGHT_GRADIENT,
         "communication": COMMUNICATION, "optimizer": UPDATE, "update": UPDATE}
PALE = {FORWARD: "#99C7E0", BACKWARD: "#99D8C7", WEIGHT_GRADIENT: "#CCCCCC", COMMUNICATION: "#f6d58f"}
COMPUTING, PALE_COMPUTING = "#5f6b7a", "#b7bec8"  # forward, backward and update together
MEMORY = {"weights": "#56B4E9", "gradients": "#D55E00", "optimizer": UPDATE,
          "activations": "#B8C0CA"}
# Of lines and bars that the words beside them tell apart, and that have no meaning elsewhere.
LINES = ["#332288", "#882255", "#000000", "#999933"]
PALE_LINES = ["#ada7cf", "#cfa7bb", "#4d4d4d", "#d6d6ad"]
WORDS = {"forward": "blue forward", "backward": "green backward",
         "weight gradient": "grey weight gradient", "update": "purple update",
         "communication": "orange communication"}


def ink_on(colour):
    """White or black, whichever is easier to read there: at least 4.58 to 1 on any colour."""
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return "#000000" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 else "white"


def bar(axes, row, begin, end, colour, words="", fontsize=9):
    axes.barh(row, end - begin, left=begin, height=0.78, color=colour, edgecolor="white",
              linewidth=0.8)
    if words:
        axes.text((begin + end) / 2, row, words, ha="center", va="center", fontsize=fontsize,
                  color=ink_on(colour))


def rows_named(axes, names, title, end):
    """One row under another, from 0 to `end`."""
    axes.set(title=title, xlim=(0, end))
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def of_part(part, name):
    return PARTS[part]


def draw(axes, rows, title, end, scale=1.0, words=lambda part, name: "", colour=of_part):
    """Rows as timeline_json() writes them (common/train/timeline.h), in seconds times `scale`. What is
    left white is waiting. `words` and `colour` say of a part and a name what stands in its bar."""
    for i, row in enumerate(rows):
        for part, name, begin, until in row["events"]:
            bar(axes, i, scale * begin, scale * until, colour(part, name), words(part, name))
    rows_named(axes, [row["name"] for row in rows], title, end)


def legend(rows):
    """The colours that there are, in words."""
    there = {event[0] for row in rows for event in row["events"]}
    return ", ".join(word for part, word in WORDS.items() if part in there) + ", white waiting"
