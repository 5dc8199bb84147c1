//! `bowline read`: reads a resource.

use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;

use bowline::client::ClientBuilder;
use bowline::types::ResourceContents;
use clap::Args;

use crate::content::ContentPrinter;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::log::log_to_stderr;
use crate::output::{Output, OutputOptions};
use crate::questions::QuestionOptions;
use crate::status_line::StatusLine;
use crate::suggestion::Suggestion;
use crate::target::{ConnectOptions, split_words, with_client};

#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(override_usage = "\
bowline read [OPTIONS] TARGET URI
       bowline read [OPTIONS] URI -- COMMAND...")]
pub(crate) struct ReadOptions {
    /// The server (unless there is a command after `--`), and the URI of the resource.
    #[arg(value_name = "TARGET URI")]
    words: Vec<String>,
    /// The command that starts the server, and its arguments.
    #[arg(last = true)]
    command: Vec<OsString>,
    /// Write the content to this file.
    #[arg(short, long, value_name = "FILE", conflicts_with = "json")]
    out: Option<PathBuf>,
    #[command(flatten)]
    questions: QuestionOptions,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    connect: ConnectOptions,
}

/// Reads a resource.
///
/// # Errors
///
/// If the server cannot be reached, or answers with an error, or the content cannot be written.
///
/// # Cancel safety
///
/// Dropping it cancels the request.
pub(crate) async fn run(options: ReadOptions) -> Result<Exit, Failure> {
    log_to_stderr(options.connect.verbose);
    let output = options.output.output();
    let (target, words) = split_words(&options.words, &options.command, &options.connect)?;
    let [uri] = words else {
        return Err(
            Failure::usage("expected the URI of one resource").suggest(Suggestion::ListTools)
        );
    };
    let questions = options
        .questions
        .questions(&StatusLine::new(output), output)?;
    let with_host = |builder: ClientBuilder| builder.host(questions.host());
    with_client(&target, &options.connect, with_host, async |client| {
        let result = tokio::select! {
            biased; // an answer counts
            result = client.read_resource(uri.as_str()) => result?,
            failure = questions.unanswered() => return Err(failure),
        };
        if output.is_json() {
            output.json(&result)?;
        } else {
            write(&result.contents, options.out.as_ref(), output)?;
        }
        Ok(Exit::Success)
    })
    .await
}

fn write(
    contents: &[ResourceContents],
    file: Option<&PathBuf>,
    output: Output,
) -> Result<(), Failure> {
    if file.is_none() && std::io::stdout().is_terminal() {
        let printer = ContentPrinter {
            output,
            folder: ".".into(),
            stem: "resource".to_owned(),
        };
        return contents
            .iter()
            .try_for_each(|contents| printer.resource(contents));
    }
    // A program or a file gets the content as it is, like from `cat`.
    let mut bytes = Vec::new();
    for contents in contents {
        match contents {
            ResourceContents::Text(text) => bytes.extend_from_slice(text.text.as_bytes()),
            ResourceContents::Blob(blob) => {
                let blob = blob.bytes().map_err(|error| {
                    Failure::other("the server sent a blob that is not base64").caused_by(error)
                })?;
                bytes.extend(blob);
            }
        }
    }
    match file {
        Some(file) => std::fs::write(file, bytes).map_err(|error| {
            Failure::other(format!("failed to write {}", file.display())).caused_by(error)
        }),
        None => {
            let mut stdout = std::io::stdout().lock();
            stdout.write_all(&bytes)?;
            Ok(stdout.flush()?)
        }
    }
}
