"""The figures of this module's handout; tools/plot says how to draw them.

Those of demo_05_pipeline's numbers, or of pipeline_limits'.
"""
from timelines import (BACKWARD, COMMUNICATION, DIM, FORWARD, FRAME, IDLE, LINES, PALE, PARTS,
                       TEXT, UPDATE, bar, draw, ink_on, legend, rows_named)

TITLES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "interleaved, 2 chunks", "zb-h1": "ZB-H1",
          "zb-h2": "ZB-H2", "zb-v": "ZB-V"}


def micro_batch(part, name):
    """Of "F3.1", the forward pass of micro-batch 3 through chunk 1: 3."""
    return name[1:].split(".")[0]


def colour_of(part, name):
    """Every second chunk is paler."""
    chunk = int(name.split(".")[1]) if "." in name else 0
    return PALE[PARTS[part]] if chunk % 2 == 1 else PARTS[part]


def warm_up(line):
    """By rank: the forwards before its first pair of a forward and a backward, so one less than those
    before its first backward."""
    counts = []
    for row in line["timeline"]:
        parts = [event[0] for event in sorted(row["events"], key=lambda event: event[2])]
        counts.append(parts[:parts.index("backward")].count("forward") - 1)
    return "warm-up " + ", ".join(str(count) for count in counts)


def timelines(numbers, pyplot, names, height):
    """One under another, in the same seconds. names: what the title says besides, by schedule; "*" stands
    for the ranks' warm-up."""
    lines = [next(row for row in numbers["schedules"] if row["schedule"] == name) for name in names]
    figure, all_axes = pyplot.subplots(len(lines), 1, figsize=(10, height + 0.2), sharex=True)
    longest = max(line["seconds"]["run"] for line in lines)
    for axes, line in zip(all_axes, lines):
        draw(axes, line["timeline"],
             f"{TITLES[line['schedule']]}: {line['seconds']['run']:g} s, "
             f"{100 * line['of_total']:.0f} % waiting"
             + names[line["schedule"]].replace("*", warm_up(line)),
             longest, words=micro_batch, colour=colour_of)
    rows = [row for line in lines for row in line["timeline"]]
    has_chunks = any("." in event[1] for row in rows for event in row["events"])
    all_axes[-1].set_xlabel("seconds; numbers are micro-batches\n" + legend(rows)
                            + (", pale the second chunk" if has_chunks else ""))
    return figure


def fill_and_drain(numbers, pyplot):
    kept = {row["schedule"]: ", ".join(f"{units:g}" for units in row["units"])
            for row in numbers["in_flight"]}
    return timelines(numbers, pyplot, {"gpipe": f"; at most {kept['gpipe']} in flight",
                                       "1f1b": f"; at most {kept['1f1b']} in flight; *"}, 5.4)


def bubble(numbers, pyplot):
    """The bubble's share of the total against m, as run, with the marks of m = 4 p."""
    figure, axes = pyplot.subplots(figsize=(8, 4.4))
    rows = [row for row in numbers["bubbles"] if row["schedule"] == "1f1b"]
    for ranks, colour in zip(sorted({row["p"] for row in rows}), LINES):
        own = [row for row in rows if row["p"] == ranks]
        axes.plot([row["m"] for row in own], [100 * row["of_total"]["run"] for row in own], "-",
                  color=colour, label=f"{ranks} ranks")
        there = next(row for row in own if row["m"] == 4 * ranks)
        axes.plot([there["m"]], [100 * there["of_total"]["run"]], "o", color=colour, markersize=9)
    axes.axhline(20, color=DIM, linestyle="--", linewidth=1.2)
    axes.text(2, 21, "20 %", color=DIM, fontsize=11)
    counts = sorted({row["m"] for row in rows})
    axes.set(xscale="log", xlabel="micro-batches", ylabel="% of the total", ylim=(0, 50),
             title="The bubble of GPipe and 1F1B; a mark: m = 4 p")
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.set_xticks([], minor=True)
    axes.legend(fontsize=11)
    return figure


def in_flight(numbers, pyplot):
    """Micro-batches of which a rank keeps activations, in units of all its layers'."""
    figure, axes = pyplot.subplots(figsize=(8, 4))
    styles = {"gpipe": (LINES[1], "o-"), "zb-h2": (LINES[2], "v-"), "interleaved": (LINES[3], "s-"),
              "zb-h1": (DIM, "^-"), "1f1b": (LINES[0], "o-")}
    rows = {row["schedule"]: row["units"] for row in numbers["in_flight"]}
    for name, (colour, marker) in styles.items():
        axes.plot(range(len(rows[name])), rows[name], marker, color=colour, label=TITLES[name])
    axes.set(xlabel="rank r", ylabel="micro-batches", ylim=(0, max(rows["gpipe"]) + 0.8),
             title=f"In flight, at most: p = {len(rows['gpipe'])} ranks, m = {max(rows['gpipe']):g} "
                   "micro-batches")
    axes.set_xticks(range(len(rows["gpipe"])))
    axes.legend(fontsize=10, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def circle(pyplot):
    """The handout's two lists with sends that block: what is done, and what waits for what."""
    figure, axes = pyplot.subplots(figsize=(8.6, 3.6))
    lists, done = (("F0", "F1", "B0", "B1"), ("F0", "B0", "F1", "B1")), 2
    width, height, above = 1.3, 0.7, (2.2, 0)
    for rank, actions in enumerate(lists):
        axes.text(-1.0, above[rank], f"rank {rank}", va="center", fontsize=13, fontweight="bold", color=TEXT)
        for i, action in enumerate(actions):
            colour = FORWARD if action[0] == "F" else BACKWARD
            axes.add_patch(pyplot.Rectangle((2 * i, above[rank] - height / 2), width, height,
                                            facecolor=colour if i < done else IDLE,
                                            edgecolor=colour, linewidth=1.4))
            axes.text(2 * i + width / 2, above[rank], action, ha="center", va="center", fontsize=12,
                      color=ink_on(colour) if i < done else TEXT)
    # Each arrow leads from what waits to what it waits for.
    ends = (above[0] - height / 2, above[1] + height / 2)
    for begin, end, says, place in (
            ((2 + width / 2, ends[0]), (4 + width / 2, ends[1]), "rank 0's send of F1 waits\nuntil rank 1 begins F1", 5.0),
            ((2 + width / 2, ends[1]), (4 + width / 2, ends[0]), "rank 1's send of B0 waits\nuntil rank 0 begins B0", 2.2)):
        axes.annotate("", end, begin, arrowprops={"arrowstyle": "-|>", "color": COMMUNICATION,
                                                  "linewidth": 2.4, "shrinkA": 0, "shrinkB": 0})
        axes.text(place, (ends[0] + ends[1]) / 2, says, ha="left" if place > 4 else "right", va="center",
                  fontsize=11, color="#9a6a00")
    for y, says, below in ((above[0] + height / 2, "B0 waits for the send before it", False),
                           (above[1] - height / 2, "F1 waits for the send before it", True)):
        side = -0.4 if below else 0.4
        axes.annotate("", (2 + width / 2, y), (4 + width / 2, y),
                      arrowprops={"arrowstyle": "-|>", "color": DIM, "linewidth": 1.6, "shrinkA": 0,
                                  "shrinkB": 0,
                                  "connectionstyle": f"arc3,rad={-0.25 if below else 0.25}"})
        axes.text(3 + width / 2, y + 1.6 * side, says, ha="center", va="center", fontsize=11, color=DIM)
    axes.set(xlim=(-1.1, 7.7), ylim=(-1.35, 3.5),
             title="Sends that block: ranks 0 -> 1 -> 0 wait for each other (white: never begins)")
    axes.axis("off")
    return figure


# The handout's table: rank 0 of three, a forward takes 1 second, a backward 2, an update none.
PIPEDREAM = [("F0", 0, 1, 0), ("F1", 1, 2, 0), ("F2", 2, 3, 0), ("B0", 7, 9, 0), ("F3", 9, 10, 1),
             ("B1", 10, 12, 0), ("F4", 12, 13, 2), ("B2", 13, 15, 0)]  # begin, end, version
KEPT = [(0, 15), (9, 16.4), (12, 16.4), (15, 16.4)]  # each version, from when to when


def versions(pyplot):
    """Which version of the weights an action computes with, and how long each version is kept."""
    figure, axes = pyplot.subplots(figsize=(10, 3.9))
    for version, (begin, end) in enumerate(KEPT):
        bar(axes, 1 + version, begin, end, FRAME)
    for name, begin, end, version in PIPEDREAM:
        colour = FORWARD if name[0] == "F" else BACKWARD
        for row in (0, 1 + version):
            bar(axes, row, begin, end, colour, name)
    for _, begin, end, _ in (action for action in PIPEDREAM if action[0][0] == "B"):
        axes.axvline(end, color=UPDATE, linewidth=2, zorder=3)
        axes.text(end + 0.08, -0.5, "U", color=TEXT, fontsize=11, va="bottom")
    rows_named(axes, ["rank 0 works", *(f"weights {version}" for version in range(4))],
               "", 16.4)
    axes.set_title("PipeDream, rank 0 of three: weights 0 are kept until B1 and B2 are over", pad=18)
    axes.set_xticks(range(0, 17, 2))
    axes.set_xlabel("seconds; blue forward, green backward, purple update, pale: kept; white in the first row: "
                    "waiting")
    return figure


def data_parallel(numbers, pyplot):
    """Milliseconds a sample, in data parallelism and in a pipeline, on three networks."""
    networks = numbers["data_parallel"]
    figure, all_axes = pyplot.subplots(1, 3, figsize=(10, 4.2), sharey=True)
    for axes, (name, network) in zip(all_axes, networks.items()):
        rows = network["rows"]
        batches = [row["samples"] for row in rows]
        for way, label, colour in (("data", "data parallelism", LINES[0]),
                                   ("pipeline", "pipeline, 1F1B", LINES[1])):
            axes.plot(batches, [1e3 * row[way] / row["samples"] for row in rows], "o-", color=colour,
                      label=label, markersize=5)
        axes.axvline(network["data_parallel_from"], color=DIM, linestyle=":", linewidth=1.4)
        axes.set(xscale="log", yscale="log", xlabel="samples of a step", title=name)
        axes.set_xticks([8, 64, 512, 4096], ["8", "64", "512", "4096"])
        axes.set_xticks([], minor=True)
        begin = network["data_parallel_from"]
        axes.text(begin * 1.15, 330, f"from {begin}", fontsize=10, color=DIM)
    all_axes[0].set(ylabel="ms a sample")
    all_axes[0].set_yticks([5, 10, 20, 50, 100, 200, 500], ["5", "10", "20", "50", "100", "200", "500"])
    all_axes[0].set_yticks([], minor=True)
    all_axes[0].legend(fontsize=10, loc="upper right", bbox_to_anchor=(1, 0.86))
    return figure


def figures(numbers, pyplot):
    if "data_parallel" in numbers:
        return {"data_parallel": data_parallel(numbers, pyplot)}
    of_schedules = {
        "interleaved": ({"1f1b": "; *", "interleaved": "; *"}, 5.4),
        "zero_bubble": ({"1f1b": "; *", "zb-h1": "; *", "zb-h2": ", none between first and last action; *"},
                        7.6),
        "zero_bubble_v": ({"zb-h1": "", "zb-v": ""}, 5.4)}
    return {"fill_and_drain": fill_and_drain(numbers, pyplot), "bubble": bubble(numbers, pyplot),
            "in_flight": in_flight(numbers, pyplot), "circle": circle(pyplot), "versions": versions(pyplot),
            **{name: timelines(numbers, pyplot, *rows) for name, rows in of_schedules.items()}}
