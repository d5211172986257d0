"""The figures of this module's handout; tools/plot says how to draw them.

Those of demo_05_pipeline's numbers, or of pipeline_limits'.
"""
from timelines import DIM, FORWARD, PALE, PARTS, WEIGHT_GRADIENT, draw, legend

TITLES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "interleaved, 2 chunks", "zb-h1": "ZB-H1",
          "zb-h2": "ZB-H2", "zb-v": "ZB-V"}


def micro_batch(part, name):
    """Of "F3.1", the forward pass of micro-batch 3 through chunk 1: 3."""
    return name[1:].split(".")[0]


def colour_of(part, name):
    """Every second chunk is paler."""
    chunk = int(name.split(".")[1]) if "." in name else 0
    return PALE[PARTS[part]] if chunk % 2 == 1 else PARTS[part]


def timelines(numbers, pyplot, names, height):
    """One under another, in the same seconds. names: what the title says besides, by schedule."""
    lines = [next(row for row in numbers["schedules"] if row["schedule"] == name) for name in names]
    figure, all_axes = pyplot.subplots(len(lines), 1, figsize=(10, height + 0.2), sharex=True)
    longest = max(line["seconds"]["run"] for line in lines)
    for axes, line in zip(all_axes, lines):
        draw(axes, line["timeline"],
             f"{TITLES[line['schedule']]}: {line['seconds']['run']:g} s, "
             f"{100 * line['of_total']:.0f} % waiting{names[line['schedule']]}",
             longest, words=micro_batch, colour=colour_of)
    rows = [row for line in lines for row in line["timeline"]]
    has_chunks = any("." in event[1] for row in rows for event in row["events"])
    all_axes[-1].set_xlabel("seconds; numbers are micro-batches\n" + legend(rows)
                            + (", pale the second chunk" if has_chunks else ""))
    return figure


def fill_and_drain(numbers, pyplot):
    kept = {row["schedule"]: ", ".join(f"{units:g}" for units in row["units"])
            for row in numbers["in_flight"]}
    return timelines(numbers, pyplot, {name: f"; at most {kept[name]} micro-batches in flight"
                                       for name in ("gpipe", "1f1b")}, 5.4)


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
    of_schedules = {
        "interleaved": ({"1f1b": "", "interleaved": ""}, 5.4),
        "zero_bubble": ({"1f1b": "", "zb-h1": "",
                         "zb-h2": ", all of it before the first action or after the last"}, 7.6),
        "zero_bubble_v": ({"zb-h1": "", "zb-v": ""}, 5.4)}
    return {"fill_and_drain": fill_and_drain(numbers, pyplot), "bubble": bubble(numbers, pyplot),
            "in_flight": in_flight(numbers, pyplot),
            **{name: timelines(numbers, pyplot, *rows) for name, rows in of_schedules.items()}}
