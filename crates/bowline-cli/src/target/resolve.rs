//! Finds the server that a word, or the words after `--`, mean.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{CommandTarget, ConnectOptions, Target, UrlTarget, is_recording};
use crate::failure::Failure;
use crate::sign_in::SignIn;
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
                .advice("a URL, a name of `bowline servers`, or a command after `--`"));
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
    Err(Failure::usage(format!("unknown server `{word}`")).advice("bowline servers"))
}

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
