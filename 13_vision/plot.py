"""The figures of this module's handout; tools/plot says how to draw them.

       ./aisc demo 13 --json demo.json
       tools/plot 13 demo.json 13_vision/figures
"""
from timelines import COMMUNICATION, DIM, FORWARD, FRAME, LINES, MEMORY, PALE, PALE_COMPUTING, TEXT, ink_on

RANKS = (FORWARD, LINES[1])  # whose image a mark is
STAGES = ("#332288", "#7a6fb3", "#882255", "#b97d9c")
SIDE, TINTS = 28, 5  # pixels of a digit's row, and greys
BEHIND = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}  # words, where a line passes
GAP, CAPTION = 3, 5  # pixels between two digits, and above them


def digits(numbers, pyplot):
    """A digit of each kind. A row of neighbours of one grey is one rectangle, and all of one grey are one
    path: smaller than an image of cells."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path
    across, down = SIDE + GAP, SIDE + CAPTION
    width, height = 5 * across - GAP, 2 * down
    figure = pyplot.figure(figsize=(5 * width / 72, 5 * height / 72), layout="none")
    axes = figure.add_axes((0, 0, 1, 1))  # a pixel is 5 points: coordinates stay whole numbers
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    boxes = {tint: [] for tint in range(TINTS)}
    for digit, pixels in enumerate(numbers["digits"]):
        left, top = digit % 5 * across, digit // 5 * down + CAPTION
        boxes[0].append((left, top, SIDE, SIDE))
        axes.text(left + SIDE / 2, top - 1, str(digit), ha="center", va="baseline", fontsize=13,
                  fontweight="bold")
        tints = [min(pixel * TINTS // 230, TINTS - 1) for pixel in pixels]
        for y in range(SIDE):
            begin = 0
            for x in range(1, SIDE + 1):
                row = tints[y * SIDE:(y + 1) * SIDE]
                if x < SIDE and row[x] == row[begin]:
                    continue
                if row[begin]:
                    boxes[row[begin]].append((left + begin, top + y, x - begin, 1))
                begin = x
    for tint, places in boxes.items():
        points, codes = [], []
        for x, y, w, h in places:
            points += [(x, y), (x + w, y), (x + w, y + h), (x, y + h), (x, y)]
            codes += [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
        if points:
            axes.add_patch(PathPatch(Path(points, codes), linewidth=0, snap=False, clip_on=False,
                                     facecolor=str(round(0.1 + 0.9 * tint / (TINTS - 1), 2))))
    return figure


def stages(numbers, pyplot):
    """FLOPs of the layers, tinted by the stage that has them, and what passes at each boundary."""
    layers = numbers["layers"]
    best = next(row for row in numbers["cuts"] if row["stages"] == 4 and row["cut by"] == "best_cut")
    other = next(row for row in numbers["cuts"] if row["stages"] == 4 and row["cut by"] != "best_cut")
    begins, elsewhere = ([int(i) for i in row["begin with"].split()] for row in (best, other))
    figure, (above, below) = pyplot.subplots(2, 1, figsize=(10, 6.4), sharex=True,
                                             height_ratios=(1.35, 1))
    places = range(len(layers))
    stage_of = [sum(begin <= i for begin in begins) - 1 for i in places]
    above.bar(places, [row["FLOPs"] / 1e6 for row in layers], width=0.66,
              color=[STAGES[stage] for stage in stage_of])
    for i, row in enumerate(layers):
        above.text(i, row["FLOPs"] / 1e6 + 0.03, f"{row['FLOPs'] / 1e6:.2g}", ha="center", va="bottom",
                   fontsize=11)
    for stage, begin in enumerate(begins):
        end = [*begins, len(layers)][stage + 1]
        above.text((begin + end - 1) / 2, 2.28, f"stage {stage}", ha="center", va="center", fontsize=12,
                   color=STAGES[stage], fontweight="bold")
    above.set(ylim=(0, 2.45), ylabel="MFLOP", title="What a layer computes of an image, forward")
    above.grid(axis="x", visible=False)
    for i in places[1:]:
        handed = i in begins
        below.bar(i - 0.5, layers[i]["elements"] / 1e3, width=0.34,
                  color=COMMUNICATION if handed else PALE_COMPUTING)
        below.text(i - 0.5, layers[i]["elements"] / 1e3 + 0.25, f"{layers[i]['elements']:,}", ha="center",
                   va="bottom", fontsize=11, fontweight="bold" if handed else "normal", bbox=BEHIND)
    for axes in (above, below):
        for begin in begins[1:]:
            axes.axvline(begin - 0.5, color=DIM, linestyle="--", linewidth=1.2, zorder=0)
    moved = next(i for i in elsewhere if i not in begins)
    more, fewer = (f"{row['elements handed over']:,}" for row in (other, best))
    below.annotate(f"cut here it is as fast, but hands\nover {more} elements instead of {fewer}",
                   (moved - 0.5, 0.62 * layers[moved]["elements"] / 1e3), (moved + 2.62, 9.4), fontsize=11.5,
                   va="center", ha="left", bbox=BEHIND,
                   arrowprops={"arrowstyle": "->", "color": DIM, "linewidth": 1.3, "shrinkB": 12})
    below.set(ylim=(0, 15), ylabel="thousand elements", title="What it takes from the layer before")
    below.grid(axis="x", visible=False)
    below.set_xticks(list(places), [row["layer"] for row in layers])
    return figure


def statistics(numbers, pyplot):
    """Where batch norm puts four images, by the statistics of each rank, and by those of both."""
    rows = {row["statistics"]: row for row in numbers["norms"]}
    means = [row["mean"] for row in numbers["moments"]]
    images = [1, 3, 5, 7]
    figure, all_axes = pyplot.subplots(1, 2, figsize=(11, 4.3))
    for axes, name, title in zip(all_axes, ("2: own", "2: of all"),
                                 ("Each rank by its own mean and spread", "By those of both ranks (SyncBN)")):
        normed = [rows[name][f"{image} becomes"] for image in images]
        across = [4 + 5 ** 0.5 * y for y in normed]  # below the x that mean and variance of all bring there
        for line, middle, words in ((1, (4, 4), "x"), (0, (4, 4), "y")):
            axes.plot([0, 8], [line, line], color=DIM, linewidth=1.4, zorder=1)
            axes.text(-0.35, line, words, ha="right", va="center", fontsize=14, fontstyle="italic")
        for image, y, place in zip(images, normed, across):
            rank = images.index(image) // 2
            axes.annotate("", (place, 0.05), (image, 0.95),
                          arrowprops={"arrowstyle": "-|>", "color": RANKS[rank], "linewidth": 1.8,
                                      "shrinkA": 8, "shrinkB": 8, "mutation_scale": 14})
            axes.plot([image], [1], "o", color=RANKS[rank], markersize=15, zorder=3)
            axes.text(image, 1, str(image), ha="center", va="center", fontsize=10.5, color="white", zorder=4)
        for y in sorted(set(normed)):
            owners = [images.index(image) // 2 for image, found in zip(images, normed) if found == y]
            place = 4 + 5 ** 0.5 * y
            for shift, rank in zip((-0.17, 0.17) if len(owners) > 1 else (0,), owners):
                axes.plot([place + shift], [0], "o", color=RANKS[rank], markersize=15, zorder=3)
            together = " and ".join(str(image) for image, found in zip(images, normed) if found == y)
            axes.text(place, -0.13, f"{y:.2f}".rstrip("0").rstrip("."), ha="center", va="top", fontsize=12)
            if len(owners) > 1:
                axes.text(place, -0.29, f"{together} are the same", ha="center", va="top", fontsize=11,
                          color=DIM)
        taken = ((means[0], RANKS[0]), (means[1], RANKS[1])) if name == "2: own" else ((means[2], TEXT),)
        for mean, colour in taken:
            axes.plot([mean] * 2, [0.93, 1.17], color=colour, linewidth=1.6, zorder=2)
            axes.text(mean, 1.19, f"mean {mean:g}", ha="center", va="bottom", fontsize=11.5, color=colour)
        axes.set(xlim=(-0.6, 8.4), ylim=(-0.45, 1.4))
        axes.set_title(title, pad=10)
        axes.axis("off")
    figure.supxlabel("blue: images of rank 0, dark red: of rank 1", fontsize=11.5)
    return figure


def stack(axes, places, columns, width):
    """Bars of {part: heights}, one part upon another; returns their tops."""
    tops = [0.0] * len(places)
    for part, heights in columns.items():
        axes.bar(places, heights, bottom=tops, color=MEMORY[part], width=width)
        tops = [top + height for top, height in zip(tops, heights)]
    for x, top in zip(places, tops):
        axes.text(x, top + 0.01 * axes.get_ylim()[1], f"{top:#.2g}", ha="center", va="bottom", fontsize=10.5)
    return tops


def memory(numbers, pyplot):
    """Bytes of one of two ranks: state by ZeRO's stage, and beside it what its images keep."""
    found = numbers["memory"]
    keys = {"weights": "weights kB", "gradients": "gradients kB", "optimizer": "moments kB"}
    states = {row["zero"]: {part: row[key] / 1e3 for part, key in keys.items()}
              for row in found["states"] if row["ranks"] == 2}
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.6), width_ratios=(1, 1.6))
    left.set(title="State of one of two ranks", ylabel="MB", ylim=(0, 1.4))
    stack(left, list(states), {part: [row[part] for row in states.values()] for part in keys}, 0.8)
    low = 0
    for part, height in states[0].items():
        left.text(0, low + height / 2, "moments" if part == "optimizer" else part, ha="center",
                  va="center", fontsize=10, color=ink_on(MEMORY[part]))
        low += height
    left.set_xticks(list(states), [f"ZeRO {zero}" for zero in states])
    counts = sorted({row["micro-batches"] for row in found["batches"]})
    right.set(title="State and activations of its part of 64 images", ylabel="MB", ylim=(0, 9),
              xlabel="micro-batches; left bars ZeRO 0, right bars ZeRO 3")
    for shift, zero in ((-0.21, 0), (0.21, 3)):
        kept = {row["micro-batches"]: row["activations kB"] / 1e3 for row in found["batches"]
                if row["zero"] == zero}
        parts = {part: [states[zero][part]] * len(counts) for part in keys}
        stack(right, [i + shift for i in range(len(counts))],
              {**parts, "activations": [kept[count] for count in counts]}, 0.38)
    right.text(-0.21, 4.6, "activations", rotation=90, ha="center", va="center", fontsize=10.5,
               color=ink_on(MEMORY["activations"]))
    right.set_xticks(range(len(counts)), [str(count) for count in counts])
    for axes in (left, right):
        axes.grid(axis="x", visible=False)
    return figure


def figures(numbers, pyplot):
    return {"digits": digits(numbers, pyplot), "stages": stages(numbers, pyplot),
            "statistics": statistics(numbers, pyplot), "memory": memory(numbers, pyplot)}
