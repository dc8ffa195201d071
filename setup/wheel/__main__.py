"""Run the `millrace` command as `python -m millrace`."""

from millrace import main

main()
