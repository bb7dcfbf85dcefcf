"""`towpath completion SHELL`: scripts that complete verbs, options and choices.

Written out from the parser's own tree, so that they can't differ from what is accepted; static, so
that a TAB costs no process. What is no verb, option or choice is left to the shell (files).
"""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from towpath_engine.cli.arguments import Arguments, build_parser
from towpath_engine.cli.exits import Exit
from towpath_engine.cli.output import print_json, print_line
from towpath_engine.cli.parser import CommandParser


class Words(Struct, frozen=True, kw_only=True):
    """What may follow a command: its `verbs` with their help, its `options`, the `choices` of an
    option or place, and the options that take a value."""

    verbs: Mapping[str, str]
    options: tuple[str, ...]
    places: tuple[str, ...]
    choices: Mapping[str, tuple[str, ...]]
    valued: tuple[str, ...]


def completion(arguments: Arguments) -> Exit:
    """`towpath completion SHELL`"""
    script = {"bash": _bash, "zsh": _zsh, "fish": _fish}[arguments.shell](command_tree())
    if arguments.json:
        print_json({"shell": arguments.shell, "script": script})
    else:
        print_line(script.rstrip())
    return Exit.OK


def command_tree() -> dict[str, Words]:
    """Every command, as `start` or `pause queue`, the empty one for `towpath` itself."""
    return dict(_walk("", build_parser()))


def _walk(path: str, parser: CommandParser) -> Iterator[tuple[str, Words]]:
    options: list[str] = []
    places: list[str] = []
    choices: dict[str, tuple[str, ...]] = {}
    valued: list[str] = []
    for action in parser.actions:
        options.extend(action.option_strings)
        words = () if action.choices is None else tuple(str(word) for word in action.choices)
        if not action.option_strings:
            # The place of a verb has the verbs as its choices.
            places.extend(word for word in words if word not in parser.verbs)
        elif action.nargs != 0:
            valued.extend(action.option_strings)
            choices.update({option: words for option in action.option_strings if words})
    yield (
        path,
        Words(
            verbs={name: child.description or "" for name, child in parser.verbs.items()},
            options=tuple(options),
            places=tuple(places),
            choices=choices,
            valued=tuple(valued),
        ),
    )
    for name, child in parser.verbs.items():
        yield from _walk(f"{path} {name}".strip(), child)


# Lines of each script that are the same whatever the verbs are. The tables that follow are
# functions of shell `case`s: they work in any bash, also the one of macOS without associative
# arrays.
_BASH_MAIN: Final = """\
_towpath() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} path= word i choices
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        case " $(_towpath_verbs "$path") " in
            *" $word "*) path="${path:+$path }$word" ;;
        esac
    done
    COMPREPLY=()
    choices=$(_towpath_choices "$path" "$prev")
    if [[ -n $choices ]]; then
        COMPREPLY=($(compgen -W "$choices" -- "$cur"))
    elif [[ " $(_towpath_valued "$path") " == *" $prev "* ]]; then
        return
    elif [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$(_towpath_options "$path")" -- "$cur"))
    else
        COMPREPLY=($(compgen -W "$(_towpath_verbs "$path") $(_towpath_places "$path")" -- "$cur"))
    fi
}
complete -o default -F _towpath towpath
"""

_ZSH_MAIN: Final = """\
_towpath() {
    local path_= word choices
    local -a found
    for word in ${words[2,CURRENT-1]}; do
        [[ " $(_towpath_verbs "$path_") " == *" $word "* ]] && path_="${path_:+$path_ }$word"
    done
    choices=$(_towpath_choices "$path_" "${words[CURRENT-1]}")
    if [[ -n $choices ]]; then
        found=(${=choices})
    elif [[ " $(_towpath_valued "$path_") " == *" ${words[CURRENT-1]} "* ]]; then
        _files
        return
    elif [[ $PREFIX == -* ]]; then
        found=(${=$(_towpath_options "$path_")})
    else
        found=(${=$(_towpath_verbs "$path_")} ${=$(_towpath_places "$path_")})
    fi
    if (( $#found )); then compadd -- $found; else _files; fi
}
compdef _towpath towpath
"""


def _bash(tree: Mapping[str, Words]) -> str:
    return "# towpath completion bash: source this in ~/.bashrc\n" + _tables(tree) + _BASH_MAIN


def _zsh(tree: Mapping[str, Words]) -> str:
    head = "#compdef towpath\n# towpath completion zsh: source this in ~/.zshrc, after compinit\n"
    return head + _tables(tree) + _ZSH_MAIN


def _tables(tree: Mapping[str, Words]) -> str:
    """Functions that print the words of a command: verbs, options, places, valued, choices."""
    lists = {
        "verbs": {path: tuple(words.verbs) for path, words in tree.items()},
        "options": {path: words.options for path, words in tree.items()},
        "places": {path: words.places for path, words in tree.items()},
        "valued": {path: words.valued for path, words in tree.items()},
    }
    lines: list[str] = []
    for name, by_path in lists.items():
        lines += [f"_towpath_{name}() {{", '    case "$1" in']
        lines += [f"        '{path}') echo '{' '.join(w)}' ;;" for path, w in by_path.items() if w]
        lines += ["    esac", "}"]
    lines += ["_towpath_choices() {", '    case "$1 $2" in']
    for path, words in tree.items():
        for option, choices in words.choices.items():
            lines.append(f"        '{path} {option}') echo '{' '.join(choices)}' ;;")
    lines += ["    esac", "}", ""]
    return "\n".join(lines)


def _fish(tree: Mapping[str, Words]) -> str:
    lines = ["# towpath completion fish: save this as ~/.config/fish/completions/towpath.fish"]
    for path, words in tree.items():
        seen = " ".join(f"; and __fish_seen_subcommand_from {word}" for word in path.split())
        condition = seen.removeprefix("; and ").replace(" ; and", "; and")
        if words.verbs:
            names = " ".join(words.verbs)
            below = f"not __fish_seen_subcommand_from {names}"
            when = f"{condition}; and {below}" if condition else below
            lines += [
                f"complete -c towpath -f -n '{when}' -a {name} -d {_quoted(text)}"
                for name, text in words.verbs.items()
            ]
        when = f" -n '{condition}'" if condition else ""
        for option in words.options:
            dashes = "-l" if option.startswith("--") else "-s"
            line = f"complete -c towpath{when} {dashes} {option.lstrip('-')}"
            choices = words.choices.get(option)
            if choices:
                line += f" -x -a '{' '.join(choices)}'"
            elif option in words.valued:
                line += " -r"
            lines.append(line)
        if words.places:
            lines.append(f"complete -c towpath -f{when} -a '{' '.join(words.places)}'")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
