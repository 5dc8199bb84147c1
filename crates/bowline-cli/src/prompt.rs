//! `bowline prompt`: gets a prompt with its arguments filled in.

use std::ffi::OsString;

use bowline::client::ClientBuilder;
use bowline::types::{GetPromptResult, Prompt};
use clap::Args;
use serde_json::{Map, Value};

use crate::arguments::Argument;
use crate::call::read_file;
use crate::content::ContentPrinter;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::log::log_to_stderr;
use crate::nearest::nearest;
use crate::output::{Output, OutputOptions, Style, visible, visible_line};
use crate::questions::QuestionOptions;
use crate::signature::Signature;
use crate::status_line::StatusLine;
use crate::suggestion::Suggestion;
use crate::target::{ConnectOptions, split_words, with_client};

#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(override_usage = "\
bowline prompt [OPTIONS] TARGET NAME [key=value]...
       bowline prompt [OPTIONS] NAME [key=value]... -- COMMAND...")]
pub(crate) struct PromptOptions {
    /// The server (unless there is a command after `--`), the prompt, and its arguments.
    #[arg(value_name = "TARGET NAME ARGUMENTS")]
    words: Vec<String>,
    /// The command that starts the server, and its arguments.
    #[arg(last = true)]
    command: Vec<OsString>,
    #[command(flatten)]
    questions: QuestionOptions,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    connect: ConnectOptions,
}

/// Gets a prompt.
///
/// # Errors
///
/// If the server cannot be reached, the arguments do not fit, or the server answers with an error.
///
/// # Cancel safety
///
/// Dropping it cancels the request.
pub(crate) async fn run(options: PromptOptions) -> Result<Exit, Failure> {
    log_to_stderr(options.connect.verbose);
    let output = options.output.output();
    let (target, words) = split_words(&options.words, &options.command, &options.connect)?;
    let Some((name, words)) = words.split_first() else {
        return Err(Failure::usage("expected the name of a prompt").suggest(Suggestion::ListTools));
    };
    let arguments = words.iter().map(|word| {
        let argument = Argument::parse(word, &read_file).map_err(Failure::usage)?;
        let (key, text) = argument.into_text();
        Ok((key, Value::String(text)))
    });
    let arguments = arguments.collect::<Result<Map<_, _>, Failure>>()?;
    let questions = options
        .questions
        .questions(&StatusLine::new(output), output)?;
    let with_host = |builder: ClientBuilder| builder.host(questions.host());
    with_client(&target, &options.connect, with_host, async |client| {
        let prompts = client.list_prompts().await?;
        check(&prompts, name, &arguments, output)?;
        let result = tokio::select! {
            biased; // an answer counts
            result = client.get_prompt(name.as_str(), arguments) => result?,
            failure = questions.unanswered() => return Err(failure),
        };
        print(&result, output)?;
        Ok(Exit::Success)
    })
    .await
}

/// Checks the arguments: a server may only say that something is wrong.
fn check(
    prompts: &[Prompt],
    name: &str,
    arguments: &Map<String, Value>,
    output: Output,
) -> Result<(), Failure> {
    let Some(prompt) = prompts.iter().find(|prompt| prompt.name == name) else {
        let failure = Failure::usage(format!("the server has no prompt `{name}`"));
        return Err(
            match nearest(name, prompts.iter().map(|prompt| prompt.name.as_str())) {
                Some(near) => {
                    failure.suggest(Suggestion::OtherItem(name.to_owned(), near.to_owned()))
                }
                None => failure.suggest(Suggestion::ListTools),
            },
        );
    };
    let declared = prompt.arguments.as_deref().unwrap_or_default();
    let with_signature = |why: String| {
        let lines = Signature::of_prompt(prompt).lines(output.width.saturating_sub(2));
        Failure::usage(format!("{why}\n  {}", lines.join("\n  ")))
    };
    for key in arguments.keys() {
        if !declared.iter().any(|argument| argument.name == *key) {
            let near = nearest(key, declared.iter().map(|argument| argument.name.as_str()));
            let hint = near.map_or(String::new(), |near| {
                format!("; did you mean `{}`?", visible_line(near))
            });
            return Err(with_signature(format!("no parameter `{key}`{hint}")));
        }
    }
    let missing = declared
        .iter()
        .find(|it| it.required == Some(true) && !arguments.contains_key(&it.name));
    match missing {
        Some(argument) => Err(with_signature(format!(
            "missing `{}`",
            visible_line(&argument.name)
        ))),
        None => Ok(()),
    }
}

fn print(result: &GetPromptResult, output: Output) -> Result<(), Failure> {
    if output.is_json() {
        return Ok(output.json(result)?);
    }
    let printer = ContentPrinter {
        output,
        folder: ".".into(),
        stem: "prompt".to_owned(),
    };
    if let Some(description) = &result.description {
        output.line(output.style(Style::Dim, visible(description)))?;
    }
    for message in &result.messages {
        let role = serde_json::to_value(message.role).unwrap_or_default();
        let role = format!("[{}]", role.as_str().unwrap_or("?"));
        output.line(output.style(Style::Bold, role))?;
        printer.print(&message.content)?;
    }
    Ok(())
}
