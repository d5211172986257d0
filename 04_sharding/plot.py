"""The figures of this module's handout; tools/plot says how to draw them.

Those of demo_04_sharding's numbers, or of limits'.
"""
from timelines import COMMUNICATION, DIM, IDLE, LINES, MEMORY, draw, legend

PURPOSES = {purpose: MEMORY[purpose] for purpose in ("weights", "gradients", "optimizer")}
BYTES = {"weights": 2, "gradients": 2, "optimizer": 12}  # of a parameter
SHARDED_FROM = {"weights": 3, "gradients": 2, "optimizer": 1}  # the stage


def text(axes, x, y, words, **how):
    axes.text(x, y, words, **{"ha": "center", "va": "center", "fontsize": 10, **how})


def gigabytes(numbers, stage, ranks):
    row = next(r for r in numbers["zero"] if (r["stage"], r["ranks"]) == (stage, ranks))
    return sum(row[purpose] for purpose in PURPOSES) / 1e9


def who_holds_what(numbers, pyplot):
    """ZeRO's figure 1 for four ranks: a quarter of each state is a slice, and a rank's are filled."""
    ranks, psi = 4, numbers["zero"][0]["parameters"]
    figure, all_axes = pyplot.subplots(1, 4, figsize=(10, 4.8), sharey=True)
    for stage, axes in enumerate(all_axes):
        for rank in range(ranks):
            bottom = 0
            for purpose, colour in PURPOSES.items():
                height = BYTES[purpose] * psi / 1e9 / ranks
                for part in range(ranks):
                    held = stage < SHARDED_FROM[purpose] or part == rank
                    axes.bar(rank, height, bottom=bottom, width=0.82, color=colour if held else IDLE,
                             edgecolor="white" if held else "#d5d9de", linewidth=0.8)
                    bottom += height
        axes.set_title(("all of it" if stage == 0 else f"stage {stage}")
                       + f"\n{gigabytes(numbers, stage, ranks):.4g} GB", fontsize=12)
        axes.set_xticks(range(ranks), [f"rank {rank}" for rank in range(ranks)], fontsize=9)
        axes.set_xlabel(f"on 64 ranks: {gigabytes(numbers, stage, 64):.3g} GB", fontsize=11)
        axes.grid(False)
        axes.tick_params(axis="x", length=0)
    all_axes[0].set_ylabel("GB of 7.5 billion parameters")
    bottom = 0
    for purpose in PURPOSES:
        height = BYTES[purpose] * psi / 1e9
        text(all_axes[0], 1.5, bottom + height / 2, f"{purpose}, {height:.0f} GB", fontsize=11,
             bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5})
        bottom += height
    return figure


BLOCKS = range(3, 9)  # behind three layers that embed; the last norm and the head follow


def step_of(numbers, name):
    """A run in milliseconds from its beginning."""
    run = numbers["timeline"][name]

    def since(seconds):
        return 1e3 * (seconds - run["begin"])
    return run, since


def block_of(part, layer):
    is_block = part in ("forward", "backward") and int(layer) in BLOCKS
    return f"{int(layer) - BLOCKS[0] + 1}" if is_block else ""


def prefetch(numbers, pyplot):
    """One step in stage 3 of a GPT of six blocks: gathers between the layers, or ahead of them."""
    runs = {"stage 3, no prefetch": "Each gather when it is needed",
            "stage 3, a layer ahead": "A layer ahead"}
    figure, all_axes = pyplot.subplots(2, 1, figsize=(10, 5), sharex=True)
    longest = max(since(run["end"]) for run, since in (step_of(numbers, name) for name in runs))
    for axes, (name, title) in zip(all_axes, runs.items()):
        run, since = step_of(numbers, name)
        draw(axes, run["rows"], f"{title}: {since(run['end']):.1f} ms, of which a rank waits "
                                f"{1e3 * run['waited']:.1f}", longest, scale=1e3, words=block_of)
    all_axes[-1].set_xlabel("milliseconds; " + legend(run["rows"]))
    return figure


def live_weights(numbers, pyplot):
    """Bytes of weights on a rank in each moment of a step."""
    figure, axes = pyplot.subplots(figsize=(10, 4.2))
    names = {"stage 2": ("stage 2: all of them", DIM),
             "stage 3, whole until backward": ("whole until backward", LINES[1]),
             "stage 3, a layer ahead": ("a layer ahead", LINES[2]),
             "stage 3, no prefetch": ("no prefetch", LINES[0])}
    for name, (label, colour) in names.items():
        run, since = step_of(numbers, name)
        times = [since(seconds) for seconds, _ in run["weights"]] + [since(run["end"])]
        megabytes = [count / 1e6 for _, count in run["weights"]]
        axes.step(times, megabytes + megabytes[-1:], where="post", color=colour, label=label,
                  linewidth=1.8)
    axes.axhline(run["weights"][-1][1] / 1e6, color=DIM, linestyle=":", linewidth=1.2)
    text(axes, 18.3, 45, "a rank's shards alone", color=DIM)
    axes.set(xlabel="milliseconds of a step", ylabel="MB of weights on a rank", ylim=(0, 800),
             title="What is whole, and when: 8 ranks, six blocks")
    axes.legend(ncol=4, fontsize=10, loc="upper center")
    return figure


def owners(numbers, pyplot):
    figure, all_axes = pyplot.subplots(1, 2, figsize=(10, 3.8))
    kinds = {"slices": ("slices", LINES[0]), "owners": ("owners, reduce", LINES[1]),
             "owners_all_reduce": ("owners, all-reduce", LINES[3])}
    for axes, links in zip(all_axes, dict.fromkeys(row["links"] for row in numbers["owners"])):
        rows = [row for row in numbers["owners"] if row["links"] == links]
        for i, (kind, (label, colour)) in enumerate(kinds.items()):
            axes.bar([x + 0.27 * (i - 1) for x in range(len(rows))], [row[kind] for row in rows],
                     width=0.25, color=colour, label=label)
        axes.set_xticks(range(len(rows)), [str(row["ranks"]) for row in rows])
        axes.set(title=links, xlabel="GPUs", ylabel="seconds a step" if axes is all_axes[0] else "")
        axes.grid(False, axis="x")
    all_axes[0].set_ylim(0, 1.35 * max(row["owners"] for row in numbers["owners"][:3]))
    all_axes[1].legend(fontsize=10, loc="upper left")
    return figure


def of_links(rows, links):
    return [row for row in rows if row.get("links") == links]


def by_gpus(axes, gpus):
    axes.set(xscale="log", xlabel="GPUs")
    axes.set_xticks(gpus, [str(n) for n in gpus])
    axes.set_xticks([], minor=True)


LINKS = {"25 GB/s": LINES[1], "200 GB/s": LINES[0]}


def fixed_batch(numbers, pyplot):
    """States and activations of a GPU, and the seconds of a step, for a batch of one size."""
    rows = numbers["fixed_batch"]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4.6))
    one = of_links(rows, "200 GB/s")
    gpus = [row["gpus"] for row in one]
    for name, colour, marker in (("states", LINES[0], "o"), ("activations", LINES[1], "s"),
                                 ("peak", DIM, "^")):
        left.plot(gpus, [row[name] / 1e9 for row in one], f"{marker}-", color=colour,
                  label={"states": "weights, gradients, optimizer", "peak": "all, at most"}.get(name, name))
    left.axhline(80, color=DIM, linestyle="--", linewidth=1.2)
    text(left, gpus[-1], 100, "an A100 has 80 GB", ha="right", color=DIM)
    left.set(yscale="log", ylim=(0.015, 170), ylabel="GB on a GPU", title="A sample and a layer stay whole")
    left.set_yticks([0.1, 1, 10, 80], ["0.1", "1", "10", "80"])
    left.legend(fontsize=10, loc="lower left")
    for links, colour in LINKS.items():
        own = of_links(rows, links)
        right.plot([r["gpus"] for r in own], [r["seconds"] for r in own], "o-", color=colour,
                   label=f"{links} between nodes")
    right.plot(gpus, [one[0]["seconds"] * gpus[0] / n for n in gpus], ":", color=DIM, label="1/N")
    # 3 Ψ elements of 2 bytes.
    floor = 6 * 7.468e9 / 25e9
    right.axhline(floor, color=COMMUNICATION, linestyle="--", linewidth=1.2)
    text(right, 14, floor * 1.18, "3 Ψ at 25 GB/s", color="#8a6000")
    most = one[-1]["gpus"] * one[-1]["samples"]
    for axes in (left, right):
        by_gpus(axes, gpus)
        axes.axvspan(most * 2 ** 0.25, most * 2 ** 0.75, color="#eceff2")
        axes.set_xlim(right=most * 2 ** 0.75)
        text(axes, most * 2 ** 0.5, 0.5, "fewer samples than GPUs", rotation=90, color=DIM,
             transform=axes.get_xaxis_transform())
    right.set(yscale="log", ylabel="seconds a step", title="Seconds stop at the wire, or at a sample")
    right.set_yticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
    right.set_yticks([], minor=True)
    right.legend(fontsize=10)
    return figure


def superlinear(numbers, pyplot):
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4.2))
    kinds = {"whole": ("checkpoints whole", LINES[0]), "cut": ("checkpoints cut (P_a)", LINES[1]),
             "paper's": ("the paper's batch", LINES[2])}
    for which, (label, colour) in kinds.items():
        rows = [row for row in numbers["superlinear"] if row["which"] == which]
        gpus = [row["gpus"] for row in rows]
        left.plot(gpus, [row["samples"] for row in rows], "o-", color=colour, label=label)
        right.plot(gpus, [row["tflops"] for row in rows], "o-", color=colour, label=label)
    left.set(yscale="log", ylabel="samples of a node of 16", ylim=(4, 500),
             title="Freed memory becomes batch")
    left.set_yticks([5, 10, 20, 50, 100, 200], ["5", "10", "20", "50", "100", "200"])
    left.set_yticks([], minor=True)
    right.set(ylabel="TFLOP/s a GPU", title="So each GPU does more in a second", ylim=(55, 85))
    for axes in (left, right):
        by_gpus(axes, gpus)
    right.legend(fontsize=10, loc="lower right")
    return figure


def flat(numbers, pyplot):
    figure, axes = pyplot.subplots(figsize=(6.4, 4))
    for links, colour in LINKS.items():
        rows = of_links(numbers["flat"], links)
        axes.plot([r["gpus"] for r in rows], [r["tflops"] for r in rows], "o-", color=colour,
                  label=f"{links} between nodes")
    by_gpus(axes, [row["gpus"] for row in rows])
    axes.set(ylabel="TFLOP/s a GPU", ylim=(0, 260), title="A trillion parameters, 2,048 tokens a GPU")
    axes.legend(fontsize=10, ncol=2)
    return figure


def figures(numbers, pyplot):
    if "fixed_batch" in numbers:
        return {"limits": fixed_batch(numbers, pyplot), "superlinear": superlinear(numbers, pyplot),
                "flat": flat(numbers, pyplot)}
    return {"stages": who_holds_what(numbers, pyplot), "step": prefetch(numbers, pyplot),
            "staircase": live_weights(numbers, pyplot), "owners": owners(numbers, pyplot)}
