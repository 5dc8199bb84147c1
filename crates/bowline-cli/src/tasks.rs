//! `bowline tasks`: the tasks of a server, by their ids.

use std::ffi::OsString;
use std::time::Duration;

use bowline::Client;
use bowline::client::ClientBuilder;
use bowline::types::Json;
use bowline_tasks::{TaskClient, TaskHandle, TaskInfo};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::call::print_result;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::log::log_to_stderr;
use crate::output::{Output, OutputOptions, Style, visible, visible_line};
use crate::questions::QuestionOptions;
use crate::status_line::StatusLine;
use crate::target::{ConnectOptions, split_words, with_client};
use crate::values::parse_duration;

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct TasksOptions {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
enum Action {
    /// Lists the tasks, where the server has a list (2025-11-25).
    List(TaskOptions),
    /// Prints the status of a task: bowline tasks get TARGET ID
    Get(TaskOptions),
    /// Waits for a task, answers its questions, and prints its result: bowline tasks wait TARGET ID
    Wait(WaitOptions),
    /// Asks the server to cancel a task: bowline tasks cancel TARGET ID
    Cancel(TaskOptions),
    /// Answers questions of a task: bowline tasks update TARGET ID key:=json
    ///
    /// The keys are those of the questions, which `get --json` shows; the values are results, such as
    /// '{"action": "accept", "content": {"name": "Ada"}}'.
    Update(TaskOptions),
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
struct TaskOptions {
    /// The server (unless there is a command after `--`), the id of the task, and answers.
    #[arg(value_name = "TARGET ID")]
    words: Vec<String>,
    /// The id, where it begins with a hyphen: --id=-x.
    #[arg(long)]
    id: Option<String>,
    /// The command that starts the server, and its arguments.
    #[arg(last = true)]
    command: Vec<OsString>,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    connect: ConnectOptions,
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
struct WaitOptions {
    /// How long to wait, for example 5m. The task goes on after that.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,
    #[command(flatten)]
    questions: QuestionOptions,
    #[command(flatten)]
    task: TaskOptions,
}

/// Runs one of the actions.
///
/// # Errors
///
/// If the server cannot be reached, has no tasks, or does not know the task.
///
/// # Cancel safety
///
/// Dropping it has no effect on the task, unless the action is to change it.
pub(crate) async fn run(options: TasksOptions) -> Result<Exit, Failure> {
    let (task, wait) = match &options.action {
        Action::List(task) | Action::Get(task) | Action::Cancel(task) | Action::Update(task) => {
            (task, None)
        }
        Action::Wait(wait) => (&wait.task, Some(wait)),
    };
    log_to_stderr(task.connect.verbose);
    let output = task.output.output();
    let (target, words) = split_words(&task.words, &task.command, &task.connect)?;
    let is_list = matches!(options.action, Action::List(_));
    let (id, rest) = match (&task.id, words.split_first()) {
        (Some(id), _) => (id.as_str(), words),
        (None, Some((id, rest))) => (id.as_str(), rest),
        (None, None) if is_list => ("", words),
        (None, None) => {
            return Err(Failure::usage("expected the id of a task")
                .hint("the command `call` prints one, with --as-task"));
        }
    };
    let answers = rest.iter().map(|word| parse_answer(word));
    let answers = answers
        .collect::<Result<serde_json::Map<_, _>, _>>()
        .map_err(Failure::usage)?;
    let status = StatusLine::new(output);
    let questions = wait
        .map(|wait| wait.questions.questions(&status, output))
        .transpose()?;
    let configure = |builder: ClientBuilder| {
        let builder = builder.extension(TaskClient::new());
        match &questions {
            Some(questions) => builder.host(questions.host()),
            None => builder,
        }
    };
    with_client(&target, &task.connect, configure, async |client| {
        let tasks = Tasks { client, output };
        Ok(match &options.action {
            Action::List(_) => tasks.list().await?,
            Action::Get(_) => tasks.get(id).await?,
            Action::Cancel(_) => tasks.cancel(id).await?,
            Action::Update(_) => {
                let keys: Vec<String> = answers.keys().cloned().collect();
                TaskHandle::attach(client, id).update(answers).await?;
                if output.is_json() {
                    output.json(&json!({"taskId": id, "answered": keys}))?;
                }
                Exit::Success
            }
            Action::Wait(wait) => {
                let unanswered = async {
                    match &questions {
                        Some(questions) => questions.unanswered().await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    biased; // a result counts
                    exit = tasks.wait(id, wait.timeout) => exit?,
                    failure = unanswered => return Err(failure),
                }
            }
        })
    })
    .await
}

fn parse_answer(word: &str) -> Result<(String, Value), String> {
    let (key, text) = word
        .split_once(":=")
        .ok_or_else(|| format!("expected key:=json, got `{word}`"))?;
    let value = serde_json::from_str(text).map_err(|error| format!("`{key}`: {error}"))?;
    Ok((key.to_owned(), value))
}

struct Tasks<'a> {
    client: &'a Client,
    output: Output,
}

impl Tasks<'_> {
    /// Tasks of 2025-11-25 have the same methods, and other results.
    fn is_legacy(&self) -> bool {
        !self.client.dialect().is_modern()
    }

    async fn list(&self) -> Result<Exit, Failure> {
        if !self.is_legacy() {
            return Err(
                Failure::other("servers of this protocol version have no list of tasks").hint(
                    "show one task by the id that `call --as-task` printed, with `tasks get`",
                ),
            );
        }
        let reply = self.client.request_raw("tasks/list", json!({})).await?;
        let result: Value = reply.decode()?;
        if self.output.is_json() {
            self.output.json(&result)?;
            return Ok(Exit::Success);
        }
        for task in result["tasks"].as_array().into_iter().flatten() {
            self.print_legacy(task)?;
        }
        Ok(Exit::Success)
    }

    async fn get(&self, id: &str) -> Result<Exit, Failure> {
        if self.is_legacy() {
            let reply = self
                .client
                .request_raw("tasks/get", json!({"taskId": id}))
                .await?;
            let task: Value = reply.decode()?;
            match self.output.is_json() {
                true => self.output.json(&task)?,
                false => self.print_legacy(&task)?,
            }
            return Ok(Exit::Success);
        }
        let info = TaskHandle::attach(self.client, id).status().await?;
        self.print(&info)?;
        Ok(Exit::Success)
    }

    async fn cancel(&self, id: &str) -> Result<Exit, Failure> {
        match self.is_legacy() {
            true => drop(
                self.client
                    .request_raw("tasks/cancel", json!({"taskId": id}))
                    .await?,
            ),
            false => TaskHandle::attach(self.client, id).cancel().await?,
        }
        match self.output.is_json() {
            true => self
                .output
                .json(&json!({"taskId": id, "cancelRequested": true}))?,
            false => self
                .output
                .line("requested; `bowline tasks get` shows when it has stopped")?,
        }
        Ok(Exit::Success)
    }

    async fn wait(&self, id: &str, timeout: Option<Duration>) -> Result<Exit, Failure> {
        if self.is_legacy() {
            let request = self
                .client
                .request_raw("tasks/result", json!({"taskId": id}));
            let request = match timeout {
                Some(timeout) => request.timeout(timeout).idle_timeout(timeout),
                None => request.idle_timeout(Duration::MAX),
            };
            let reply = request.await?;
            return print_result(&reply.tool_result()?, "task", self.output);
        }
        let handle = TaskHandle::attach(self.client, id);
        let status = StatusLine::new(self.output);
        let waiting = handle.wait().on_status(move |info| {
            if let Some(message) = &info.status_message {
                status.print_styled(Style::Dim, &visible_line(message));
            }
        });
        let waiting = match timeout {
            Some(timeout) => waiting.timeout(timeout),
            None => waiting,
        };
        print_result(&waiting.await?.tool_result()?, "task", self.output)
    }

    fn print(&self, info: &TaskInfo) -> Result<(), Failure> {
        if self.output.is_json() {
            let decoded = |json: &Json| json.decode::<Value>().unwrap_or_default();
            let inputs: serde_json::Map<String, Value> = (info.input_requests.iter())
                .map(|(key, request)| (key.clone(), decoded(request)))
                .collect();
            self.output.json(&json!({
                "taskId": info.id,
                "status": info.status.as_str(),
                "statusMessage": info.status_message,
                "createdAt": info.created_at,
                "lastUpdatedAt": info.last_updated_at,
                "inputRequests": inputs,
                "result": info.result.as_ref().map(decoded),
                "error": info.error,
            }))?;
            return Ok(());
        }
        let message = info.status_message.as_deref().unwrap_or_default();
        self.print_line(
            info.id.as_deref().unwrap_or_default(),
            info.status.as_str(),
            message,
        )?;
        for (key, request) in &info.input_requests {
            let request = request.to_string();
            self.output.line(format!(
                "  question {}: {}",
                visible_line(key),
                visible(&request)
            ))?;
        }
        if let Some(error) = &info.error {
            self.output
                .line(format!("  error: {}", visible(&error.to_string())))?;
        }
        Ok(())
    }

    fn print_legacy(&self, task: &Value) -> std::io::Result<()> {
        let text = |key: &str| task[key].as_str().unwrap_or_default();
        self.print_line(text("taskId"), text("status"), text("statusMessage"))
    }

    fn print_line(&self, id: &str, status: &str, message: &str) -> std::io::Result<()> {
        let style = match status {
            "completed" => Style::Green,
            "failed" | "cancelled" => Style::Red,
            _ => Style::Yellow,
        };
        let status = self.output.style(style, visible_line(status));
        let line = format!("{}  {status}  {}", visible_line(id), visible_line(message));
        self.output.line(line.trim_end())
    }
}
