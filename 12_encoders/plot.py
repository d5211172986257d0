"""The figures of this module's handout; tools/plot says how to draw them.

       ./aisc demo 12 --json demo.json
       tools/plot 12 demo.json 12_encoders/figures
"""
import math

from timelines import BACKWARD, DIM, FORWARD, FRAME, LINES, PALE, TEXT, ink_on

SHOWN = 4  # positions as hands
TINTS = 9  # of grey
SOURCE, PADDING = ["the", "ring", "is", "slow"], ["[PAD]"]
TARGET = ["begin", "der", "Ring"]
PAIR = ["[CLS]", "the", "ring", "is", "[MASK]", "[SEP]", "it", "has", "eight", "ranks", "[SEP]"]
SEGMENT_B, HIDDEN = 6, 4  # of PAIR: where the second text begins, the place that is asked for


def bare(axes, width, height):
    axes.set(xlim=(0, width), ylim=(height, 0), aspect="equal")
    axes.axis("off")


def box(axes, pyplot, x, y, width, height, words, colour="white", edge=DIM, fontsize=11):
    """Its middle is at (x, y)."""
    axes.add_patch(pyplot.Rectangle((x - width / 2, y - height / 2), width, height, facecolor=colour,
                                    edgecolor=edge, linewidth=1.2, zorder=3))
    ink = TEXT if colour == "white" else ink_on(colour)
    axes.text(x, y, words, ha="center", va="center", fontsize=fontsize, color=ink, zorder=4)


def arrow(axes, begin, end, colour, width=2):
    axes.annotate("", end, begin, arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": width,
                                              "shrinkA": 0, "shrinkB": 0, "mutation_scale": 14})


def positions(numbers, pyplot):
    """The encodings as a map, and the first of them as hands of two clocks."""
    encodings = numbers["positions"]["map"]
    width = math.isqrt(len(encodings))
    rows = [encodings[i:i + width] for i in range(0, len(encodings), width)]
    figure = pyplot.figure(figsize=(11, 4.6))
    left, right = figure.subfigures(1, 2, width_ratios=(1.15, 1))
    axes = left.subplots()
    for column in range(width):  # neighbours of one tint in one rectangle: smaller than a map of cells
        tints = [round((1 + row[column]) / 2 * (TINTS - 1)) for row in rows]
        begin = 0
        for end in range(1, len(tints) + 1):
            if end < len(tints) and tints[end] == tints[begin]:
                continue
            axes.add_patch(pyplot.Rectangle((column, begin), 1, end - begin, linewidth=0,
                                            facecolor=str(round(1 - tints[begin] / (TINTS - 1), 2))))
            begin = end
    axes.set(title=f"{width} columns: black 1, white -1", xlabel="column", ylabel="position",
             xlim=(0, width), ylim=(len(rows), 0))
    axes.grid(False)
    clocks = right.subplots(2, SHOWN)
    for hand, (line, name) in enumerate(zip(clocks, ("columns 0, 1", "columns 2, 3"))):
        for pos, axes in enumerate(line):
            row = numbers["positions"]["rows"][pos]
            sine, cosine = row[f"column {2 * hand}"], row[f"column {2 * hand + 1}"]
            axes.add_patch(pyplot.Circle((0, 0), 1, facecolor="white", edgecolor=DIM, linewidth=1.2))
            axes.plot([0, 0.9 * sine], [0, 0.9 * cosine], color=LINES[hand], linewidth=3,
                      solid_capstyle="round")
            axes.text(0, -1.25, f"({sine:.2f}, {cosine:.2f})", ha="center", va="top", fontsize=10)
            axes.set(xlim=(-1.3, 1.3), ylim=(-2.8, 1.2), aspect="equal")
            axes.axis("off")
            if hand == 0:
                axes.set_title(f"position {pos}", fontsize=11, loc="center", fontweight="normal")
            if pos == 0:
                axes.text(-1.3, -2.2, name, fontsize=10.5, color=LINES[hand], fontweight="bold",
                          ha="left", va="top")
    return figure


def looks(_, pyplot):
    """Who sees whom, in an encoder, a decoder, and from the decoder to the encoder."""
    everything = SOURCE + PADDING
    parts = (("Encoder: all but padding", everything, everything, lambda query, key: key < len(SOURCE)),
             ("Decoder: earlier tokens", TARGET, TARGET, lambda query, key: key <= query),
             ("Cross-attention: all of the source", TARGET, everything,
              lambda query, key: key < len(SOURCE)))
    figure, axes = pyplot.subplots(figsize=(11.5, 4.2))
    bare(axes, 20.4, 7.2)
    left = 1.4  # of a part's grid
    for title, queries, keys, sees in parts:
        axes.text(left - 1.3, 0.3, title, fontsize=12.5, fontweight="bold", va="center")
        for y, query in enumerate(queries):
            axes.text(left - 0.2, y + 2.1, query, ha="right", va="center", fontsize=11.5,
                      color=DIM if query in PADDING else TEXT)
            for x in range(len(keys)):
                seen = PALE[FORWARD] if query in PADDING else FORWARD
                axes.add_patch(pyplot.Rectangle((left + x, y + 1.6), 1, 1, edgecolor=FRAME, linewidth=1.5,
                                                facecolor=seen if sees(y, x) else "white"))
        for x, key in enumerate(keys):
            axes.text(left + x + 0.5, 1.4, key, ha="center", va="bottom", fontsize=11.5,
                      color=DIM if key in PADDING else TEXT)
        left += len(keys) + 2.4
    axes.text(8.8, 5.2, "a row looks at\ncoloured columns", va="top", fontsize=11, color=DIM)
    return figure


def side(numbers, pyplot):
    """The encoder's output on its way to two decoder blocks, and what comes back."""
    left, came = (row["gradient of the values"].split() for row in reversed(numbers["cross"]))
    others = numbers["cross"][1]["left by others"].split()
    figure, axes = pyplot.subplots(figsize=(10, 3.6))
    bare(axes, 20, 7)
    box(axes, pyplot, 2.2, 5.2, 3.4, 1.6, "encoder")
    box(axes, pyplot, 7, 5.2, 3, 1.6, "output\n1   3", PALE[FORWARD], FORWARD, 12)
    for x, name in ((11.5, "decoder\nblock 0"), (16.5, "decoder\nblock 1")):
        box(axes, pyplot, x, 1.6, 2.8, 1.6, name)
    arrow(axes, (3.9, 4.9), (5.5, 4.9), FORWARD)
    arrow(axes, (12.9, 1.3), (15.1, 1.3), FORWARD)
    arrow(axes, (17.9, 1.3), (19.6, 1.3), FORWARD)
    arrow(axes, (19.6, 1.9), (17.9, 1.9), BACKWARD)
    arrow(axes, (15.1, 1.9), (12.9, 1.9), BACKWARD)
    for x in (11.1, 16.1):  # keys and values go up
        axes.plot([8.5, x], [4.8, 4.8], color=FORWARD, linewidth=2, zorder=1)
        arrow(axes, (x, 4.8), (x, 2.4), FORWARD)
    for x, words in ((16.9, "leaves " + "  ".join(others)), (11.9, "adds " + "  ".join(came))):
        axes.plot([x, x], [2.4, 5.6], color=BACKWARD, linewidth=2, zorder=1)
        axes.text(x + 0.2, 3.6, words, fontsize=11.5, color=BACKWARD, va="center")
    axes.plot([16.9, 8.5], [5.6, 5.6], color=BACKWARD, linewidth=2, zorder=1)
    axes.text(14.4, 6.1, "  ".join(others), fontsize=11.5, color=BACKWARD, ha="center", va="center")
    axes.text(10.2, 6.1, "  ".join(left), fontsize=11.5, color=BACKWARD, ha="center", va="center",
              fontweight="bold")
    arrow(axes, (8.7, 5.6), (8.5, 5.6), BACKWARD)
    arrow(axes, (5.5, 5.6), (3.9, 5.6), BACKWARD)
    axes.text(0.5, 1.2, "forward", color=FORWARD, fontsize=12, fontweight="bold")
    axes.text(0.5, 2.0, "backward", color=BACKWARD, fontsize=12, fontweight="bold")
    return figure


def bert(_, pyplot):
    """The three vectors of each token, the blocks, and the two heads."""
    figure, axes = pyplot.subplots(figsize=(12, 6.2))
    bare(axes, 27, 14)
    first, step = 3.4, 2.2
    for i, token in enumerate(PAIR):
        x = first + step * i
        colour = PALE[FORWARD] if i in (0, HIDDEN) else "white"
        box(axes, pyplot, x, 13, 1.9, 1, token, colour, FORWARD if i in (0, HIDDEN) else DIM)
        box(axes, pyplot, x, 11.6, 1.9, 1, "A" if i < SEGMENT_B else "B")
        box(axes, pyplot, x, 10.2, 1.9, 1, str(i))
        for y in (12.3, 10.9):
            axes.text(x, y, "+", ha="center", va="center", fontsize=12)
        arrow(axes, (x, 9.7), (x, 8.9), FORWARD, 1.5)
    for y, name in ((13, "word"), (11.6, "segment"), (10.2, "position")):
        axes.text(0.1, y, name, va="center", fontsize=12)
    middle = first + step * (len(PAIR) - 1) / 2
    width = step * len(PAIR) - 0.3
    box(axes, pyplot, middle, 8.4, width, 1, "norm")
    box(axes, pyplot, middle, 6.6, width, 1.6, "blocks: every token sees all others")
    arrow(axes, (middle, 7.9), (middle, 7.4), FORWARD, 1.5)
    for i, layer, scores, told in ((0, "pooler", "2 scores", "does B follow A?"),
                                   (HIDDEN, "transform", "V scores", "which word was here?")):
        x = first + step * i
        arrow(axes, (x, 5.8), (x, 5.0), FORWARD)
        box(axes, pyplot, x, 4.4, 3.4, 1.2, layer, PALE[FORWARD], FORWARD)
        arrow(axes, (x, 3.8), (x, 3.0), FORWARD)
        box(axes, pyplot, x, 2.4, 3.4, 1.2, scores, PALE[FORWARD], FORWARD)
        axes.text(x, 1.2, told, ha="center", va="center", fontsize=12, fontweight="bold")
    axes.text(first + step * 7.6, 3.4, "no other row is looked at:\nno other word has a loss", fontsize=12,
              color=DIM, ha="center", va="center")
    return figure


def figures(numbers, pyplot):
    return {"positions": positions(numbers, pyplot), "looks": looks(numbers, pyplot),
            "side": side(numbers, pyplot), "bert": bert(numbers, pyplot)}
