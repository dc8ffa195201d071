"""The `millrace` command: `python -m appliance`, started by `./millrace`."""

from appliance import interrupts

interrupts.end_at_once()

from appliance.cli.app import run_main  # noqa: E402

if __name__ == "__main__":
    run_main()
