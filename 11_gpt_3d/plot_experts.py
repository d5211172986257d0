"""A step of a model with experts on eight ranks, with one token's way to two experts and back: of
demo_11_gpt_3d's numbers, for plot.py."""
from plot_ranks import (BAR, Step, bars, joined, key, legend, mark, number_micro_batches, path,
                        without)
from timelines import BACKWARD, COMMUNICATION, DIM, FORWARD, FRAME, IDLE, UPDATE

STRIP = 0.2             # height of what experts exchange, in rows
ABOVE = 0.78            # from a rank's bar up to its tokens' line
ROW = 1.85              # from an enlarged rank to the next
MET = {1: 3, 2: 5}      # the token's experts, by the ranks that have them: an example
TITLE = "A step with experts: a token goes to two ranks and comes home"


def experts_of(step, rank):
    """The experts on a rank: ranks of a stage have them in their order."""
    stage = step.group(rank, "experts")
    each = step.model["experts"] // len(stage)
    first = stage.index(rank) * each
    return list(range(first, first + each))


def sizes_of(step):
    model, numbers = step.model, step.numbers
    return (f"dp 2 x pp 2 x tp 2, sp, ep 2, ZeRO 1 on {numbers['machine']}, "
            f"{numbers['ranks_per_node']} ranks a server; {model['experts']} experts "
            f"({model['router']}) in every other of {model['layers']} blocks; "
            f"{numbers['batch']} x {model['context']} tokens; virtual time, "
            f"{step.end / 1000:.2f} ms")


def plain(axes):
    axes.set_yticks([])
    axes.grid(False)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(axis="x", length=3, pad=2, labelsize=8.5)


def draw_rank(axes, step, rank, y, end):
    """What a rank does up to `end`: what is left white is waiting."""
    bars(axes, y, BAR, [(0, end)], IDLE, edgecolor=FRAME, linewidth=0.6)
    for parts, colour in ((("forward",), FORWARD), (("backward",), BACKWARD),
                          (("clip", "optimizer"), UPDATE)):
        bars(axes, y, BAR, [span[1:] for span in step.spans(rank, *parts) if span[1] < end], colour)
    exposed = joined(step.exposed(rank))
    for spans, colour in ((without(step.waits(rank), exposed), IDLE), (exposed, COMMUNICATION)):
        seen = [(begin, until) for begin, until in spans if until - begin > 4e-4 * end]
        bars(axes, y, BAR, seen, colour)


def between(axes, y, xs):
    """Where one action, or a layer, ends and the next begins."""
    points = [point for x in xs for point in ((x, y - BAR / 2), (x, y + BAR / 2), (None, None))]
    axes.plot(*zip(*points), color="white", linewidth=0.7)


def overview(axes, step):
    rows, gutters, y = {}, {}, 0.0
    for stage in (0, 1):
        gutters[stage], y = y + 0.25, y + 1.1
        for rank in (rank for rank, row in step.ranks.items() if row["pp"] == stage):
            rows[rank], y = y, y + 1
    axes.set(xlim=(0, step.end), ylim=(y - 0.4, -0.1))
    for rank, y in rows.items():
        draw_rank(axes, step, rank, y, step.end)
        between(axes, y, [span[1] for span in step.spans(rank, "forward", "backward")[1:]])
        bars(axes, y + BAR / 2 + STRIP / 2 + 0.03, STRIP, step.moving(rank, "experts"),
             COMMUNICATION)
        number_micro_batches(axes, step, rank, y)
        axes.text(-0.006 * step.end, y, f"rank {rank}", ha="right", va="center", fontsize=8.5)
    for stage in gutters:
        mine = [y for rank, y in rows.items() if step.ranks[rank]["pp"] == stage]
        axes.text(-0.085 * step.end, sum(mine) / 4, f"stage {stage}", rotation=90, ha="center",
                  va="center", fontsize=10, fontweight="bold")
        axes.plot([-0.069 * step.end] * 2, [mine[0] - 0.35, mine[-1] + 0.4], color=DIM,
                  linewidth=1, clip_on=False)
    the_way(axes, step, *gutters.values())
    first = step.span(0, "forward", "F0")
    axes.plot([first[0], first[0], first[1], first[1]],
              [rows[3] + 0.54, rows[3] + 0.66, rows[3] + 0.66, rows[3] + 0.54], color=DIM,
              linewidth=1, clip_on=False)
    axes.text(first[1] + 110, rows[3] + 0.68, "enlarged below", fontsize=8, color=DIM, va="center")
    ticks = range(0, int(step.end), 1000)
    axes.set_xticks(ticks, [f"{tick // 1000}" for tick in ticks])
    plain(axes)
    axes.set_xlabel("milliseconds; numbers in bars are micro-batches", fontsize=8.5, labelpad=2)


def the_way(axes, step, stage0, stage1):
    """Of the token through both stages, and of gradients back and to the end."""
    first, last = step.span(0, "forward", "F0"), step.span(4, "forward", "F0")
    arrives = step.moving(4, "pp forward messages")[0][1]
    back, goes_on = step.span(4, "backward", "B0"), step.span(0, "backward", "B0")
    returns = step.moving(0, "pp backward messages")[0][1]
    complete = step.spans(0, "backward")[-1][2]
    update = step.spans(0, "optimizer")[0][1:]
    path(axes, [(first[0], stage0), (first[1], stage0), (arrives, stage1), (back[1], stage1),
                (returns, stage0), (goes_on[1], stage0)])
    path(axes, [(goes_on[1], stage0), (complete, stage0)], linestyle=(0, (1, 1.6)))
    path(axes, [(complete, stage0), (step.end, stage0)])
    mark(axes, first[0] + 110, stage0, 1)
    mark(axes, (first[1] + arrives) / 2, (stage0 + stage1) / 2, 8)
    mark(axes, last[1], stage1, 9)
    mark(axes, sum(back) / 2, stage1, 10)
    mark(axes, sum(goes_on) / 2 + 700, stage0, 11)
    mark(axes, step.spans(0, "experts")[-1][2], stage0, 12)
    mark(axes, complete + 60, stage0, 13)
    mark(axes, sum(update) / 2, stage0, 14)
    mark(axes, step.end - 100, stage0, 15)


def inside(step, rank, part, name):
    """Begin and end of the first span whose name begins so."""
    return next(span[1:] for span in step.spans(rank, part) if span[0].startswith(name))


def enlarged(axes, step):
    end = step.span(0, "forward", "F0")[1]
    axes.set_xlim(0, end)
    stage = step.group(0, "experts")
    rows = {rank: ROW * i for i, rank in enumerate(stage)}
    axes.set_ylim(rows[stage[-1]] + 0.5, -1.15)
    for rank, y in rows.items():
        draw_rank(axes, step, rank, y, end)
        layers = [span[2] for span in step.spans(rank, "residual", "embedding") if span[2] < end]
        between(axes, y, layers + list(inside(step, rank, "product", "blocks.1.mlp.experts")))
        name_pieces(axes, step, rank, y)
        axes.text(-0.008 * end, y - 0.14, f"rank {rank}", ha="right", va="center", fontsize=8.5)
        axes.text(-0.008 * end, y + 0.3, "experts " + " ".join(map(str, experts_of(step, rank))),
                  ha="right", va="center", fontsize=7.5, color=DIM)
    servers(axes, step, rows, -0.095 * end)
    exchanges = [inside(step, 0, "communication", f"blocks.1.mlp.{way}")
                 for way in ("there", "back")]
    for begin, until in exchanges:  # each to each, behind the bars
        for a in stage:
            points = [point for b in stage if b != a
                      for point in ((begin, rows[a]), (until, rows[b]), (None, None))]
            axes.plot(*zip(*points), color=COMMUNICATION, linewidth=0.8, zorder=0.5)
    one_token(axes, step, {rank: y - ABOVE for rank, y in rows.items()}, *exchanges)
    axes.set_xticks(range(0, int(end), 200))
    plain(axes)
    axes.set_title("The token, enlarged: stage 0, micro-batch 0 (microseconds)", fontsize=9.5,
                   pad=3)


def servers(axes, step, rows, x):
    each, ranks = step.numbers["ranks_per_node"], list(rows)
    for i in range(0, len(ranks), each):
        top, bottom = rows[ranks[i]], rows[ranks[min(i + each, len(ranks)) - 1]]
        axes.plot([x] * 2, [top - 0.4, bottom + 0.45], color=DIM, linewidth=1, clip_on=False)
        axes.text(1.15 * x, (top + bottom) / 2, f"server {i // each}", rotation=90, ha="center",
                  va="center", fontsize=9, color=DIM)


def name_pieces(axes, step, rank, y):
    tp = step.moving(rank, "tp")
    there, back = (inside(step, rank, "communication", f"blocks.1.mlp.{way}")
                   for way in ("there", "back"))
    experts = inside(step, rank, "product", "blocks.1.mlp.experts")
    mlp = inside(step, rank, "experts", "blocks.1.mlp")
    pieces = [((there[1], experts[0]), "sort"),
              (experts, "experts " + " and ".join(map(str, experts_of(step, rank)))),
              ((experts[1], back[0]), "sort")]
    for part, name, words in (("attention", "blocks.0.attention", "attention"),
                              ("product", "blocks.0.mlp.project", "MLP"),
                              ("attention", "blocks.1.attention", "attention")):
        at = inside(step, rank, part, name)[0]  # between what tensor ranks gather and scatter
        pieces.append(((max(span[1] for span in tp if span[1] <= at),
                        min(span[0] for span in tp if span[0] >= at)), words))
    for (begin, end), words in pieces:
        if end - begin > 0.007 * len(words) * mlp[1]:  # there is room
            axes.text((begin + end) / 2, y + 0.02, words, color="white", fontsize=7.7, ha="center",
                      va="center")


def one_token(axes, step, lines, there, back):
    home, end = lines[0], step.span(0, "forward", "F0")[1]
    for rank, expert in MET.items():
        path(axes, [(there[0], home), (there[1], lines[rank]), (back[0], lines[rank]),
                    (back[1], home)])
        at = sum(inside(step, rank, "product", "blocks.1.mlp.experts")) / 2
        axes.text(at + 0.014 * end, lines[rank] - 0.09, f"expert {expert}", fontsize=8, va="bottom")
        mark(axes, at, lines[rank], 6)
    path(axes, [(0, home), (there[0], home)])
    path(axes, [(back[1], home), (1.02 * end, home)], clip_on=False)
    axes.text(1.043 * end, home + 0.4, "to rank 4", fontsize=8, ha="center", va="center", color=DIM)
    mark(axes, 1.03 * end, home, 8)
    mark(axes, sum(inside(step, 0, "communication", "wte")) / 2, home, 1)
    for part, name in (("attention", "blocks.0.attention"), ("product", "blocks.0.mlp.project"),
                       ("attention", "blocks.1.attention")):
        mark(axes, inside(step, 0, part, name)[0], home, 2)
    mlp, counts = inside(step, 0, "experts", "blocks.1.mlp"), step.counts(0)[0]
    mark(axes, (mlp[0] + counts[0]) / 2, home, 3)
    mark(axes, sum(counts) / 2, home, 4)
    for (begin, until), number in ((there, 5), (back, 7)):
        mark(axes, (begin + until) / 2, (home + lines[1]) / 2, number)


LEGEND = {
    "One token of micro-batch 0": [
        (1, "its vector: looked up by parts of the vocabulary, sums scattered", "06, 07"),
        (2, "attention, MLP: tokens gathered over tp, their sums scattered", "06, 07"),
        (3, "the router: a sample's logits gathered over tp, two experts chosen", "08"),
        (4, "the four ranks tell each other how many rows will come", "08"),
        (5, "its vector goes to two experts on other ranks, one in the other server", "08"),
        (6, "sorted by expert, among tokens of all four ranks", "08"),
        (7, "the answers come home and are added up by their gates", "08"),
        (8, "to stage 1, of which block 3 has experts", "05"),
        (9, "head and loss", "06")],
    "Its gradient, and that of an expert": [
        (10, "goes to the experts as the token did, and comes home", "08"),
        (11, "the same on stage 0", "05, 08"),
        (12, "an expert's gradient: of all tokens that came, so nothing to sum", "08"),
        (13, "others: summed over dp; the router's and norms' over tp, too", "04, 07"),
        (14, "clipping and AdamW, each rank its shards and its experts", "04, 11"),
        (15, "shards of weights are gathered; experts stay where they are", "04, 08")]}
NOTE = ("The other ranks do the same at the same time. The trace is without numbers:\n"
        "each expert gets equally many tokens; experts 3 and 5 are an example.")


def experts_figure(numbers, pyplot):
    """A step with experts, followed by one token."""
    step = Step(numbers)
    figure = pyplot.figure(figsize=(10, 11), constrained_layout=False)
    key(figure.add_axes([0.01, 0.934, 0.98, 0.062]), TITLE, sizes_of(step),
        "communication; the strip below a rank has what experts exchange")
    overview(figure.add_axes([0.105, 0.59, 0.885, 0.34]), step)
    enlarged(figure.add_axes([0.115, 0.27, 0.825, 0.25]), step)
    legend(figure.add_axes([0.01, 0.003, 0.98, 0.235]), LEGEND, (502, 8, NOTE), 9)
    return figure
