"""The figures of this module's handout; tools/plot says how to draw them."""
PURPOSES = {"parameters": ("weights", "#56B4E9"), "gradients": ("gradients", "#D55E00"),
            "optimizer": ("optimizer", "#CC79A7"), "activations": ("saved by layers", "#009E73")}


def residency(numbers, pyplot):
    """What lies on the device behind each turn of a step, by time."""
    forms = numbers["residency"]
    figure, all_axes = pyplot.subplots(1, 2, figsize=(10, 4.2), sharey=True)
    for axes, (name, title) in zip(all_axes, (("none", "all on the device"), ("all", "--offload all"))):
        step = forms[name]
        turns = step["turns"]
        times = [1e3 * turn["seconds"] for turn in turns]
        stacks = [[turn[purpose] / 1e9 for turn in turns] for purpose in PURPOSES]
        axes.stackplot(times, stacks, step="post", labels=[words for words, _ in PURPOSES.values()],
                       colors=[colour for _, colour in PURPOSES.values()])
        turning = next(t for t, turn in zip(times, turns) if turn["direction"] == "backward")
        axes.axvline(turning, color="#5f6b7a", linewidth=1, linestyle=":")
        axes.set(title=f"{title}: at most {step['peak'] / 1e9:.2f} GB", xlabel="ms of a step",
                 xlim=(times[0], times[-1]))
        axes.text(turning, axes.get_ylim()[1], " backward", va="top", fontsize=10)
    all_axes[0].set_ylabel("GB on the device")
    all_axes[1].legend(fontsize=10, loc="center")
    return figure


def figures(numbers, pyplot):
    return {"residency": residency(numbers, pyplot)}
