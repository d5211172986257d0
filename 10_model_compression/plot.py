"""The figures of this module's handout; tools/plot says how to draw them.

       ./aisc demo 10 --json demo.json
       tools/plot 10 demo.json 10_model_compression/figures
"""
import math

from timelines import DIM, FRAME, LINES, MEMORY, TEXT

SUBNORMAL, NORMAL, LARGEST = -25, -14, 16  # F16 has 0 below, fewer bits, all bits, infinity from there on
KINDS = {"activations": MEMORY["activations"], "weights": MEMORY["gradients"]}
SCALE = 16  # 2^16


def power(exponent):
    return "2" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def percent(fates, kind, times, what):
    return next(row[what] for row in fates if row["gradients of"] == kind and row["times"] == times)


def exponents(numbers, pyplot):
    """How many gradients have which exponent, before and after scaling, over what F16 holds."""
    shown = numbers["exponents"]
    figure, all_axes = pyplot.subplots(2, 1, figsize=(10, 6.4), sharex=True, sharey=True)
    for axes, shift in zip(all_axes, (0, SCALE)):
        axes.axvspan(SUBNORMAL, NORMAL, color="#eef1f4", linewidth=0)
        axes.axvspan(NORMAL, LARGEST, color="#dde3e9", linewidth=0)
        for kind, colour in KINDS.items():
            bins = [(row["exponent"] + shift, 100 * row["share"]) for row in shown[kind]
                    if row["share"] > 0.0005]
            lost = percent(shown["fates"], kind, f"2^{shift}", "0 %")
            words = f"of {kind}: {lost:.2g} % become 0"
            if kind == "activations":
                axes.bar([e + 0.5 for e, _ in bins], [share for _, share in bins], width=1, color=colour,
                         edgecolor="white", linewidth=0.6, label=words)
            else:
                edges = [e for e, _ in bins] + [bins[-1][0] + 1]
                axes.stairs([share for _, share in bins], edges, color=colour, linewidth=2, label=words)
        for x, words in ((SUBNORMAL - 0.4, "0"), ((SUBNORMAL + NORMAL) / 2, "fewer bits"),
                         ((NORMAL + LARGEST) / 2, "all bits"), (LARGEST + 0.4, "infinity")):
            side = "right" if words == "0" else "left" if words == "infinity" else "center"
            axes.text(x, 20.6, words, ha=side, va="top", fontsize=10.5, color=TEXT if shift else DIM)
        title = f"In F16, times {power(shift)}" if shift else "In F16, as they are"
        axes.set(title=title, ylabel="% of gradients", xlim=(-44, 20), ylim=(0, 21))
        axes.grid(False)
        axes.legend(fontsize=10.5, loc="upper right", bbox_to_anchor=(0.93, 0.9))
    marks = [-40, -32, SUBNORMAL, NORMAL, -8, 0, 8, LARGEST]
    all_axes[1].set_xticks(marks, [power(e) for e in marks])
    all_axes[1].set_xlabel("size of a gradient")
    return figure


def exponent_range(scales):
    return round(math.log2(min(scales))), round(math.log2(max(scales))) + 1


STYLES = {"F32": (FRAME, "-", 6), "BF16": (TEXT, "--", 1.6), "F16": (LINES[1], "-", 2),
          "F16 * 1024": (LINES[0], "-", 1.6), "F16 search": (LINES[3], "-", 1.6)}


def training(numbers, pyplot):
    """Losses of the same training in other types; and the scale that looks for the largest there is."""
    runs = {run["name"]: run for run in numbers["training"]}
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10.5, 3.9), width_ratios=(1.3, 1))
    for name, (colour, line, width) in STYLES.items():
        left.plot(runs[name]["losses"], line, color=colour, linewidth=width, label=name,
                  zorder=3 if name == "BF16" else 2)
    left.set(title="Training with small gradients", xlabel="step", ylabel="loss, nats a letter",
             ylim=(0, 3.5))
    left.legend(fontsize=9.5)
    found = runs["F16 search"]
    right.step(range(len(found["scales"])), found["scales"], where="post", color=LINES[3])
    right.plot(found["skipped"], [found["scales"][step] for step in found["skipped"]], "x", color=LINES[1],
               markeredgewidth=2, label="overflow: skipped")
    scales = [2.0 ** e for e in range(*exponent_range(found["scales"]))]
    right.set_yscale("log", base=2)
    right.set_yticks(scales, [power(round(math.log2(scale))) for scale in scales])
    right.set(title="F16 search: its scale", xlabel="step")
    right.legend(fontsize=9.5, loc="lower right")
    return figure


def figures(numbers, pyplot):
    return {"exponents": exponents(numbers, pyplot), "training": training(numbers, pyplot)}
