"""`python -m millrace`: the same as the command `millrace`."""

from millrace import main

main()
