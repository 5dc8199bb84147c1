//! Errors of the command line in the form of all other errors: what is wrong, and a command to try.

use std::path::Path;

use clap::error::{ContextKind, ErrorKind};

use crate::command_line::{CommandLine, WordKind};
use crate::failure::Failure;
use crate::suggestion::{Suggestion, for_unknown_command, for_unknown_option};

/// Returns the failure for an error of the parser; `None` if the error is a text that was asked for, such as the help.
pub(crate) fn failure(error: &clap::Error, words: &[String]) -> Option<Failure> {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return None;
    }
    let rendered = error.render().to_string();
    let mut paragraphs = rendered.split("\n\n");
    let what = paragraphs.next().unwrap_or_default();
    let what = what.strip_prefix("error: ").unwrap_or(what);
    let lines: Vec<&str> = what.lines().map(str::trim).collect();
    let suggestion = suggestion(error, &CommandLine::new(words));
    let usage = paragraphs.find(|paragraph| paragraph.starts_with("Usage:"));
    let usage = usage.filter(|_| suggestion == Suggestion::Help);
    let usage = usage.map_or(String::new(), |usage| format!("\n{}", usage.trim_end()));
    let failure = Failure::usage(format!("{}{usage}", lines.join(" ")));
    Some(failure.suggest(suggestion))
}

fn suggestion(error: &clap::Error, given: &CommandLine) -> Suggestion {
    let named = |kind| error.get(kind).map(ToString::to_string);
    if is_program_without_hyphens(given) {
        return Suggestion::AfterHyphens;
    }
    match error.kind() {
        ErrorKind::InvalidSubcommand => match named(ContextKind::InvalidSubcommand) {
            Some(word) => for_unknown_command(&word),
            None => Suggestion::Help,
        },
        ErrorKind::UnknownArgument => match named(ContextKind::InvalidArg) {
            Some(option) if option.starts_with('-') => for_unknown_option(&option, given),
            _ => Suggestion::Help,
        },
        ErrorKind::ValueValidation | ErrorKind::InvalidValue => {
            let value = named(ContextKind::InvalidValue).unwrap_or_default();
            let is_target = given
                .words()
                .iter()
                .any(|word| word.kind == WordKind::Positional && word.text == value);
            match with_scheme(&value).filter(|_| is_target) {
                Some(url) => Suggestion::WithScheme(value, url),
                None => Suggestion::Help,
            }
        }
        _ => Suggestion::Help,
    }
}

/// Returns whether the words have a program where a server is expected, and no `--` before it.
fn is_program_without_hyphens(given: &CommandLine) -> bool {
    let target = given
        .first_positional()
        .map(|index| &given.words()[index].text);
    !given.is_command_given()
        && target.is_some_and(|word| with_scheme(word).is_none() && is_program(word))
        && Suggestion::AfterHyphens.fits(given)
}

/// Returns whether a word names a program that can be started.
pub(crate) fn is_program(word: &str) -> bool {
    if word.is_empty() || word.contains("://") {
        return false;
    }
    if Path::new(word).components().count() > 1 {
        return is_executable(Path::new(word));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path);
    folders.any(|folder| {
        let names = [
            word.to_owned(),
            format!("{word}.exe"),
            format!("{word}.cmd"),
        ];
        let names = if cfg!(windows) {
            &names[..]
        } else {
            &names[..1]
        };
        names.iter().any(|name| is_executable(&folder.join(name)))
    })
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;

    let metadata = std::fs::metadata(path);
    metadata.is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(path: &Path) -> bool {
    path.is_file()
}

/// Returns the URL that an address without scheme probably means, such as `localhost:8000/mcp`; `None` if it is none.
pub(crate) fn with_scheme(word: &str) -> Option<String> {
    if word.contains("://") || word.contains(char::is_whitespace) || Path::new(word).exists() {
        return None;
    }
    let (authority, path) = word.split_once('/').unwrap_or((word, ""));
    let (name, port) = match authority.rsplit_once(':') {
        Some((name, port)) => (name, Some(port.parse::<u16>().ok()?)),
        None => (authority, None),
    };
    let is_number = name.parse::<std::net::IpAddr>().is_ok() || name.starts_with('[');
    let is_domain = name.contains('.') && !name.starts_with('.') && !path.is_empty();
    if name.is_empty() || (port.is_none() && name != "localhost" && !is_number && !is_domain) {
        return None;
    }
    // A port is given for servers that run nearby, which seldom have a certificate.
    let is_plain = port.is_some_and(|port| port != 443) || name == "localhost" || is_number;
    Some(format!(
        "{}://{word}",
        if is_plain { "http" } else { "https" }
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_without_a_scheme_are_recognized() {
        for (word, expected) in [
            ("127.0.0.1:8000/mcp", Some("http://127.0.0.1:8000/mcp")),
            ("localhost:8000", Some("http://localhost:8000")),
            ("localhost/mcp", Some("http://localhost/mcp")),
            ("[::1]:8000/mcp", Some("http://[::1]:8000/mcp")),
            ("mcp.example.com/mcp", Some("https://mcp.example.com/mcp")),
            (
                "mcp.example.com:443/mcp",
                Some("https://mcp.example.com:443/mcp"),
            ),
            ("cursor:files", None),
            ("files", None),
            ("./server.js", None),
            ("https://x.example", None),
            ("@scope/server", None),
        ] {
            assert_eq!(with_scheme(word).as_deref(), expected, "{word}");
        }
    }
}
