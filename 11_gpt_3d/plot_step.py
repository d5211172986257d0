"""A step on eight ranks, with one token and one gradient: of demo_11_gpt_3d's numbers, for plot.py."""
from plot_ranks import (BAR, Step, bars, draw_rank, joined, key, legend, mark, number_micro_batches,
                        path)
from timelines import COMMUNICATION, DIM, FRAME

STRIP, PITCH, GUTTER = 0.2, 1.0, 0.82  # heights, in rows


def rows_of(step):
    """By replica and stage, from the top: each rank's row, and each group's gutter above it."""
    y, rows, gutters = 0.0, {}, {}
    for dp in (0, 1):
        for pp in (0, 1):
            gutters[dp, pp] = y + GUTTER / 2 - 0.12
            y += GUTTER
            for rank, row in step.ranks.items():
                if (row["dp"], row["pp"]) == (dp, pp):
                    rows[rank] = y + PITCH / 2 - 0.1
                    y += PITCH
        y += 0.25
    return rows, gutters, y


def overview(axes, step):
    rows, gutters, bottom = rows_of(step)
    axes.set(xlim=(0, step.end), ylim=(bottom - 0.2, -0.1))
    for rank, y in rows.items():
        draw_rank(axes, step, rank, y)
        bars(axes, y + BAR / 2 + STRIP / 2 + 0.03, STRIP, joined(step.moving(rank)), COMMUNICATION)
        number_micro_batches(axes, step, rank, y)
        axes.text(-0.006 * step.end, y, f"rank {rank}", ha="right", va="center", fontsize=8.5)
    for dp, pp in gutters:
        mine = [y for rank, y in rows.items()
                if (step.ranks[rank]["dp"], step.ranks[rank]["pp"]) == (dp, pp)]
        axes.text(-0.09 * step.end, sum(mine) / 2, f"stage {pp}", rotation=90, ha="center",
                  va="center", fontsize=9, color=DIM)
        axes.plot([-0.074 * step.end] * 2, [mine[0] - 0.4, mine[-1] + 0.45], color=DIM, linewidth=1,
                  clip_on=False)
    for dp in (0, 1):
        mine = [y for rank, y in rows.items() if step.ranks[rank]["dp"] == dp]
        axes.text(-0.125 * step.end, (mine[0] + mine[-1]) / 2, f"replica {dp}", rotation=90,
                  ha="center", va="center", fontsize=10, fontweight="bold")
    one_token(axes, step, rows, gutters)
    one_gradient(axes, step, rows, gutters)
    axes.set_yticks([])
    axes.grid(False)
    axes.spines[["left", "bottom"]].set_visible(False)
    ticks = range(0, int(step.end), 1000)
    axes.set_xticks(ticks, [f"{tick // 1000}" for tick in ticks], fontsize=8.5)
    axes.tick_params(axis="x", length=3, pad=2)
    axes.set_xlabel("milliseconds; numbers in bars are micro-batches", fontsize=8.5, labelpad=2)


def one_token(axes, step, rows, gutters):
    stage0, stage1 = gutters[0, 0], gutters[0, 1]
    first, last = step.span(0, "forward", "F0"), step.span(4, "forward", "F0")
    arrives = step.moving(4, "pp forward messages")[0][1]
    path(axes, [(first[0], stage0), (first[1], stage0), (arrives, stage1), (last[1], stage1)])
    mark(axes, first[0] + 90, stage0, 1)
    mark(axes, first[0] + 440, stage0, 2)
    mark(axes, (first[1] + arrives) / 2, (stage0 + stage1) / 2, 3)
    mark(axes, (arrives + last[1]) / 2, stage1, 4)
    mark(axes, last[1] - 60, stage1, 5)


def one_gradient(axes, step, rows, gutters):
    stage0, stage1, other = gutters[0, 0], gutters[0, 1], gutters[1, 0]
    back, first = step.span(4, "backward", "B0"), step.span(0, "backward", "B0")
    arrives = step.moving(0, "pp backward messages")[0][1]
    complete = step.span(0, "backward", "B3")[1]
    sums, tables = step.moving(0, "grad"), step.moving(0, "embedding")[0]
    norm, update = step.spans(0, "clip")[0][1:], step.spans(0, "optimizer")[0][1:]
    path(axes, [(first[1], stage0), (complete, stage0)], linestyle=(0, (1, 1.6)))
    path(axes, [(back[0], stage1), (back[1], stage1), (arrives, stage0), (first[1], stage0)])
    path(axes, [(complete, stage0), (update[1], stage0)])
    mark(axes, sum(back) / 2, stage1, 6)
    mark(axes, (back[1] + arrives) / 2, (stage0 + stage1) / 2, 7)
    mark(axes, complete, stage0, 8)
    path(axes, [(sums[2][0], stage0), (sums[2][0], other)])
    mark(axes, sums[2][0], other, 9)
    path(axes, [(sum(tables) / 2, stage0), (sum(tables) / 2, stage1)])
    mark(axes, sum(tables) / 2, stage1, 10)
    mark(axes, sum(norm) / 2, stage0, 11)
    mark(axes, sum(update) / 2 + 20, stage0, 12)


def lanes(axes, step, ranks, communicators, ends):
    """Some ranks enlarged: below each what its communicators move, a line each."""
    rows, y, label = {}, 0.0, ends[0] - 0.012 * (ends[1] - ends[0])
    axes.set_xlim(ends)
    for rank in ranks:
        rows[rank] = y
        draw_rank(axes, step, rank, y, 0.8)
        axes.text(label, y, f"rank {rank}", ha="right", va="center", fontsize=8.5)
        for name, members in communicators.items():
            y += 0.85 if name == next(iter(communicators)) else 0.75
            rows[rank, name] = y
            axes.plot(ends, [y, y], color=FRAME, linewidth=0.6, zorder=0)
            bars(axes, y, 0.4, step.moving(rank, *members), COMMUNICATION)
            axes.text(label, y, name, ha="right", va="center", fontsize=8, color=DIM)
        y += 1.55
    axes.set_ylim(y - 1.1, -1.05)
    axes.set_yticks([])
    axes.grid(False)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(axis="x", length=3, pad=2, labelsize=8)
    return rows


def token_enlarged(axes, step):
    last = step.span(4, "forward", "F0")[1]
    communicators = {"tp": ("tp",), "pp": ("pp forward messages",)}
    rows = lanes(axes, step, (0, 4), communicators, (0, last + 30))
    for rank, blocks in ((0, (0, 1)), (4, (2, 3))):
        f = step.span(rank, "forward", "F0")
        for block in blocks:
            for kind, letter in (("attention", "A"), ("mlp", "M")):
                own = [s for s in step.spans(rank, "product", "attention", "layer norm")
                       if s[0].startswith(f"blocks.{block}.{kind}") and f[0] <= s[1] < f[1]]
                sum_ = next(s for s in step.spans(rank, "communication")
                            if s[0] == f"blocks.{block}.{kind}.project" and s[1] >= f[0])
                axes.text((own[0][1] + sum_[1]) / 2, rows[rank], f"{letter}{block}", ha="center",
                          va="center", fontsize=8.5, color="white")
    head = step.span(4, "product", "head")
    axes.text(sum(step.span(0, "forward", "F1")) / 2, rows[0] - 0.76, "micro-batch 1", ha="center",
              va="center", fontsize=8, color=DIM)
    axes.text(sum(head) / 2, rows[4], "H", ha="center", va="center", fontsize=8.5, color="white")
    above = -0.76
    embedding, sums = step.spans(0, "embedding")[0], step.moving(0, "tp")
    mark(axes, embedding[2] / 2 + 10, above, 1)
    for sum_ in sums[1:5]:
        mark(axes, sum(sum_) / 2, above, 2)
    mark(axes, step.moving(0, "pp forward messages")[0][1] + 40, rows[0, "pp"], 3)
    loss = step.span(4, "loss", "loss")
    sums = [s for s in step.moving(4, "tp") if s[1] < last]
    for sum_ in sums[:4]:
        mark(axes, sum(sum_) / 2, rows[4] + above, 4)
    mark(axes, sum(loss) / 2, rows[4] + above, 5)
    ticks = range(0, int(last), 500)
    axes.set_xticks(ticks, [f"{tick / 1000:g}" for tick in ticks])
    axes.set_title("The token, enlarged (A attention, M MLP, H head; ms)", fontsize=9.5, pad=3)


def end_enlarged(axes, step):
    begin = step.span(0, "backward", "B3")[0] + 150
    ends = (begin, step.end)
    communicators = {"dp": ("grad",), "tables": ("embedding",),
                     "tp, pp, all": ("tp", "pp", "pp backward messages", "world")}
    rows = lanes(axes, step, (0, 4), communicators, ends)
    for rank in (0, 4):
        above = rows[rank] - 0.76
        mark(axes, step.span(rank, "backward", "B3")[1], above, 8)
        for part, number in (("clip", 11), ("optimizer", 12)):
            mark(axes, sum(step.spans(rank, part)[0][1:]) / 2, above, number)
        for name, number in (("dp", 9), ("tables", 10)):
            mark(axes, begin - 0.13 * (step.end - begin), rows[rank, name], number)
    ticks = [tick for tick in range(0, int(step.end), 500) if tick >= begin]
    axes.set_xticks(ticks, [f"{tick / 1000:g}" for tick in ticks])
    axes.set_title("The step's end, enlarged (ms)", fontsize=9.5, pad=3)


LEGEND = {
    "One token of micro-batch 0": [
        (1, "its vector: looked up by parts of the vocabulary, summed over tp", "06"),
        (2, "two blocks of stage 0: two sums over tp each, by rings", "06, 09"),
        (3, "its activations go to stage 1", "05"),
        (4, "two blocks of stage 1, as in 2", "06, 09"),
        (5, "head and loss, parts of the vocabulary: a row maximum, a sum of exp", "06")],
    "One gradient of replica 0": [
        (6, "the gradient of the loss goes back through stage 1", "05, 06"),
        (7, "and to stage 0", "05"),
        (8, "the last micro-batch completes the weight gradients", "05"),
        (9, "summed over dp in buckets, the first beside backward (shards: 04)", "03, 09"),
        (10, "the tied tables of first and last stage summed", "11"),
        (11, "the norm: two sums of 8 bytes, over pp and over tp, reach all ranks", "11"),
        (12, "clipping and AdamW, each rank its own weights (its shard: 04)", "11")]}
NOTE = ("The other ranks do the same at the same time: replica 1 with its own half of\n"
        "the batch, the second rank of each pair with its own half of each layer.")
TITLE = "The whole course on one page: a step of a 3D run, with one token and one gradient"


def sizes_of(step):
    model, numbers = step.model, step.numbers
    return (f"dp 2 x pp 2 x tp 2 on {numbers['machine']}, {numbers['ranks_per_node']} "
            f"ranks a server; {model['layers']} blocks of {model['width']} columns, "
            f"{numbers['batch']} samples of {model['context']} tokens in "
            f"{numbers['micro_batches']} micro-batches, "
            f"{numbers['schedule'].upper()}; virtual time, {step.end / 1000:.2f} ms")


def step_figure(numbers, pyplot):
    """A step of a 3D run, followed by one token and one gradient."""
    step = Step(numbers)
    figure = pyplot.figure(figsize=(10, 10.8), constrained_layout=False)
    key(figure.add_axes([0.01, 0.933, 0.98, 0.062]), TITLE, sizes_of(step),
        "communication; the strip below a rank has also what is hidden by computing")
    overview(figure.add_axes([0.125, 0.495, 0.865, 0.43]), step)
    token_enlarged(figure.add_axes([0.06, 0.255, 0.41, 0.18]), step)
    end_enlarged(figure.add_axes([0.57, 0.255, 0.42, 0.18]), step)
    legend(figure.add_axes([0.01, 0.003, 0.98, 0.21]), LEGEND, (2, 6.5, NOTE), 7)
    return figure
