"""`millrace collector run`: a collector in the foreground, on a host that has joined a mill."""

from typing import Annotated

import typer

from appliance.cli import context
from appliance.output import CommandError, Exit


def run_alone(
    again: Annotated[
        bool, typer.Option("--again", help="Accept that this folder comes from another machine.")
    ] = False,
) -> None:
    """Run the collector of a host that has joined; Ctrl-C or SIGTERM stops it cleanly."""
    from dataclasses import replace

    from appliance.cli.join_command import joined_mill
    from appliance.enrol.host_files import HostFiles
    from appliance.enrol.plan import Secret
    from appliance.launch.run import become

    home = context.home()
    files = HostFiles(home)
    mill, known = joined_mill(files)
    if files.has(Secret.PENDING):
        raise CommandError(
            "`millrace join` was interrupted: run `millrace join FILE` again, or"
            " `millrace join --renew` if the join file is gone",
            Exit.CONDITION,
        )
    machine_id = files.machine_id()
    if known.machine_id != machine_id:
        if not again:
            raise CommandError(
                f"{home.folder} joined as collector {known.name} on the machine with the id"
                f" {known.machine_id}, but the id of this machine is {machine_id}. Two collectors"
                " with the same name stop each other: if the other machine is gone, add --again;"
                " otherwise join with another name, in another folder",
                Exit.CONDITION,
            )
        files.note(replace(known, machine_id=machine_id))
    if not mill.config.collector.inputs:
        raise CommandError(
            f"{home.config_file} has no collector.inputs: write there which files to read",
            Exit.CONDITION,
        )
    become(mill, "collector")
