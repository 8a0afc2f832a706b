"""Run the command line as ``python -m alloccheck``."""

from alloccheck.cli import main

main()
