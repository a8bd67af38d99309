"""`python -m pipeline` is the command `lle`."""

from pipeline.cli.commands import main

if __name__ == "__main__":
    main()
