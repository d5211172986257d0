"""The figures of this module's handout; tools/plot says how to draw them.

Of sequence_limits' numbers, or of long_sequences'.
"""
from timelines import DIM, LINES, MEMORY, draw, ink_on

# What a layer keeps, from below: what no rank need have whole comes last.
PARTS = [("whole", "norms, residuals, masks", LINES[3]), ("products", "products, GELU", LINES[0]),
         ("scores", "attention's scores", LINES[1])]
ROWS = [("none", "nothing split"), ("tensor", "tensor"), ("sequence", "tensor +\nsequence"),
        ("selective", "tensor,\nselective"), ("both", "tensor + seq.,\nselective"), ("full", "full")]
FORMS = [("zigzag", LINES[0], "o"), ("ulysses", LINES[1], "s"), ("hybrid", LINES[2], "^")]


def activations(numbers, pyplot):
    """Bytes a layer keeps in the six rows of the table, in parts."""
    rows = {row["row"]: row for row in numbers["layer"]["rows"]}
    figure, axes = pyplot.subplots(figsize=(9.5, 4.4))
    bottom = [0.0] * len(ROWS)
    for part, words, colour in PARTS:
        heights = [rows[name][part] for name, _ in ROWS]
        axes.bar(range(len(ROWS)), heights, bottom=bottom, color=colour, label=words, width=0.7)
        bottom = [low + height for low, height in zip(bottom, heights)]
    highest = 1.15 * bottom[1]  # the first bar is cut off
    for x, top in enumerate(bottom):
        if top > highest:
            axes.text(x, 0.93 * highest, f"{top:,.0f}\nfar above", ha="center", va="top", fontsize=11,
                      color=ink_on(PARTS[1][2]))
        else:
            axes.text(x, top + 20, f"{top:,.0f}", ha="center", fontsize=11, color=DIM)
    axes.set_xticks(range(len(ROWS)), [words for _, words in ROWS], fontsize=10.5)
    axes.set(ylabel="MB a rank", ylim=(0, 1.08 * highest), title="What a layer of the 22B model keeps, 8 ranks, 4 samples")
    axes.grid(axis="x", visible=False)
    axes.legend(loc="upper right")
    return figure


def fits(numbers, pyplot):
    """GB of a GPU of the first stage, of each model in each row."""
    rows, capacity = numbers["models"]["rows"], numbers["models"]["capacity"]
    names = list(dict.fromkeys(row["row"] for row in rows))
    figure, axes = pyplot.subplots(figsize=(11, 4.8))
    places = [i + i // len(names) for i in range(len(rows))]
    bottom = [0.0] * len(rows)
    for part, colour in MEMORY.items():
        heights = [row[part] for row in rows]
        axes.bar(places, heights, bottom=bottom, color=colour, label=part, width=0.85)
        bottom = [low + height for low, height in zip(bottom, heights)]
    axes.axhline(capacity, color="#000000", linestyle="--", linewidth=1.4)
    axes.text(places[-1] + 0.6, capacity + 2, f"{capacity:.0f} GB", ha="right", fontsize=11)
    axes.set_xticks(places, [row["row"] for row in rows], rotation=90, fontsize=10)
    for i in range(0, len(rows), len(names)):
        axes.text(places[i] + (len(names) - 1) / 2, 183, rows[i]["model"], ha="center", fontsize=13,
                  fontweight="bold")
    axes.set(ylabel="GB a GPU", ylim=(0, 195), title="First stage: what fits on 80 GB")
    axes.grid(axis="x", visible=False)
    axes.legend(loc="upper left", bbox_to_anchor=(0, 0.93), fontsize=10.5)
    return figure


def who_computes(numbers, pyplot):
    """When four ranks compute: a ring in runs, and in zigzags."""
    runs = numbers["timelines"]
    figure, all_axes = pyplot.subplots(2, 1, figsize=(10, 4.6), sharex=True)
    end = 1e3 * max(run["seconds"] for run in runs.values())
    for axes, (name, run) in zip(all_axes, runs.items()):
        draw(axes, run["rows"], f"{name}: ranks compute {100 * run['busy']:.0f} % of "
             f"{1e3 * run['seconds']:.1f} ms", end, scale=1e3)
    all_axes[1].set_xlabel("milliseconds; blue forward, green backward, white waiting for keys or "
                           "for the others")
    return figure


def ring_or_ulysses(numbers, pyplot):
    """Over the tokens, on links inside a node and between nodes: times the ring without links."""
    links = ["8 in a node", "8 apart", "2 nodes of 8", "8 nodes of 8"]
    figure, all_axes = pyplot.subplots(1, len(links), figsize=(12.5, 3.9), sharey=True)
    for axes, name in zip(all_axes, links):
        rows = [row for row in numbers["who_wins"] if row["links"] == name]
        for form, colour, marker in FORMS:
            there = [row for row in rows if row[f"{form} ms"] != "-"]
            axes.plot([row["tokens"] for row in there],
                      [row[f"{form} ms"] / row["no links"] for row in there], marker=marker,
                      color=colour, label=form)
        axes.axhline(1, color=DIM, linestyle=":", linewidth=1.4)
        axes.set(xscale="log", yscale="log", xlabel="tokens", title=name)
        tokens = [row["tokens"] for row in rows]
        axes.set_xticks(tokens, [f"{n // 1024}k" for n in tokens])
        axes.set_xticks([], minor=True)
    ticks = [0.5, 1, 2, 4, 8, 16]
    all_axes[0].set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    all_axes[0].set_yticks([], minor=True)
    all_axes[0].set_ylabel("times a zigzag without links")
    all_axes[0].legend()
    all_axes[-1].text(4096, 1.15, "Ulysses: no more\nranks than heads", fontsize=10.5, color=DIM)
    return figure


def figures(numbers, pyplot):
    if "models" in numbers:
        return {"activations": activations(numbers, pyplot), "fits": fits(numbers, pyplot)}
    return {"who-computes": who_computes(numbers, pyplot),
            "ring-or-ulysses": ring_or_ulysses(numbers, pyplot)}
