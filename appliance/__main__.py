"""The `millrace` command: `python -m appliance`, started by `./millrace`."""

from appliance import interrupts

if __name__ == "__main__":
    interrupts.end_at_once()

from appliance.cli.app import run_main

if __name__ == "__main__":
    run_main()
