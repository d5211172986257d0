"""The figures of this module's handout; tools/plot says how to draw them.

Those of demo_06_tensor_parallel's numbers, or of tensor_limits'.
"""
from timelines import (BACKWARD, COMMUNICATION, DIM, FORWARD, IDLE, LINES, TEXT, WEIGHT_GRADIENT,
                       bar, rows_named)

PALE = {FORWARD: "#d6e8f3", BACKWARD: "#d5efe6", WEIGHT_GRADIENT: "#e6e6e6", COMMUNICATION: "#fbeacb"}
SIDE = 0.5  # of a cell of a matrix


def canvas(pyplot, width, height, x, y):
    figure, axes = pyplot.subplots(figsize=(width, height))
    axes.set(xlim=x, ylim=y)
    axes.axis("off")
    return figure, axes


def vector(numbers):
    return "(" + " ".join(f"{number:g}" for number in numbers) + ")"


def box(axes, x, y, name, numbers, colour, width=1.0):
    axes.text(x, y + 0.29, name, ha="center", va="bottom", fontsize=10, color=DIM)
    axes.text(x, y, numbers, ha="center", va="center", fontsize=11.5, color=TEXT,
              bbox={"boxstyle": "round,pad=0.35", "facecolor": PALE[colour], "edgecolor": colour})


def arrow(axes, begin, end, colour, **how):
    axes.annotate("", end, begin, arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 1.6,
                                              "shrinkA": 0, "shrinkB": 0, **how})


def mlp(numbers, pyplot):
    """Who holds which numbers: a rank is two rows, forward to the right and backward to the left."""
    figure, axes = canvas(pyplot, 11, 5.2, (-0.7, 11.8), (-0.4, 6.1))
    forward = {"x": 0, "A": 3.4, "z": 5.2, "B": 7, "share of y": 8.8, "y": 11.2}
    backward = {"dx": 0, "share of dx": 1.9, "dA": 3.4, "dz": 5.2, "dB": 7, "dy": 11.2}
    names = {"A": "columns of A", "B": "rows of B", "dA": "their gradient", "dB": "their gradient"}
    sum_of_y, sum_of_dx = 10, 0.95
    rows = {0: (5.0, 3.9), 1: (1.5, 0.4)}
    # The two sums: shares of both ranks go in, the same numbers come out on both.
    for x, pair, says in ((sum_of_y, 0, "g: sum"), (sum_of_dx, 1, "f: sum")):
        ends = [rows[rank][pair] for rank in rows]
        axes.plot([x, x], ends, color=COMMUNICATION, linewidth=6, solid_capstyle="round", zorder=1)
        axes.text(x + 0.17, 2.75, says, fontsize=12, color="#9a6a00", va="center", fontweight="bold")
    for rank, row in enumerate(numbers["mlp"]):
        for (places, colour), y in zip(((forward, FORWARD), (backward, BACKWARD)), rows[rank]):
            # Arrows from box to box; one that passes the other sum has white around it.
            xs = sorted(places.values(), reverse=colour == BACKWARD)
            for begin, end in zip(xs, xs[1:]):
                side = 0.55 if end > begin else -0.55
                for crossed in (sum_of_y, sum_of_dx):
                    own = crossed == (sum_of_y if colour == FORWARD else sum_of_dx)
                    if not own and min(begin, end) < crossed < max(begin, end):
                        axes.plot([crossed - 0.15, crossed + 0.15], [y, y], color="white", linewidth=9,
                                  zorder=2, solid_capstyle="butt")
                arrow(axes, (begin + side, y), (end - side, y), colour)
            for what, x in places.items():
                box(axes, x, y, names.get(what, what), vector(row[what]),
                    WEIGHT_GRADIENT if what in ("dA", "dB") else colour)
        axes.text(-0.62, rows[rank][0] + 0.72, f"rank {rank}", fontsize=13, fontweight="bold", color=TEXT)
    axes.set_title("y = (x A) B on two ranks: forward (blue) to the right, backward (green) to the left")
    return figure

def cells(axes, x, y, rows, columns, colour, own=lambda row, column: True, words=()):
    """A matrix whose upper left corner is (x, y): what lies on the rank is filled, the rest is white."""
    for row in range(rows):
        for column in range(columns):
            fill = PALE[colour] if own(row, column) else IDLE
            left, top = x + SIDE * column, y - SIDE * row
            axes.fill([left, left + SIDE, left + SIDE, left], [top, top, top - SIDE, top - SIDE],
                      facecolor=fill, edgecolor=colour if own(row, column) else "#d5d9de",
                      linewidth=0.9, zorder=3 if own(row, column) else 2)
    for column, word in enumerate(words):
        axes.text(x + SIDE * (column + 0.5), y - SIDE / 2, word, ha="center", va="center", fontsize=9.5,
                  color=TEXT, zorder=4)
    return x + SIDE * columns / 2


def attention(pyplot):
    """The handout's example: four heads of one column each, one token, two ranks. No numbers: whose
    columns and rows are whose."""
    figure, axes = canvas(pyplot, 11.5, 6.0, (-0.4, 23), (-0.5, 12.2))
    sums = {"f: sum": (2.75, 1), "g: sum": (19.2, 0)}
    lanes = {0: (10.2, 7.3), 1: (4.0, 1.1)}  # of each rank: the middle of forward's row and of backward's
    for says, (x, lane) in sums.items():
        axes.plot([x, x], [lanes[0][lane], lanes[1][lane]], color=COMMUNICATION, linewidth=6,
                  solid_capstyle="round", zorder=1)
        axes.text(x + 0.3, 5.65, says, fontsize=12, color="#9a6a00", va="center", fontweight="bold")
    xs = {"x": 0, "A": 4.3, "heads": 11.4, "B": 14.1, "share": 16.9, "y": 20.5}
    columns = [f"{part}{head}" for head in range(4) for part in "qkv"]
    for rank, (ahead, back) in lanes.items():
        own = range(2 * rank, 2 * rank + 2)  # its heads
        axes.text(-0.3, ahead + 1.4, f"rank {rank}", fontsize=13, fontweight="bold", color=TEXT)
        for what, x, rows, width, is_own, words in (
                ("x", xs["x"], 1, 4, lambda r, c: True, ()),
                ("columns of queries, keys, values", xs["A"], 4, 12, lambda r, c: c // 3 in own, columns),
                (f"heads {own[0]} and {own[1]}", xs["heads"], 1, 2, lambda r, c: True, [f"a{head}" for head in own]),
                ("rows of the projection", xs["B"], 4, 4, lambda r, c: r in own, ()),
                ("share of y", xs["share"], 1, 4, lambda r, c: True, ()),
                ("y", xs["y"], 1, 4, lambda r, c: True, ())):
            middle = cells(axes, x, ahead + SIDE * rows / 2, rows, width, FORWARD, is_own, words)
            axes.text(middle, ahead + SIDE * rows / 2 + 0.16, what, ha="center", va="bottom", fontsize=9.5,
                      color=DIM)
        for what, x, width, colour in (
                ("dx", xs["x"], 4, BACKWARD), ("share of dx", 3.5, 4, BACKWARD),
                ("dq dk dv of its heads", xs["A"] + SIDE * 4.5, 6, BACKWARD),
                ("da", xs["heads"], 2, BACKWARD), ("dy", xs["y"], 4, BACKWARD)):
            middle = cells(axes, x, back + SIDE / 2, 1, width, colour)
            axes.text(middle, back + SIDE / 2 + 0.16, what, ha="center", va="bottom", fontsize=9.5, color=DIM)
        # Forward to the right, backward to the left; one that passes the other sum is white around.
        for begin, end in ((xs["x"] + 4 * SIDE, xs["A"]), (xs["A"] + 12 * SIDE, xs["heads"]),
                           (xs["heads"] + 2 * SIDE, xs["B"]), (xs["B"] + 4 * SIDE, xs["share"]),
                           (xs["share"] + 4 * SIDE, xs["y"])):
            over(axes, begin, end, ahead, sums["f: sum"][0])
            arrow(axes, (begin + 0.12, ahead), (end - 0.12, ahead), FORWARD)
        for begin, end in ((xs["y"], xs["heads"] + 2 * SIDE), (xs["heads"], xs["A"] + 10.5 * SIDE),
                           (xs["A"] + 4.5 * SIDE, 3.5 + 4 * SIDE), (3.5, xs["x"] + 4 * SIDE)):
            over(axes, begin, end, back, sums["g: sum"][0])
            arrow(axes, (begin - 0.12, back), (end + 0.12, back), BACKWARD)
    axes.set_title("Attention of four heads on two ranks: whose columns and rows are whose")
    axes.text(11.3, -0.35, "blue forward, green backward, orange communication, white: on the other rank",
              ha="center", fontsize=11, color=TEXT)
    return figure


def over(axes, begin, end, y, crossed):
    """White around the place where an arrow from begin to end passes a sum that is not its own."""
    if min(begin, end) < crossed < max(begin, end):
        axes.plot([crossed - 0.25, crossed + 0.25], [y, y], color="white", linewidth=9, zorder=2,
                  solid_capstyle="butt")


def overlap(numbers, pyplot):
    """Backward of a block on rank 0 of 8: operations, and the sums beside them."""
    run = numbers["backward"]
    figure, axes = pyplot.subplots(figsize=(10, 3))
    products = 0
    layers = ("MLP, second", "MLP, first", "projection", "queries, keys, values")
    for y, row in enumerate(run["rows"]):
        for part, name, begin, end in row["events"]:
            begin, end, label, colour = 1e6 * begin, 1e6 * end, "", BACKWARD
            if part == "communication":
                label, colour = name, COMMUNICATION
            elif name == "matmul":
                label, colour = ("dW", WEIGHT_GRADIENT) if products % 2 else ("dx", BACKWARD)
                if products % 2 == 0:
                    axes.text(begin, -0.47, layers[products // 2], fontsize=9.5, color=DIM)
                products += 1
            elif name == "causal_attention_backward":
                label = "attention"
            bar(axes, y, begin, end, colour, label if end - begin > 40 else "")
    rows_named(axes, [row["name"] for row in run["rows"]], "", 1e6 * run["seconds"] * 1.005)
    axes.set_title("Backward of a block of 4096 columns, 8 A100: each sum begins beside a product of dW",
                   pad=18)
    axes.set_xlabel("microseconds; green backward, grey weight gradient, orange communication, white "
                    "waiting")
    return figure


def halo(numbers, pyplot):
    """The image of 4 x 4 on four ranks: what each owns, and what it reads of others."""
    figure, all_axes = pyplot.subplots(2, 2, figsize=(6.4, 6.4))
    for rank, (axes, row) in enumerate(zip(all_axes.flat, numbers["halo"])):
        (own_row, own_column), (row0, column0) = row["owns_from"], row["reads_from"]
        side = round(len(row["reads"]) ** 0.5)
        for i, value in enumerate(row["reads"]):
            y, x = row0 + i // side, column0 + i % side
            own = own_row <= y < own_row + 2 and own_column <= x < own_column + 2
            corner = not own and not (own_row <= y < own_row + 2 or own_column <= x < own_column + 2)
            fill, edge = ("#f4f6f8", TEXT) if own else (PALE[COMMUNICATION], COMMUNICATION)
            axes.add_patch(pyplot.Rectangle((x, y), 1, 1, facecolor=fill, edgecolor=edge,
                                            linewidth=2.6 if corner else 1.2, zorder=2 + corner))
            axes.text(x + 0.5, y + 0.5, f"{value:g}", ha="center", va="center", fontsize=13,
                      color=TEXT, zorder=4)
        for i in range(16):
            axes.add_patch(pyplot.Rectangle((i % 4, i // 4), 1, 1, facecolor="none",
                                            edgecolor="#d5d9de", linewidth=0.8, zorder=1))
        axes.set(xlim=(-0.05, 4.05), ylim=(4.05, -0.05), aspect="equal")
        axes.set_title(f"rank {rank}", fontsize=12)
        axes.axis("off")
    figure.supxlabel("dark frames: its own; orange: the halo, bold its corner",
                     fontsize=11, color=DIM)
    return figure


def intensity(numbers, pyplot):
    """FLOPs a byte of a part, against the balance of the machine."""
    figure, axes = pyplot.subplots(figsize=(8, 4.2))
    rows, balance = numbers["a100"]["rows"], numbers["a100"]["balance"]
    ranks = [row["p"] for row in rows]
    for n, colour in zip((4096, 2048), LINES):
        axes.plot(ranks, [row[f"FLOP/B {n}"] for row in rows], "o-", color=colour, label=f"n = {n}")
        most = numbers["a100"]["most_ranks"][str(n)]
        axes.axvline(most, color=colour, linestyle=":", linewidth=1.4)
        axes.text(most * 1.04, 900, f"{most}", color=colour, fontsize=11)
    axes.axhline(balance, color=DIM, linestyle="--", linewidth=1.4)
    axes.text(1, balance * 1.07, f"an A100 needs {balance:.0f}", color=DIM, fontsize=11)
    axes.set(xscale="log", yscale="log", xlabel="ranks", ylabel="FLOPs a byte",
             title="A product of n x n matrices over p ranks has n/(2+p) FLOPs a byte")
    for axis, ticks in ((axes.xaxis, [1, 2, 4, 8, 16, 32, 64]),
                        (axes.yaxis, [32, 64, 128, 256, 512, 1024])):
        axis.set_ticks(ticks, [str(tick) for tick in ticks])
        axis.set_ticks([], minor=True)
    axes.legend(fontsize=11, loc="upper right")
    return figure


def figures(numbers, pyplot):
    if "a100" in numbers:
        return {"intensity": intensity(numbers, pyplot)}
    return {"mlp": mlp(numbers, pyplot), "attention": attention(pyplot),
            "overlap": overlap(numbers, pyplot), "halo": halo(numbers, pyplot)}
