"""The command `lle`, also as `python -m lle`. Signal handlers come before the imports, which take seconds."""

from .core.startup import exit_on_signals, exit_without_resources, guard_streams


def main() -> None:
    """Entry point of the console script."""
    exit_on_signals()
    guard_streams()
    exit_without_resources()
    from .cli.commands import main as run_command

    run_command()


if __name__ == "__main__":
    main()
