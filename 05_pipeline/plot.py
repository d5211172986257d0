"""The figures of this module's handout; tools/plot says how to draw them.

Those of demo_05_pipeline's numbers, or of pipeline_limits'.
"""
import re
import xml.etree.ElementTree

FORWARD, BACKWARD, WEIGHT_GRADIENT, IDLE = "#0072B2", "#009E73", "#7F7F7F", "#ffffff"
DIM = "#5f6b7a"
SVG = "{http://www.w3.org/2000/svg}"
COLOURS = {"F": FORWARD, "B": BACKWARD, "W": WEIGHT_GRADIENT}
PALE = {"F": "#99C7E0", "B": "#99D8C7", "W": "#CCCCCC"}  # every second chunk
NAMES = {"F": "blue forward", "B": "green backward", "W": "grey weight gradient"}
TITLES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "interleaved, 2 chunks", "zb-h1": "ZB-H1",
          "zb-h2": "ZB-H2", "zb-v": "ZB-V"}


def timeline(numbers, name):
    """A schedule's seconds, and by rank its actions: kind, micro-batch, chunk, begin, end. The demo's
    picture has them in the titles of its rectangles: "F3.1: 4 to 4.5 s"; a rank has a height."""
    row = next(row for row in numbers["schedules"] if row["schedule"] == name)
    ranks = {}
    for rectangle in xml.etree.ElementTree.fromstring(row["svg"]).iter(SVG + "rect"):
        title = rectangle.findtext(SVG + "title", "")
        found = re.fullmatch(r"([FBW])(\d+)(?:\.(\d+))?: (\S+) to (\S+) s", title)
        if found:
            kind, micro_batch, chunk, begin, end = found.groups("0")
            ranks.setdefault(float(rectangle.get("y")), []).append(
                (kind, micro_batch, int(chunk), float(begin), float(end)))
    return {**row, "seconds": row["seconds"]["run"], "actions": [ranks[y] for y in sorted(ranks)]}


def draw(axes, line, longest, says):
    """A row a rank: each action with its micro-batch; what is left white is waiting."""
    ranks = range(len(line["actions"]))
    for rank, actions in zip(ranks, line["actions"]):
        axes.barh(rank, line["seconds"], height=0.8, color=IDLE, edgecolor="#d5d9de", linewidth=0.8)
        for kind, micro_batch, chunk, begin, end in actions:
            pale = chunk % 2 == 1
            axes.barh(rank, end - begin, left=begin, height=0.8, edgecolor="white", linewidth=0.8,
                      color=(PALE if pale else COLOURS)[kind])
            axes.text((begin + end) / 2, rank, micro_batch, ha="center", va="center",
                      fontsize=9 if end - begin > 0.6 else 7, color="#1f2933" if pale else "white")
    axes.set(xlim=(0, longest), title=f"{TITLES[line['schedule']]}: {line['seconds']:g} s, "
                                      f"{100 * line['of_total']:.0f} % waiting{says}")
    axes.set_yticks(ranks, [f"rank {rank}" for rank in ranks])
    axes.invert_yaxis()
    axes.grid(False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def timelines(numbers, pyplot, names, height):
    """One under another, in the same seconds. names: what the title says besides, by schedule."""
    lines = [timeline(numbers, name) for name in names]
    figure, all_axes = pyplot.subplots(len(lines), 1, figsize=(10, height + 0.2), sharex=True)
    longest = max(line["seconds"] for line in lines)
    for axes, line in zip(all_axes, lines):
        draw(axes, line, longest, names[line["schedule"]])
    actions = [action for line in lines for rank in line["actions"] for action in rank]
    words = [word for kind, word in NAMES.items() if any(kind == action[0] for action in actions)]
    if any(action[2] for action in actions):
        words.append("pale the second chunk")
    all_axes[-1].set_xlabel("seconds; numbers are micro-batches\n" + ", ".join(words)
                            + ", white waiting")
    return figure


def fill_and_drain(numbers, pyplot):
    kept = {row["schedule"]: ", ".join(f"{units:g}" for units in row["units"])
            for row in numbers["in_flight"]}
    return timelines(numbers, pyplot, {name: f"; at most {kept[name]} micro-batches in flight"
                                       for name in ("gpipe", "1f1b")}, 5.4)


def interleaved(numbers, pyplot):
    return timelines(numbers, pyplot, {"1f1b": "", "interleaved": ""}, 5.4)


def zero_bubble(numbers, pyplot):
    return timelines(numbers, pyplot,
                     {"1f1b": "", "zb-h1": "",
                      "zb-h2": ", all of it before the first action or after the last"}, 7.6)


def zero_bubble_v(numbers, pyplot):
    return timelines(numbers, pyplot, {"zb-h1": "", "zb-v": ""}, 5.4)


def bubble(numbers, pyplot):
    """The bubble's share of the total against m, as run, with the marks of m = 4 p."""
    figure, axes = pyplot.subplots(figsize=(8, 4.4))
    rows = [row for row in numbers["bubbles"] if row["schedule"] == "1f1b"]
    for ranks, colour in zip(sorted({row["p"] for row in rows}), ("#0072B2", "#009E73", "#CC79A7")):
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
    styles = {"gpipe": ("#D55E00", "o-"), "zb-h2": (WEIGHT_GRADIENT, "v-"),
              "interleaved": ("#56B4E9", "s-"), "zb-h1": ("#CC79A7", "^-"), "1f1b": (FORWARD, "o-")}
    rows = {row["schedule"]: row["units"] for row in numbers["in_flight"]}
    for name, (colour, marker) in styles.items():
        axes.plot(range(len(rows[name])), rows[name], marker, color=colour, label=TITLES[name])
    axes.set(xlabel="rank", ylabel="micro-batches", ylim=(0, max(rows["gpipe"]) + 0.8),
             title=f"Of {max(rows['gpipe']):g} micro-batches in flight, at most")
    axes.set_xticks(range(len(rows["gpipe"])))
    axes.legend(fontsize=10, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def data_parallel(numbers, pyplot):
    """Milliseconds a sample, in data parallelism and in a pipeline, on three networks."""
    networks = numbers["data_parallel"]
    figure, all_axes = pyplot.subplots(1, 3, figsize=(10, 4.2), sharey=True)
    for axes, (name, network) in zip(all_axes, networks.items()):
        rows = network["rows"]
        batches = [row["samples"] for row in rows]
        for way, label, colour in (("data", "data parallelism", "#D55E00"),
                                   ("pipeline", "pipeline, 1F1B", FORWARD)):
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
    return {"fill_and_drain": fill_and_drain(numbers, pyplot),
            "interleaved": interleaved(numbers, pyplot), "zero_bubble": zero_bubble(numbers, pyplot),
            "zero_bubble_v": zero_bubble_v(numbers, pyplot), "bubble": bubble(numbers, pyplot),
            "in_flight": in_flight(numbers, pyplot)}
