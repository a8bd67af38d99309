"""Text output of the commands: each function turns a result into lines."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import MAX_NAMES, by_reason, counted, describe_share, gib, listed

if TYPE_CHECKING:
    from ..engine.step import Json
    from ..jobs.plan_preview import Plan
    from ..jobs.status import StageStatus, Status
    from ..jobs.validate import Validated
    from ..jobs.versions import ListedVersions
    from ..report.findings import Columns

LISTED = 20  # names of columns in a line


def describe_validation(valid: "Validated") -> str:
    fitted = f"; {valid['fit_sample']} rows are fitted, the others are placed" if valid["fit_sample"] else ""
    size = f"{counted(valid['n_input'], 'row')} of {counted(valid['n_features'], 'feature')}"
    lines = [f"valid: {size}, {valid['dtype']}{fitted}"]
    if "experiments" in valid:
        lines.append(f"sweep: {counted(valid['experiments'], 'experiment')}")
    return "\n".join([*lines, *describe_columns(valid["columns"]), *(f"warning: {text}" for text in valid["warnings"])])


def describe_init(written: "Json") -> str:
    if "text" in written:
        return "\n".join([*(f"# warning: {text}" for text in written["warnings"]), written["text"].rstrip("\n")])
    size = f"{counted(written['n_input'], 'row')} of {counted(written['n_features'], 'feature')}"
    lines = [f"{written['kind']}: {size}, {written['dtype']}"]
    lines += describe_columns(written["columns"])
    if written["columns"] is None and written["label"] is not None:
        lines.append(f"label: {written['label']}")
    if written["incomplete"]:
        lines.append(f"{written['incomplete']}; preprocess.invalid: drop leaves these rows out")
    config = shlex.quote(written["config"])
    lines += [f"note: {text}" for text in written["remarks"]]
    lines += [*(f"warning: {text}" for text in written["warnings"]), f"written: {', '.join(written['written'])}"]
    lines += [
        f"kept: {name} differs from the schema of this version, which `lle schema` prints" for name in written["kept"]
    ]
    return "\n".join([*lines, f"Check the file, then: lle run {config}"])


def describe_columns(columns: "Columns | None") -> list[str]:
    """Lines on the columns of a table and what the run does with them; none for an array."""
    if columns is None:
        return []
    lines = [f"features: {listed(columns['features'], LISTED)}"]
    lines += [f"{role}: {columns[role] or repr('')}" for role in ("label", "id") if columns[role] is not None]
    left_out = by_reason(columns["left_out"], lambda name: name or repr(name))
    count = f"{len(columns['left_out'])} columns: " * (len(columns["left_out"]) > LISTED)
    return lines + [f"left out: {count}{', '.join(left_out)}"] * bool(left_out)


def describe_plan(plan: "Plan") -> str:
    lines = [f"{'step':<34}{'tasks':>7}{'kept':>7}{'GiB a task':>12}{'GiB on disk':>13}  where"]
    for row in plan["steps"]:
        name = f"{row['stage']}.{row['step']}"
        size, disk = row["bytes_per_task"] / 2**30, row["disk_bytes"] / 2**30
        lines.append(
            f"{name:<34}{row['tasks']:>7}{row['reused']:>7}{size:>12.3f}{disk:>13.3f}  {row['where']}"
            f"{'' if row['fits'] else ': does not fit'}"
        )
    if (limit := plan["worker_memory"]) is not None and (room := plan["worker_room"]) is not None:
        lines.append(f"a worker of {gib(limit)} has {gib(room)} for a task, beside what its process needs")
    lines.append(
        f"total on disk: at most {gib(plan['disk_bytes'])} during the run and {gib(plan['disk_bytes_at_end'])} at its "
        f"end, {gib(plan['array_bytes'])} of it arrays"
    )
    if plan["expected"]:
        lines.append(f"expected time on this machine without other load: {plan['expected']['says']}")
    if sample := plan["fit_sample"]:
        lines.append(f"{sample['rows_fitted']} rows are fitted; {sample['rows_placed']} rows are placed, by blocks")
    lines += describe_columns(plan["columns"])
    lines += [f"warning: {text}" for text in plan["warnings"]]
    lines += [plan["says"]] if plan["says"] else []
    lines += [plan["graph"]] if plan["graph"] else []
    if reg := plan["reg"]:
        value = "" if reg["value"] is None else f"{reg['value']:g}: "
        lines.append(f"weights.reg: {value}{reg['reason']}")
    solver = plan["solver"]
    unknown_size = "needs at least the memory above; the size of a factor is known after the weights are computed"
    lines.append(f"eigensolver: {describe_solver(solver) if solver else unknown_size}")
    return "\n".join(lines)


def describe_suggestion(suggestion: "Json", config: Path, overrides: Sequence[str] = ()) -> str:
    two_nearest, likelihood = (suggestion["dimension"][name] for name in ("two_nearest", "maximum_likelihood"))
    of_nearest = "none, because they are equally far" if two_nearest is None else _interval(two_nearest, ".2f")
    lines = [
        f"{counted(suggestion['n_rows'], 'row')} of {counted(suggestion['n_features'], 'feature')}; "
        f"{suggestion['sample']:,} sampled; the dimension is measured at {suggestion['queries']:,} of these with "
        "neighbours among all rows",
        f"intrinsic dimension: TwoNN {of_nearest}; maximum likelihood with "
        f"{likelihood['n_neighbors']} neighbours {_interval(likelihood, '.2f')}",
    ]
    if suggestion["candidates"]:
        lines.append(
            f"{'':<2}{'method':<10}{'m':>3}{'k':>4}{'reg':>8}{'embedded':>10}  {'score':<9}{'trustworthiness':<25}"
            f"{'continuity':<25}{'kept':<8}hit"
        )
    for trial in suggestion["candidates"]:
        k = "" if trial["method"] == "pca" else trial["n_neighbors"]
        reg = "" if trial["reg"] is None else f"{trial['reg']:.0e}"
        m = trial["n_components"]
        line = f"{'*' if trial['chosen'] else '':<2}{trial['method']:<10}{m:>3}{k:>4}{reg:>8}"
        if "failed" in trial:
            lines.append(f"{line}  {trial['failed'][:80]}")
            continue
        measures = (_interval(trial[name], ".3f") for name in ("trustworthiness", "continuity"))
        kept, hit = (f"{trial[name]['value']:.3f}" if name in trial else "" for name in ("kept", "hit"))
        lines.append(
            f"{line}{trial['in_largest']:>10.1%}  {trial['score']['value']:<9.4f}"
            f"{next(measures):<25}{next(measures):<25}{kept:<8}{hit}"
        )
    lines += [f"- {reason}" for reason in suggestion["reasons"]]
    if suggestion["written"]:
        lines.append(f"written: {suggestion['written']}")
        if suggestion.get("kept"):
            lines[-1] += f"; its store is {suggestion['store']}, so that {suggestion['kept']} is kept"
    else:
        suggested = suggestion["suggested"]
        values = [value for value in overrides if value.partition("=")[0] not in suggested]
        values += [f"{key}={value if isinstance(value, str) else f'{value:g}'}" for key, value in suggested.items()]
        words = ["lle", "run", str(config), *(word for value in values for word in ("--set", value))]
        lines.append(shlex.join([*words, *(["--store", suggestion["store"]] if suggestion.get("kept") else [])]))
    return "\n".join(line.rstrip() for line in lines)


def describe_solver(solver: "Json") -> str:
    size = gib(solver["predicted_bytes"]) if "predicted_bytes" in solver else solver["reason"]
    text = f"{solver['method']}, {size}"
    if "seconds" in solver:
        work = f" for {solver['gflop']:.3g} GFlop" if solver["gflop"] else ""
        text += f" of {gib(solver['allowed_bytes'])} allowed, about {solver['seconds']:.0f} s{work}"
    return f"{text} (from {solver['basis']})" if "basis" in solver else text


def describe_status(status: "Status") -> str:
    """The output of `lle status`."""
    return "\n".join(line for part in status_lines(status) for line in part)


def status_lines(status: "Status") -> tuple[list[str], list[str], list[str]]:
    """Lines before the table of the stages, of the table, and after it."""
    lines = [f"{status['store']}: {status['state']}{_stopped_in(status)}"]
    if published := status.get("published"):
        lines[0] += f", published {published['version']} of {published['when']}, {published['rows']} rows"
    if current := status["now"]:
        blocks = f"{current['done']} of {current['blocks']} blocks"
        lines[0] += f", {current['stage']}.{current['step']}: {blocks}{describe_progress(status)}"
    if failure := status.get("last_failure"):
        lines.append(f"  last run failed at {failure['when']} (exit code {failure['exit_code']}): {failure['message']}")
    rest = [f"  {record['text']}" for record in status["solving"]]
    for head in status["filters"]:
        values = ", ".join(f"{value:.3g}" for value in head["values"])
        rest.append(f"  {head['method']}: {head['n_steps']:,} steps so far, eigenvalues at most {values}")
    if work := status.get("unpublished"):
        done = sum(entry["done"] for entry in work["stages"].values())
        rest.append(
            f"not published, {work['state']}{_stopped_in(work)}, {counted(done, 'block')} done: {work['store']}"
        )
    return lines, _stage_table(status["stages"]), rest


def describe_progress(status: "Status") -> str:
    """The share of a run that is done and the time left; empty if they are unknown."""
    return f"; run: {describe_share(**progress)}" if (progress := status.get("progress")) else ""


def _stage_table(stages: "dict[str, StageStatus]") -> list[str]:
    """A line for each stage, and their total. Stages that have not begun have an unknown number of blocks."""
    rows = [(name, entry["done"], entry["blocks"], entry["seconds"]) for name, entry in stages.items()]
    rows.append(("total", sum(row[1] for row in rows), sum(row[2] or 0 for row in rows), sum(row[3] for row in rows)))
    lines = [
        f"  {name:<18}{done:>6} of {'?' if of is None else of:>6} blocks{seconds:>10.1f} s"
        for name, done, of, seconds in rows
    ]
    if n_waiting := sum(entry["blocks"] is None for entry in stages.values()):
        lines.append(f"  {n_waiting} of {len(stages)} stages have not begun")
    return lines


def _stopped_in(status: "Status") -> str:
    """The step in which a run was stopped; the blocks of later steps are not known."""
    if not (step := status.get("stopped_in")):
        return ""
    return f" {'in' if step['done'] < step['blocks'] else 'after'} {step['stage']}.{step['step']}"


def describe_versions(listed: "ListedVersions") -> str:
    """A line for each version, the newest first."""
    lines = [f"{listed['store']}: {counted(len(listed['versions']), 'version')}"]
    for row in listed["versions"]:
        size = "" if row["bytes"] is None else gib(row["bytes"])
        when = (row["finished"] or "")[:16].replace("T", " ")
        rows = "" if row["rows"] is None else f"{row['rows']:,} rows"
        state = "published" if row["published"] else "" if row["complete"] else "unfinished"
        verdict = (row["verdict"] or "").partition(". ")[0]
        lines.append(f"  {row['version']:<22} {when:<16} {rows:>16} {size:>10}  {state:<10} {verdict}".rstrip())
    return "\n".join(lines)


def describe_clean(cleaned: "Json") -> str:
    versions = ", ".join(cleaned["deleted"]) or "no version"
    lines = [f"deleted: {versions}; {counted(cleaned['partial_files'], 'unfinished temporary file')}"]
    return "\n".join(lines + [f"not deleted: {failure}" for failure in cleaned["failures"]])


def describe_check(check: "Json") -> str:
    """The output of `lle verify` for a store without damage."""
    unfinished = ", ".join(f"{count} block{'s' * (count > 1)} of {step}" for step, count in check["unfinished"].items())
    text = f"{check['store']}: every chunk matches its checksum"
    return f"{text}; not finished: {unfinished}" if unfinished else text


def describe_transform(result: "Json") -> str:
    rows = {
        key: counted(result[key], "row") for key in ("rows", "training_points", "far", "mixed_components", "invalid")
    }
    lines = [f"{rows['rows']} written to {result['path']} in {result['seconds']} s"]
    if result["training_points"]:
        lines.append(f"{rows['training_points']} of the training data, with unchanged coordinates")
    if result["far"]:
        lines.append(
            f"warning: {rows['far']} far from the training points (distance_ratio above "
            f"{result['max_ratio']:.3g}), whose coordinates are not reliable"
        )
    if result["mixed_components"]:
        lines.append(
            f"warning: {rows['mixed_components']} with neighbours in several components of the graph: only "
            f"neighbours in the component of the nearest one are used"
        )
    if result["invalid"]:
        shown = ", ".join(map(str, result["first_invalid"]))
        lines.append(
            f"warning: {rows['invalid']} without coordinates, because of NaN or infinity, numbers whose "
            f"squares overflow, or with neighbors.metric: cosine only zeros (row{'s' * (result['invalid'] > 1)} {shown}"
            f"{', ...' if result['invalid'] > len(result['first_invalid']) else ''})"
        )
    return "\n".join(lines)


def describe_sweep(sweep: "Json") -> str:
    """The output of `lle sweep`, and without `seconds` that of its --dry-run."""
    words = {"asked": "requested", "to_do": "to compute"}
    steps = ", ".join(f"{count} {words.get(kind, kind)}" for kind, count in sweep["steps"].items())
    if "seconds" not in sweep:
        reasons = [f"{name}: {error}" for name, error in list(sweep["refused"].items())[:MAX_NAMES]]
        reasons += [f"... ({sweep['cannot_run']} in all)"] * (sweep["cannot_run"] > MAX_NAMES)
        count = (
            f"{counted(sweep['experiments'], 'experiment')}, {sweep['cannot_run']} of which cannot run; steps: {steps}"
        )
        return "\n".join([count, *reasons])
    lines = [f"done in {sweep['seconds']} s: {sweep['experiments']} experiments; steps: {steps}"]
    places = {"table": "sweep.parquet", "picture": "contact_sheet.png", "page": "sweep.html"}
    return "\n".join([*lines, *(f"{kind + ':':<9}{sweep['store']}/{name}" for kind, name in places.items())])


def describe_run(result: "Json") -> str:
    store = result["store"]
    computed, reused = sum(result["blocks_computed"].values()), sum(result["blocks_reused"].values())
    state = "unchanged, nothing to do" if result["unchanged"] else "done"
    lines = [
        f"{state} in {result['seconds']} s: {counted(computed, 'block')} computed, {reused} reused",
        f"store:   {store}",
    ]
    if result["metrics"].get("picture"):
        lines.append(f"picture: {store}/report/embedding.png")
        lines.append(f"report:  {store}/report/index.html")
    metrics = result["metrics"]
    verdict = [metrics["verdict"]] if metrics.get("verdict") else []
    return "\n".join([*verdict, *(f"warning: {text}" for text in metrics.get("warnings", [])), *lines])


def _interval(estimate: dict[str, float], number_format: str) -> str:
    value, low, high = (format(estimate[key], number_format) for key in ("value", "low", "high"))
    return f"{value} ({low} to {high})"
