//! [`Suggestion`], a command that does what the user probably meant.
//!
//! Every command that an error suggests is a variant, and a test runs each of them as it is printed. What is no command
//! is prose, and is printed as a hint.

use crate::command_line::{CommandLine, WordKind, shell_line};
use crate::nearest::nearest;

/// A command to try. Most are changes of what the user typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Suggestion {
    /// The help of the same command.
    Help,
    /// The list of the servers that hosts use.
    Servers,
    /// The list of the tools of the same server.
    ListTools,
    /// The signature of a tool of the same server.
    ShowTool(String),
    /// The doctor, for the same server.
    Doctor,
    /// Another command, whose name is similar or means the same.
    OtherCommand(String),
    /// The same server, with a command in front that lists its tools.
    ListServer,
    /// An option whose name is similar or means the same.
    OtherOption(String, String),
    /// A server with a similar name.
    OtherServer(String, String),
    /// A server of the configuration file that was given.
    ServerOfFile(String, String),
    /// A tool or prompt with a similar name.
    OtherItem(String, String),
    /// A URL with its scheme in front.
    WithScheme(String, String),
    /// The URL with the path at which the server says that it is.
    OtherPath(String, String),
    /// The command that starts a server, after `--`.
    AfterHyphens,
    /// The command after `--` as words, which was quoted as one.
    SplitCommand,
    /// Arguments of a tool as `key=value`, which were written as options.
    KeyValues,
    /// A JSON object as the value of `--args`.
    JsonArguments(String),
    /// Another address to listen on.
    FreeAddress,
    /// An answer to all questions of the server.
    Refuse,
    /// Consent to start or to call something.
    Yes,
    /// The check of a recording, which the doctor cannot examine.
    CheckRecording(String),
    /// The list of the rules that `check` knows.
    ListRules,
}

impl Suggestion {
    /// Returns the command as a line for a shell; `None` if it does not fit what the user typed.
    pub(crate) fn line(&self, given: &[String]) -> Option<String> {
        let words = self.words(&CommandLine::new(given))?;
        Some(shell_line(&words))
    }

    /// Returns whether the suggestion fits what the user typed.
    pub(crate) fn fits(&self, given: &CommandLine) -> bool {
        self.words(given).is_some()
    }

    fn words(&self, given: &CommandLine) -> Option<Vec<String>> {
        let fixed = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
        let mut texts = given.texts();
        match self {
            Self::Help => {
                let is_name = |it: &&crate::command_line::Word| it.kind == WordKind::Command;
                let names = given.words().iter().take_while(is_name);
                let names = names.map(|word| word.text.clone());
                return Some(names.chain(["--help".to_owned()]).collect());
            }
            Self::Servers => return fixed(&["servers"]),
            Self::ListRules => return fixed(&["check", "--list"]),
            Self::CheckRecording(file) => return fixed(&["check", file]),
            Self::ListTools => return given.for_server("ls", CONNECTION),
            Self::ShowTool(name) => {
                let mut words = given.for_server("ls", CONNECTION)?;
                words.splice(1..1, ["--name".to_owned(), name.clone()]);
                return Some(words);
            }
            Self::Doctor => {
                let is_possible = !matches!(given.command(), "" | "doctor" | "servers" | "bridge");
                return given
                    .for_server("doctor", &CONNECTION[..5])
                    .filter(|_| is_possible);
            }
            Self::OtherCommand(name) => *texts.first_mut()? = name.clone(),
            Self::ListServer => texts.insert(0, "ls".to_owned()),
            Self::OtherOption(from, to) => {
                let same = |it: &&mut String| {
                    *it == from
                        || it
                            .strip_prefix(from.as_str())
                            .is_some_and(|it| it.starts_with('='))
                };
                let word = texts.iter_mut().find(same)?;
                *word = word.replacen(from.as_str(), to, 1);
            }
            Self::OtherServer(from, to)
            | Self::ServerOfFile(from, to)
            | Self::WithScheme(from, to)
            | Self::OtherPath(from, to) => *texts.iter_mut().find(|it| *it == from)? = to.clone(),
            Self::OtherItem(from, to) => {
                let words = given.words().iter();
                let index = words
                    .rev()
                    .position(|it| it.kind != WordKind::Last && it.text == *from)?;
                let index = texts.len() - 1 - index;
                texts[index].clone_from(to);
            }
            Self::AfterHyphens => {
                let is_possible = TARGET_COMMANDS.contains(&given.command());
                let program = given.first_positional().filter(|_| is_possible)?;
                texts.insert(program, "--".to_owned());
            }
            // A command of a file, which the doctor shows how to fix.
            Self::SplitCommand if !given.is_command_given() => return Self::Doctor.words(given),
            Self::SplitCommand => {
                let start = given
                    .words()
                    .iter()
                    .position(|it| it.kind == WordKind::Last)?
                    + 1;
                let command = texts.get(start)?.clone();
                texts.splice(start..=start, command.split_whitespace().map(str::to_owned));
            }
            Self::KeyValues => return key_values(given),
            Self::JsonArguments(json) => {
                let index = texts.iter().position(|it| it == json)?;
                texts.insert(index, "--args".to_owned());
            }
            Self::FreeAddress => set_option(&mut texts, given, "--http", Some("127.0.0.1:0")),
            Self::Refuse => set_option(&mut texts, given, "--refuse", None),
            Self::Yes => set_option(&mut texts, given, "--yes", None),
        }
        Some(texts)
    }
}

/// Returns the words with options that the command does not have as `key=value`.
fn key_values(given: &CommandLine) -> Option<Vec<String>> {
    let mut texts = Vec::new();
    let mut words = given.words().iter().peekable();
    while let Some(word) = words.next() {
        let name = match word.kind {
            WordKind::Option { is_known: false } => word.text.strip_prefix("--")?,
            _ => {
                texts.push(word.text.clone());
                continue;
            }
        };
        texts.push(match words.peek() {
            _ if name.contains('=') => name.to_owned(),
            Some(value) if value.kind == WordKind::Positional => {
                let pair = format!("{name}={}", value.text);
                words.next();
                pair
            }
            _ => format!("{name}=true"),
        });
    }
    Some(texts)
}

/// Sets an option in front of `--`.
fn set_option(texts: &mut Vec<String>, given: &CommandLine, name: &str, value: Option<&str>) {
    let is_it = |it: &String| *it == name || it.starts_with(&format!("{name}="));
    if let Some(index) = texts.iter().position(is_it) {
        let length = if texts[index] == name { 2 } else { 1 };
        let end = (index + length).min(texts.len());
        texts.drain(index..end);
    }
    let words = given.words();
    let last = words.iter().filter(|it| it.kind == WordKind::Last).count();
    let index = texts.len() - last;
    let option = std::iter::once(name).chain(value).map(str::to_owned);
    texts.splice(index..index, option);
}

/// Returns the suggestion for an unknown command.
pub(crate) fn for_unknown_command(word: &str) -> Suggestion {
    let synonym = SYNONYMS.iter().find(|(names, _)| names.contains(&word));
    if let Some((_, command)) = synonym {
        return Suggestion::OtherCommand((*command).to_owned());
    }
    if word.starts_with("http://") || word.starts_with("https://") {
        return Suggestion::ListServer;
    }
    let definition = crate::options::CliCommand::definition();
    let commands = definition.get_subcommands().filter(|it| !it.is_hide_set());
    match nearest(word, commands.map(clap::Command::get_name)) {
        Some(near) => Suggestion::OtherCommand(near.to_owned()),
        None => Suggestion::Help,
    }
}

/// Returns the suggestion for an option that the command does not have.
pub(crate) fn for_unknown_option(option: &str, given: &CommandLine) -> Suggestion {
    let options = given.options();
    let name = option.split('=').next().unwrap_or_default();
    let other = |to: &str| Suggestion::OtherOption(name.to_owned(), to.to_owned());
    let synonym = OPTION_SYNONYMS
        .iter()
        .find(|(from, to)| *from == name && options.iter().any(|it| it == to));
    if let Some((_, to)) = synonym {
        return other(to);
    }
    if let Some(long) = name.strip_prefix("--") {
        let names = options.iter().filter_map(|it| it.strip_prefix("--"));
        if let Some(near) = nearest(long, names).filter(|_| long.len() > 1) {
            return other(&format!("--{near}"));
        }
        let takes_arguments = matches!(given.command(), "call" | "prompt");
        let is_positional = |it: &&crate::command_line::Word| it.kind == WordKind::Positional;
        let names = given.words().iter().filter(is_positional).count();
        if takes_arguments && names + usize::from(given.is_command_given()) > 1 {
            return Suggestion::KeyValues;
        }
    }
    Suggestion::Help
}

/// The options for connections that other commands have, too; the last ones not the doctor.
const CONNECTION: &[&str] = &[
    "--header",
    "--env",
    "--inherit-env",
    "--no-oauth",
    "--token-dir",
    "--protocol-version",
    "--connect-timeout",
];
/// The commands that take nothing but a server, so that what follows it must be the words of its command.
const TARGET_COMMANDS: &[&str] = &["bridge", "doctor", "ls", "ping", "tap", "watch"];
const SYNONYMS: &[(&[&str], &str)] = &[
    (
        &[
            "list",
            "tools",
            "resources",
            "prompts",
            "inspect",
            "list-tools",
        ],
        "ls",
    ),
    (&["run", "exec", "invoke"], "call"),
    (&["get", "cat"], "read"),
    (&["proxy", "serve", "gateway"], "bridge"),
    (&["record", "trace"], "tap"),
    (&["init", "create"], "new"),
];
const OPTION_SYNONYMS: &[(&str, &str)] =
    &[("-H", "--header"), ("-e", "--env"), ("--port", "--http")];
