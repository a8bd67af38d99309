"""Long campaigns: `python -m tests.fuzz [configs] [inputs] [stores] [bits] [walks] [whole_runs]`.

Prints a line for each target and a reproducer for each failure; ends with 1 if there is any.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from lle.core.machine import library_environment
from tests.fuzz.campaign import DEFAULT_CASES, TARGETS, as_json, campaign, run_case


def main() -> int:
    """Run the campaigns, or one case by its number."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"{', '.join(TARGETS)}; default: all")
    parser.add_argument("--cases", type=int, help=f"number of cases of each target; default: {DEFAULT_CASES}")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--case", type=int, help="run this case alone, in this process")
    parser.add_argument("--keep", type=Path, help="with --case: folder that keeps its files")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if unknown := set(options.targets) - set(TARGETS):
        parser.error(f"no such target: {', '.join(sorted(unknown))}; choose from {', '.join(TARGETS)}")
    targets = options.targets or TARGETS
    if options.case is not None:
        for target in targets:
            folder = Path(options.keep or tempfile.mkdtemp(prefix="lle-fuzz-")).absolute() / target
            print(f"{target} case {options.case}, files in {folder}")
            print(run_case(target, options.seed, options.case, folder))
        return 0
    failures = 0
    for target in targets:
        first, number = options.first, options.cases or DEFAULT_CASES[target]
        tally = campaign(target, options.seed, range(first, first + number), options.processes)
        print(json.dumps(as_json(tally)) if options.json else tally.line(), flush=True)
        for case, failure in ({} if options.json else tally.failures).items():
            print(f"case {case}: {failure}\n", flush=True)
        failures += len(tally.failures)
    return int(failures > 0)


if __name__ == "__main__":
    import os

    os.environ.update({name: os.environ.get(name, value) for name, value in library_environment().items()})
    sys.exit(main())
