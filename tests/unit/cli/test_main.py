# SPDX-License-Identifier: Apache-2.0

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.commands import call
from support.manifests import CPU_AND_METAL

from kernforge import errors
from kernforge.cli.commands import build as cli_build
from kernforge.cli.parser import SHELLS, read
from kernforge.cli.table import COMMANDS, FORMER, GROUPS
from kernforge.system import console
from kernforge.system.environment import Environment, Variable
from kernforge.system.tables import page


def parsed(*words):
    return read(words, argparse.Namespace())


@pytest.mark.parametrize("verb", sorted(COMMANDS))
def test_help_of_a_command_has_an_example_and_a_page(verb, capsys):
    docs = Path(__file__).parents[3] / "docs"
    assert (docs / f"{COMMANDS[verb].page}.md").is_file()
    assert call(verb, "--help") == call("help", verb) == 0
    out = capsys.readouterr().out
    assert out.count(f"example: kernforge {verb}") == 2
    assert out.count(f"\nmore: {page(COMMANDS[verb].page)}\n") == 2


def test_help_lists_all_commands_by_task_on_one_screen(capsys):
    assert call() == 0
    bare = capsys.readouterr().out
    for words in (["--help"], ["help"]):
        call(*words)
        assert capsys.readouterr().out == bare
    places = [bare.index(f"\n{title}:\n") for title in GROUPS]
    assert places == sorted(places)
    assert len(bare.splitlines()) <= 47
    for command in COMMANDS.values():
        assert re.search(rf"^  {command.name} +{re.escape(command.summary)}$", bare, re.MULTILINE)


def test_commands_options_and_variables_have_a_limit():
    assert len(COMMANDS) <= 24
    listed = [a for each in COMMANDS.values() for a in each.arguments]
    flat = [a for one in listed for a in (one if isinstance(one, tuple) else (one,))]
    assert sum(a.names[0].startswith("-") for a in flat) <= 110
    ours = [v for v in vars(Environment).values() if isinstance(v, Variable)]
    assert sum(v.name.startswith("KERNFORGE_") for v in ours) <= 20


@pytest.mark.parametrize("name", sorted(FORMER))
def test_a_former_name_is_answered_with_the_new_one(name, capsys):
    assert call(name) == 2
    err = capsys.readouterr().err
    assert err == f"error: `kernforge {name}` is `kernforge {FORMER[name]}`\n"
    words = FORMER[name].split()
    verb = [word for word in words[:1] if not word.startswith("-")]
    assert call(*verb, "--help") == 0
    told = capsys.readouterr().out
    assert all(word in told for word in words)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("search",), "--local lists what is on this machine"),
        (("run", "--", "true"), "kernforge run --as-kernels -- python app.py"),
        (("run", "--as-kernels"), "kernforge run --as-kernels -- python app.py"),
        (("run", "--write-wheel", "dist", "--", "true"), "or --write-wheel alone"),
        (("biuld",), "did you mean `kernforge build`?"),
        (("xyzzy",), "hint: `kernforge` lists all commands"),
        (("build", "--varint=x"), "did you mean --variant?"),
        (("test", "--sandbox", "atuo"), "choose from"),
        (("info",), "`kernforge info --help`"),
        (("check", "a", "b"), "'b' is one argument too many for kernforge check"),
        (("--jsn", "check"), "did you mean --json?"),
        (("build", "--scheduler-x"), "did you mean --scheduler?"),
        (("test", "--inplace"), "hint: `kernforge test --help`"),
        (("verify", "a/b", "--source", "."), "--source is for --rebuild"),
        (("new",), "the name of the project is missing"),
    ],
)
def test_a_wrong_command_line_gets_a_suggestion(argv, said, capsys):
    assert call(*argv) == 2
    assert said in capsys.readouterr().err
    assert call(*argv[:1], "--json", *argv[1:]) == 2
    assert json.loads(capsys.readouterr().out)["error"] == "UsageError"


@pytest.mark.parametrize("where", [0, 1])
def test_common_options_may_stand_before_the_command(where, project, capsys):
    argv = ["build", "--list", str(project)]
    argv.insert(2 * where, "--json")
    assert call(*argv) == 0
    assert isinstance(json.loads(capsys.readouterr().out), list)


def test_short_options_are_the_long_ones(capsys):
    assert call("-V") == 0
    assert capsys.readouterr().out.startswith("kernforge ")
    told = parsed("build", "-q", "-v", "-j", "3", "-o", "x")
    assert (told.quiet, told.verbose, told.jobs, told.build_dir) == (True, True, 3, Path("x"))
    assert parsed("-q", "wheel", "-o", "x").out == Path("x")
    assert parsed("-q", "wheel").quiet


@pytest.mark.parametrize(
    ("words", "project", "program"),
    [
        ([], ".", []),
        (["my-kernel"], "my-kernel", []),
        (["--", "nvcc", "--version"], ".", ["nvcc", "--version"]),
        (["my-kernel", "--variant", "x", "--", "a", "--", "b"], "my-kernel", ["a", "--", "b"]),
    ],
)
def test_shell_runs_the_program_after_two_dashes(words, project, program):
    told = parsed("shell", *words)
    assert (told.project, list(told.program)) == (Path(project), program)


def test_help_lists_each_exit_code_once(capsys):
    call("--help")
    out = capsys.readouterr().out
    codes = [k.exit_code for k in (errors.KernforgeError, *errors.KernforgeError.__subclasses__())]
    assert not [code for code in codes if f" {code} " not in out.replace("\n", " ")]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize(
    ("name", "installs"), [("pydantic", "'kernforge[build]'"), ("torch", "torch")]
)
def test_a_missing_package_says_what_to_install(project, capsys, monkeypatch, name, installs):
    def lacking(*_):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(cli_build, "_list", lacking)
    assert call("build", "--list", str(project)) == 2
    assert f"pip install {installs}\n" in capsys.readouterr().err


def test_a_file_in_place_of_a_directory_is_a_storage_error(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert call("new", str(tmp_path / "file" / "my-op")) == 11
    said = capsys.readouterr().err
    assert str(tmp_path / "file") in said
    assert "hint: move what is there, or choose another path" in said


@pytest.mark.parametrize(
    ("streams", "code", "said"),
    [
        ("2>&-", 0, ""),
        (">&- 2>&- <&-", 0, ""),
        (">/dev/full", 11, "writing standard output: No space"),
    ],
)
def test_commands_run_where_a_stream_is_closed_or_full(tmp_path, streams, code, said):
    argv = [sys.executable, "-m", "kernforge", "search", "x", "--json", "--registry", str(tmp_path)]
    shell = ["sh", "-c", f'"$@" {streams}', "sh", *argv]
    done = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert (done.returncode, said in done.stderr, "Traceback" in done.stderr) == (code, True, False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_program_in_our_place_gets_the_signal(tmp_path, number):
    program = "trap 'exit 5' TERM HUP; touch ready; while :; do sleep 0.02; done"
    argv = [sys.executable, "-m", "kernforge", "run", "--as-kernels", "--", "sh", "-c", program]
    environment = {**os.environ, "KERNFORGE_HOME": str(tmp_path / "home")}
    with subprocess.Popen(argv, cwd=tmp_path, env=environment) as running:
        while not (tmp_path / "ready").exists():
            time.sleep(0.02)
        running.send_signal(number)
    assert running.returncode == 5


@pytest.mark.parametrize(
    ("name", "code", "told"),
    [
        ("wrong manifest", 3, "[general] licence"),
        ("missing source", 3, "[kernel.cpu] src[0]"),
        ("missing project", 2, "there is no directory {0}/my-relu"),
        ("no manifest", 2, "kernforge new"),
    ],
)
def test_an_unreadable_project_is_an_error_with_its_place(name, code, told, project, capsys):
    directory, manifest = project, CPU_AND_METAL
    if name == "wrong manifest":
        manifest = manifest.replace("license", "licence")
    if name == "missing source":
        (project / "op.cpp").unlink()
    if name == "missing project":
        directory = project / "my-relu"
    (project / "build.toml").write_text(manifest)
    if name == "no manifest":
        (project / "build.toml").unlink()
    assert call("build", "--list", str(directory)) == code
    quiet = capsys.readouterr().err
    assert told.format(project) in quiet
    assert call("-v", "build", "--list", str(directory)) == code
    verbose = capsys.readouterr().err
    assert ("Traceback" in quiet, "Traceback" in verbose) == (False, True)


def test_a_closed_pipe_is_no_traceback():
    reader, writer = os.pipe()
    os.close(reader)
    argv = [sys.executable, "-m", "kernforge", "--print-completion", "bash"]
    done = subprocess.run(argv, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_json_is_one_document_with_the_error_in_it(capsys):
    error = errors.CheckError("it is wrong", hint="fix it")
    for result, expected in (
        (None, {"error": "CheckError", "message": "it is wrong", "hint": "fix it"}),
        ({"ok": False}, {"ok": False, "error": "CheckError", "message": "it is wrong"}),
        ([1, 2], [1, 2]),
    ):
        one = console.Console(as_json=True)
        if result is not None:
            one.result(result, "")
        one.error(error)
        one.close()
        told = json.loads(capsys.readouterr().out)
        assert told == expected if isinstance(told, list) else told.items() >= expected.items()
    one = console.Console(as_json=True)
    one.line({"round": 1}, "")
    one.error(error)
    lines = capsys.readouterr().out.splitlines()
    assert [sorted(json.loads(line)) for line in lines] == [["round"], ["error", "hint", "message"]]


def test_control_characters_of_untrusted_text_are_escaped(capsys):
    evil = "a\x1b[2Jb\x9bc\u202ed"
    printer = console.Console()
    printer.result({}, evil)
    printer.error(errors.UsageError(evil, hint=evil))
    text = capsys.readouterr()
    assert not {"\x1b", "\x9b", "\u202e"} & set(text.out + text.err + str(errors.UsageError(evil)))
    assert "a\\x1b[2Jb" in text.out


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_reads_the_completion_of_all_commands(shell, tmp_path, capsys):
    pytest.importorskip("shtab")
    assert call("--print-completion", shell, "--json") == 0
    text = json.loads(capsys.readouterr().out)["script"]
    assert [verb for verb in COMMANDS if verb not in text] == []
    assert "as-version" in text
    if shutil.which(shell):
        (tmp_path / "script").write_text(text)
        argv = [shell, "-n", tmp_path / "script"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


# -- interrupts ----------------------------------------------------------------------------------

# Longer than any of these tests takes.
WAIT_S = 60


def interrupted_at(tmp_path, module, answer):
    """Start a command that does something when a module is imported."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys, time\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n{answer}"
        "sys.meta_path.insert(0, Finder())\n"
    )
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    argv = [sys.executable, "-m", "kernforge", "search", "--local"]
    env = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run(argv, capture_output=True, text=True, env=env, check=False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("module", ["kernforge.cli.main", "argparse", "kernforge.audit.describe"])
def test_an_interrupt_is_130_and_no_traceback(tmp_path, module, number):
    answer = f"            os.kill(os.getpid(), {int(number)})\n            time.sleep({WAIT_S})\n"
    done = interrupted_at(tmp_path, module, answer)
    assert (done.returncode, "Traceback" in done.stderr) == (130, False)


def test_a_second_interrupt_ends_a_command_at_once(tmp_path):
    swallowed = (
        "            for _ in range(2):\n"
        "                try:\n"
        "                    os.kill(os.getpid(), signal.SIGINT)\n"
        f"                    time.sleep({WAIT_S})\n"
        "                except KeyboardInterrupt:\n"
        "                    pass\n"
    )
    done = interrupted_at(tmp_path, "kernforge.cli.parser", swallowed)
    assert (done.returncode, done.stdout) == (-signal.SIGINT, "")
