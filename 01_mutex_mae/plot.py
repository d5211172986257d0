"""The figures of this module's handout; tools/plot says how to draw them.

Orange is communication, in the whole course: here lines of ways in which each update goes through a
cache line that other threads write to, too. What shares nothing is drawn in ink. Marks and labels
tell lines of a colour apart.
"""
import re

from timelines import COMMUNICATION, DIM, TEXT

# What a way is called, its mark, and whether updates travel between cores.
WAYS = {"racy": ("racy", "o", True), "mutex": ("mutex", "s", True), "atomic": ("atomic", "^", True),
        "packed": ("false sharing", "D", True), "reduction": ("reduction", "o", False),
        "simd": ("reduction, SIMD", "s", False)}
LABEL = {"fontsize": 11, "va": "center", "annotation_clip": False,
         "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.5}}
HOLLOW = {"markerfacecolor": "white", "markeredgewidth": 1.8}


def style(variant):
    _, mark, travels = WAYS[variant]
    return {"marker": mark, "color": COMMUNICATION if travels else TEXT}


def rows_of(sums, variant):
    return [row for row in sums["rows"] if row["variant"] == variant]


def row_of(rows, variant, threads):
    return next(r for r in rows if r["variant"] == variant and r["threads"] == threads)


def size(mib):
    return f"{mib:g} MiB"


def of(machine):
    """Whose numbers they are: a chart's title says so."""
    name = re.sub(r"\((R|TM)\)| Processor| CPU.*", "", machine["processor"])
    return f"{name}, {machine['cores']} cores"


def amdahl(serial_share, threads):
    return 1 / (serial_share + (1 - serial_share) / threads)


def gustafson(serial_share, threads):
    return serial_share + (1 - serial_share) * threads


def plain_ticks(axis, values):
    axis.set_ticks(values, [f"{value:g}" for value in values])
    axis.set_ticks([], minor=True)


def label_ends(ax, x, labels, apart):
    """Writes each (y, text, colour) at x, on a logarithmic axis at least `apart` times as high
    as the one below it."""
    below = 0.0
    for y, text, colour in sorted(labels):
        height = max(y, below * apart)
        below = height
        ax.annotate(text, (x, height), color=colour, **LABEL)


def speed_up(numbers, pyplot):
    """Measured speed-ups, and what two laws make of the best of them beyond this machine."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4.6), width_ratios=(1.1, 1))
    sums, cores = numbers["sums"][0], numbers["machine"]["cores"]
    threads = [row["threads"] for row in rows_of(sums, "reduction")]
    labels = []
    for variant, (name, _, _) in WAYS.items():
        how = style(variant)
        speeds = [row["speed_up"] for row in rows_of(sums, variant)]
        left.plot(threads, speeds, "-", **how)
        labels.append((speeds[-1], name, "#9a6a00" if how["color"] == COMMUNICATION else TEXT))
    left.plot(threads, [min(t, cores) for t in threads], ":", color=DIM)
    labels.append((min(threads[-1], cores), "as many as cores", DIM))
    label_ends(left, 1.08 * threads[-1], labels, 1.25)
    left.axhline(1, color=DIM, linewidth=1)
    left.set(xscale="log", yscale="log", xlabel="threads", ylabel="times as fast as serial",
             title=f"Measured: {of(numbers['machine'])}")
    plain_ticks(left.xaxis, threads)
    plain_ticks(left.yaxis, [0.1, 0.2, 0.5, 1, 2, 4, 8])
    left.set_xlim(0.93, threads[-1] * 2.6)  # room for the labels

    of_one = row_of(sums["rows"], "reduction", 1)["seconds"]
    measured = max(1.0, of_one / row_of(sums["rows"], "reduction", cores)["seconds"])
    share = max(0.0, (cores / measured - 1) / (cores - 1)) if cores > 1 else 0.0
    many = [2 ** k for k in range(11)]
    curves = [("no serial part", ":", [float(t) for t in many]),
              ("Gustafson, 25 %", "--", [gustafson(0.25, t) for t in many]),
              (f"Amdahl, {100 * share:.1f} %, measured", "-", [amdahl(share, t) for t in many]),
              ("Amdahl, 5 %", "-", [amdahl(0.05, t) for t in many]),
              ("Amdahl, 25 %", "-", [amdahl(0.25, t) for t in many])]
    for _, line, values in curves:
        right.plot(many, values, line, color=DIM if line == ":" else TEXT)
    label_ends(right, 1.3 * many[-1], [(values[-1], name, DIM if line == ":" else TEXT)
                                 for name, line, values in curves], 1.6)
    right.set(xscale="log", yscale="log", xlabel="threads, each with a core", ylabel="speed-up",
              title="Two laws, by the serial share", xlim=(0.8, 80_000))
    plain_ticks(right.xaxis, many[::2])
    plain_ticks(right.yaxis, many[::2])
    return figure


def racy_error(numbers, pyplot):
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.9), sharey=True)
    cores = numbers["machine"]["cores"]
    for sums, streamed in zip(numbers["sums"], (False, True)):
        how = {"color": COMMUNICATION, "marker": "s" if streamed else "o",
               "linestyle": "--" if streamed else "-", **(HOLLOW if streamed else {})}
        rows = rows_of(sums, "racy")
        left.plot([r["threads"] for r in rows], [100 * r["error"] for r in rows],
                  label=f"{sums['where']}, {size(sums['mib'])}", **how)
        entries = [entry for entry in numbers["features"] if entry["streamed"] == streamed]
        right.plot([e["M"] for e in entries],
                   [100 * row_of(e["rows"], "racy", cores)["error"] for e in entries], **how)
    left.set(xscale="log", xlabel="threads", ylabel="% of the sum that is lost",
             title=f"The racy sum: {of(numbers['machine'])}", ylim=(-3, 100))
    plain_ticks(left.xaxis, [row["threads"] for row in rows])
    left.legend()
    right.set(xscale="log", xlabel="features: work between two updates",
              title=f"{cores} threads, by the work between")
    plain_ticks(right.xaxis, [entry["M"] for entry in numbers["features"]])
    return figure


def work(numbers, pyplot):
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4.2), sharey=True)
    cores = numbers["machine"]["cores"]
    for ax, streamed in zip(axes, (False, True)):
        entries = [entry for entry in numbers["features"] if entry["streamed"] == streamed]
        for variant, (name, _, _) in WAYS.items():
            if variant == "packed":
                continue
            ax.plot([e["M"] for e in entries],
                    [row_of(e["rows"], variant, cores)["speed_up"] for e in entries], "-",
                    label=name, **style(variant))
        ax.axhline(1, color=DIM, linewidth=1)
        ax.set(xscale="log", yscale="log", xlabel="features: work between two updates",
               title="From memory" if streamed else f"From the cache ({of(numbers['machine'])})")
        plain_ticks(ax.xaxis, [e["M"] for e in entries])
        plain_ticks(ax.yaxis, [0.1, 0.2, 0.5, 1, 2, 5, 10, 20])
    axes[0].set_ylabel(f"{cores} threads, times as fast as serial")
    axes[1].legend(fontsize=10.5)
    return figure


def roofline(numbers, pyplot):
    """The roof, and on it the one place where a MAE is; then how far up there each way comes."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4.4), width_ratios=(1, 1.25))
    machine, intensity = numbers["machine"], 0.5
    cores = machine["cores"]
    peak = machine["f32_peak_flops"][str(cores)] / 1e9
    bandwidth = machine["read_bandwidth"][str(cores)] / 1e9
    roof = min(peak, bandwidth * intensity)
    x = [2.0 ** (k / 4) for k in range(-12, 29)]
    left.plot(x, [min(peak, bandwidth * i) for i in x], "-", color=TEXT, linewidth=2.5)
    left.text(x[-1], peak * 1.12, f"peak in F32: {peak:.0f} GFLOP/s", ha="right", fontsize=11)
    left.plot([intensity] * 2, [1, roof], ":", color=DIM)
    left.plot([intensity], [roof], "o", color=TEXT)
    left.annotate(f"a MAE has 2 FLOPs\nfor 4 bytes: at most\n{roof:.0f} GFLOP/s", (intensity, roof),
                  (intensity * 1.25, roof * 0.8), color=TEXT, fontsize=11, va="top")
    left.set(xscale="log", yscale="log", xlabel="FLOPs per byte", ylabel="GFLOP/s",
             xlim=(x[0], x[-1]), ylim=(1, 2 * peak), title=f"The roof: {of(machine)}")
    plain_ticks(left.xaxis, [0.125, 0.5, 2, 8, 32, 128])
    plain_ticks(left.yaxis, [v for v in (1, 10, 100, 1000, 10_000) if v < 2 * peak])

    def threads(count):
        return f"{count} thread{'s' if count > 1 else ''}"

    def both(variant, count):
        return [row_of(sums["rows"], variant, count) for sums in numbers["sums"]]

    M, most = numbers["sums"][0]["M"], max(entry["M"] for entry in numbers["features"])
    wide = [row_of(entry["rows"], "simd", cores) for entry in numbers["features"]
            if entry["M"] == most]
    lines = [(f"serial, {threads(1)}", both("serial", 1)),
             (f"reduction, {threads(cores)}", both("reduction", cores)),
             (f"SIMD, {threads(cores)}", both("simd", cores)),
             (f"SIMD, {threads(cores)},\n{most} features", wide)]
    right.axvline(roof, color=TEXT, linewidth=2)
    right.axvline(peak, color=TEXT, linewidth=2)
    for height, (_, (cached, streamed)) in enumerate(lines):
        for row, mark, up, how in ((cached, "o", 0.13, {}), (streamed, "s", -0.13, HOLLOW)):
            flops = row["bytes_per_second"] * intensity / 1e9
            right.plot([flops], [height + up], mark, color=TEXT, markersize=8, **how)
            right.annotate(f"{flops:.1f}", (flops, height + up), (-9, 0), ha="right",
                           textcoords="offset points", **LABEL)
    right.plot([], [], "o", color=TEXT, label="from the cache")
    right.plot([], [], "s", color=TEXT, label="from memory", **HOLLOW)
    right.legend(fontsize=10.5, loc="lower right", bbox_to_anchor=(0.93, 0.0))
    top = len(lines) - 0.45
    right.text(roof * 0.94, top, "memory's roof", ha="right", fontsize=11)
    right.text(peak * 0.94, top, "peak", ha="right", fontsize=11)
    right.set(xscale="log", xlabel="GFLOP/s", xlim=(2, 1.3 * peak), ylim=(-0.5, len(lines) - 0.2),
              title=f"What is reached, {M} features")
    right.set_yticks(range(len(lines)), [name for name, _ in lines])
    right.grid(False, axis="y")
    plain_ticks(right.xaxis, [v for v in (2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
                              if v < 1.3 * peak])
    return figure


def learning(numbers, pyplot):
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4.2), sharey=True)
    rows = numbers["learning"]["rows"]
    marks = dict(zip(sorted({row["threads"] for row in rows}), "os^Dv*"))
    for row in rows:
        epochs = range(len(row["loss"]))
        seconds = row["seconds_per_epoch"]
        together = row["way"] == "synchronous"
        how = {"color": TEXT if together else COMMUNICATION, "markersize": 5, "linewidth": 1.5,
               "linestyle": "-" if together else "--", "marker": marks[row["threads"]]}
        label = f"{row['way']}, {row['threads']} thread{'s' if row['threads'] > 1 else ''}"
        left.plot(epochs, row["loss"], **how)
        right.plot([1e3 * seconds * epoch for epoch in epochs], row["loss"], label=label, **how)
    left.set(xlabel="epochs", ylabel="mean absolute error", yscale="log",
             title="Loss by epochs ...")
    right.set(xlabel="milliseconds", title=f"... and by time ({of(numbers['machine'])})")
    plain_ticks(left.yaxis, [1, 1.5, 2, 3, 4, 5])
    right.legend(fontsize=10.5)
    return figure


def power(_, pyplot):
    """Nothing is measured here: n cores at f/n, and a part of the power that does not fall."""
    figure, ax = pyplot.subplots(figsize=(10, 3.9))
    n = [1 + k / 20 for k in range(301)]
    for static, line in ((0, ":"), (0.01, "-"), (0.05, "--"), (0.2, "-.")):
        gain = [1 / (c * (static + (1 - static) / c ** 3)) for c in n]
        ax.plot(n, gain, line, color=DIM if static == 0 else TEXT)
        label = "all power is dynamic: n²" if static == 0 else f"{100 * static:g} % static"
        end = next((k for k, g in enumerate(gain) if g > 60), len(n) - 1)
        height = gain[end] * (0.7 if static == 0 else 1)
        ax.annotate(label, (n[end] * 1.03, height), color=DIM if static == 0 else TEXT, **LABEL)
        if static:
            best = max(range(len(n)), key=gain.__getitem__)
            ax.plot([n[best]], [gain[best]], "o", color=TEXT)
            ax.annotate(f"{gain[best]:.1f} at n = {n[best]:.1f}", (n[best], gain[best]),
                        (0, 9 if static < 0.1 else -11), ha="center",
                        textcoords="offset points", **LABEL)
    ax.set(xscale="log", yscale="log", xlabel="cores n, each at f/n", ylabel="throughput per watt",
           xlim=(0.97, 24), ylim=(0.25, 130),
           title="The same throughput, n times as wide and as slow")
    plain_ticks(ax.xaxis, [1, 2, 3, 4, 6, 8, 12, 16])
    plain_ticks(ax.yaxis, [0.5, 1, 2, 5, 10, 20, 50, 100])
    return figure


def figures(numbers, pyplot):
    return {"speed_up": speed_up(numbers, pyplot), "racy_error": racy_error(numbers, pyplot),
            "work": work(numbers, pyplot), "roofline": roofline(numbers, pyplot),
            "learning": learning(numbers, pyplot), "power": power(numbers, pyplot)}
