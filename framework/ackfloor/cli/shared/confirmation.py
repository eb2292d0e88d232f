"""Confirmation: asks before a command changes anything, unless `--yes` is given."""

from __future__ import annotations

import sys

import typer

from ackfloor.runtime.supervision.exit_codes import Exit


def confirm(question: str, would: str) -> None:
    """Ask, and go on only if the answer is yes.

    Args:
        question: such as "Create 3 topics?".
        would: what would be done, if there is no terminal, such as "3 topics would be created".

    Raises:
        typer.Exit: 2: standard input is no terminal, or the answer is no or Ctrl-C.
    """
    if not sys.stdin.isatty():
        typer.secho(f"{would}: confirm with --yes", fg="red", err=True)
        raise typer.Exit(Exit.USAGE)
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:
        typer.echo(err=True)
        agreed = False
    if not agreed:
        typer.secho("nothing was done", err=True)
        raise typer.Exit(Exit.USAGE)
