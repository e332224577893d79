#!/usr/bin/env python3
"""Man pages and completions of commands, made of what `PROGRAM --describe` says of their options.

    tools/manual.py OUT --version 0.1.0 build/bin/tcc build/bin/trun

writes OUT/man1/tcc.1, OUT/bash/tcc, OUT/zsh/_tcc, OUT/fish/tcc.fish and so on. Options that take a file, which no table says,
complete file names: all those whose values are neither listed nor numbers.
"""
import argparse
import json
import re
import subprocess
from pathlib import Path


class Option:
    def __init__(self, described):
        self.names, self.word = described["names"], described.get("word", "")
        self.help, self.required, self.repeats = " ".join(described["help"].split()), described["required"], described["repeats"]
        self.keys, kind = described.get("keys"), described["value"]
        listed = re.search(r"\{([^}]*)\}", kind)
        self.choices = listed[1].split(",") if listed else []
        self.takes = bool(kind)
        self.number = not self.choices and bool(re.match(r"(U?INT|FLOAT)\b", kind))
        self.value = "|".join(self.choices) or "KEY=VALUE" * bool(self.keys) or ("N" if self.number else "VALUE")

    def is_file(self):
        return self.takes and not (self.choices or self.number or self.keys)


class Command:
    def __init__(self, described):
        self.words = described["command"].split()
        # Where other commands are listed; the page has a section for each.
        lines = [line for line in described["about"].splitlines() if not line.startswith("Other commands")]
        self.about = " ".join(" ".join(lines).split())
        self.statuses = described["exit_statuses"]
        options = [Option(one) for one in described["options"]]
        self.options, self.positionals = [o for o in options if o.names], [o for o in options if not o.names]

    @property
    def name(self):
        return " ".join(self.words)


def commands_of(program):
    lines = subprocess.run([program, "--describe"], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout
    found = sorted((Command(json.loads(line)) for line in lines.splitlines()), key=lambda one: one.words)
    assert found and found[0].words == [Path(program).name], program
    return found


def roff(text):
    """Text as roff source: hyphens that are copied, no line that begins with a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("’", "'")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def man_page(commands, version):
    program = commands[0]
    lines = [f'.TH {program.name.upper()} 1 "" "{program.name} {version}" "User Commands"', ".SH NAME",
             f"{roff(program.name)} \\- {roff(program.about[0].lower() + program.about[1:].rstrip('.'))}", ".SH SYNOPSIS"]
    for command in commands:
        if command.options:
            words = [one.word if one.required else f"[{one.word}]" for one in command.positionals]
            needed = [f"{one.names[-1]} {one.value}" for one in command.options if one.required]
            lines += [f".B {roff(command.name)}", roff(" ".join(words + needed + ["[options]"])), ".br"]
    lines += [".SH DESCRIPTION", roff(program.about)]
    for command in commands:
        if command is not program:
            lines += [".SH COMMANDS"] * (command is commands[1]) + [f'.SS "{roff(command.name)}"', roff(command.about)]
        elif command.options:
            lines.append(".SH OPTIONS")
        for option in command.positionals + command.options:
            names = ", ".join(f"\\fB{roff(name)}\\fR" for name in option.names) or f"\\fI{roff(option.word)}\\fR"
            lines += [".TP", names + (f" \\fI{roff(option.value)}\\fR" if option.takes and option.names else ""),
                      roff(option.help) + (" (required)" if option.required else "")]
    lines.append(".SH EXIT STATUS")
    for status, meaning in enumerate(program.statuses):
        lines += [".TP", f"\\fB{status}\\fR", roff(meaning)]
    return "\n".join(lines) + "\n"


def shell(text):
    return "'" + text.replace("'", "'\\''") + "'"


def bash(commands):
    program = commands[0].name
    function = "_" + program.replace("-", "_")
    lines = [f"# bash completion for {program}; made by tools/manual.py.", f"{function}() {{",
             "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=''", "  COMPREPLY=()",
             "  # KEY=VALUE is three words here.", "  [ \"$word\" = = ] && return", "  case ${COMP_WORDS[1]} in"]
    for command in commands[1:]:
        lines.append(f"  {command.words[1]}) command={command.words[1]} ;;")
    lines += ["  esac", "  case $command:$before in"]
    for command in commands:
        own = command.words[1] if len(command.words) > 1 else ""
        for option in command.options:
            pattern = "|".join(f"{own}:{name}" for name in option.names)
            if option.choices or option.keys:
                words = " ".join(option.choices or [key + "=" for key in option.keys])
                lines.append(f"  {pattern}) COMPREPLY=($(compgen -W {shell(words)} -- \"$word\")); "
                             f"{'compopt -o nospace; ' if option.keys else ''}return ;;")
            elif option.number:
                lines.append(f"  {pattern}) return ;;")
            elif option.takes:
                lines.append(f"  {pattern}) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$word\"); return ;;")
    lines += ["  esac", "  local options=''", "  case $command in"]
    for command in commands:
        own = command.words[1] if len(command.words) > 1 else "''"
        lines.append(f"  {own}) options={shell(' '.join(name for option in command.options for name in option.names))} ;;")
    lines += ["  esac", "  case $word in", "  -*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")); return ;;", "  esac",
              "  compopt -o filenames", "  mapfile -t COMPREPLY < <(compgen -f -- \"$word\")"]
    if len(commands) > 1:
        words = " ".join(command.words[1] for command in commands[1:])
        lines.append(f"  [ \"$COMP_CWORD\" = 1 ] && COMPREPLY+=($(compgen -W {shell(words)} -- \"$word\"))")
    lines += ["  return 0", "}", f"complete -F {function} {program}"]
    return "\n".join(lines) + "\n"


def zsh_text(text):
    return text.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")


def zsh(commands):
    program = commands[0].name

    def arguments(command):
        specs = []
        for option in command.options:
            action = ""
            if option.choices:
                action = f":value:({' '.join(option.choices)})"
            elif option.keys:
                action = f":setting:({' '.join(key + '=' for key in option.keys)})"
            elif option.takes:
                action = ":number: " if option.number else ":file:_files"
            for name in option.names:
                specs.append(shell(f"{'*' if option.repeats or option.keys else ''}{name}[{zsh_text(option.help)}]{action}"))
        return ["    _arguments \\"] + [f"      {spec} \\" for spec in specs] + ["      '*:file:_files'"]

    lines = [f"#compdef {program}", "# made by tools/manual.py", f"_{program}() {{"]
    if len(commands) > 1:
        lines += ["  local -a commands=("] + [f"    {shell(one.words[1] + ':' + zsh_text(one.about))}" for one in commands[1:]] + ["  )"]
        lines += ["  if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then", "    _describe command commands", "  fi"]
    lines.append("  case $words[2] in")
    for command in commands[1:]:
        lines += [f"  {command.words[1]})", "    shift words; (( CURRENT-- ))"] + arguments(command) + ["    ;;"]
    lines += ["  *)"] + arguments(commands[0]) + ["    ;;", "  esac", "}", f"_{program} \"$@\""]
    return "\n".join(lines) + "\n"


def fish_text(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def fish(commands):
    program = commands[0].name
    names = " ".join(command.words[1] for command in commands[1:])
    lines = [f"# fish completion for {program}; made by tools/manual.py."]
    for command in commands:
        own = command.words[1] if len(command.words) > 1 else ""
        seen = f"__fish_seen_subcommand_from {own or names}"
        condition = fish_text(seen if own else f"not {seen}") if names else ""
        if own:
            lines.append(f"complete -c {program} -n __fish_use_subcommand -a {own} -d {fish_text(command.about)}")
        for option in command.options:
            words = [f"complete -c {program}"] + ([f"-n {condition}"] if condition else [])
            words += [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
            if option.choices or option.keys:
                values = " ".join(option.choices or [key + "=" for key in option.keys])
                words.append(f"-x -a {fish_text(values)}")
            elif option.takes:
                words.append("-x" if option.number else "-r")
            lines.append(" ".join(words + [f"-d {fish_text(option.help)}"]))
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--version", required=True)
    given = parser.parse_args()
    for program in given.programs:
        commands, name = commands_of(program), Path(program).name
        for place, text in ((f"man1/{name}.1", man_page(commands, given.version)), (f"bash/{name}", bash(commands)),
                            (f"zsh/_{name}", zsh(commands)), (f"fish/{name}.fish", fish(commands))):
            (given.out / place).parent.mkdir(parents=True, exist_ok=True)
            (given.out / place).write_text(text)
    (given.out / "made").write_text("")


if __name__ == "__main__":
    main()
