"""The figures of this module's handout; tools/plot says how to draw them.

The steps, of demo_11_gpt_3d's numbers; forms, placement and papers, of layouts' numbers and of the
table in docs/results/papers.md:

       ./aisc demo 11 --json step.json
       tools/plot 11 step.json 11_gpt_3d/figures
       ./aisc demo 11 layouts --json layouts.json
       tools/plot 11 layouts.json 11_gpt_3d/figures
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from plot_experts import experts_figure  # noqa: E402
from plot_step import step_figure  # noqa: E402
from timelines import COMMUNICATION, COMPUTING, DIM, FRAME, LINES, MEMORY, TEXT  # noqa: E402

PAPERS = pathlib.Path(__file__).resolve().parent.parent / "docs/results/papers.md"


def forms(numbers, pyplot):
    """Seconds of a step and GB on a rank, of each form of parallelism."""
    rows = numbers["rows"]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 6.2), sharey=True)
    most = 1.12 * max(row["seconds"] for row in rows[1:])
    for y, row in enumerate(rows):
        exposed, computing = row["exposed"], row["seconds"] - row["exposed"]
        left.barh(y, min(computing, most), height=0.72, color=COMPUTING)
        waits = row["pp"] > 1  # a rank without stages has nothing to wait for but communication
        left.barh(y, exposed, left=computing, height=0.72, edgecolor=COMMUNICATION, linewidth=0.8,
                  color="#fdf3df" if waits else COMMUNICATION, hatch="////" if waits else "")
        if row["seconds"] > most:
            left.text(0.98 * most, y, f"{row['seconds']:.2f} s, beyond the edge", color="white",
                      ha="right", va="center", fontsize=9)
        else:
            left.text(row["seconds"] + 0.01 * most, y, f"{row['seconds']:.3f}", va="center",
                      fontsize=9, color=DIM)
        begin = 0
        for purpose, colour in MEMORY.items():
            right.barh(y, row[purpose] / 1e9, left=begin, height=0.72, color=colour)
            begin += row[purpose] / 1e9
        right.text(begin + 0.4, y, f"{row['all'] / 1e9:.1f}", va="center", fontsize=9, color=DIM)
    patch = pyplot.Rectangle
    left.legend([patch((0, 0), 1, 1, color=COMPUTING), patch((0, 0), 1, 1, color=COMMUNICATION),
                 patch((0, 0), 1, 1, facecolor="#fdf3df", edgecolor=COMMUNICATION, hatch="////")],
                ["computing", "communication, exposed", "exposed, or waiting for a stage"],
                fontsize=9, loc="upper center", bbox_to_anchor=(0.42, -0.09), ncol=2,
                columnspacing=1, handlelength=1.4)
    right.legend([patch((0, 0), 1, 1, color=colour) for colour in MEMORY.values()], MEMORY,
                 fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.09), ncol=2,
                 columnspacing=1, handlelength=1.4)
    left.set_yticks(range(len(rows)), [row["form"] for row in rows], fontsize=9.5)
    left.set(xlim=(0, most), xlabel="seconds of a step, rank 0", title="Time")
    right.set(xlim=(0, 1.1 * max(row["all"] for row in rows) / 1e9), xlabel="GB on rank 0, at most",
              title="Memory")
    left.invert_yaxis()
    for axes in (left, right):
        axes.grid(False, axis="y")
        axes.tick_params(axis="y", length=0)
    figure.suptitle(f"1.3 billion parameters, 64 samples of 1024 tokens, 8 ranks of "
                    f"{numbers['machine']}", fontsize=12, x=0.01, ha="left")
    return figure


def placement(numbers, pyplot):
    """A mesh's directions in each order: bytes between nodes, and what they cost."""
    rows = numbers["placements"]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.7), sharey=True)
    for y, row in enumerate(rows):
        sent = row["between_nodes"] / 1e9
        left.barh(y, sent, height=0.68, color=COMMUNICATION)
        left.text(sent + 0.7, y, f"{sent:.2f}", va="center", fontsize=10, color=DIM)
        computing = row["seconds"] - row["exposed"]
        right.barh(y, computing, height=0.68, color=COMPUTING)
        right.barh(y, row["exposed"], left=computing, height=0.66, color="#fdf3df", hatch="////",
                   edgecolor=COMMUNICATION, linewidth=0.8)
        right.text(row["seconds"] + 0.006, y, f"{row['seconds']:.3f}", va="center", fontsize=10,
                   color=DIM)
    left.set_yticks(range(len(rows)), [row["order"].replace(",", ", ") for row in rows])
    left.set(xlim=(0, 1.12 * max(row["between_nodes"] for row in rows) / 1e9),
             xlabel="GB of all ranks in a step", title="Between nodes")
    right.set(xlim=(0, 1.18 * max(row["seconds"] for row in rows)),
              xlabel="seconds of a step; hatched: exposed, or waiting", title="Time")
    left.invert_yaxis()
    for axes in (left, right):
        axes.grid(False, axis="y")
        axes.tick_params(axis="y", length=0)
    left.set_ylabel("order, neighbours first")
    figure.suptitle(f"16 ranks of {numbers['machine']} on two nodes: tp 2, dp 2, pp 4", fontsize=12,
                    x=0.01, ha="left")
    return figure


def published_rows():
    """GPUs, published and computed TFLOP/s a GPU: a row of papers.md's second table each."""
    table = PAPERS.read_text(encoding="utf-8").split("## Ten models", 1)[1]
    rows = [[cell.strip() for cell in line.strip("| ").split("|")]
            for line in table.splitlines() if re.match(r"\| [\d.,]+ B \|", line)]
    return [(cells[0], int(cells[1].replace(",", "")), float(cells[10]), float(cells[11]))
            for cells in rows]


def papers(pyplot):
    """TFLOP/s a GPU of ten models, published and computed."""
    figure, axes = pyplot.subplots(figsize=(9, 4.2))
    names, gpus, published, ours = zip(*published_rows())
    places = range(len(gpus))  # evenly: the four largest lie within a factor of two
    axes.vlines(places, published, ours, color=FRAME, linewidth=4, zorder=1)
    axes.plot(places, published, "o-", color=TEXT, label="published (2104.04473, table 1)")
    axes.plot(places, ours, "s-", color=LINES[1], label="this course, in virtual time")
    axes.set(ylim=(100, 190), xlabel="A100 GPUs, and the parameters of the model",
             ylabel="TFLOP/s a GPU", title="A step of ten models on up to 3,072 GPUs")
    axes.set_xticks(places, [f"{x:,}\n{name}" for x, name in zip(gpus, names)], fontsize=10)
    axes.legend(fontsize=11, loc="upper left")
    return figure


def figures(numbers, pyplot):
    if "ranks" in numbers:
        return {"step": step_figure(numbers, pyplot),
                "step-experts": experts_figure(numbers["with_experts"], pyplot)}
    return {"forms": forms(numbers, pyplot), "placement": placement(numbers, pyplot),
            "papers": papers(pyplot)}
