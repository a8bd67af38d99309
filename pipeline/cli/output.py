"""What the commands print for people: a dict in, lines out."""

from pathlib import Path
from typing import Any

from pipeline.engine import task_costs

GIB = 2**30


def describe_plan(found: dict[str, Any]) -> str:
    lines = [f"{'step':<34}{'tasks':>7}{'kept':>7}{'GiB a task':>12}{'GiB on disk':>13}  where"]
    for row in found["steps"]:
        name = f"{row['stage']}.{row['step']}"
        size, disk = row["bytes_per_task"] / GIB, row["disk_bytes"] / GIB
        lines.append(f"{name:<34}{row['tasks']:>7}{row['reused']:>7}{size:>12.3f}{disk:>13.3f}  {row['where']}"
                     f"{'' if row['fits'] else ': does not fit'}")  # fmt: skip
    if found["worker_room"] is not None:
        limit, room = task_costs.gib(found["worker_memory"]), task_costs.gib(found["worker_room"])
        lines.append(f"a worker of {limit} has room for {room} a task")
    lines.append(
        f"on disk in all: {found['array_bytes'] / GIB:.2f} GiB of arrays; with M and what lies between the steps at "
        f"most {found['disk_bytes'] / GIB:.2f} GiB"
    )
    lines += [found["says"]] if found["says"] else []
    solver = found["solver"]
    known = "at least what stands above; a factor's size is known once the weights are solved"
    lines.append(f"eigensolver: {describe_solver(solver) if solver else known}")
    return "\n".join(lines)


def describe_suggestion(found: dict[str, Any], config: Path) -> str:
    two, likely = (found["dimension"][name] for name in ("two_nearest", "maximum_likelihood"))
    lines = [
        f"{found['n_rows']:,} rows of {found['n_features']} features; {found['sample']:,} sampled, "
        f"{found['queries']:,} of them against all rows (dimension, error)",
        f"intrinsic dimension: TwoNN {_interval(two, '.2f')}; maximum likelihood with {likely['n_neighbors']} "
        f"neighbours {_interval(likely, '.2f')}",
    ]
    if found["candidates"]:
        lines.append(f"{'':<2}{'k':>4}{'reg':>8}  {'dimension':<22}{'error':<30}{'parts':>6}{'closed':>7}  "
                     f"{'trustworthiness':<28}{'continuity'}")  # fmt: skip
    for one in found["candidates"]:
        line = (f"{'*' if one['chosen'] else '':<2}{one['n_neighbors']:>4}{one['reg']:>8.0e}  "
                f"{_interval(one['dimension'], '.2f'):<22}{_interval(one['error'], '.1e'):<30}")  # fmt: skip
        if "failed" in one:
            lines.append(line + one["failed"].splitlines()[0][:80])
            continue
        both = (_interval(one[name], ".4f") for name in ("trustworthiness", "continuity"))
        lines.append(f"{line}{one['n_components_weak']:>6}{one['closed_classes']:>7}  {next(both):<28}{next(both)}")
    lines += [f"- {reason}" for reason in found["reasons"]]
    values = " ".join(f"--set {key}={value:g}" for key, value in found["suggested"].items())
    lines.append(f"written: {found['written']}" if found["written"] else f"lle run {config} {values}")
    return "\n".join(line.rstrip() for line in lines)


def describe_solver(solver: dict[str, Any]) -> str:
    size = f"{solver['predicted_bytes'] / GIB:.2f} GiB" if "predicted_bytes" in solver else solver["reason"]
    text = f"{solver['method']}, {size}"
    if "seconds" in solver:
        work = "for 1,000 products" if solver["method"] == "chebyshev" else f"for {solver['gflop']:.3g} GFlop"
        text += f" of {solver['allowed_bytes'] / GIB:.2f} allowed, about {solver['seconds']:.0f} s {work}"
    return f"{text} (from {solver['basis']})" if "basis" in solver else text


def describe_status(found: dict[str, Any]) -> str:
    lines = [f"{found['store']}: {found['state']}{_place(found)}"]
    if published := found.get("published"):
        lines[0] += f", published {published['version']} of {published['when']}, {published['rows']} rows"
    if now := found["now"]:
        lines[0] += f", {now['stage']}.{now['step']}: {now['done']} of {now['blocks']} blocks"
    for name, entry in found["stages"].items():
        total = "?" if entry["blocks"] is None else entry["blocks"]
        lines.append(f"  {name:<18}{entry['done']:>6} of {total:>6} blocks{entry['seconds']:>10.1f} s")
    for head in found["filters"]:
        values = ", ".join(f"{value:.3g}" for value in head["values"])
        lines.append(f"  filters: {head['n_degrees']:,} products so far, eigenvalues at most {values}")
    if work := found.get("unpublished"):
        done = sum(entry["done"] for entry in work["stages"].values())
        lines.append(f"not published, {work['state']}{_place(work)}, {done} blocks done: {work['store']}")
    return "\n".join(lines)


def _place(found: dict[str, Any]) -> str:
    """Where a run was stopped: how many blocks it would still have had is not known."""
    if not (at := found.get("stopped_in")):
        return ""
    return f" {'in' if at['done'] < at['blocks'] else 'after'} {at['stage']}.{at['step']}"


def describe_check(found: dict[str, Any]) -> str:
    """What `lle verify` says of a store without damage."""
    left = ", ".join(f"{count} block{'s' * (count > 1)} of {step}" for step, count in found["unfinished"].items())
    return f"{found['store']}: every chunk matches its checksum" + (f"; not finished: {left}" if left else "")


def describe_transform(found: dict[str, Any]) -> str:
    lines = [f"{found['rows']} rows written to {found['path']} in {found['seconds']} s"]
    if found["training_points"]:
        lines.append(f"{found['training_points']} are training points and have their coordinates")
    if found["far"]:
        lines.append(f"warning: {found['far']} are far from the training points (distance_ratio above "
                     f"{found['max_ratio']:.3g}): their coordinates mean little")  # fmt: skip
    if found["mixed_components"]:
        lines.append(f"warning: {found['mixed_components']} have neighbours in several components of the graph: only "
                     f"those in the component of the nearest count")  # fmt: skip
    if found["invalid"]:
        shown = ", ".join(map(str, found["first_invalid"]))
        lines.append(f"warning: {found['invalid']} hold NaN or infinity and have no coordinates (rows {shown}"
                     f"{', ...' if found['invalid'] > len(found['first_invalid']) else ''})")  # fmt: skip
    return "\n".join(lines)


def describe_sweep(found: dict[str, Any]) -> str:
    steps = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in found["steps"].items())
    if "seconds" not in found:
        return f"{found['experiments']} experiments, {found['cannot_run']} of which cannot run; steps: {steps}"
    lines = [f"done in {found['seconds']} s: {found['experiments']} experiments; steps: {steps}"]
    places = {"table": "sweep.parquet", "picture": "contact_sheet.png", "page": "sweep.html"}
    return "\n".join([*lines, *(f"{kind + ':':<9}{found['store']}/{name}" for kind, name in places.items())])


def describe_run(found: dict[str, Any]) -> str:
    store = found["store"]
    computed, reused = sum(found["blocks_computed"].values()), sum(found["blocks_reused"].values())
    head = "unchanged, nothing to do" if found["unchanged"] else "done"
    lines = [f"{head} in {found['seconds']} s: {computed} blocks computed, {reused} reused", f"store:   {store}"]
    if found["metrics"].get("picture"):
        lines.append(f"picture: {store}/report/embedding.png")
        lines.append(f"report:  {store}/report/index.html")
    return "\n".join([*(f"warning: {text}" for text in found["metrics"].get("warnings", [])), *lines])


def _interval(found: dict[str, float], form: str) -> str:
    value, low, high = (format(found[key], form) for key in ("value", "low", "high"))
    return f"{value} ({low} to {high})"
