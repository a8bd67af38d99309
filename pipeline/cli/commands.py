"""The command `lle`. Results go to stdout, progress and errors to stderr.

Commands import what they run inside their bodies: `lle --help` and `lle status` load no kernels.
"""

import json
import os
import sys
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..core.errors import ConfigError, OutputLost
from ..core.machine import ensure_compiler_cache, library_environment
from . import arguments, output
from .arguments import AsJson, ConfigPath, Fresh, OtherStore, Overrides, StoreUrl, WithColumns, load, store_of
from .finish import Commands, finish, leave

if TYPE_CHECKING:
    from ..engine.step import Json
    from ..jobs.status import Status

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

WATCH_SECONDS = 2.0


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"lle {metadata.version('lle-pipeline')}")
        raise typer.Exit


@app.callback()
def common_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version and end")
    ] = False,
) -> None:
    """Locally Linear Embedding of millions of points as a distributed, resumable batch job."""


@app.command(epilog="Example: lle init customers.parquet -o job.yaml")
def init(
    data: Annotated[str, typer.Argument(metavar="DATA", help="the input: a file, a folder, a pattern or a URL")],
    out: Annotated[Path, typer.Option("-o", "--output", metavar="CONFIG", help="a new file, or -")] = Path("job.yaml"),
    as_json: AsJson = False,
) -> None:
    """Write a commented config for a data file: its kind, and which columns are features, label and id."""
    from ..jobs.init import init as write_first_config

    finish(lambda: write_first_config(data, out), as_json, output.describe_init)


@app.command(epilog="Example: lle run job.yaml --set neighbors.n_neighbors=20")
def run(
    config: ConfigPath,
    set_: Overrides = None,
    store: OtherStore = None,
    fresh: Fresh = False,
    as_json: AsJson = False,
    log: arguments.Log = "text",
    profile: arguments.Profile = False,
) -> None:
    """Run the job. Resumes from the finished steps in the store."""
    from ..engine.progress import JsonProgress, RunProgress
    from ..jobs.run import run as run_job

    def act() -> "Json":
        progress = JsonProgress() if log == "json" else RunProgress()
        result = run_job(load(config, set_, store), fresh, progress, profile)
        return {
            "store": result.store,
            "seconds": round(result.seconds, 2),
            "blocks_computed": result.computed,
            "blocks_reused": result.reused,
            "published": result.version,
            "unchanged": result.unchanged,
            "metrics": result.metrics,
        }

    finish(act, as_json, output.describe_run, resumes=True)


@app.command(epilog="Example: lle sweep sweep.yaml --dry-run")
def sweep(
    configs: arguments.ConfigPaths,
    set_: Overrides = None,
    store: OtherStore = None,
    fresh: Fresh = False,
    as_json: AsJson = False,
    dry_run: arguments.DryRun = False,
) -> None:
    """Run many experiments; each step that they share is computed once. Writes one table and one picture."""
    from ..engine.progress import RunProgress
    from ..jobs import sweep_plan
    from ..jobs.sweep import run_sweep

    def act() -> "Json":
        url, experiments = sweep_plan.load_sweep(configs, tuple(set_ or ()), store)
        if dry_run:
            planned = sweep_plan.plan_sweep(experiments, sweep_plan.worker_limit(experiments), fresh)
            return sweep_plan.describe_sweep(url, planned)
        result = run_sweep(url, experiments, fresh, RunProgress())
        return {
            "store": result.url,
            "seconds": round(result.seconds, 2),
            "experiments": len(result.rows),
            "steps": result.counts,
        }

    finish(act, as_json, output.describe_sweep, resumes=True)


@app.command(epilog="Example: lle plan job.yaml --set execution.cluster.workers=4")
def plan(config: ConfigPath, set_: Overrides = None, store: OtherStore = None, as_json: AsJson = False) -> None:
    """Show what a run would do: tasks, bytes per task, disk space, memory of the eigensolver. Computes nothing."""
    from ..jobs.plan_preview import plan_summary

    finish(lambda: plan_summary(load(config, set_, store)), as_json, output.describe_plan)


@app.command(epilog="Example: lle validate job.yaml")
def validate(config: ConfigPath, set_: Overrides = None, store: OtherStore = None, as_json: AsJson = False) -> None:
    """Check the config and the header of the input. Computes nothing."""
    from ..jobs.validate import validate_file

    finish(lambda: validate_file(config, tuple(set_ or ()), store), as_json, output.describe_validation)


@app.command(epilog="Example: lle suggest job.yaml --write better.yaml")
def suggest(
    config: ConfigPath,
    sample: arguments.Sample = None,
    write: arguments.Out = None,
    set_: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Embed a sample with many settings; suggest method, n_components, n_neighbors and reg, with reasons."""
    from rich.console import Console

    from ..jobs.suggest import suggest_for_file

    def act() -> dict[str, object]:
        console = Console(stderr=True)
        if not sys.stderr.isatty() or console.is_dumb_terminal:
            return suggest_for_file(config, tuple(set_ or ()), sample, write, partial(typer.echo, err=True))
        with console.status("") as line:
            return suggest_for_file(config, tuple(set_ or ()), sample, write, line.update)

    finish(act, as_json, lambda suggestion: output.describe_suggestion(suggestion, config, tuple(set_ or ())))


@app.command(epilog="Example: lle status runs/rows.zarr --watch")
def status(store: StoreUrl, as_json: AsJson = False, watch: arguments.Watch = False) -> None:
    """Show the progress of a run: finished blocks of each stage, seconds, running or stopped."""
    from ..jobs.status import status_of
    from .watch import watch_status

    def act() -> "Status":
        url = store_of(store)
        return watch_status(lambda: status_of(url), as_json, WATCH_SECONDS) if watch else status_of(url)

    finish(act, as_json, output.describe_status)


@app.command(epilog="Example: lle verify runs/rows.zarr")
def verify(store: StoreUrl, as_json: AsJson = False) -> None:
    """Check every stored chunk against its checksum. The next run computes damaged blocks again."""
    from ..jobs.verify import check
    from ..storage.versions import other_versions, reading

    def act() -> "Json":
        url = store_of(store)
        with reading(url) as opened:
            return check(opened, lambda: other_versions(url, opened))

    finish(act, as_json, output.describe_check)


@app.command(epilog="Example: lle report runs/rows.zarr")
def report(store: StoreUrl, as_json: AsJson = False) -> None:
    """Build the report of a store again."""
    from ..jobs.report import rebuild_report
    from ..storage.versions import reading, show_report

    def act() -> dict[str, object]:
        url = store_of(store)
        with reading(url) as opened:
            rebuild_report(opened)
            show_report(url, opened)
            return {"report": f"{opened.url}/report/index.html"}

    finish(act, as_json, lambda result: str(result["report"]))


@app.command(epilog="Example: lle explore runs/rows.zarr --port 8800 --no-browser")
def explore(
    store: StoreUrl,
    port: Annotated[int, typer.Option(min=0, max=65535, help="port on this machine; 0: a free one")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="open the page in a browser")] = True,
    as_json: AsJson = False,
) -> None:
    """Show all points of a finished run in a browser on this machine, until Ctrl-C."""
    from ..storage.versions import result_of_whole

    def announce(url: str) -> None:
        typer.echo(json.dumps({"url": url}) if as_json else f"{url}\nCtrl-C ends it.")
        sys.stdout.flush()

    def act() -> dict[str, object]:
        from ..jobs.explore_server import explore as serve  # a second of imports

        return result_of_whole(store_of(store), lambda opened: serve(opened, port, browser, announce))

    finish(act, as_json, lambda result: "ended")


@app.command(epilog="Example: lle export runs/rows.zarr rows.parquet --with city")
def export(
    store: StoreUrl,
    out: Annotated[str, typer.Argument(metavar="OUT", help="path or URL: .npy, .parquet, .arrow or .csv; or .h5ad")],
    with_: WithColumns = None,
    into: arguments.Into = None,
    force: Annotated[bool, typer.Option("--force", help="replace a file without asking in a terminal")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the embedding to one file, in input order; or add it to an .h5ad file."""
    from ..jobs.export import export_run
    from ..jobs.output_file import will_replace
    from ..storage.store import Store
    from ..storage.versions import result_of_whole

    def write(opened: Store) -> dict[str, object]:
        return {"rows": export_run(opened, out, tuple(with_ or ()), into), "path": out, "store": opened.url}

    def act() -> dict[str, object]:
        if not force and not as_json and sys.stdin.isatty() and will_replace(out):
            typer.echo(f"{out} exists already. Replace it? [y/N] ", nl=False, err=True)
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                raise ConfigError(f"{out}: this file exists already; add --force to replace it, or choose another name")
        return result_of_whole(store_of(store), write)

    finish(act, as_json, lambda result: f"{result['rows']:,} rows written to {result['path']}")


@app.command(epilog="Example: lle transform runs/rows.zarr new.parquet coordinates.parquet")
def transform(
    store: StoreUrl,
    new: Annotated[str, typer.Argument(metavar="NEW", help="rows to embed: a path, pattern or URL")],
    out: arguments.OutFile,
    input_: arguments.InputSettings = None,
    config: Annotated[Path | None, typer.Option(help="run on the cluster of this file's execution section")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="number of worker processes on this machine")] = None,
    max_ratio: arguments.MaxRatio = None,
    far_as_nan: Annotated[bool, typer.Option("--far-as-nan", help="no coordinates for rows that are far")] = False,
    work: arguments.Work = None,
    with_: WithColumns = None,
    as_json: AsJson = False,
) -> None:
    """Embed new points in a finished run: their coordinates are weighted sums of those of their neighbours."""
    from ..config.load import load_config
    from ..config.models import Cluster, Execution
    from ..engine.progress import RunProgress
    from ..jobs.transform import NewRows
    from ..jobs.transform import transform as transform_rows

    def act() -> dict[str, object]:
        if config is not None and workers is not None:
            raise ConfigError("--config and --workers: give only one of them; the file sets the number of workers")
        execution = None if config is None else load_config(config).execution
        if workers is not None:
            execution = Execution(cluster=Cluster(workers=workers))
        settings, names = tuple(input_ or ()), tuple(with_ or ())
        rows = NewRows(store_of(store), new, out, settings, execution, max_ratio, far_as_nan, work, names)
        return transform_rows(rows, RunProgress())

    finish(act, as_json, output.describe_transform, resumes=True)


@app.command(epilog="Example: lle versions runs/nightly.zarr")
def versions(store: StoreUrl, as_json: AsJson = False) -> None:
    """List the versions of a store with output.keep: date, rows, verdict, size, and which one is published."""
    from ..jobs.versions import list_versions

    finish(lambda: list_versions(store_of(store)), as_json, output.describe_versions)


@app.command(epilog="Example: lle publish runs/nightly.zarr 20260102T030405Z-9f3e")
def publish(
    store: StoreUrl,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="the version to publish, as lle versions lists it")],
    as_json: AsJson = False,
) -> None:
    """Publish another finished version: roll back to an older one, or forward again. Nothing is computed or deleted."""
    from ..jobs.versions import publish_version

    def describe(result: dict[str, str | None]) -> str:
        return f"published: {result['published']} (before: {result['before'] or 'none'})"

    finish(lambda: publish_version(store_of(store), version), as_json, describe)


@app.command(epilog="Example: lle clean runs/nightly.zarr --keep 2")
def clean(store: StoreUrl, keep: arguments.Keep = None, as_json: AsJson = False) -> None:
    """Delete unfinished versions and unfinished temporary files. Refused while a run is active."""
    from ..jobs.versions import clean_store

    finish(lambda: clean_store(store_of(store), keep), as_json, output.describe_clean)


@app.command(epilog="Example: lle schema > schema.json")
def schema(as_json: AsJson = False) -> None:
    """Print the JSON schema of the config."""
    from ..config.load import json_schema

    typer.echo(json.dumps(json_schema(), indent=2))


def main() -> None:
    """Run the command line. Sets the variables of MKL and OpenBLAS first: they read them when they are loaded."""
    for name, value in library_environment().items():
        os.environ.setdefault(name, value)
    ensure_compiler_cache()
    code = 0
    try:
        app()
    except SystemExit as exit_error:
        code = exit_error.code if isinstance(exit_error.code, int) else int(exit_error.code is not None)
    except OutputLost as lost:
        typer.echo(f"lle: {lost}", err=True)
        code = lost.exit_code
    leave(code)
