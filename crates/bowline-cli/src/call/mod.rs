//! `bowline call`: calls a tool.

mod cancel;

mod load;

mod result;

use std::ffi::OsString;
use std::io::Read as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bowline::client::{CallTool, RequestBuilder};
use bowline::types::{LoggingLevel, LoggingMessageNotificationParams, Tool};
use bowline::{CallToolResult, Client, Reply};
use bowline_tasks::{TaskCall as _, TaskClient, TaskHandle};
use clap::Args;
use serde_json::{Map, Value, json};

use crate::arguments::{Argument, add_arguments, missing};
use crate::content::ContentPrinter;
use crate::exit::Exit;
use crate::failure::{Failure, version_hint};
use crate::interrupt::{interrupted, until_interrupted};
use crate::log::log_to_stderr;
use crate::nearest::nearest;
use crate::ordered_json::OrderedJson;
use crate::output::{Output, OutputOptions, Style, visible_line};
use crate::questions::{QuestionOptions, Questions};
use crate::signature::{Schema, Signature};
use crate::status_line::StatusLine;
use crate::suggestion::Suggestion;
use crate::target::{ConnectOptions, Target, finish, split_words};
use crate::values::{parse_count, parse_duration};

#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(override_usage = "\
bowline call [OPTIONS] TARGET TOOL [ARGUMENT]...
       bowline call [OPTIONS] TOOL [ARGUMENT]... -- COMMAND...")]
pub(crate) struct CallOptions {
    /// The server (unless there is a command after `--`), the tool, and its arguments.
    #[arg(value_name = "TARGET TOOL ARGUMENTS")]
    words: Vec<String>,
    /// The command that starts the server, and its arguments.
    #[arg(last = true)]
    command: Vec<OsString>,
    /// All arguments as a JSON object; @FILE reads a file, and - reads stdin.
    #[arg(long, value_name = "JSON")]
    args: Option<String>,
    /// How long the call may take, for example 30s [default: an hour without progress].
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,
    /// Show log messages of the server of at least this level: debug, info, warning, error or none.
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = parse_level)]
    log_level: LogLevel,
    /// Save images and other binary content to this folder if the terminal cannot show them.
    #[arg(long, value_name = "DIR", default_value = ".")]
    save_to: PathBuf,
    /// Start a task, print its id, and do not wait for it (`bowline tasks wait` does).
    #[arg(long)]
    as_task: bool,
    /// Call the tool this many times, and print percentiles.
    #[arg(long, value_name = "N", value_parser = parse_count)]
    repeat: Option<NonZeroUsize>,
    /// How many calls of --repeat run at a time.
    #[arg(long, value_name = "K", default_value = "1", value_parser = parse_count, requires = "repeat")]
    concurrency: NonZeroUsize,
    #[command(flatten)]
    questions: QuestionOptions,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    connect: ConnectOptions,
}

/// `None` means no log messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogLevel(pub(crate) Option<LoggingLevel>);

pub(crate) fn parse_level(text: &str) -> Result<LogLevel, String> {
    if text == "none" {
        return Ok(LogLevel(None));
    }
    let level = serde_json::from_value(Value::from(text));
    level
        .map(|level| LogLevel(Some(level)))
        .map_err(|_| format!("expected debug, info, warning, error or none, got `{text}`"))
}

/// Calls a tool, and prints its result.
///
/// # Errors
///
/// If the server cannot be reached, the arguments do not fit, or the server answers with an error.
///
/// # Cancel safety
///
/// Dropping it cancels the call.
pub(crate) async fn run(options: CallOptions) -> Result<Exit, Failure> {
    log_to_stderr(options.connect.verbose);
    let output = options.output.output();
    let status = StatusLine::new(output);
    let (target, words) = split_words(&options.words, &options.command, &options.connect)?;
    let Some((tool, words)) = words.split_first() else {
        return Err(Failure::usage("expected the name of a tool").suggest(Suggestion::ListTools));
    };
    let given = Given::read(options.args.as_deref(), words.iter().map(String::as_str));
    let given = given.map_err(|failure| match failure.suggestion() {
        Some(_) => failure,
        None => failure.suggest(Suggestion::ShowTool(tool.clone())),
    })?;
    let questions = options.questions.questions(&status, output)?;
    let client = connect(&target, &options, &questions, &status).await?;
    let command = ToolCommand {
        client,
        tool: tool.to_owned(),
        options: &options,
        questions,
        status,
        output,
    };
    let ended = command.run(given).await;
    ended.map_err(|failure| failure.at(&target))
}

/// The arguments of the command line.
struct Given {
    object: Map<String, Value>,
    words: Vec<Argument>,
}

impl Given {
    fn read<'a>(args: Option<&str>, words: impl Iterator<Item = &'a str>) -> Result<Self, Failure> {
        let object = match args {
            None => Map::new(),
            Some(text) => {
                let text = match text.strip_prefix('@') {
                    Some(path) => read_file(Path::new(path)).map_err(|error| {
                        Failure::usage(format!("failed to read {path}")).caused_by(error)
                    })?,
                    None if text == "-" => read_file(Path::new("-"))
                        .map_err(|error| Failure::usage("failed to read stdin").caused_by(error))?,
                    None => text.to_owned(),
                };
                match serde_json::from_str(&text) {
                    Ok(Value::Object(object)) => object,
                    Ok(_) => {
                        let text = "--args: expected a JSON object, got another JSON value";
                        return Err(Failure::usage(text));
                    }
                    Err(error) => {
                        let text = "--args: expected a JSON object, got invalid JSON";
                        return Err(Failure::usage(text).caused_by(error));
                    }
                }
            }
        };
        let words = words.map(|word| {
            Argument::parse(word, &read_file).map_err(|why| {
                let failure = Failure::usage(why);
                let json: Result<Map<String, Value>, _> = serde_json::from_str(word);
                match json.is_ok() && args.is_none() {
                    true => failure.suggest(Suggestion::JsonArguments(word.to_owned())),
                    false => failure,
                }
            })
        });
        let words = words.collect::<Result<_, _>>()?;
        Ok(Self { object, words })
    }
}

/// Reads a file, or stdin if its name is `-`.
pub(crate) fn read_file(path: &Path) -> std::io::Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin()
            .lock()
            .take(MAX_INPUT_BYTES)
            .read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(path)
}

async fn connect(
    target: &Target,
    options: &CallOptions,
    questions: &Questions,
    status: &StatusLine,
) -> Result<Client, Failure> {
    let connecting = target.connect(&options.connect, |builder| {
        let builder = builder.host(questions.host()).extension(TaskClient::new());
        match options.log_level.0 {
            Some(level) => {
                let status = status.clone();
                let on_log = move |message| print_log(&message, &status);
                builder.log_level(level).on_log(on_log)
            }
            None => builder,
        }
    });
    until_interrupted(connecting).await
}

/// Prints the result of a tool, and returns the exit code for it. Binary content is saved in the current folder.
///
/// # Errors
///
/// If stdout is closed, or a file cannot be written.
pub(crate) fn print_result(
    result: &CallToolResult,
    stem: &str,
    output: Output,
) -> Result<Exit, Failure> {
    let (folder, stem) = (PathBuf::from("."), stem.to_owned());
    result::print(
        result,
        &ContentPrinter {
            output,
            folder,
            stem,
        },
    )
}

/// Prints a log message of the server.
pub(crate) fn print_log(message: &LoggingMessageNotificationParams, status: &StatusLine) {
    let text = log_text(message);
    status.print_styled(Style::Dim, &text);
}

/// Returns a log message on one line.
pub(crate) fn log_text(message: &LoggingMessageNotificationParams) -> String {
    let level = serde_json::to_value(message.level).unwrap_or_default();
    let level = level.as_str().unwrap_or("log").to_owned();
    let logger = message
        .logger
        .as_deref()
        .map_or(String::new(), |it| format!(" {it}"));
    let text = message
        .data
        .decode::<String>()
        .unwrap_or_else(|_| message.data.to_string());
    visible_line(&format!("[{level}{logger}] {text}")).into_owned()
}

/// A connected command.
struct ToolCommand<'a> {
    client: Client,
    tool: String,
    options: &'a CallOptions,
    questions: Questions,
    status: StatusLine,
    output: Output,
}

impl ToolCommand<'_> {
    async fn run(self, given: Given) -> Result<Exit, Failure> {
        let arguments = match until_interrupted(self.arguments(given)).await {
            Ok(arguments) => arguments,
            Err(failure) => {
                // Sends the cancel of a list that was still requested.
                finish(self.client).await;
                return Err(failure);
            }
        };
        if let Some(repeat) = self.options.repeat {
            return load::run(&self, &arguments, repeat, self.options.concurrency).await;
        }
        match self.options.as_task {
            true => self.start_task(&arguments).await,
            false => self.call(&arguments).await,
        }
    }

    /// Converts the arguments as the tool asks for. The list of tools is not requested if all is JSON already.
    async fn arguments(&self, given: Given) -> Result<Map<String, Value>, Failure> {
        let Given { mut object, words } = given;
        if words.is_empty() && self.options.args.is_some() {
            return Ok(object);
        }
        let tools = self.client.list_tools().await?;
        let tool = self.find(&tools)?;
        let schema = OrderedJson::parse(tool.input_schema.as_str());
        let schema = Schema::root(&schema);
        let with_signature = |why: String| {
            let lines = Signature::of_tool(tool).lines(self.output.width.saturating_sub(2));
            Failure::usage(format!("{why}\n  {}", lines.join("\n  ")))
        };
        add_arguments(&mut object, words, Some(schema)).map_err(with_signature)?;
        let missing = missing(&object, schema);
        if !missing.is_empty() {
            let names: Vec<_> = missing
                .iter()
                .map(|name| format!("`{}`", visible_line(name)))
                .collect();
            return Err(with_signature(format!("missing {}", names.join(", "))));
        }
        Ok(object)
    }

    fn find<'t>(&self, tools: &'t [Tool]) -> Result<&'t Tool, Failure> {
        let found = tools.iter().find(|tool| tool.name == self.tool);
        found.ok_or_else(|| {
            let failure = Failure::usage(format!("the server has no tool `{}`", self.tool));
            match nearest(&self.tool, tools.iter().map(|tool| tool.name.as_str())) {
                Some(name) => {
                    failure.suggest(Suggestion::OtherItem(self.tool.clone(), name.to_owned()))
                }
                None => failure.suggest(Suggestion::ListTools),
            }
        })
    }

    fn request(&self, arguments: &Map<String, Value>) -> RequestBuilder<CallTool> {
        let request = self.client.call_tool(&self.tool, arguments);
        match self.options.timeout {
            Some(timeout) => request.timeout(timeout).idle_timeout(timeout),
            // A person can press Ctrl-C, and a script can set a timeout.
            None => request.idle_timeout(DEFAULT_IDLE_TIMEOUT),
        }
    }

    async fn call(self, arguments: &Map<String, Value>) -> Result<Exit, Failure> {
        let status = self.status.clone();
        let request = self.request(arguments);
        let request = request.on_progress(move |progress| status.show_progress(&progress));
        let began = Instant::now();
        let mut call = request.start();
        let ended = tokio::select! {
            biased; // an answer counts, even if the user presses Ctrl-C at the same moment
            reply = &mut call => Ok(reply),
            failure = self.questions.unanswered() => Err(failure),
            () = interrupted() => Err(Failure::interrupted()),
        };
        self.status.clear();
        match ended {
            Ok(reply) => {
                let printed = reply
                    .map_err(Failure::from)
                    .and_then(|reply| self.print(&reply));
                // Also after a timeout, whose cancellation must be sent.
                finish(self.client).await;
                printed
            }
            Err(failure) if failure.exit() == Exit::Interrupted => {
                let report = cancel::cancel(call, self.client, began.elapsed()).await;
                report.print(self.output)?;
                Ok(Exit::Interrupted)
            }
            Err(failure) => {
                call.cancel("the question of the server cannot be answered");
                finish(self.client).await;
                Err(failure)
            }
        }
    }

    fn print(&self, reply: &Reply) -> Result<Exit, Failure> {
        let printer = ContentPrinter {
            output: self.output,
            folder: self.options.save_to.clone(),
            stem: self.tool.clone(),
        };
        let result = reply.tool_result()?;
        let exit = result::print(&result, &printer)?;
        if result.is_error == Some(true)
            && let Some(hint) = version_hint(&reply.text())
        {
            eprintln!("hint: {hint}");
        }
        Ok(exit)
    }

    async fn start_task(self, arguments: &Map<String, Value>) -> Result<Exit, Failure> {
        let starting = self.request(arguments).as_task();
        let task = tokio::select! {
            biased; // a task that was started must be printed
            task = starting => task.map_err(Failure::from),
            failure = self.questions.unanswered() => Err(failure),
            () = interrupted() => Err(Failure::interrupted()),
        };
        let exit = match task {
            Ok(task) => self.print_task(&task).await,
            Err(failure) => Err(failure),
        };
        // Also after Ctrl-C, whose cancel must be sent.
        finish(self.client).await;
        exit
    }

    async fn print_task(&self, task: &TaskHandle) -> Result<Exit, Failure> {
        match task.id() {
            Some(id) if self.output.is_json() => self.output.json(&json!({"taskId": id}))?,
            Some(id) => self.output.line(visible_line(id))?,
            None => {
                eprintln!("bowline: the server answered directly, without a task");
                return self.print(&task.wait().await?);
            }
        }
        Ok(Exit::Success)
    }
}

const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(60 * 60);
const MAX_INPUT_BYTES: u64 = 64 * 1024 * 1024;
