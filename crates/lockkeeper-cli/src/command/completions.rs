//! `lockkeeper completions`: the completions for a shell.

use clap::Args;
use clap_complete::{Shell, generate};

use super::print;
use crate::args::command;
use crate::exit::Failure;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Which shell
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let mut text = Vec::new();
    generate(arguments.shell, &mut command(), "lockkeeper", &mut text);
    print([with_names(arguments.shell, String::from_utf8_lossy(&text).trim_end())])
}

/// Completes names too. The binary understands the line: it knows which options have a value.
fn with_names(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => format!("{script}\n\n{BASH}"),
        Shell::Fish => format!("{script}\n{FISH}"),
        Shell::Zsh => {
            let named = |line: &str| match line.strip_suffix(":_default' \\") {
                Some(before) if before.starts_with("':name ") || before.starts_with("'*::words ") => {
                    format!("{before}:_lockkeeper_names' \\")
                }
                _ => line.to_owned(),
            };
            let script: Vec<_> = script.lines().map(named).collect();
            script.join("\n").replacen("\nif [ \"$funcstack[1]\"", &format!("\n{ZSH}\nif [ \"$funcstack[1]\""), 1)
        }
        _ => script.to_owned(),
    }
}

// A colon ends a word for bash, but not a name: only what follows it may be replied.
const BASH: &str = r#"_lockkeeper_names() {
    _lockkeeper "$@"
    local line="${COMP_LINE:0:COMP_POINT}" name names=()
    local typed="${line##* }"
    local before="${typed%"$2"}"
    while IFS= read -r name; do
        [[ $name == "$before"* ]] && names+=("$(printf '%q' "${name#"$before"}")")
    done < <(printf %s "$line" | "$1" __names 2>/dev/null)
    [[ ${#names[@]} -gt 0 ]] && COMPREPLY=("${names[@]}")
    return 0
}
complete -F _lockkeeper_names -o bashdefault -o default lockkeeper"#;

const FISH: &str = r#"complete -c lockkeeper -n "__fish_seen_subcommand_from run hold show release" -a "(commandline -cp | lockkeeper __names)""#;

const ZSH: &str = r#"(( $+functions[_lockkeeper_names] )) ||
_lockkeeper_names() {
    local -a names
    names=("${(@f)$(print -rn -- "$LBUFFER" | lockkeeper __names 2>/dev/null)}")
    if [[ -n "$names" ]]; then compadd -a names; else _default; fi
}
"#;
