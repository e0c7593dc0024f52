"""The options that every command takes, and those of several."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress; failures and the answer only.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="More lines, and tracebacks in full.")]
Plugins = Annotated[
    list[str], typer.Option("--plugins", metavar="FILE", help="A module that registers entries of its own; repeatable.")
]
