"""The figures of this module's handout; tools/plot says how to draw them.

Those of demo_03_data_parallel's numbers, or of largest_batch's.
"""
from timelines import BACKWARD, COMMUNICATION, DIM, LINES, bar, draw, legend, rows_named


def ends_of(ready, duration):
    """When each bucket's sum is over: it begins when it is complete and the one before is over."""
    ends = []
    for complete in ready:
        ends.append(max(complete, ends[-1] if ends else 0) + duration)
    return ends


def seconds_below(axes):
    axes[-1].set_xlabel("seconds since backward began; green backward, orange communication, white "
                        "waiting")
    axes[-1].xaxis.get_major_locator().set_params(integer=True)


def overlap(pyplot):
    """The handout's example: backward of layers 3 .. 0 takes 8, 1, 32 and 2, a sum 4."""
    seconds, layers = [8, 1, 32, 2], [3, 2, 1, 0]
    ready = [sum(seconds[:i + 1]) for i in range(4)]
    figure, axes = pyplot.subplots(2, 1, figsize=(10, 4.4), sharex=True)
    for which, ends, title in ((axes[0], [ready[-1] + 4 * (i + 1) for i in range(4)],
                                "All sums after backward: the last ends at 59"),
                               (axes[1], ends_of(ready, 4), "Sums while backward runs: the last ends at 49")):
        for complete, length, layer in zip(ready, seconds, layers):
            bar(which, 0, complete - length, complete, BACKWARD, f"{layer}")
        for bucket, end in enumerate(ends):
            bar(which, 1, end - 4, end, COMMUNICATION, f"{bucket}")
        rows_named(which, ["backward of layer", "sum of bucket"], title, 60)
    seconds_below(axes)
    return figure


def layered(pyplot):
    """The handout's example: 4 layers of 1 second, 4 micro-batches, sums of 2 seconds; backward alone."""
    figure, axes = pyplot.subplots(2, 1, figsize=(10, 4.4), sharex=True)
    shades = ["#00543d", "#007a58", "#009E73", "#4dbb9d"]
    plain = [(m * 4 + i, 3 - i, m) for m in range(4) for i in range(4)]
    other = [(i * 4 + m, 3 - i, m) for i in range(4) for m in range(4)]
    for which, spans, ready, title in (
            (axes[0], plain, [13, 14, 15, 16],
             "Plain: nothing to send before second 13; the last sum ends at 21"),
            (axes[1], other, [4, 8, 12, 16],
             "Layered: a layer is final every 4 seconds; the last sum ends at 18")):
        for begin, layer, micro_batch in spans:
            bar(which, 0, begin, begin + 1, shades[micro_batch], f"{layer}.{micro_batch}")
        for bucket, end in enumerate(ends_of(ready, 2)):
            bar(which, 1, end - 2, end, COMMUNICATION, f"{bucket}")
        rows_named(which, ["backward of\nlayer.micro-batch", "sum of bucket"], title, 22)
    seconds_below(axes)
    return figure


def step(numbers, pyplot):
    """A step of a GPT on two nodes of eight GPUs, as the program ran it in virtual time."""
    runs = {"all sums at the end": "All sums after backward", "buckets while it runs": "Buckets while backward runs",
            "layered accumulation": "Layered accumulation"}
    longest = 1e3 * max(numbers["timeline"][run]["seconds"] for run in runs)
    figure, axes = pyplot.subplots(3, 1, figsize=(10, 5.4), sharex=True)
    for which, (run, title) in zip(axes, runs.items()):
        data = numbers["timeline"][run]
        draw(which, data["rows"], f"{title}: {1e3 * data['seconds']:.0f} ms", longest, scale=1e3)
    axes[-1].set_xlabel("milliseconds; " + legend(data["rows"]))
    return figure


def efficiency(numbers, pyplot):
    """Two slides: weak scaling and the end of strong scaling, from the sums that were run."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4.2))
    compute, update, job = 0.3, 3.5e-3, 60
    gpus = [2 ** k for k in range(16)]
    for slide, colour in zip(numbers["slides"], LINES):
        name = f"{slide['bandwidth'] / 1e9:g} GB/s"
        share = [(compute + update) / (compute + update + slide["all_reduce"] * (n - 1) / n) for n in gpus]
        left.plot(gpus, [100 * s for s in share], color=colour, label=name)
        left.axhline(100 * slide["published_efficiency"], color=colour, linestyle=":", linewidth=1.5)
        right.plot(gpus, [(job + update) / (job / n + update + slide["all_reduce"] * (n - 1) / n)
                          for n in gpus], color=colour, label=name)
        right.axhline(slide["published_speed_up"], color=colour, linestyle=":", linewidth=1.5)
    left.set(xscale="log", xlabel="GPUs", ylabel="% of ideal", ylim=(60, 101),
             title="As much work for each")
    left.legend(loc="lower left")
    right.plot(gpus, gpus, "--", color=DIM, linewidth=1)
    right.set(xscale="log", yscale="log", xlabel="GPUs", ylabel="times one GPU", ylim=(1, 1e4),
              title="A job of 60 s divided")
    return figure


def not_waiting(numbers, pyplot):
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4.4), sharey=True)
    for i, (name, run) in enumerate(numbers["not_waiting"].items()):
        seconds, samples, loss = zip(*run["curve"])
        how = {"color": LINES[i % len(LINES)], "linestyle": "-" if i < len(LINES) else "--"}
        left.plot(seconds, loss, label=name, **how)
        right.plot(samples, loss, label=name, **how)
    # The beginning, where they differ.
    left.set(xlabel="virtual seconds", ylabel="loss, nats", title="By time",
             xlim=(0, 0.4 * max(run["seconds"] for run in numbers["not_waiting"].values())))
    right.set(xlabel="samples of all workers", title="By samples",
              xlim=(0, 0.4 * max(run["curve"][-1][1] for run in numbers["not_waiting"].values())))
    right.legend(fontsize=10)
    return figure


def onebit(numbers, pyplot):
    figure, axes = pyplot.subplots(figsize=(6.4, 4.2))
    links = list(dict.fromkeys(row["link"] for row in numbers["onebit"]))
    for link in links:
        rows = [row for row in numbers["onebit"] if row["link"] == link]
        axes.plot([r["ranks"] for r in rows], [r["adam"] / r["onebit"] for r in rows], "o-", label=link)
    ranks = sorted({row["ranks"] for row in numbers["onebit"]})
    axes.axhline(1, color=DIM, linewidth=1)
    axes.set(xscale="log", xlabel="GPUs, 8 a node", ylabel="Adam's step / 1-bit Adam's",
             title="Where a bit for a number pays")
    axes.set_xticks(ranks, [str(n) for n in ranks])
    axes.set_xticks([], minor=True)
    axes.legend(fontsize=10)
    return figure


def largest_batch(numbers, pyplot):
    figure, axes = pyplot.subplots(figsize=(6.4, 4.4))
    rows = numbers["largest_batch"]
    batches = [row["batch"] for row in rows]
    axes.plot(batches, [row["steps"] for row in rows], "o-", label="measured")
    axes.plot(batches, [row["perfect"] for row in rows], ":", color=DIM, label="perfect: as 1/batch")
    axes.set(xscale="log", yscale="log", xlabel="batch", ylabel="steps to the same loss",
             title="Larger batches, fewer steps", ylim=(min(row["steps"] for row in rows) / 2, None))
    axes.set_xticks(batches[::2], [str(b) for b in batches[::2]])
    axes.set_xticks([], minor=True)
    axes.legend()
    return figure


def figures(numbers, pyplot):
    if "largest_batch" in numbers:
        return {"largest_batch": largest_batch(numbers, pyplot)}
    return {"overlap": overlap(pyplot), "layered": layered(pyplot), "step": step(numbers, pyplot),
            "efficiency": efficiency(numbers, pyplot), "not_waiting": not_waiting(numbers, pyplot),
            "onebit": onebit(numbers, pyplot)}
