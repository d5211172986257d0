"""The figures of this module's handout, for tools/plot."""
import math

from timelines import COMMUNICATION, DIM, FRAME, LINES, TEXT

COLOURS = {"ring": LINES[1], "recursive_doubling": LINES[2], "rabenseifner": LINES[0],
           "double_tree": LINES[3]}
NAMES = {"naive": "naive", "ring": "ring", "recursive_doubling": "recursive doubling",
         "rabenseifner": "Rabenseifner", "double_tree": "two trees", "tree": "one tree",
         "direct": "direct", "two_level": "two levels"}


def bytes_text(value):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} TiB"


def ticks(axis, values, text):
    axis.set_ticks(values, [text(value) for value in values])
    axis.set_ticks([], minor=True)


def bare(axes):
    axes.grid(False)
    for side in axes.spines.values():
        side.set_visible(False)


def time_text(seconds):
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 0.999:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def sizes(numbers, pyplot):
    """Seconds against bytes, where two lines cross, and below what is chosen where."""
    figure, ax = pyplot.subplots(figsize=(10, 5.2))
    entry = numbers["sizes"]
    for name in ("ring", "recursive_doubling", "rabenseifner", "double_tree"):
        rows = [row for row in entry["rows"] if row["algorithm"] == name]
        ax.plot([row["bytes"] for row in rows], [row["seconds"] for row in rows],
                color=COLOURS[name], label=NAMES[name])
    for crossing in entry["crossovers"]:
        if crossing["ranks"] != entry["ranks"] or crossing["formula"] <= 0:
            continue
        rows = [row for row in entry["rows"] if row["algorithm"] == crossing["first"]]
        x = crossing["formula"]
        for row, after in zip(rows, rows[1:]):  # straight between two sizes
            if row["bytes"] <= x <= after["bytes"]:
                part = (x - row["bytes"]) / (after["bytes"] - row["bytes"])
                y = row["seconds"] + part * (after["seconds"] - row["seconds"])
                ax.plot([x], [y], "o", color="#1f2933", markersize=7, zorder=5)
                ax.annotate(bytes_text(x), (x, y), (-8, 8), textcoords="offset points", ha="right",
                            fontsize=11)
    seconds = [row["seconds"] for row in entry["chosen"]]
    low = min(seconds) / 4
    begin = entry["chosen"][0]
    for row, after in zip(entry["chosen"], entry["chosen"][1:] + [None]):
        if after is not None and after["algorithm"] == begin["algorithm"]:
            continue
        name, end = begin["algorithm"], (after or row)["bytes"]
        colour = COLOURS.get(name, DIM)
        ax.plot([begin["bytes"], end], [low, low], color=colour, linewidth=9,
                solid_capstyle="butt")
        if end / begin["bytes"] > 30:
            ax.text(math.sqrt(begin["bytes"] * end), low * 1.35, NAMES.get(name, name),
                    ha="center", color=TEXT, fontsize=11)
        if begin["bytes"] > entry["chosen"][0]["bytes"]:
            ax.axvline(begin["bytes"], color=DIM, linewidth=1, linestyle=":")
        begin = after
    ax.set(xscale="log", yscale="log", xlabel="bytes of a rank's buffer", ylabel="time",
           title=f"all-reduce of {entry['ranks']} ranks; dots: crossovers; the bar: what takes least",
           ylim=(low / 1.5, 3 * max(seconds)))
    ticks(ax.xaxis, [8 * 16 ** k for k in range(8)], bytes_text)
    ticks(ax.yaxis, [10.0 ** k for k in range(-5, 2) if low < 10.0 ** k < 3 * max(seconds)],
          time_text)
    ax.legend(loc="upper left")
    return figure


def scale(numbers, pyplot):
    """Latency and bandwidth up to 24,576 ranks: lines by formula, dots by simulation."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4.6))
    link = 1 / numbers["network"]["beta"]
    for name in ("ring", "recursive_doubling", "rabenseifner", "double_tree"):
        rows = [row for row in numbers["scale"]["rows"] if row["algorithm"] == name]
        ranks = [row["ranks"] for row in rows]

        def followed(key):
            return zip(*[(row["ranks"], row[key]) for row in rows if key in row])

        left.plot(ranks, [row["latency_seconds"] for row in rows], color=COLOURS[name],
                  label=NAMES[name])
        left.plot(*followed("simulated_latency_seconds"), "o", color=COLOURS[name], markersize=5)
        right.plot(ranks, [100 * row["busbw"] / link for row in rows], color=COLOURS[name])
        few, rates = followed("simulated_busbw")
        right.plot(few, [100 * rate / link for rate in rates], "o", color=COLOURS[name],
                   markersize=5)
    left.set(xscale="log", yscale="log", xlabel="ranks", ylabel="time of the shortest buffer",
             title="Latency")
    right.set(xscale="log", xlabel="ranks", ylabel="busbw, % of a link", ylim=(0, 105),
              title="Bandwidth, 1 GiB")
    for ax in (left, right):
        ticks(ax.xaxis, [2, 16, 128, 1024, 24576], lambda value: f"{value:,}")
    ticks(left.yaxis, [1e-5, 1e-4, 1e-3, 1e-2, 1e-1], time_text)
    left.legend(title="lines: formula; dots: followed")
    return figure


def ring_steps(p):
    """What each rank holds of each chunk, from the beginning on: after each step a table of sums, and
    which of them have just arrived. Rank r begins with 10^r in every chunk, so that a sum says whose
    numbers are in it."""
    holds = [[10 ** rank] * p for rank in range(p)]
    steps = [([row[:] for row in holds], set())]
    for step in range(2 * (p - 1)):
        adds = step < p - 1
        s = step if adds else step - (p - 1)
        moves = [((rank + 1) % p, (rank - s if adds else rank + 1 - s) % p) for rank in range(p)]
        came = [holds[(rank - 1) % p][chunk] for rank, chunk in moves]
        for (rank, chunk), value in zip(moves, came):
            holds[rank][chunk] = holds[rank][chunk] + value if adds else value
        steps.append(([row[:] for row in holds], set(moves)))
    return steps


def ring(_, pyplot):
    """Four ranks, four chunks: the sum in each chunk after each step."""
    p = 4
    steps, complete = ring_steps(p), sum(10 ** rank for rank in range(p))
    figure, axes = pyplot.subplots(2, p, figsize=(10, 5.4))
    panels = [*axes[0], *axes[1][1:]]
    for step, (ax, (holds, arrived)) in enumerate(zip(panels, steps)):
        for rank in range(p):
            for chunk in range(p):
                is_new, value = (rank, chunk) in arrived, holds[rank][chunk]
                ax.add_patch(pyplot.Rectangle((chunk, rank), 0.94, 0.86, linewidth=0.8, edgecolor=DIM,
                                              facecolor=COMMUNICATION if is_new else "white"))
                ax.text(chunk + 0.47, rank + 0.45, str(value), ha="center", va="center", fontsize=9.5,
                        fontweight="bold" if value == complete else "normal")
        ax.set(xlim=(-0.1, p), ylim=(p, -0.75), yticks=[], xticks=[])
        ax.set_title("at the beginning" if step == 0 else f"after step {step - 1}", fontsize=11)
        for chunk in range(p):
            ax.text(chunk + 0.47, -0.25, f"chunk {chunk}" if chunk == 0 else str(chunk), ha="center",
                    va="center", fontsize=9, color=DIM)
        if step in (0, p):
            ax.set_yticks([rank + 0.43 for rank in range(p)], [f"rank {rank}" for rank in range(p)])
        ax.tick_params(length=0)
        bare(ax)
    legend = axes[1][0]
    legend.set(xticks=[], yticks=[], xlim=(0, 1), ylim=(0, 1))
    bare(legend)
    legend.text(0, 1, "Each rank sends to the\nnext, rank 3 to rank 0.\n\norange: has just arrived\n"
                "bold: complete\n\nabove: what arrives is\nadded, steps 0 to 2\n\nright: what arrives is"
                "\ncomplete, steps 3 to 5", va="top", fontsize=10.5)
    return figure


def place(parents):
    """x by rank, y by depth."""
    def depth(rank):
        return 0 if parents[rank] < 0 else 1 + depth(parents[rank])
    return [(rank, -depth(rank)) for rank in range(len(parents))]


def trees(numbers, pyplot):
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 3.2))
    for ax, name, title in zip(axes, ("first", "second"),
                               ("The first tree: one half of the buffer", "The second tree: the other half")):
        parents = numbers["trees"][name]
        points = place(parents)
        inner = set(parents)
        for rank, parent in enumerate(parents):
            if parent >= 0:
                ax.plot(*zip(points[rank], points[parent]), color=COMMUNICATION, linewidth=2.5, zorder=1)
        for rank, point in enumerate(points):
            is_inner = rank in inner
            ax.plot(*point, "o", color=TEXT if is_inner else "white", markeredgecolor=TEXT,
                    markersize=22, zorder=2)
            ax.text(*point, str(rank), ha="center", va="center",
                    color="white" if is_inner else TEXT, fontweight="bold", zorder=3)
        ax.set(title=title, xticks=[], yticks=[], xlim=(-0.6, len(parents) - 0.4),
               ylim=(min(y for _, y in points) - 0.5, 0.5))
        bare(ax)
    figure.text(0.5, 0.0, "dark: ranks with children, which add and pass on; white: leaves; orange: "
                "messages, up with sums, then down with results", ha="center", va="bottom",
                color=DIM, fontsize=11)
    return figure


def dgx1(numbers, pyplot):
    """The NVLinks of a DGX-1, as many as rings cross them in one direction (the rings fill them all),
    and the two circles that the rings go round."""
    rings = next(row["rings"] for row in numbers["machines"]["orders"] if row["machine"] == "DGX-1")
    hops = [list(zip(ring, ring[1:] + ring[:1])) for ring in rings]
    links = {}
    for ring in hops:
        for a, b in ring:
            links[a, b] = links.get((a, b), 0) + 1
    circles = []  # each with how many rings go round it, in either direction
    for ring in hops:
        edges = {frozenset(hop) for hop in ring}
        known = next((circle for circle in circles if circle[0] == edges), None)
        if known is None:
            circles.append([edges, ring, 1])
        else:
            known[2] += 1
    at = {0: (0, 1), 1: (1, 1), 2: (1, 0), 3: (0, 0),
          5: (1.9, 1), 4: (2.9, 1), 7: (2.9, 0), 6: (1.9, 0)}
    figure, axes = pyplot.subplots(1, 1 + len(circles), figsize=(10, 3.1),
                                   gridspec_kw={"width_ratios": [1.25] + [1] * len(circles)})

    def cable(ax, a, b, colour, width, words=""):
        (x, y), (u, v) = at[a], at[b]
        far = abs(x - u) > 2  # round the outside
        bend = (-0.28 if y > 0.5 else 0.28) if far else 0.0
        if x > u:
            (x, y), (u, v) = (u, v), (x, y)
        ax.annotate("", (u, v), (x, y), zorder=1, arrowprops={
            "arrowstyle": "-", "color": colour, "linewidth": width, "shrinkA": 0, "shrinkB": 0,
            "connectionstyle": f"arc3,rad={bend}"})
        if words:
            part = 0.3 if abs(x - u) > 0.5 and abs(y - v) > 0.5 else 0.5  # off the diagonals' crossing
            middle = (x + part * (u - x), y + part * (v - y) + (0.4 if y > 0.5 else -0.4) * far)
            ax.text(*middle, words, ha="center", va="center", fontsize=9.5, zorder=2,
                    bbox={"boxstyle": "circle,pad=0.12", "facecolor": "white", "edgecolor": "none"})

    for ax, title in zip(axes, ["NVLinks from GPU to GPU: 1 or 2"] +
                         [f"{count} rings, {count // 2} in each direction" for _, _, count in circles]):
        ax.set(xlim=(-0.35, 3.25), ylim=(-0.75, 1.75), xticks=[], yticks=[])
        ax.set_title(title, fontsize=11)
        bare(ax)
        for gpu, point in at.items():
            ax.plot(*point, "o", color="white", markeredgecolor=TEXT, markersize=18, zorder=3)
            ax.text(*point, str(gpu), ha="center", va="center", fontsize=11, zorder=4)
    for (a, b), count in links.items():
        if a < b:
            cable(axes[0], a, b, COMMUNICATION, 2.0 * count, str(count))
    for ax, (_, ring, count) in zip(axes[1:], circles):
        for a, b in {(min(pair), max(pair)) for pair in links}:
            cable(ax, a, b, FRAME, 1)
        for a, b in ring:
            cable(ax, a, b, COMMUNICATION, count)
        ax.text(1.45, -0.7, "GPU " + " ".join(str(a) for a, _ in ring), ha="center", fontsize=9.5,
                color=DIM)
    return figure


def figures(numbers, pyplot):
    return {"ring": ring(numbers, pyplot), "trees": trees(numbers, pyplot),
            "sizes": sizes(numbers, pyplot), "scale": scale(numbers, pyplot),
            "dgx1": dgx1(numbers, pyplot)}
