"""The figures of this module's handout; tools/plot says how to draw them."""
import math

SHOWN = {"racy": "racy", "mutex": "mutex", "atomic": "atomic", "reduction": "reduction",
         "simd": "reduction, SIMD", "packed": "false sharing"}
DIM = "#5f6b7a"


def named(pyplot, names):
    """A colour for each name, the same in all figures."""
    colours = pyplot.rcParams["axes.prop_cycle"].by_key()["color"]
    return {name: colours[k % len(colours)] for k, name in enumerate(names)}


def rows_of(sums, variant):
    return [row for row in sums["rows"] if row["variant"] == variant]


def row_of(rows, variant, threads):
    return next(r for r in rows if r["variant"] == variant and r["threads"] == threads)


def size(mib):
    return f"{mib:g} MiB"


def amdahl(serial_share, threads):
    return 1 / (serial_share + (1 - serial_share) / threads)


def gustafson(serial_share, threads):
    return serial_share + (1 - serial_share) * threads


def plain_ticks(axis, values):
    axis.set_ticks(values, [f"{value:g}" for value in values])
    axis.set_ticks([], minor=True)


def speed_up(numbers, pyplot):
    """Measured speed-ups, and what two laws make of the best of them beyond this machine."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4.4))
    sums, cores = numbers["sums"][0], numbers["machine"]["cores"]
    for variant, colour in named(pyplot, SHOWN).items():
        rows = rows_of(sums, variant)
        left.plot([r["threads"] for r in rows], [r["speed_up"] for r in rows], "o-", color=colour,
                  label=SHOWN[variant])
    threads = [row["threads"] for row in rows_of(sums, "reduction")]
    left.plot(threads, [min(t, cores) for t in threads], ":", color=DIM, label="as many as cores")
    left.axhline(1, color=DIM, linewidth=1)
    left.set(xscale="log", yscale="log", xlabel="threads", ylabel="times as fast as serial",
             title=f"Measured: {size(sums['mib'])}, {cores} cores")
    plain_ticks(left.xaxis, threads)
    plain_ticks(left.yaxis, [0.1, 0.2, 0.5, 1, 2, 4, 8])
    left.set_ylim(0.07, 45)  # room for the legend
    left.legend(fontsize=10.5, ncol=2, loc="upper left")

    of_one = row_of(sums["rows"], "reduction", 1)["seconds"]
    measured = max(1.0, of_one / row_of(sums["rows"], "reduction", cores)["seconds"])
    share = max(0.0, (cores / measured - 1) / (cores - 1)) if cores > 1 else 0.0
    many = [2 ** k for k in range(11)]
    colours = pyplot.rcParams["axes.prop_cycle"].by_key()["color"]
    right.plot(many, many, ":", color=DIM, label="no serial part")
    right.plot(many, [gustafson(0.25, t) for t in many], "--", color=colours[1],
               label="Gustafson, 25 % serial")
    for colour, serial, what in ((colours[3], share, f"{100 * share:.1f} %, as measured"),
                                 (colours[2], 0.05, "5 %"), (colours[1], 0.25, "25 %")):
        right.plot(many, [amdahl(serial, t) for t in many], "-", color=colour,
                   label=f"Amdahl, {what}")
    right.set(xscale="log", yscale="log", xlabel="threads, each with a core", ylabel="speed-up",
              title="Two laws, by the serial part of the work")
    plain_ticks(right.xaxis, many[::2])
    plain_ticks(right.yaxis, many[::2])
    right.legend(fontsize=10)
    return figure


def racy_error(numbers, pyplot):
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.8), sharey=True)
    for sums, mark in zip(numbers["sums"], "os"):
        rows = rows_of(sums, "racy")
        left.plot([r["threads"] for r in rows], [100 * r["error"] for r in rows], mark + "-",
                  label=f"{sums['where']}, {size(sums['mib'])}")
    left.set(xscale="log", xlabel="threads", ylabel="% of the sum that is lost",
             title="The racy sum is wrong", ylim=(-3, 100))
    plain_ticks(left.xaxis, [row["threads"] for row in rows])
    left.legend()
    cores = numbers["machine"]["cores"]
    for streamed, mark in ((False, "o"), (True, "s")):
        points = [(entry["M"], 100 * row_of(entry["rows"], "racy", cores)["error"])
                  for entry in numbers["features"] if entry["streamed"] == streamed]
        right.plot(*zip(*points), mark + "-", label="from memory" if streamed else "from the cache")
    right.set(xscale="log", xlabel="features: work between two updates",
              title=f"... until much lies between updates")
    plain_ticks(right.xaxis, [entry["M"] for entry in numbers["features"]])
    return figure


def work(numbers, pyplot):
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4.0), sharey=True)
    cores = numbers["machine"]["cores"]
    for ax, streamed in zip(axes, (False, True)):
        entries = [entry for entry in numbers["features"] if entry["streamed"] == streamed]
        for variant, colour in named(pyplot, SHOWN).items():
            if variant == "packed":
                continue
            ax.plot([e["M"] for e in entries],
                    [row_of(e["rows"], variant, cores)["speed_up"] for e in entries], "o-",
                    color=colour, label=SHOWN[variant])
        ax.axhline(1, color=DIM, linewidth=1)
        ax.set(xscale="log", yscale="log", xlabel="features: work between two updates",
               title="From memory" if streamed else "From the cache")
        plain_ticks(ax.xaxis, [e["M"] for e in entries])
        plain_ticks(ax.yaxis, [0.1, 0.2, 0.5, 1, 2, 5, 10, 20])
    axes[0].set_ylabel(f"{cores} threads, times as fast as serial")
    axes[1].legend(fontsize=10.5)
    return figure


def roofline(numbers, pyplot):
    figure, ax = pyplot.subplots(figsize=(10, 5.4))
    machine, intensity = numbers["machine"], 0.5
    cores = str(machine["cores"])
    x = [2.0 ** (k / 4) for k in range(-12, 29)]
    bandwidth = machine["read_bandwidth"][cores] / 1e9
    colours = pyplot.rcParams["axes.prop_cycle"].by_key()["color"]
    for dtype, colour in (("f32", colours[6]), ("f64", DIM)):
        peak = machine[f"{dtype}_peak_flops"][cores] / 1e9
        ax.plot(x, [min(peak, bandwidth * i) for i in x], "-", color=colour, linewidth=2.5)
        ax.text(x[-1], peak * 1.06, f"{dtype.upper()} peak, {peak:.0f} GFLOP/s", ha="right",
                color=colour)
    one = machine["read_bandwidth"]["1"] / 1e9
    peak_of_one = machine["f32_peak_flops"]["1"] / 1e9
    ax.plot(x, [min(peak_of_one, one * i) for i in x], "--", color=colours[6], linewidth=1.2)
    ax.text(x[-1], peak_of_one * 0.9, "dashed: one core, F32", ha="right", va="top", color=colours[6],
            fontsize=11)
    ax.axvline(intensity, color=DIM, linewidth=1, linestyle=":")
    ax.text(intensity * 1.04, 0.62, "a MAE: 2 FLOPs for 4 bytes", color=DIM)

    def points():
        for sums, where in zip(numbers["sums"], ("cached", "streamed")):
            features = f"{sums['M']} features"
            for variant, threads, colour in (("serial", 1, 1), ("reduction", machine["cores"], 2),
                                             ("simd", machine["cores"], 0)):
                yield (row_of(sums["rows"], variant, threads), SHOWN.get(variant, variant), threads,
                       features, where, colours[colour])
        for entry in numbers["features"]:
            if entry["M"] == max(e["M"] for e in numbers["features"]):
                yield (row_of(entry["rows"], "simd", machine["cores"]), SHOWN["simd"],
                       machine["cores"], f"{entry['M']} features",
                       "streamed" if entry["streamed"] else "cached", colours[3])

    below = 0.0
    for row, name, threads, features, where, colour in sorted(
            points(), key=lambda point: point[0]["bytes_per_second"]):
        flops = row["bytes_per_second"] * intensity / 1e9
        ax.plot([intensity], [flops], "o" if where == "cached" else "s", color=colour,
                markerfacecolor=colour if where == "cached" else "white", markeredgewidth=2,
                markersize=9)
        height = max(flops, below * 1.32)  # labels do not cover each other
        below = height
        what = f"{name}, {threads} thread{'s' if threads > 1 else ''}, {features}, {where}"
        ax.annotate(f"{flops:.1f}  {what}", (intensity, flops), (4.4, height),
                    va="center", fontsize=11, color=colour,
                    arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.8,
                                "relpos": (0, 0.5)})
    ax.set(xscale="log", yscale="log", xlabel="FLOPs per byte", ylabel="GFLOP/s", xlim=(x[0], x[-1]),
           ylim=(0.5, 2 * machine["f32_peak_flops"][cores] / 1e9),
           title=f"Roofline of {machine['processor']}, {cores} cores")
    figure.canvas.draw()  # where lines lie on the page is known only now
    (left, low), (right, high) = ax.transData.transform([(1, bandwidth), (2, 2 * bandwidth)])
    ax.text(0.75, 0.75 * bandwidth * 1.12, f"memory reads {bandwidth:.0f} GB/s", color=colours[6],
            rotation=math.degrees(math.atan2(high - low, right - left)), rotation_mode="anchor",
            ha="left")
    plain_ticks(ax.xaxis, [0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128])
    plain_ticks(ax.yaxis, [v for v in (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
                           if v < 2 * machine["f32_peak_flops"][cores] / 1e9])
    return figure


def learning(numbers, pyplot):
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4.2), sharey=True)
    rows = numbers["learning"]["rows"]
    colours = named(pyplot, sorted({row["threads"] for row in rows}))
    for row in rows:
        epochs = range(len(row["loss"]))
        seconds = row["seconds_per_epoch"]
        how = {"color": colours[row["threads"]], "markersize": 4,
               "linestyle": "-" if row["way"] == "synchronous" else "--",
               "marker": "o" if row["way"] == "synchronous" else "s"}
        label = f"{row['way']}, {row['threads']} thread{'s' if row['threads'] > 1 else ''}"
        left.plot(epochs, row["loss"], label=label, **how)
        right.plot([1e3 * seconds * epoch for epoch in epochs], row["loss"], label=label, **how)
    left.set(xlabel="epochs", ylabel="mean absolute error", yscale="log",
             title="Loss by epochs ...")
    right.set(xlabel="milliseconds", title="... and by time")
    plain_ticks(left.yaxis, [1, 1.5, 2, 3, 4, 5])
    right.legend(fontsize=10.5)
    return figure


def power(_, pyplot):
    """Nothing is measured here: n cores at f/n, and a part of the power that does not fall."""
    figure, ax = pyplot.subplots(figsize=(10, 3.9))
    n = [1 + k / 20 for k in range(301)]
    for static in (0, 0.01, 0.05, 0.2):
        gain = [1 / (c * (static + (1 - static) / c ** 3)) for c in n]
        label = "all power is dynamic: n²" if static == 0 else f"{100 * static:g} % static"
        line, = ax.plot(n, gain, label=label)
        if static:
            best = max(range(len(n)), key=gain.__getitem__)
            ax.plot([n[best]], [gain[best]], "o", color=line.get_color())
            ax.annotate(f"{gain[best]:.1f} at n = {n[best]:.1f}", (n[best], gain[best]),
                        (0, 8 if static < 0.1 else -18), textcoords="offset points", ha="center", color=line.get_color(),
                        fontsize=11)
    ax.set(xscale="log", yscale="log", xlabel="cores n, each at f/n", ylim=(0.4, 100),
           ylabel="throughput per watt", title="The same throughput, n times as wide and as slow")
    plain_ticks(ax.xaxis, [1, 2, 3, 4, 6, 8, 12, 16])
    plain_ticks(ax.yaxis, [0.5, 1, 2, 5, 10, 20, 50, 100])
    ax.legend()
    return figure


def figures(numbers, pyplot):
    return {"speed_up": speed_up(numbers, pyplot), "racy_error": racy_error(numbers, pyplot),
            "work": work(numbers, pyplot), "roofline": roofline(numbers, pyplot),
            "learning": learning(numbers, pyplot), "power": power(numbers, pyplot)}
