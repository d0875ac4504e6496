#!/usr/bin/env python3
"""Steps of a trace that was recorded on a GPU (/start_profile): how long each keeps the GPU, how long the GPU waits
between a step's last kernel and the next one's first, and the launches of a step by name.

    tools/trace_summary.py profile.trace.json [--layers 27]

Only steps that are like most others (the same launches) are counted, so decodes of one size. The GPU waits inside a
step where no kernel runs, and between steps. Kernels overlap, so a kernel's own times do not add up to the step; what
it adds to the step does: from the end of those that ended before it to its own. Times in microseconds.
"""
import argparse
import collections
import json
import pathlib
import statistics


def read_steps(events):
    """By step: its work on the GPU as (begin, end, category, name), by begin."""
    steps = collections.defaultdict(list)
    for event in events:
        if event.get("cat") in ("kernel", "copy", "fill") and "step" in event.get("args", {}):
            steps[event["args"]["step"]].append(
                (event["ts"], event["ts"] + event["dur"], event["cat"], event["name"]))
    return {step: sorted(work) for step, work in sorted(steps.items())}


def idle_inside(work):
    idle, end = 0.0, work[0][0]
    for begin, stop, _, _ in work:
        idle += max(0.0, begin - end)
        end = max(end, stop)
    return idle


def launches(work):
    return collections.Counter(name for _, _, category, name in work if category == "kernel")


def most_common_kind(steps):
    """The steps with the launches that most have."""
    kinds = collections.defaultdict(list)
    for step, work in steps.items():
        kinds[frozenset(launches(work).items())].append(step)
    return max(kinds.values(), key=len)


def gaps_between(steps, chosen):
    """(gap before, time until the next step begins) of chosen steps that follow each other."""
    pairs = [(step, step + 1) for step in chosen if step + 1 in set(chosen)]
    for step, following in pairs:
        end = max(stop for _, stop, _, _ in steps[step])
        begin = steps[following][0][0]
        yield max(0.0, begin - end), begin - steps[step][0][0]


def enqueue_spans(events, chosen):
    return [event["dur"] for event in events if event.get("cat") == "runner" and event["name"] == "enqueue"
            and event.get("args", {}).get("step") in chosen]


def percentile(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def added_times(work):
    """(name, what the kernel adds to the step) of a step's kernels, by end."""
    kernels = sorted((stop, begin, name) for begin, stop, category, name in work if category == "kernel")
    end = kernels[0][1]
    for stop, _, name in kernels:
        yield name, stop - end
        end = stop


def print_launches(steps, chosen, layers):
    seconds, added, count = collections.Counter(), collections.Counter(), launches(steps[chosen[0]])
    for step in chosen:
        for begin, end, category, name in steps[step]:
            if category == "kernel":
                seconds[name] += (end - begin) / len(chosen)
        for name, us in added_times(steps[step]):
            added[name] += us / len(chosen)
    print(f"{sum(count.values())} kernels a step:")
    for name, us in added.most_common():
        per_layer = f"{count[name] / layers:7.2f} a layer" if layers else ""
        print(f"  {count[name]:5d} {per_layer} {seconds[name] / count[name]:8.2f} us each, adds "
              f"{us / count[name]:8.2f} us each {us:9.1f} us  {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=0, help="of the model: launches are given per layer too")
    options = parser.parse_args()
    trace = json.loads(options.trace.read_text(encoding="utf-8"))
    if why := trace["otherData"].get("device_missing"):
        raise SystemExit(f"{options.trace} has no kernels: {why}")
    steps = read_steps(trace["traceEvents"])
    if not steps:
        raise SystemExit(f"{options.trace} has no step with kernels")
    chosen = most_common_kind(steps)
    gaps = list(gaps_between(steps, chosen))
    if not gaps:
        raise SystemExit(f"{options.trace} has no two like steps behind each other")
    inside = statistics.fmean(idle_inside(steps[step]) for step in chosen)
    period = statistics.fmean(length for _, length in gaps)
    between = [gap for gap, _ in gaps]
    print(f"{len(chosen)} of {len(steps)} steps are alike")
    print(f"from step to step  {statistics.median(length for _, length in gaps):9.1f} median")
    print(f"enqueueing (host)  {statistics.median(enqueue_spans(trace['traceEvents'], set(chosen))):9.1f} median")
    print(f"idle between steps {statistics.median(between):9.1f} median {percentile(between, 0.99):9.1f} p99 "
          f"{100 * statistics.fmean(between) / period:6.2f}% of the time")
    print(f"idle inside a step {inside:9.1f} mean {100 * inside / period:23.2f}% of the time")
    print_launches(steps, chosen, options.layers)


if __name__ == "__main__":
    main()
