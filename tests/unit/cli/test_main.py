# SPDX-License-Identifier: Apache-2.0

import argparse
import json
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import call
from support.manifests import CPU_AND_METAL

from kernforge import errors
from kernforge.cli import commands
from kernforge.cli.commands import build as cli_build
from kernforge.cli.parser import read
from kernforge.cli.table import COMMANDS, FORMER, GROUPS
from kernforge.system import console
from kernforge.system.environment import Environment, Variable


def parsed(*words):
    return read(words, argparse.Namespace())


@pytest.mark.parametrize("verb", sorted(COMMANDS))
def test_every_command_has_help_with_an_example_and_its_page(verb, capsys):
    docs = Path(__file__).parents[3] / "docs"
    assert (docs / f"{COMMANDS[verb].page}.md").is_file()
    assert call(verb, "--help") == 0
    told = capsys.readouterr().out
    assert f"example: kernforge {verb}" in told
    assert f"\nmore: {errors.page(COMMANDS[verb].page)}\n" in told


def test_a_command_alone_shows_all_commands_in_their_groups(capsys):
    assert call() == 0
    bare = capsys.readouterr().out
    call("--help")
    assert capsys.readouterr().out == bare
    places = [bare.index(f"\n{title}:\n") for title in GROUPS]
    assert places == sorted(places)
    assert len(bare.splitlines()) <= 45
    for command in COMMANDS.values():
        assert re.search(rf"^  {command.name} +{re.escape(command.summary)}$", bare, re.MULTILINE)


def test_commands_options_and_variables_stay_few():
    assert len(COMMANDS) <= 22
    listed = [a for each in COMMANDS.values() for a in each.arguments]
    flat = [a for one in listed for a in (one if isinstance(one, tuple) else (one,))]
    assert sum(a.names[0].startswith("-") for a in flat) <= 110
    ours = [v for v in vars(Environment).values() if isinstance(v, Variable)]
    assert sum(v.name.startswith("KERNFORGE_") for v in ours) <= 20


def test_help_is_a_word_too(capsys):
    assert call("help") == 0
    assert "\nwrite a kernel:\n" in capsys.readouterr().out
    assert call("help", "build") == 0
    assert capsys.readouterr().out.startswith("usage: kernforge build ")


def test_every_command_of_the_table_is_there_and_no_other():
    modules = pkgutil.iter_modules(commands.__path__)
    assert sorted(module.name for module in modules) == sorted(COMMANDS)
    assert not set(FORMER) & set(COMMANDS)


def test_a_misspelt_command_is_answered(capsys):
    assert call("biuld") == 2
    err = capsys.readouterr().err
    assert "error: there is no command 'biuld'" in err
    assert "did you mean `kernforge build`?" in err
    assert call("xyzzy") == 2
    assert "did you mean" not in capsys.readouterr().err


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
        (("build", "--varint=x"), "did you mean --variant?"),
        (("test", "--sandbox", "atuo"), "did you mean auto?"),
        (("info",), "`kernforge info --help`"),
        (("check", "a", "b"), "'b' is one argument too many for kernforge check"),
        (("--jsn", "check"), "did you mean --json?"),
        (("build", "--scheduler-x"), "did you mean --scheduler?"),
        (("test", "--inplace"), "hint: `kernforge test --help`"),
        (("verify", "a/b", "--source", "."), "--source is for --rebuild"),
        (("new",), "the name of the project is missing"),
    ],
)
def test_a_wrong_option_says_what_was_meant(argv, said, capsys):
    assert call(*argv) == 2
    assert said in capsys.readouterr().err


def test_a_wrong_command_line_is_json_when_json_is_asked_for(capsys):
    assert call("--json", "info") == 2
    assert json.loads(capsys.readouterr().out)["error"] == "UsageError"


@pytest.mark.parametrize("where", [0, 1])
def test_common_options_may_stand_before_the_command(where, project, capsys):
    argv = ["build", "--list", str(project)]
    argv.insert(2 * where, "--json")
    assert call(*argv) == 0
    assert isinstance(json.loads(capsys.readouterr().out), list)


def test_short_options_are_the_long_ones():
    told = parsed("build", "-q", "-v", "-j", "3", "-o", "x")
    assert (told.quiet, told.verbose, told.jobs, told.build_dir) == (True, True, 3, Path("x"))
    assert parsed("-q", "wheel", "-o", "x").out == Path("x")
    assert parsed("-q", "wheel").quiet


def test_the_version_is_short_too(capsys):
    assert call("-V") == 0
    assert capsys.readouterr().out.startswith("kernforge ")


@pytest.mark.parametrize(
    ("words", "project", "program"),
    [
        ([], ".", []),
        (["my-kernel"], "my-kernel", []),
        (["--", "nvcc", "--version"], ".", ["nvcc", "--version"]),
        (["my-kernel", "--variant", "x", "--", "a", "--", "b"], "my-kernel", ["a", "--", "b"]),
    ],
)
def test_a_shell_is_of_a_project_and_may_run_a_program(words, project, program):
    told = parsed("shell", *words)
    assert (told.project, list(told.program)) == (Path(project), program)


def test_the_directory_of_built_variants_has_one_name():
    for verb in ("build", "test", "bench"):
        assert parsed(verb, "--build-dir", "x").build_dir == Path("x")


def test_verbose_says_where_an_error_was_raised(tmp_path, capsys):
    assert call("-v", "build", "--list", str(tmp_path)) == 2
    assert "Traceback (most recent call last)" in capsys.readouterr().err
    assert call("build", "--list", str(tmp_path)) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_the_help_lists_every_exit_code_and_each_is_of_one_kind(capsys):
    call("--help")
    out = capsys.readouterr().out
    codes = [k.exit_code for k in (errors.KernforgeError, *errors.KernforgeError.__subclasses__())]
    assert not [code for code in codes if f" {code} " not in out.replace("\n", " ")]
    assert len(set(codes)) == len(codes)


def test_a_wrong_manifest_exits_3_and_names_the_place(project, capsys):
    (project / "build.toml").write_text(CPU_AND_METAL.replace("license", "licence"))
    assert call("build", "--list", str(project)) == 3
    err = capsys.readouterr().err
    assert "licence" in err
    assert "license" in err


def test_a_source_that_is_not_there_is_named(project, capsys):
    (project / "op.cpp").unlink()
    assert call("build", "--list", str(project)) == 3
    assert "op.cpp" in capsys.readouterr().err


def test_no_project_exits_2(tmp_path, capsys):
    assert call("build", "--list", str(tmp_path)) == 2
    assert "kernforge new" in capsys.readouterr().err


def test_an_error_is_json_when_json_is_asked_for(tmp_path, capsys):
    assert call("build", "--list", str(tmp_path), "--json") == 2
    assert json.loads(capsys.readouterr().out)["error"] == "UsageError"


@pytest.mark.parametrize(
    ("name", "installs"), [("pydantic", "'kernforge[build]'"), ("torch", "torch")]
)
def test_a_missing_package_says_what_to_install(project, capsys, monkeypatch, name, installs):
    def lacking(*_):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(cli_build, "_list", lacking)
    assert call("build", "--list", str(project)) == 2
    assert f"pip install {installs}\n" in capsys.readouterr().err


def test_a_file_where_a_directory_is_meant_is_a_storage_error(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert call("new", str(tmp_path / "file" / "my-op")) == 11
    said = capsys.readouterr().err
    assert str(tmp_path / "file") in said
    assert "hint: check the path: it may be a file" in said


def test_a_misspelt_project_is_not_the_one_around_it(project, capsys):
    (project / "my-relu").mkdir()
    (project / "my-relu" / "build.toml").write_text(CPU_AND_METAL)
    for said, hint in (("my-rleu", f"did you mean {project / 'my-relu'}?"), ("x", "kernforge new")):
        assert call("build", "--list", str(project / said)) == 2
        told = capsys.readouterr().err
        assert f"there is no directory {project / said}" in told
        assert hint in told


def test_an_interrupt_exits_130(project, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli_build, "_list", interrupted)
    assert call("build", "--list", str(project)) == 130


def test_a_reader_that_has_enough_is_not_a_traceback():
    reader, writer = os.pipe()
    os.close(reader)
    argv = [sys.executable, "-m", "kernforge", "--print-completion", "bash"]
    done = subprocess.run(argv, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_program_reads_one_document_however_a_command_ends(capsys):
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


def test_escapes_in_untrusted_text_are_printed_escaped(capsys):
    evil = "a\x1b[2Jb\x9bc\u202ed"
    printer = console.Console()
    printer.result({}, evil)
    printer.error(errors.UsageError(evil, hint=evil))
    text = capsys.readouterr()
    assert not {"\x1b", "\x9b", "\u202e"} & set(text.out + text.err + str(errors.UsageError(evil)))
    assert "a\\x1b[2Jb" in text.out
