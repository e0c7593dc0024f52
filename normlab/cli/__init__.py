"""The command line: one thin function a command; torch and pandas are imported inside the functions that need them."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import typer

import normlab
from normlab.catalogue.lists import suggest
from normlab.cli import check, config, merge, read, reproduce, speed, studies, train
from normlab.config.errors import ConfigError

__all__ = ["app", "main"]

app = typer.Typer(
    name="normlab",
    help="Re-run toy studies of normalisation and residual connections.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"normlab {normlab.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    """Re-run toy studies of normalisation and residual connections."""


for _commands in (train, merge, reproduce, studies, speed, read, check, config):
    _commands.register(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code: 0 done, 1 failed, 2 usage or config error, 130 Ctrl-C.

    Expected faults are one line each on stderr; a traceback appears only with `-v`.
    """
    _fill_standard_streams()
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        result = app(args=arguments, prog_name="normlab", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except BrokenPipeError:
        return _closed_pipe()
    except SystemExit as stop:
        return _closed_pipe() if isinstance(stop.__context__, BrokenPipeError) else _code_of(stop)
    except KeyboardInterrupt:
        return 130
    except ConfigError as error:
        print("\n".join(error.problems), file=sys.stderr)
        return 2
    except Exception as error:
        if hasattr(error, "format_message"):
            return _usage_error(error)
        return _crash(error, arguments)


def _fill_standard_streams() -> None:
    """Put the null device in the place of standard streams that the caller closed: what we open must not land there."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False))


def _code_of(stop: SystemExit) -> int:
    if stop.code is None or isinstance(stop.code, int):
        return stop.code or 0
    print(stop.code, file=sys.stderr)
    return 1


def _closed_pipe() -> int:
    """The reader of our output has gone (`| head`): be quiet, also when Python flushes on its way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141


def _crash(error: Exception, arguments: Sequence[str]) -> int:
    if any(re.fullmatch(r"--verbose|-[a-zA-Z]*v[a-zA-Z]*", argument) for argument in arguments):
        traceback.print_exception(error)
        return 1
    lines = str(error).strip().splitlines()
    what = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    print(f"normlab: error: {what} (run with -v for the traceback)", file=sys.stderr)
    return 1


def _usage_error(error: Any) -> int:
    """One line for what typer finds wrong with options, commands and arguments; told apart without its internals."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message(), file=sys.stderr)
        return 2
    message = " ".join(str(error.format_message()).split()).rstrip(".")
    option = getattr(error, "option_name", None)
    if option and type(error).__name__ == "NoSuchOption":
        message = f"no such option {option}{_option_hint(option, context)}"
    missing = re.fullmatch(r"No such command '(.*?)'(\. .*)?", message)
    if missing and context is not None:
        commands = sorted(context.command.commands)
        message = f"no such command '{missing[1]}'{suggest(missing[1], commands) or '; known: ' + ', '.join(commands)}"
    path = context.command_path if context is not None else "normlab"
    print(f"normlab: error: {message[0].lower()}{message[1:]} (see '{path} -h')", file=sys.stderr)
    return 2


def _option_hint(option: str, context: Any) -> str:
    if "." in option:
        return f"; overrides have no dashes, as in {option.lstrip('-').partition('=')[0]}=..."
    known = [name for parameter in context.command.params for name in parameter.opts] if context else []
    return suggest(option, [*known, "--help"])
