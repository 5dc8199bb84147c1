//! [`CommandLine`], the words of the user, classified as the options of the command are defined. Suggestions change it.

use clap::{ArgAction, Command};

use crate::options::CliCommand;
use crate::output::visible_line;
use crate::redact::redact_words;

/// The words after `bowline`.
#[derive(Clone, Debug)]
pub(crate) struct CommandLine {
    definition: Command,
    words: Vec<Word>,
}

/// A word of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) text: String,
    pub(crate) kind: WordKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WordKind {
    /// The name of a command, or of a command of a command.
    Command,
    /// An option. `is_known` tells whether the command has it.
    Option {
        is_known: bool,
    },
    /// The value of the option before it.
    Value,
    Positional,
    /// `--` and what follows it.
    Last,
}

impl CommandLine {
    /// Classifies the words after `bowline`.
    pub(crate) fn new(words: &[String]) -> Self {
        let mut definition = CliCommand::definition();
        let mut classified = Vec::new();
        let mut words = words.iter().peekable();
        while let Some(name) = words.peek()
            && let Some(command) = definition.find_subcommand(name)
        {
            definition = command.clone();
            classified.extend(words.next().map(|text| Word::new(text, WordKind::Command)));
        }
        while let Some(text) = words.next() {
            if text == "--" {
                classified.push(Word::new(text, WordKind::Last));
                classified.extend(words.by_ref().map(|text| Word::new(text, WordKind::Last)));
            } else if text.starts_with('-') && text.len() > 1 {
                let takes_value = takes_value(&definition, text);
                let is_known = takes_value.is_some();
                classified.push(Word::new(text, WordKind::Option { is_known }));
                if takes_value == Some(true) && !text.contains('=') {
                    classified.extend(words.next().map(|text| Word::new(text, WordKind::Value)));
                }
            } else {
                classified.push(Word::new(text, WordKind::Positional));
            }
        }
        Self {
            definition,
            words: classified,
        }
    }

    /// Returns the name of the command; empty if there is none.
    pub(crate) fn command(&self) -> &str {
        let first = self.words.first();
        first.map_or("", |word| match word.kind {
            WordKind::Command => word.text.as_str(),
            _ => "",
        })
    }

    pub(crate) fn words(&self) -> &[Word] {
        &self.words
    }

    /// Returns the long options of the command, with their hyphens.
    pub(crate) fn options(&self) -> Vec<String> {
        let long = self
            .definition
            .get_arguments()
            .filter_map(|it| it.get_long());
        long.map(|name| format!("--{name}")).collect()
    }

    pub(crate) fn is_command_given(&self) -> bool {
        self.words.iter().any(|word| word.kind == WordKind::Last)
    }

    /// Returns the index of the first word that is neither an option nor the value of one.
    pub(crate) fn first_positional(&self) -> Option<usize> {
        let mut words = self.words.iter();
        words.position(|word| word.kind == WordKind::Positional)
    }

    /// Returns the texts of the words.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.words.iter().map(|word| word.text.clone()).collect()
    }

    /// Returns the words of another command with the same server: its options for connections that `keeps` accepts, the
    /// target, and the command after `--`.
    pub(crate) fn for_server(&self, command: &str, keeps: &[&str]) -> Option<Vec<String>> {
        let mut texts = vec![command.to_owned()];
        let mut is_kept = false;
        let is_command_given = self.is_command_given();
        let mut has_target = is_command_given;
        for word in &self.words {
            match word.kind {
                WordKind::Option { .. } => {
                    let name = word.text.split('=').next().unwrap_or_default();
                    is_kept = keeps.contains(&name);
                    if is_kept {
                        texts.push(word.text.clone());
                    }
                }
                WordKind::Value if is_kept => texts.push(word.text.clone()),
                WordKind::Positional if !has_target => {
                    has_target = true;
                    texts.push(word.text.clone());
                }
                WordKind::Last => texts.push(word.text.clone()),
                WordKind::Command | WordKind::Value | WordKind::Positional => {}
            }
        }
        has_target.then_some(texts)
    }
}

impl Word {
    fn new(text: &str, kind: WordKind) -> Self {
        let text = text.to_owned();
        Self { text, kind }
    }
}

/// Returns whether an option has a value; `None` if the command does not have the option.
fn takes_value(definition: &Command, word: &str) -> Option<bool> {
    let name = word.split('=').next().unwrap_or_default();
    let mut arguments = definition.get_arguments();
    let found = match name.strip_prefix("--") {
        Some(long) => arguments.find(|it| it.get_long() == Some(long)),
        // `-vv` is `-v` twice.
        None => arguments.find(|it| it.get_short() == name.chars().nth(1)),
    };
    let action = found?.get_action();
    Some(matches!(action, ArgAction::Set | ArgAction::Append))
}

/// Returns the words as a line for a shell. Secrets are hidden, since errors are kept in logs.
pub(crate) fn shell_line(words: &[String]) -> String {
    let words = redact_words(words.iter().map(|word| word.as_str().into()));
    let quoted = words.iter().map(|word| quote(&visible_line(word)));
    let line: Vec<String> = std::iter::once("bowline".to_owned())
        .chain(quoted)
        .collect();
    line.join(" ")
}

fn quote(word: &str) -> String {
    let is_plain = |it: char| it.is_alphanumeric() || "-_./:=@,+%".contains(it);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &str) -> CommandLine {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        CommandLine::new(&words)
    }

    #[test]
    fn words_are_classified_as_the_options_of_the_command_are_defined() {
        use WordKind::{Command, Last, Option, Positional, Value};

        let line = line("call --timeout 5s -vv srv add --a=1 --json -- x --json");

        let kinds: Vec<_> = line.words().iter().map(|word| word.kind).collect();
        let (known, unknown) = (Option { is_known: true }, Option { is_known: false });
        let before = [
            Command, known, Value, known, Positional, Positional, unknown, known,
        ];
        assert_eq!(kinds, [&before[..], &[Last, Last, Last]].concat());
    }

    #[test]
    fn another_command_gets_the_server_and_how_to_reach_it() {
        let other = |words: &str| line(words).for_server("ls", &["--header", "--env"]);

        let url = other("call --header A:b --timeout=5s http://x add a=1").unwrap();
        let command = other("call add --env A=1 -- server x").unwrap();

        assert_eq!(url.join(" "), "ls --header A:b http://x");
        assert_eq!(command.join(" "), "ls --env A=1 -- server x");
        assert_eq!(other("call --timeout 5s"), None);
        assert_eq!(line("tasks get srv id").command(), "tasks");
        assert_eq!(line("tasks get srv id").first_positional(), Some(2));
    }

    #[test]
    fn a_line_for_a_shell_quotes_words_and_hides_secrets() {
        let line = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            shell_line(&words)
        };

        assert_eq!(
            line(&["call", "x#y", "it's", ""]),
            r"bowline call 'x#y' 'it'\''s' ''"
        );
        assert_eq!(
            line(&["ls", "--header", "Authorization: Bearer abc"]),
            "bowline ls --header 'Authorization: …'"
        );
    }
}
