#!/usr/bin/env python3
"""Writes manual pages and shell completions of programs from what their --help says.

    tools/package/help_files.py --prefix /usr/local build/release/apps/fathom build/release/apps/fathom-bench

PREFIX/share/man/man1/NAME.1, PREFIX/share/bash-completion/completions/NAME, PREFIX/share/zsh/site-functions/_NAME.
A flag is a line of the help that begins with two spaces and a dash; a subcommand is a line below "Subcommands:".
"""
import argparse
import dataclasses
import pathlib
import re
import subprocess
import sys

FLAG_LINE = re.compile(r"^  (-\S+)(?: (\S.*?))?(?:  +(\S.*))?$")
PATHS = ("DIR", "FILE")


@dataclasses.dataclass
class Flag:
    names: list
    takes: str
    text: str


@dataclasses.dataclass
class Command:
    words: list
    summary: str = ""
    groups: list = dataclasses.field(default_factory=list)  # [(title, [Flag])]
    examples: list = dataclasses.field(default_factory=list)
    commands: list = dataclasses.field(default_factory=list)

    def flags(self):
        return [flag for _, flags in self.groups for flag in flags]


def help_of(program, words):
    return subprocess.run([program, *words, "--help"], capture_output=True, text=True, check=True).stdout


def read_flag(line):
    """The names, what they take and the beginning of the text; None where the line is no flag."""
    match = FLAG_LINE.match(line)
    if not match:
        return None
    return Flag(re.split(r",\s*", match[1]), match[2] or "", match[3] or "")


def read_command(program, words):
    command, section, flag = Command(words), "", None
    subcommands = []
    for line in map(str.rstrip, help_of(program, words).splitlines()):
        if not command.summary and line and not line.startswith(("Usage", " ")):
            command.summary = line
        elif re.match(r"^\S.*:$", line):
            section, flag = line[:-1], None
            if section not in ("Subcommands", "Examples"):
                command.groups.append((section, []))
        elif section == "Examples" and line.startswith("  "):
            command.examples.append(line.strip())
        elif section == "Subcommands" and re.match(r"^  \S", line):
            subcommands.append(line.split()[0])
        elif read_flag(line) and command.groups:
            flag = read_flag(line)
            command.groups[-1][1].append(flag)
        elif flag and line.startswith(" " * 8):
            flag.text = f"{flag.text} {line.strip()}".strip()
    command.groups = [(title, flags) for title, flags in command.groups if flags]
    command.commands = [read_command(program, [*words, name]) for name in subcommands]
    return command


def all_commands(command):
    yield command
    for sub in command.commands:
        yield from all_commands(sub)


def troff(text):
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return "\\&" + escaped if escaped.startswith(".") else escaped


def manual_flags(command):
    lines = []
    for title, flags in command.groups:
        lines.append(f".SS {troff(' '.join([*command.words, title.lower()]) if command.words else title)}")
        for flag in flags:
            names = ", ".join(f"\\fB{troff(name)}\\fR" for name in flag.names)
            lines += [".TP", names + (f" \\fI{troff(flag.takes)}\\fR" if flag.takes else ""), troff(flag.text)]
    return lines


def manual(name, version, top):
    lines = [f'.TH {name.upper()} 1 "" "{version}" "User Commands"', ".SH NAME", troff(f"{name} - {top.summary}"),
             ".SH SYNOPSIS", f"\\fB{troff(name)}\\fR \\fICOMMAND\\fR [\\fIFLAGS\\fR]", ".SH COMMANDS"]
    for command in list(all_commands(top))[1:]:
        lines += [".TP", f"\\fB{troff(' '.join([name, *command.words]))}\\fR", troff(command.summary)]
    lines.append(".SH OPTIONS")
    for command in all_commands(top):
        lines += manual_flags(command)
    lines.append(".SH EXAMPLES")
    for command in all_commands(top):
        for example in command.examples:
            lines += [".PP", ".nf", troff(example), ".fi"]
    lines += [".SH EXIT STATUS", "0 when all went well, 2 for a command line that makes no sense, 1 for what failed later, "
              "130 for an interrupt."]
    return "\n".join(lines) + "\n"


def words_of(flag):
    """What may follow a flag, where its help lists it: auto|cpu|cuda."""
    return flag.takes.split("|") if re.fullmatch(r"[\w.-]+(\|[\w.-]+)+", flag.takes) else []


def bash_case(command):
    subs = [sub.words[-1] for sub in command.commands]
    flags = [name for flag in command.flags() for name in flag.names]
    return f'    "{" ".join(["x", *command.words])}") words="{" ".join(subs + flags)}" ;;'


def bash_values(top):
    """Cases over the flag before the cursor: words, or files."""
    choices, paths = {}, set()
    for command in all_commands(top):
        for flag in command.flags():
            for flag_name in flag.names:
                if words_of(flag):
                    choices[flag_name] = " ".join(words_of(flag))
                elif any(flag.takes.startswith(kind) for kind in PATHS):
                    paths.add(flag_name)
    for flag_name, words in sorted(choices.items()):
        yield f'    {flag_name}) COMPREPLY=($(compgen -W "{words}" -- "$current")); return ;;'
    if paths:
        yield f"    {'|'.join(sorted(paths))}) COMPREPLY=($(compgen -f -- \"$current\")); return ;;"


def bash(name, top):
    function = "_" + name.replace("-", "_")
    subs = " ".join(sorted({word for command in all_commands(top) for word in command.words}))
    return "\n".join([
        f"# bash completion of {name}, made from its --help.",
        f"{function}() {{",
        '  local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" path=x word words=""',
        '  case "$before" in',
        *bash_values(top),
        "  esac",
        '  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
        f'    case " {subs} " in *" $word "*) path="$path $word" ;; *) break ;; esac',
        "  done",
        '  case "$path" in',
        *map(bash_case, all_commands(top)),
        "  esac",
        '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
        "}",
        f"complete -o filenames -F {function} {name}", ""])


def zsh(name):
    """zsh runs bash's completions; one list of flags serves both."""
    return "\n".join([
        f"#compdef {name}", f"# zsh completion of {name}: bash's, which lies beside it.",
        "autoload -U +X bashcompinit && bashcompinit",
        f'source "${{${{(%):-%x}}:A:h}}/../../bash-completion/completions/{name}"',
        "_bash_complete -o filenames -F _" + name.replace("-", "_"), ""])


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefix", type=pathlib.Path, required=True)
    parser.add_argument("programs", nargs="+")
    args = parser.parse_args()
    for program in args.programs:
        name = pathlib.Path(program).name
        top = read_command(program, [])
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split(" (")[0]
        write(args.prefix / "share/man/man1" / f"{name}.1", manual(name, version, top))
        write(args.prefix / "share/bash-completion/completions" / name, bash(name, top))
        write(args.prefix / "share/zsh/site-functions" / f"_{name}", zsh(name))


if __name__ == "__main__":
    sys.exit(main())
