"""The root of the command line, `config`, `list` and `env`: exit codes, one-line errors, nothing heavy imported."""

import json
import subprocess
import sys

import pytest
from registered import only_here

from normlab.catalogue import CATALOGUES, NORMS
from normlab.cli import main
from normlab.config.load import find_config, load_study, shipped_configs
from normlab.model.norms.pointwise import DyT

HEAVY = ("torch", "pandas", "matplotlib")


def run(*arguments, cwd=None, code=None):
    """Run the command line in a fresh interpreter; with `code`, run that instead."""
    command = [sys.executable, *(("-c", code) if code else ("-m", "normlab")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


def call(capsys, *arguments):
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["chek"], "normlab: error: no such command 'chek'"),
        (["sweep-l", "x"], "normlab: error: no such command 'sweep-l'; did you mean 'sweep-lr'? (see 'normlab -h')"),
        (["config", "chek"], "normlab: error: no such command 'chek'; did you mean 'check'? (see 'normlab config -h')"),
        (["--versio"], "normlab: error: no such option --versio; did you mean '--version'? (see 'normlab -h')"),
        (["run", "smoke", "--job", "2"], "normlab: error: no such option --job; did you mean '--jobs'?"),
        (
            ["config", "show", "smoke", "--optim.lr=1"],
            "normlab: error: no such option --optim.lr; overrides have no dashes",
        ),
        (["config", "show"], "normlab: error: missing argument 'CONFIG' (see 'normlab config show -h')"),
        (["config", "show", "smoke", "--seeds"], "normlab: error: option '--seeds' requires an argument"),
        (["config", "check", "optim.lr=1"], "normlab: error: invalid value for 'CONFIG...': expected a config before"),
        (["list", "nroms"], "normlab: error: invalid value for 'KIND': expected one of norms, placements, mixers, "),
        (
            ["config", "show", "colapse"],
            "colapse: no such file, and no shipped config of that name; did you mean 'collapse'?",
        ),
        (
            ["config", "show", "smoke", "optim.lrr=1"],
            "override 'optim.lrr=1': optim.lrr: unknown key; did you mean 'optim.lr'?",
        ),
        (["config", "show", "smoke", "--seeds", "x"], "option '--seeds x': seeds: expected whole numbers"),
    ],
)
def test_a_wrong_command_is_one_line_and_exit_2(capsys, arguments, line):
    code, out, err = call(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(line) and err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["-h"], ["--help"], ["config", "-h"], ["config", "check", "-h"], ["list", "-h"]])
def test_help_is_everywhere(capsys, arguments):
    code, out, _ = call(capsys, *arguments)
    assert code == 0 and "Usage: normlab" in out


def test_version(capsys):
    import normlab

    assert call(capsys, "--version") == (0, f"normlab {normlab.__version__}\n", "")


def test_without_a_command_the_help_goes_to_stderr(capsys):
    code, out, err = call(capsys)
    assert (code, out) == (2, "") and "Usage: normlab" in err


def test_check_tells_runs_or_every_problem(capsys, tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text("question: q\nbase: {optim: {lrr: 1}}\nsedes: 3\n")
    code, out, err = call(capsys, "config", "check", "postln", str(bad), "smoke")
    assert code == 2
    assert [line.rpartition(": ")[2] for line in out.splitlines()] == ["ok, 10 runs", "ok, 4 runs"]
    assert [line.split(": ")[:2] for line in err.splitlines()] == [
        [f"{bad}:2:16", "optim.lrr"],
        [f"{bad}:3:1", "sedes"],
    ]
    code, out, _ = call(capsys, "config", "check", "--json", "smoke", "seeds=0-2")
    assert (code, json.loads(out)[0]["runs"]) == (0, 12)


def test_show_prints_a_config_that_loads_back(capsys, tmp_path):
    code, out, _ = call(capsys, "config", "show", "warmup", "train.batch=4", "--seeds", "1-2")
    path = tmp_path / "copy.yaml"
    path.write_text(out)
    assert code == 0
    assert load_study(path) == load_study(find_config("warmup"), ["train.batch=4"], "1-2")
    code, out, _ = call(capsys, "config", "show", "warmup", "--json")
    assert json.loads(out)["base"]["model"]["depth"] == 12


def test_schema_lists_every_field_and_is_a_json_schema(capsys):
    from normlab.config.fields import run_fields

    _, out, _ = call(capsys, "config", "schema")
    assert set(run_fields()) <= {line.split(" ")[0] for line in out.splitlines()}
    _, out, _ = call(capsys, "config", "schema", "--json")
    schema = json.loads(out)
    assert schema["required"] == ["question"]
    assert schema["$defs"]["ModelSpec"]["properties"]["norm"]["enum"] == list(NORMS)
    assert "optim.lr" in schema["properties"]["axes"]["properties"]


@pytest.mark.parametrize("kind", [*CATALOGUES, "configs"])
def test_list_has_a_line_for_each(capsys, kind):
    names = list(CATALOGUES[kind]) if kind in CATALOGUES else [path.stem for path in shipped_configs()]
    _, out, _ = call(capsys, "list", kind)
    assert [line.split()[0] for line in out.splitlines()] == names
    _, out, _ = call(capsys, "list", kind, "--json")
    assert [entry["name"] for entry in json.loads(out)] == names
    assert all(len(entry["about"]) > 5 for entry in json.loads(out))


def test_list_says_all_that_is_known_of_an_entry(capsys):
    _, out, _ = call(capsys, "list", "norms", "--json")
    (dyt,) = [entry for entry in json.loads(out) if entry["name"] == "dyt"]
    assert (dyt["title"], dyt["source"]) == (DyT.title, DyT.source)
    assert dyt["options"]["alpha"] == {"default": 0.5, "about": DyT.Options.model_fields["alpha"].description}
    _, out, _ = call(capsys, "list", "norms")
    assert "alpha" not in out and DyT.source not in out
    _, out, _ = call(capsys, "list", "norms", "-v")
    below = out[out.index("\ndyt ") :].splitlines()[2:5]
    assert [line.split(":")[0].strip() for line in below] == ["source", "statistics", "alpha"]
    assert below[2].split()[1] == "0.5"


def test_list_shows_what_a_module_of_ones_own_registers(capsys, tmp_path):
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from normlab.model.inits import INITS, Init\nclass Mine(Init):\n    'Every weight one.'\n"
        "    title = 'all ones'\nINITS['ones'] = Mine\n"
    )
    with only_here():
        code, out, _ = call(capsys, "list", "inits", "--plugins", str(plugin), "--json")
        assert code == 0 and json.loads(out)[-1]["title"] == "all ones"
    assert "ones" not in call(capsys, "list", "inits")[1].split()
    code, out, err = call(capsys, "list", "inits", "--plugins", str(tmp_path / "none.py"))
    assert (code, out, err.count("\n")) == (2, "", 1) and "cannot be imported" in err


def test_env(capsys):
    _, out, _ = call(capsys, "env", "--json")
    facts = json.loads(out)
    assert facts["torch"] and facts["devices"][0] == "cpu" and "commit" in facts
    assert call(capsys, "env")[1].startswith("commit: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["-h"],
        ["--version"],
        ["run", "-h"],
        ["config", "check", "postln"],
        ["config", "schema"],
        ["list", "configs"],
        ["list", "norms", "-v"],
    ],
)
def test_nothing_heavy_is_imported(arguments):
    code = "import sys; from normlab.cli import main; c = main(sys.argv[1:]); print(c, *sys.modules, file=sys.stderr)"
    code, *modules = run(*arguments, code=code).stderr.split()
    assert code == "0"
    assert not set(HEAVY) & set(modules)


def test_shipped_names_work_from_any_directory(tmp_path):
    (tmp_path / "collapse").mkdir()
    for name in ("collapse", "collapse.yaml", "configs/collapse.yaml"):
        done = run("config", "check", name, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "") and done.stdout.endswith("collapse.yaml: ok, 6 runs\n")
    (tmp_path / "smoke.yaml").write_text("question: mine\n")
    assert run("config", "check", "smoke.yaml", cwd=tmp_path).stdout == "smoke.yaml: ok, 1 run\n"


CRASH = """
import sys
from normlab.cli import app, main

@app.command("crash")
def crash(verbose: bool = __import__("typer").Option(False, "-v", "--verbose")):
    raise RuntimeError("first line\\nsecond line")

@app.command("stop")
def stop():
    raise KeyboardInterrupt

@app.command("flood")
def flood():
    for _ in range(100_000):
        print("x" * 100)

sys.exit(main())
"""


def test_a_crash_is_one_line_unless_verbose():
    done = run("crash", code=CRASH)
    line = "normlab: error: RuntimeError: first line (run with -v for the traceback)\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", line)
    done = run("crash", "-v", code=CRASH)
    assert done.returncode == 1 and done.stderr.startswith("Traceback") and "second line" in done.stderr


def test_ctrl_c_is_130_without_a_traceback():
    done = run("stop", code=CRASH)
    assert (done.returncode, done.stderr) == (130, "")


def test_a_closed_pipe_is_quiet():
    with subprocess.Popen(
        [sys.executable, "-c", CRASH, "flood"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_standard_streams_break_nothing(closed):
    shut = f"import os, sys; [os.close(n) for n in {closed}]; "
    again = "os.execv(sys.executable, [sys.executable, '-m', 'normlab', *sys.argv[1:]])"
    done = run("list", "configs", code=shut + again)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("postln" in done.stdout) == (1 not in closed)
    done = run("list", "nroms", code=shut + again)
    assert done.returncode == 2 and ("expected one of" in done.stderr) == (2 not in closed)


def test_what_is_unusual_about_a_net_is_said_once(tmp_path, capsys):
    path = tmp_path / "narrow.yaml"
    path.write_text("question: q\nbase: {model: {width: 1}}\naxes: {optim.lr: [1e-3, 1e-2]}\n")
    assert main(["config", "check", str(path)]) == 0
    first, *notes = capsys.readouterr().out.splitlines()
    assert first == f"{path}: ok, 2 runs"
    assert notes == ["  unusual: norm 'layernorm' of width 1 passes nothing on but its bias"]
    assert main(["config", "check", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["unusual"] == [notes[0].removeprefix("  unusual: ")]
