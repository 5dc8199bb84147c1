//! `bowline complete`: asks a server for the values of an argument.

use std::ffi::OsString;

use bowline::types::{CompleteReference, PromptReference, ResourceTemplateReference};
use clap::Args;

use crate::arguments::Argument;
use crate::call::read_file;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::log::log_to_stderr;
use crate::output::{OutputOptions, visible_line};
use crate::suggestion::Suggestion;
use crate::target::{ConnectOptions, split_words, with_client};

#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(override_usage = "\
bowline complete [OPTIONS] TARGET REFERENCE ARGUMENT [VALUE]
       bowline complete [OPTIONS] REFERENCE ARGUMENT [VALUE] -- COMMAND...")]
pub(crate) struct CompleteOptions {
    /// The server (unless there is a command after `--`), the prompt or template, the argument, and its beginning.
    #[arg(value_name = "TARGET REFERENCE ARGUMENT VALUE")]
    words: Vec<String>,
    /// The command that starts the server, and its arguments.
    #[arg(last = true)]
    command: Vec<OsString>,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    connect: ConnectOptions,
}

/// Prints completions, one per line.
///
/// # Errors
///
/// If the server cannot be reached, or answers with an error.
///
/// # Cancel safety
///
/// Dropping it cancels the request.
pub(crate) async fn run(options: CompleteOptions) -> Result<Exit, Failure> {
    log_to_stderr(options.connect.verbose);
    let output = options.output.output();
    let (target, words) = split_words(&options.words, &options.command, &options.connect)?;
    let [reference, argument, rest @ ..] = words else {
        return Err(
            Failure::usage("expected a prompt or template, and an argument of it")
                .suggest(Suggestion::ListTools),
        );
    };
    let (value, context) = match rest.split_first() {
        Some((value, context)) if !value.contains('=') => (value.as_str(), context),
        _ => ("", rest),
    };
    let context = context.iter().map(|word| Argument::parse(word, &read_file));
    let context = context
        .collect::<Result<Vec<_>, _>>()
        .map_err(Failure::usage)?;
    let reference: CompleteReference = match reference.contains("://") || reference.contains('{') {
        true => ResourceTemplateReference::new(reference.as_str()).into(),
        false => PromptReference::new(reference.as_str()).into(),
    };
    with_client(
        &target,
        &options.connect,
        |builder| builder,
        async |client| {
            let mut request = client.complete(reference, argument.as_str(), value);
            for (key, value) in context.into_iter().map(Argument::into_text) {
                request = request.context_argument(key, value);
            }
            let completion = request.await?;
            if output.is_json() {
                output.json(&completion)?;
            } else {
                for value in &completion.values {
                    output.line(visible_line(value))?;
                }
                if completion.has_more == Some(true) {
                    let total = completion
                        .total
                        .map_or(String::new(), |total| format!(" of {total}"));
                    eprintln!("bowline: the first {}{total}", completion.values.len());
                }
            }
            Ok(Exit::Success)
        },
    )
    .await
}
