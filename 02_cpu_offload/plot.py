"""The figures of this module's handout; tools/plot says how to draw them."""
from timelines import DIM, MEMORY

PURPOSES = {"parameters": ("weights", MEMORY["weights"]),
            "gradients": ("gradients", MEMORY["gradients"]),
            "optimizer": ("optimizer", MEMORY["optimizer"]),
            "activations": ("saved by layers", MEMORY["activations"])}


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
        axes.axvline(turning, color=DIM, linewidth=1, linestyle=":")
        axes.set(title=f"{title}: at most {step['peak'] / 1e9:.2f} GB", xlabel="ms of a step",
                 xlim=(times[0], times[-1]))
        axes.text(turning, axes.get_ylim()[1], " backward", va="top", fontsize=10)
    all_axes[0].set_ylabel("GB on the device")
    all_axes[1].legend(fontsize=10, loc="center")
    return figure


def figures(numbers, pyplot):
    return {"residency": residency(numbers, pyplot)}
