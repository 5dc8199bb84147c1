//! Finds the server that a word, or the words after `--`, mean.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{CommandTarget, ConnectOptions, Target, UrlTarget, is_recording};
use crate::encryption::{self, print_warning};
use crate::failure::Failure;
use crate::hosts::{self, ConfiguredServer, Discovered, DiskFiles, Machine};
use crate::nearest::nearest;
use crate::output::visible_line;
use crate::sign_in::SignIn;
use crate::suggestion::Suggestion;
use crate::usage_error::{is_program, with_scheme};
use crate::values::NamedValue;

/// Returns the server of a command line: `word` is its target, `command` the words after `--`.
///
/// # Errors
///
/// If there is no such server, or more than one, or an option does not fit it.
pub(crate) fn resolve(
    word: Option<&str>,
    command: &[OsString],
    options: &ConnectOptions,
) -> Result<Target, Failure> {
    let target = match (word, command.split_first()) {
        (Some(word), Some(_)) => {
            let message = format!("expected one server, got `{word}` and a command after `--`");
            return Err(Failure::usage(message));
        }
        (None, None) => {
            return Err(Failure::usage("expected a server")
                .suggest(Suggestion::Servers)
                .hint(EXPECTED));
        }
        (None, Some((program, args))) => Target::Command(CommandTarget {
            program: program.clone(),
            args: args.to_vec(),
            env: Vec::new(),
            inherit_env: false,
            cwd: None,
        }),
        (Some(word), None) => of_word(word)?,
    };
    with_options(target, options)
}

/// Returns the server of a command whose first word is the server, unless a command after `--` starts it; and the other
/// words.
///
/// # Errors
///
/// As for [`resolve`].
pub(crate) fn split_words<'a>(
    words: &'a [String],
    command: &[OsString],
    options: &ConnectOptions,
) -> Result<(Target, &'a [String]), Failure> {
    match (words.split_first(), command.is_empty()) {
        (Some((word, rest)), true) => match resolve(Some(word), command, options) {
            Ok(target) => Ok((target, rest)),
            Err(failure) => Err(without_server(word, rest, failure)),
        },
        _ => Ok((resolve(None, command, options)?, words)),
    }
}

/// Returns the failure of an unknown server, or that of a command line that begins with the tool.
fn without_server(word: &str, rest: &[String], failure: Failure) -> Failure {
    let is_argument = |next: &String| next.contains('=') || next.starts_with('{');
    let is_unknown = failure.suggestion() == Some(&Suggestion::Servers);
    match is_unknown && rest.first().is_none_or(is_argument) {
        true => Failure::usage(format!("expected a server in front of `{word}`, got none"))
            .suggest(Suggestion::Servers)
            .hint(EXPECTED),
        false => failure,
    }
}

fn of_word(word: &str) -> Result<Target, Failure> {
    if word.starts_with("http://") || word.starts_with("https://") {
        return Ok(Target::Url(UrlTarget {
            url: word.to_owned(),
            headers: Vec::new(),
            sign_in: SignIn::WhenRefused(None),
        }));
    }
    let path = Path::new(word);
    if path.is_file() && is_recording(path) {
        return Ok(Target::Recording(PathBuf::from(word)));
    }
    let machine = Machine::current();
    if let Some((file, name)) = word.rsplit_once('#') {
        let read = hosts::read_file(Path::new(file), &DiskFiles);
        let read = read.map_err(|problem| Failure::usage(problem.to_string()))?;
        let server = find_in_file(&read, file, name)?;
        return server_target(server, &machine);
    }
    let discovered = hosts::discover(&machine, &DiskFiles);
    server_target(find(&discovered, word)?, &machine)
}

/// Returns the entry of a host's configuration that a word means; `None` if it means something else.
///
/// # Errors
///
/// As for [`resolve`].
pub(crate) fn configured_server(word: &str) -> Result<Option<ConfiguredServer>, Failure> {
    let is_url = word.starts_with("http://") || word.starts_with("https://");
    let path = Path::new(word);
    if is_url || (path.is_file() && is_recording(path)) {
        return Ok(None);
    }
    let discovered = hosts::discover(&Machine::current(), &DiskFiles);
    let Some((file, name)) = word.rsplit_once('#') else {
        return find(&discovered, word).cloned().map(Some);
    };
    // A file that belongs to a host shows what that host expects.
    let is_same = |it: &&ConfiguredServer| it.file.ends_with(file) && it.name == name;
    let of_host = discovered.servers.iter().find(is_same);
    let of_host =
        of_host.filter(|it| it.file.canonicalize().ok() == Path::new(file).canonicalize().ok());
    if let Some(server) = of_host {
        return Ok(Some(server.clone()));
    }
    let read = hosts::read_file(Path::new(file), &DiskFiles);
    let read = read.map_err(|problem| Failure::usage(problem.to_string()))?;
    find_in_file(&read, file, name).cloned().map(Some)
}

fn server_target(server: &ConfiguredServer, machine: &Machine) -> Result<Target, Failure> {
    server.target(machine).map_err(|why| {
        let (name, file) = (visible_line(&server.name), server.file.display());
        Failure::usage(format!("server `{name}` of {file}:{}: {why}", server.line))
    })
}

fn find_in_file<'a>(
    read: &'a Discovered,
    file: &str,
    name: &str,
) -> Result<&'a ConfiguredServer, Failure> {
    let found = read.servers.iter().find(|server| server.name == name);
    found.ok_or_else(|| {
        let broken = read
            .problems
            .iter()
            .find(|it| it.message.contains(&format!("`{name}`")));
        if let Some(problem) = broken {
            return Failure::usage(problem.to_string());
        }
        let names = read.servers.iter().map(|server| server.name.as_str());
        let names: Vec<_> = names.map(visible_line).collect();
        let message = format!("{file} has no server `{}`", visible_line(name));
        match names.is_empty() {
            true => Failure::usage(message),
            false => {
                let near = nearest(name, names.iter().map(AsRef::as_ref));
                let near = near.unwrap_or(&names[0]);
                let (given, other) = (format!("{file}#{name}"), format!("{file}#{near}"));
                Failure::usage(message)
                    .suggest(Suggestion::OtherServer(given, other))
                    .hint(format!("the file has {}", names.join(", ")))
            }
        }
    })
}

/// Finds a server by its name, or by the id of its host and its name: `cursor:files`.
///
/// # Errors
///
/// If there is none, or if servers of several hosts that are not the same have the name.
fn find<'a>(discovered: &'a Discovered, word: &str) -> Result<&'a ConfiguredServer, Failure> {
    let here = || {
        discovered
            .servers
            .iter()
            .filter(|server| !server.is_elsewhere)
    };
    let mut matching: Vec<_> = here().filter(|server| server.name == word).collect();
    if matching.is_empty()
        && let Some((host, name)) = word.split_once(':')
    {
        matching = here()
            .filter(|it| it.host.id() == host && it.name == name)
            .collect();
    }
    let Some(first) = matching.first() else {
        return Err(unknown(discovered, word));
    };
    // Of one host the nearest file counts, as it does for the host.
    let is_clear = matching
        .iter()
        .all(|it| it.host == first.host || it.launch == first.launch);
    if is_clear {
        return Ok(first);
    }
    let candidates = matching.iter().map(|server| {
        let (host, name) = (server.host.id(), visible_line(&server.name));
        format!(
            "\n  {host}:{name}  ({}:{})",
            server.file.display(),
            server.line
        )
    });
    let candidates: String = candidates.collect();
    let message = format!("several hosts have a server `{word}`:{candidates}");
    let other = format!("{}:{}", first.host.id(), first.name);
    Err(Failure::usage(message).suggest(Suggestion::OtherServer(word.to_owned(), other)))
}

fn unknown(discovered: &Discovered, word: &str) -> Failure {
    if let Some(url) = with_scheme(word) {
        return Failure::usage(format!(
            "expected a URL with http:// or https://, got `{word}`"
        ))
        .suggest(Suggestion::WithScheme(word.to_owned(), url));
    }
    if word.contains("://") {
        let message = format!("expected a URL with http:// or https://, got `{word}`");
        return Failure::usage(message).suggest(Suggestion::Help);
    }
    if is_program(word) {
        return Failure::usage(format!("`{word}` is a command, and no name of a server"))
            .suggest(Suggestion::AfterHyphens)
            .hint("put the command that starts a server last, after `--`");
    }
    let path = Path::new(word);
    if path.is_file() {
        let message = format!("{word} is neither a recording nor the name of a server");
        let read = hosts::read_file(path, &DiskFiles);
        let servers = read.map(|read| read.servers).unwrap_or_default();
        return match servers.first() {
            Some(first) => {
                let server = format!("{word}#{}", first.name);
                Failure::usage(message)
                    .suggest(Suggestion::ServerOfFile(word.to_owned(), server))
                    .hint(format!("{word}#NAME is a server of the file"))
            }
            None => Failure::usage(message)
                .suggest(Suggestion::Servers)
                .hint(EXPECTED),
        };
    }
    let failure = Failure::usage(format!("no host has a server `{word}`"));
    let here = (discovered.servers.iter()).filter(|server| !server.is_elsewhere);
    let names = here.clone().map(|server| server.name.as_str());
    let near = nearest(word, names).and_then(|near| here.clone().find(|it| it.name == near));
    match near {
        Some(near) => {
            let other = format!("{}:{}", near.host.id(), near.name);
            failure.suggest(Suggestion::OtherServer(word.to_owned(), other))
        }
        None => failure.suggest(Suggestion::Servers).hint(EXPECTED),
    }
}

/// What is a server on the command line.
const EXPECTED: &str =
    "a server is a URL, a name from the configuration of a host, or a command after `--`";

/// Applies the options, which must fit the kind of the server.
fn with_options(target: Target, options: &ConnectOptions) -> Result<Target, Failure> {
    let has_env = !options.env.is_empty() || options.inherit_env;
    let is_of_url = !options.header.is_empty() || options.no_oauth || options.token_dir.is_some();
    match target {
        Target::Url(_) if has_env => Err(Failure::usage(
            "--env and --inherit-env are for a command, not for a URL",
        )),
        Target::Url(mut target) => {
            let headers = NamedValue::parse_headers(&options.header).map_err(Failure::usage)?;
            for header in headers {
                // Those of the command line come first.
                target.headers.retain(|it| !it.is(&header.name));
                target.headers.push(header);
            }
            let has_token = (target.headers.iter()).any(|header| header.is("authorization"));
            target.sign_in = match options.no_oauth || has_token {
                true => SignIn::Never,
                false => SignIn::WhenRefused(options.token_dir.clone()),
            };
            print_warning(encryption::warning(&target));
            Ok(Target::Url(target))
        }
        Target::Command(_) if is_of_url => Err(Failure::usage(
            "--header, --no-oauth and --token-dir are for a server at a URL; this one is not",
        )),
        Target::Command(mut target) => {
            let variables = NamedValue::parse_variables(&options.env).map_err(Failure::usage)?;
            target.env.extend(variables);
            target.inherit_env |= options.inherit_env;
            Ok(Target::Command(target))
        }
        Target::Recording(_) if has_env || is_of_url => Err(Failure::usage(
            "--header, --env and their like are for a server, not for a recording",
        )),
        target @ Target::Recording(_) => Ok(target),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::{HostKind, Launch, Scope};

    fn server(host: HostKind, name: &str, url: &str) -> ConfiguredServer {
        ConfiguredServer {
            host,
            scope: Scope::User,
            name: name.to_owned(),
            file: host.id().into(),
            line: 3,
            project: None,
            is_elsewhere: false,
            is_disabled: false,
            launch: Launch::Url {
                url: url.to_owned(),
                headers: Vec::new(),
            },
        }
    }

    fn found(word: &str) -> Result<HostKind, String> {
        let discovered = Discovered {
            servers: vec![
                server(HostKind::Cursor, "files", "https://a.example"),
                server(HostKind::Zed, "files", "https://b.example"),
                server(HostKind::Cursor, "same", "https://c.example"),
                server(HostKind::Zed, "same", "https://c.example"),
                server(HostKind::Kiro, "a:b", "https://d.example"),
            ],
            ..Discovered::default()
        };
        find(&discovered, word)
            .map(|server| server.host)
            .map_err(|failure| {
                assert_eq!(failure.exit(), crate::exit::Exit::Usage);
                failure.to_string()
            })
    }

    #[test]
    fn an_ambiguous_name_lists_the_candidates_and_the_host_decides() {
        let why = found("files").unwrap_err();
        assert!(
            why.contains("cursor:files  (cursor:3)") && why.contains("zed:files"),
            "{why}"
        );
        assert_eq!(found("zed:files"), Ok(HostKind::Zed));
        assert_eq!(
            found("same"),
            Ok(HostKind::Cursor),
            "the same server twice is clear"
        );
        assert_eq!(found("a:b"), Ok(HostKind::Kiro));
    }

    #[test]
    fn an_unknown_name_is_an_error() {
        assert_eq!(found("fles"), Err("no host has a server `fles`".to_owned()));
        assert!(found("kiro:files").is_err());
    }

    #[test]
    fn options_must_fit_the_server() {
        let resolved = |word: Option<&str>, command: &[&str], options: &ConnectOptions| {
            let command: Vec<_> = command.iter().map(OsString::from).collect();
            resolve(word, &command, options).map_err(|failure| failure.to_string())
        };
        let none = ConnectOptions::default();
        let env = ConnectOptions {
            env: vec!["A=1".to_owned()],
            ..none.clone()
        };
        let header = ConnectOptions {
            header: vec!["Authorization: x".to_owned()],
            ..none.clone()
        };

        assert!(
            resolved(None, &[], &none)
                .unwrap_err()
                .contains("expected a server")
        );
        assert!(
            resolved(Some("x"), &["y"], &none)
                .unwrap_err()
                .contains("expected one server")
        );
        assert!(
            resolved(Some("https://x.example"), &[], &env)
                .unwrap_err()
                .contains("for a command")
        );
        assert!(
            resolved(None, &["y"], &header)
                .unwrap_err()
                .contains("for a server at a URL")
        );
        let Ok(Target::Url(url)) = resolved(Some("https://x.example"), &[], &header) else {
            panic!("expected a URL");
        };
        assert_eq!(url.sign_in, SignIn::Never, "the user has a token");
        let Ok(Target::Command(command)) = resolved(None, &["y", "z"], &env) else {
            panic!("expected a command");
        };
        assert_eq!((command.args.len(), command.env.len()), (1, 1));
    }
}
