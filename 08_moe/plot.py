"""The figures of this module's handout, of demo_08_moe's numbers, and of more.md, of equal_flops';
tools/plot says how to draw them."""
from timelines import (COMMUNICATION, COMPUTING, DIM, FORWARD, LINES, PALE_COMPUTING, TEXT, ink_on)

DROPPED = LINES[1]
TINTS = ["#d6e8f3", "#99C7E0", "#4d9cca", FORWARD]  # of experts: computing forward is blue
COLUMNS = {"tokens": 0.0, "sorted": 3.0, "experts": 6.5, "back": 10.0, "y": 13.0}
LANE = 10.5  # rows of a rank, from its first token to the next rank's


def token_box(axes, x, y, words, expert=None, width=0.9):
    """A token, tinted by its expert; white if none takes it."""
    colour = "white" if expert is None else TINTS[expert]
    axes.text(x, y, words, ha="center", va="center", fontsize=11, zorder=4,
              color=TEXT if expert is None else ink_on(colour))
    axes.add_patch(axes.rectangle((x - width / 2, y - 0.4), width, 0.8, zorder=3, facecolor=colour,
                                  edgecolor=DROPPED if expert is None else FORWARD, linewidth=1.1,
                                  linestyle="--" if expert is None else "-"))


def link(axes, begin, end, crosses):
    """An S from one column to another: orange where it leaves the rank."""
    (x0, y0), (x1, y1) = begin, end
    middle = (x0 + x1) / 2
    path = axes.path([(x0, y0), (middle, y0), (middle, y1), (x1, y1)], [1, 4, 4, 4])
    axes.add_patch(axes.path_patch(path, facecolor="none", zorder=2 if crosses else 1,
                                   edgecolor=COMMUNICATION if crosses else "#b9c0c8",
                                   linewidth=1.8 if crosses else 1.3))


def places_of(ranks):
    """By column: where each token's box is, (x, y); and of each expert its rows."""
    places, experts = {column: {} for column in COLUMNS}, {}
    for rank in ranks:
        top = LANE * rank["rank"]
        for column, tokens in (("tokens", rank["tokens"]), ("y", rank["tokens"]),
                               ("sorted", rank["sorted"]), ("back", rank["sorted"])):
            for row, token in enumerate(tokens):
                places[column][token] = (COLUMNS[column], top + row)
        row = top
        for expert, tokens in rank["at experts"].items():
            experts[expert] = (row, len(tokens))
            for token in tokens:
                places["experts"][token] = (COLUMNS["experts"], row)
                row += 1
            row += 0.55
    return places, experts


def dispatch(numbers, pyplot):
    """Two ranks' tokens on their way to experts and home."""
    from matplotlib.patches import FancyBboxPatch, PathPatch
    from matplotlib.path import Path
    ranks, routed = numbers["tokens"]["two_ranks"], numbers["tokens"]["routed"]
    figure, axes = pyplot.subplots(figsize=(11, 7.6))
    axes.rectangle, axes.path, axes.path_patch = pyplot.Rectangle, Path, PathPatch
    axes.set(xlim=(-1.75, 14.0), ylim=(2 * LANE - 0.7, -1.75))
    axes.axis("off")
    places, experts = places_of(ranks)
    rank_of = {token: rank["rank"] for rank in ranks for token in rank["tokens"]}
    host = {token: rank["rank"] for rank in ranks for tokens in rank["at experts"].values()
            for token in tokens}
    for column, words in (("tokens", "tokens"), ("sorted", "sorted\nby expert"), ("experts", "at the experts"),
                          ("back", "back:\ngate × answer"), ("y", "y")):
        axes.text(COLUMNS[column], -0.75, words, ha="center", va="bottom", fontsize=11.5,
                  fontweight="bold")
    for x in (4.75, 8.25):
        axes.text(x, -0.75, "all-to-all", ha="center", va="bottom", fontsize=11.5, color="#9a6a00",
                  fontweight="bold")
    for rank in ranks:
        top = LANE * rank["rank"]
        axes.text(-1.7, top + 3.5, f"rank {rank['rank']}", rotation=90, ha="left", va="center", fontsize=13,
                  fontweight="bold")
        if rank["rank"]:
            axes.plot([-1.7, 13.9], [top - 0.85] * 2, color="#d5d9de", linewidth=1.2)
        gone = [token for token in rank["tokens"] if routed[token]["is"] == "dropped"]
        for i, token in enumerate(gone):  # around all, below the rank's last row
            (x0, y0), (x1, y1), low = places["tokens"][token], places["y"][token], top + 8.8 - 0.35 * i
            bend = 1.0 + 0.25 * i
            axes.plot([x0 + 0.45, x0 + bend, x0 + bend, x1 - bend, x1 - bend, x1 - 0.6],
                      [y0, y0, low, low, y1, y1], color=DROPPED, linestyle="--", linewidth=1.3,
                      zorder=1)
        for x, side, words in ((1.05, "left", "dropped"), (11.95, "right", "by the residual alone")):
            axes.text(x, top + 8.92, words, ha=side, va="top", fontsize=10.5, color=DROPPED)
    for expert, (row, count) in experts.items():
        axes.add_patch(FancyBboxPatch((COLUMNS["experts"] - 1.05, row - 0.45), 1.8, count - 0.1,
                                      boxstyle="round,pad=0.06", facecolor="white", edgecolor=FORWARD,
                                      linewidth=1.6, zorder=2.5))
        axes.text(COLUMNS["experts"] - 0.8, row + count / 2 - 0.5, f"expert {expert}", rotation=90,
                  ha="center", va="center", fontsize=10, color=FORWARD, zorder=5)
    for row in routed:
        token, expert = row["token"], row["expert"]
        x, y = places["tokens"][token]
        axes.text(x - 0.6, y, f"expert {expert}", ha="right", va="center", fontsize=8.5, color=DIM)
        if row["is"] == "dropped":
            token_box(axes, x, y, token)
            token_box(axes, *places["y"][token], "0", width=1.2)
            continue
        crosses = rank_of[token] != host[token]
        sides = {"tokens": 0.45, "sorted": 0.45, "experts": 0.45, "back": 0.95, "y": 0.6}
        names = list(COLUMNS)
        for a, b in zip(names, names[1:]):
            (x0, y0), (x1, y1) = places[a][token], places[b][token]
            link(axes, (x0 + sides[a], y0), (x1 - sides[b], y1), crosses and "experts" in (a, b))
        for column in ("tokens", "sorted", "experts"):
            token_box(axes, *places[column][token], token, expert)
        token_box(axes, *places["back"][token], f"{row['gate']:.2f} × {10 * (expert + 1)}", expert, 1.9)
        token_box(axes, *places["y"][token], f"{row['y']:.1f}", expert, 1.2)
    return figure


def load(numbers, pyplot):
    """Tokens that choose each expert, and what of them finds room."""
    figure, all_axes = pyplot.subplots(1, 2, figsize=(11, 4.3), sharey=True)
    titles = {"uneven": "A router that likes some experts", "even": "A router that likes all alike"}
    for axes, (router, title) in zip(all_axes, titles.items()):
        rows = {row["capacity"]: row for row in numbers["load"] if row["router"] == router}
        wanted, taken = rows[0]["taken"], rows[1.25]["taken"]
        experts = range(len(wanted))
        axes.bar(experts, taken, color=FORWARD, width=0.72, label="taken, capacity 1.25")
        axes.bar(experts, [w - t for w, t in zip(wanted, taken)], bottom=taken, color=DROPPED,
                 width=0.72, label="dropped")
        for factor in (1, 1.25, 2):
            room = rows[factor]["room"]
            axes.axhline(room, color=TEXT if factor == 1.25 else DIM, linewidth=1.2,
                         linestyle="-" if factor == 1.25 else "--")
            axes.text(7.65, room + 12, f"capacity {factor:g}: {100 * rows[factor]['dropped']:.0f} % dropped",
                      fontsize=9.5, color=TEXT if factor == 1.25 else DIM)
        axes.set(xlabel="expert", title=title, xlim=(-0.6, 13), ylim=(0, 1600))
        axes.set_xticks(list(experts))
        axes.grid(False)
    all_axes[0].set_ylabel("of 4,096 tokens in 4 samples")
    all_axes[0].legend(loc="upper right", bbox_to_anchor=(1, 0.98))
    return figure


def exchange(numbers, pyplot):
    """Over the ranks that share the experts: bytes, and where the time goes."""
    rows = {router: [row for row in numbers["steps"] if row["router"] == router]
            for router in ("switch", "top2")}
    figure, (left, *right) = pyplot.subplots(1, 3, figsize=(12.5, 4.4), width_ratios=(1, 1.15, 1.15))
    for router, marker, line in (("switch", "o", "-"), ("top2", "s", "--")):
        left.plot([row["ep"] for row in rows[router]], [row["MB"] for row in rows[router]], line,
                  marker=marker, color=COMMUNICATION, label=f"{router}, all")
        left.plot([row["ep"] for row in rows[router]], [row["to nodes"] for row in rows[router]], line,
                  marker=marker, color=TEXT, label=f"{router}, to other nodes", markersize=5, linewidth=1.4)
    ticks = [row["ep"] for row in rows["switch"]]
    left.set(xscale="log", xlabel="ranks that share the experts", ylabel="MB that a rank sends",
             title="Bytes", ylim=(0, 190))
    left.set_xticks(ticks, [str(ep) for ep in ticks])
    left.set_xticks([], minor=True)
    left.legend(fontsize=9.5, loc="upper left")
    highest = 1.45 * max(max(row["ms"], row["shared ms"]) for own in rows.values() for row in own)
    for axes, (router, own) in zip(right, rows.items()):
        for shift, ms, waits, pale in ((-0.21, "ms", "waits", False), (0.21, "shared ms", "shared waits", True)):
            x = [i + shift for i in range(len(own))]
            computing = [row[ms] - row[waits] for row in own]
            axes.bar(x, computing, width=0.38, color=PALE_COMPUTING if pale else COMPUTING,
                     label="computes, with a shared expert" if pale else "computes")
            axes.bar(x, [row[waits] for row in own], width=0.38, bottom=computing, color=COMMUNICATION,
                     label=None if pale else "waits for rows")
        hops = [(i - 0.21, row["hops ms"]) for i, row in enumerate(own) if row["hops ms"] != "-"]
        for i, (x, ms) in enumerate(hops):
            axes.plot([x - 0.24, x + 0.24], [ms, ms], color=TEXT, linewidth=2,
                      label="in two hops" if i == 0 else None)
        axes.set(title=f"Time, {router}", xlabel="ranks that share the experts", ylim=(0, highest))
        axes.set_xticks(range(len(own)), [str(row["ep"]) for row in own])
        axes.grid(axis="x", visible=False)
    right[0].set_ylabel("ms, forward and backward")
    right[0].legend(fontsize=9.5, loc="upper right")
    return figure


def learning(numbers, pyplot):
    """Validation losses at equal FLOPs, by the number of experts; and the busiest expert's load."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9.6, 3.6))
    rows = [row for row in numbers["losses"]["rows"] if row["step"] > 0]
    steps = [row["step"] for row in rows]
    for tint, experts in zip([DIM, LINES[3], LINES[1], LINES[0]], (1, 2, 4, 8)):
        mean = [row[f"E {experts}"] for row in rows]
        half = [row[f"+- {experts}"] for row in rows]
        left.fill_between(steps, [m - h for m, h in zip(mean, half)],
                          [m + h for m, h in zip(mean, half)], color=tint, alpha=0.25, linewidth=0)
        left.plot(steps, mean, color=tint, linewidth=2, marker="o", markersize=4,
                  label="dense" if experts == 1 else f"{experts} experts")
    left.set(title="As many FLOPs a token", xlabel="step", ylabel="validation loss, nats a byte")
    left.legend()
    for key, words, colour in (("busiest", "with", LINES[0]),
                               ("alone: busiest", "without", LINES[2])):
        right.plot([row["step"] for row in numbers["loads"]], [row[key] for row in numbers["loads"]],
                   color=colour, linewidth=2, marker="o", markersize=4, label=f"{words} the balance loss")
    right.axhline(1 / 8, color=DIM, linestyle="--", linewidth=1)
    right.text(0, 0.13, "even", color=DIM, fontsize=9.5)
    right.set(title="8 experts: the busiest one", xlabel="step", ylabel="share of the tokens", ylim=(0, 0.5))
    right.legend(loc="upper right")
    return figure


def figures(numbers, pyplot):
    if "losses" in numbers:
        return {"learning": learning(numbers, pyplot)}
    return {"dispatch": dispatch(numbers, pyplot), "load": load(numbers, pyplot),
            "exchange": exchange(numbers, pyplot)}
