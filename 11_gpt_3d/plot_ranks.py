"""The trace of a step on several ranks, and what pictures of it are made of: for plot_step.py and
plot_experts.py."""
from timelines import BACKWARD, COMMUNICATION, DIM, FORWARD, FRAME, IDLE, TEXT, UPDATE, ink_on

BAR = 0.56  # height of a rank's bar, in rows


class Step:
    """The trace, in microseconds from the step's begin."""

    def __init__(self, numbers):
        self.ranks = {rank["rank"]: rank for rank in numbers["ranks"]}
        self.end = 1e6 * numbers["seconds"]
        self.model, self.numbers = numbers["model"], numbers
        self.calls = {rank: self.by_communicator(rank) for rank in self.ranks}

    def by_communicator(self, rank):
        """Its calls in their order: the same order on all ranks of a communicator."""
        calls = {}
        for call in sorted(self.ranks[rank]["communicators"], key=lambda call: call["end"]):
            own = calls.setdefault(call["communicator"], [])
            own.append((1e6 * call["begin"], 1e6 * call["end"]))
        return calls

    def group(self, rank, communicator):
        """The ranks that a communicator joins: those with the same of these indices."""
        same = {"tp": ("dp", "pp"), "grad": ("pp", "tp"), "world": (), "experts": ("pp",),
                "tensor_grad": ("pp",), "expert_grad": ("pp", "dp", "tp")}
        same = same.get(communicator, ("dp", "tp"))
        own = self.ranks[rank]
        return [other for other, row in self.ranks.items() if all(row[i] == own[i] for i in same)]

    def moving(self, rank, *communicators):
        """Begin and end of what moves to or from a rank: from when a call's last rank has come."""
        spans = []
        for name in communicators or self.calls[rank]:
            for i, (_, end) in enumerate(self.calls[rank].get(name, [])):
                ranks = self.group(rank, name)
                spans.append((max(self.calls[other][name][i][0] for other in ranks), end))
        return sorted(spans)

    def spans(self, rank, *parts):
        """Name, begin and end."""
        return [(event["name"], 1e6 * event["begin"], 1e6 * event["end"])
                for event in self.ranks[rank]["events"] if event["part"] in parts]

    def span(self, rank, part, name):
        return next(span[1:] for span in self.spans(rank, part) if span[0] == name)

    def computing(self, rank, *parts):
        """Pieces of these in which the rank does not communicate or wait."""
        spans = [span[1:] for span in self.spans(rank, *parts)]
        return without(spans, self.waits(rank))

    def waits(self, rank):
        """Where a rank does nothing but communicate, or wait for others."""
        norm = self.spans(rank, "clip")[0]
        own = [span[1:] for span in self.spans(rank, "communication")] + self.counts(rank)
        return joined(own + [span for span in self.moving(rank, "pp", "tp") if span[0] >= norm[1]])

    def counts(self, rank):
        """Where ranks of experts tell each other how much they will send, and wait for it."""
        calls = self.ranks[rank]["communicators"]
        return [(1e6 * call["begin"], 1e6 * call["end"]) for call in calls
                if call["communicator"] == "experts" and call["name"].startswith("all_to_all(")]

    def exposed(self, rank):
        """Of waits(), the pieces in which bytes move."""
        moving = joined(self.moving(rank))
        return [(max(a, c), min(b, d)) for a, b in self.waits(rank) for c, d in moving
                if max(a, c) < min(b, d)]


def joined(spans):
    """Spans that overlap become one."""
    all_ = []
    for begin, end in sorted(spans):
        if all_ and begin <= all_[-1][1]:
            all_[-1] = (all_[-1][0], max(end, all_[-1][1]))
        else:
            all_.append((begin, end))
    return all_


def without(spans, holes):
    pieces = []
    for begin, end in spans:
        for left, right in holes:
            if left < end and right > begin:
                pieces.append((begin, left))
                begin = right
        pieces.append((begin, end))
    return [(begin, end) for begin, end in pieces if begin < end]


def bars(axes, y, height, spans, colour, **how):
    """Rectangles as one path, and those alone that are to be seen: the file stays small."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path
    corners, low, high = [], y - height / 2, y + height / 2
    first, last = axes.get_xlim()
    for begin, end in spans:
        if begin < last and end > first:
            corners += [(begin, low), (end, low), (end, high), (begin, high), (begin, low)]
    codes = [Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY] * (len(corners) // 5)
    if corners:
        axes.add_patch(PathPatch(Path(corners, codes),
                                 **{"facecolor": colour, "linewidth": 0, **how}))


def draw_rank(axes, step, rank, y, height=BAR):
    """What a rank does: what is left white is waiting."""
    bars(axes, y, height, [(0, step.end)], IDLE, edgecolor=FRAME, linewidth=0.6)
    for part, colour in (("forward", FORWARD), ("backward", BACKWARD), ("clip", UPDATE),
                         ("optimizer", UPDATE)):
        bars(axes, y, height, step.computing(rank, part), colour)
        for _, begin, _ in step.spans(rank, part)[1:]:
            axes.plot([begin] * 2, [y - height / 2, y + height / 2], color="white", linewidth=0.7)
    bars(axes, y, height, step.exposed(rank), COMMUNICATION)


def number_micro_batches(axes, step, rank, y):
    """Each action's micro-batch, in a long piece of it without communication near its middle."""
    waits = step.waits(rank)
    spans = [(span, colour) for part, colour in (("forward", FORWARD), ("backward", BACKWARD))
             for span in step.spans(rank, part)]
    for (name, begin, end), colour in spans:
        edges = [begin, *(x for span in waits if begin <= span[0] < end for x in span), end]
        pieces = [piece for piece in zip(edges[::2], edges[1::2]) if piece[0] < piece[1]]
        longest = max(piece[1] - piece[0] for piece in pieces)
        left, right = min((piece for piece in pieces if piece[1] - piece[0] > 0.8 * longest),
                          key=lambda piece: abs(sum(piece) - pieces[0][0] - end))
        axes.text((left + right) / 2, y + 0.02, name[1:], ha="center", va="center", fontsize=7.5,
                  color=ink_on(colour), zorder=4)


def mark(axes, x, y, number):
    axes.plot([x], [y], "o", color=TEXT, markersize=11.5, markeredgecolor="white",
              markeredgewidth=0.9, zorder=8, clip_on=False)
    axes.text(x, y, str(number), ha="center", va="center_baseline", color="white",
              fontsize=7.5 if number < 10 else 6.7, fontweight="bold", zorder=9)


def path(axes, points, **how):
    xs, ys = zip(*points)
    axes.plot(xs, ys, color="white", linewidth=4, zorder=6, solid_capstyle="butt")
    axes.plot(xs, ys, **{"color": TEXT, "linewidth": 1.5, "zorder": 7, **how})


def legend(axes, columns, note, rows):
    """What the numbers of each column mean, in which modules, and below the first a note."""
    axes.set(xlim=(0, 1000), ylim=(rows + 0.6, -0.6))
    axes.axis("off")
    for (title, lines), left in zip(columns.items(), (8, 508)):
        axes.text(left - 6, 0, title, fontsize=9.5, fontweight="bold", va="center")
        axes.text(left + 484, 0, "module", fontsize=8, color=DIM, va="center", ha="right")
        for i, (number, words, module) in enumerate(lines, 1):
            mark(axes, left + 4, i, number)
            axes.text(left + 20, i, words, fontsize=8.3, va="center_baseline")
            axes.text(left + 484, i, module, fontsize=8.3, va="center_baseline", ha="right",
                      fontweight="bold")
    axes.text(*note, fontsize=8.3, color=DIM, va="center")


def key(axes, title, sizes, communication):
    """Title and colours."""
    axes.set(xlim=(0, 1000), ylim=(0, 3))
    axes.axis("off")
    axes.text(2, 2.45, title, fontsize=13, fontweight="bold", va="center")
    axes.text(2, 1.4, sizes, fontsize=8.5, color=DIM, va="center")
    x = 4
    for colour, words, room in ((FORWARD, "forward", 82), (BACKWARD, "backward", 94),
                                (UPDATE, "norm, clipping, AdamW", 178), (IDLE, "waiting", 84),
                                (COMMUNICATION, communication, 0)):
        axes.plot([x + 4], [0.4], "s", color=colour, markersize=8,
                  markeredgecolor="#9aa5b1" if colour == IDLE else colour)
        axes.text(x + 16, 0.4, words, fontsize=8.5, va="center")
        x += room
