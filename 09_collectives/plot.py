"""The figures of 09_collectives/README.md, for tools/plot."""
import math

DIM = "#5f6b7a"
NAMES = {"naive": "naive", "ring": "ring", "recursive_doubling": "recursive doubling",
         "rabenseifner": "Rabenseifner", "double_tree": "two trees", "tree": "one tree",
         "direct": "direct", "two_level": "two levels"}


def bytes_text(value):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} TiB"


def colours_of(pyplot):
    colours = pyplot.rcParams["axes.prop_cycle"].by_key()["color"]
    order = ["ring", "recursive_doubling", "rabenseifner", "double_tree", "naive", "tree", "direct"]
    return dict(zip(order, colours))


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
    entry, colours = numbers["sizes"], colours_of(pyplot)
    for name in ("ring", "recursive_doubling", "rabenseifner", "double_tree"):
        rows = [row for row in entry["rows"] if row["algorithm"] == name]
        ax.plot([row["bytes"] for row in rows], [row["seconds"] for row in rows],
                color=colours[name], label=NAMES[name])
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
        colour = colours.get(name, DIM)
        ax.plot([begin["bytes"], end], [low, low], color=colour, linewidth=9,
                solid_capstyle="butt")
        if end / begin["bytes"] > 30:
            ax.text(math.sqrt(begin["bytes"] * end), low * 1.35, NAMES.get(name, name),
                    ha="center", color=colour, fontsize=11)
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
    colours = colours_of(pyplot)
    link = 1 / numbers["network"]["beta"]
    for name in ("ring", "recursive_doubling", "rabenseifner", "double_tree"):
        rows = [row for row in numbers["scale"]["rows"] if row["algorithm"] == name]
        ranks = [row["ranks"] for row in rows]

        def followed(key):
            return zip(*[(row["ranks"], row[key]) for row in rows if key in row])

        left.plot(ranks, [row["latency_seconds"] for row in rows], color=colours[name],
                  label=NAMES[name])
        left.plot(*followed("simulated_latency_seconds"), "o", color=colours[name], markersize=5)
        right.plot(ranks, [100 * row["busbw"] / link for row in rows], color=colours[name])
        few, rates = followed("simulated_busbw")
        right.plot(few, [100 * rate / link for rate in rates], "o", color=colours[name],
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


def ring(_, pyplot):
    """Four ranks, four chunks: whose numbers are in each chunk after each step."""
    p = 4
    colours = pyplot.rcParams["axes.prop_cycle"].by_key()["color"][:p]
    figure, axes = pyplot.subplots(1, 2 * p - 1, figsize=(10, 2.9), sharey=True)
    holds = [[{rank} for _ in range(p)] for rank in range(p)]
    for step, ax in enumerate(axes):
        arrived = {}
        if step > 0:
            first_half = step <= p - 1
            s = step - 1 if first_half else step - p
            for rank in range(p):
                chunk = (rank - s if first_half else rank + 1 - s) % p
                arrived[(rank + 1) % p, chunk] = set(holds[rank][chunk])
            for (rank, chunk), whose in arrived.items():
                holds[rank][chunk] = holds[rank][chunk] | whose if first_half else whose
        for rank in range(p):
            for chunk in range(p):
                x, y = chunk, p - 1 - rank
                for part in range(p):
                    if part in holds[rank][chunk]:
                        ax.add_patch(pyplot.Rectangle((x + part / p * 0.9, y), 0.9 / p, 0.8,
                                                      facecolor=colours[part]))
                edge = "#000000" if (rank, chunk) in arrived else "#c5ccd3"
                ax.plot([x, x + 0.9, x + 0.9, x, x], [y, y, y + 0.8, y + 0.8, y], color=edge,
                        linewidth=2 if (rank, chunk) in arrived else 0.8)
        ax.set(xlim=(-0.2, p + 0.1), ylim=(-0.2, p), xticks=[],
               title="begin" if step == 0 else f"step {step - 1}")
        ax.set_yticks([p - 1 - rank + 0.4 for rank in range(p)],
                      [f"rank {rank}" for rank in range(p)])
        ax.tick_params(length=0)
        bare(ax)
        ax.title.set(fontsize=11, fontweight="normal")
    figure.suptitle("A ring of four: colours are ranks whose numbers are in a chunk; framed: "
                    "just arrived", fontsize=12, x=0.01, ha="left")
    return figure


def place(parents):
    """x by rank, y by depth."""
    def depth(rank):
        return 0 if parents[rank] < 0 else 1 + depth(parents[rank])
    return [(rank, -depth(rank)) for rank in range(len(parents))]


def trees(numbers, pyplot):
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 3.2))
    colours = pyplot.rcParams["axes.prop_cycle"].by_key()["color"]
    for ax, name, title in zip(axes, ("first", "second"),
                               ("First half of the buffer", "Second half")):
        parents = numbers["trees"][name]
        points = place(parents)
        inner = set(parents)
        for rank, parent in enumerate(parents):
            if parent >= 0:
                ax.plot(*zip(points[rank], points[parent]), color=DIM, linewidth=1.5, zorder=1)
        for rank, point in enumerate(points):
            colour = colours[1] if rank in inner else colours[0]
            ax.plot(*point, "o", color=colour, markersize=22, zorder=2)
            ax.text(*point, str(rank), ha="center", va="center", color="white",
                    fontweight="bold", zorder=3)
        ax.set(title=title, xticks=[], yticks=[], xlim=(-0.6, len(parents) - 0.4),
               ylim=(min(y for _, y in points) - 0.5, 0.5))
        bare(ax)
    figure.text(0.5, 0.0, "orange: inner ranks, which add and pass on; blue: leaves", ha="center",
                va="bottom", color=DIM, fontsize=11)
    return figure


def dgx1(numbers, pyplot):
    """The rings of a DGX-1, each in a panel: two squares of GPUs, one for each processor."""
    rings = next(row["rings"] for row in numbers["machines"]["orders"] if row["machine"] == "DGX-1")
    at = {0: (0, 1), 1: (1, 1), 2: (1, 0), 3: (0, 0), 4: (2.6, 1), 5: (3.6, 1), 6: (3.6, 0), 7: (2.6, 0)}
    colours = pyplot.rcParams["axes.prop_cycle"].by_key()["color"]
    figure, axes = pyplot.subplots(2, 3, figsize=(10, 3.8))
    for ring, ax, colour in zip(rings, axes.flat, colours * 2):
        for gpu, after in zip(ring, ring[1:] + ring[:1]):
            bend = 0.22 if abs(at[gpu][0] - at[after][0]) > 1 else 0.0
            ax.annotate("", at[after], at[gpu], arrowprops={
                "arrowstyle": "-|>", "color": colour, "linewidth": 1.8, "shrinkA": 10,
                "shrinkB": 10, "connectionstyle": f"arc3,rad={bend}"})
        for gpu, point in at.items():
            ax.plot(*point, "o", color="#e3e6ea", markersize=17)
            ax.text(*point, str(gpu), ha="center", va="center", fontsize=11)
        ax.set(xlim=(-0.4, 4.0), ylim=(-0.75, 1.75), xticks=[], yticks=[])
        ax.set_title(" ".join(str(gpu) for gpu in ring), fontsize=10.5, fontweight="normal")
        bare(ax)
    return figure


def figures(numbers, pyplot):
    return {"ring": ring(numbers, pyplot), "trees": trees(numbers, pyplot),
            "sizes": sizes(numbers, pyplot), "scale": scale(numbers, pyplot),
            "dgx1": dgx1(numbers, pyplot)}
