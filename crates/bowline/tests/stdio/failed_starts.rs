//! Programs that are not servers, or not yet: the error names the program and contains the lines that it printed.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::client::{ClientBuilder, ConnectTimeout};
use bowline::wire::Command;
use bowline::{Client, Error};
use tokio::sync::mpsc;
use tracing::field::{Field, Visit};

use crate::programs;

pub(crate) async fn a_program_that_prints_its_usage_and_exits_is_reported_at_once() {
    let (sender, mut stderr) = mpsc::unbounded_channel();
    let command = shell("echo started >&2; echo 'usage: serve PORT'; exit 2")
        .on_stderr(move |line| sender.send(line.to_owned()).unwrap_or_default());

    let error = Client::spawn(command).await.unwrap_err();

    let text = error.to_string();
    assert!(matches!(error, Error::Transport { .. }), "{error:?}");
    assert!(text.contains("`sh` ended with exit status: 2"), "{text}");
    assert!(text.contains("stdout:\n  usage: serve PORT\n"), "{text}");
    assert!(text.contains("stderr:\n  started"), "{text}");
    assert_eq!(stderr.recv().await.as_deref(), Some("started"));
    if cfg!(target_os = "linux") {
        let again = stderr.recv().await;
        assert_eq!(
            again, None,
            "it did not read the probe, which cannot have broken it"
        );
    }
}

pub(crate) async fn the_exit_of_a_program_that_must_be_modern_is_in_the_error() {
    let command = shell("read probe; echo 'out of memory' >&2; exit 3");

    let connect = Client::spawn(command).protocol_version("2026-07-28");
    let error = connect.await.unwrap_err();

    // A legacy server may exit at the probe, and a modern one may crash.
    assert!(matches!(error, Error::Protocol { .. }), "{error:?}");
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("`sh` ended with exit status: 3"), "{cause}");
    assert!(cause.contains("out of memory"), "{cause}");
}

pub(crate) async fn what_a_program_printed_before_its_messages_is_in_the_error_of_its_exit() {
    let command = programs::script(
        "exits_at_call",
        r#"echo Welcome to the server.; echo '{"port": 80}'; exec "$0""#,
    );
    let errors = Arc::new(Mutex::new(Vec::new()));
    let seen = errors.clone();
    let connect = Client::spawn(command)
        .protocol_version("2025-06-18")
        .on_error(move |error| seen.lock().unwrap().push(error.to_string()));

    let client = connect.await.unwrap();
    let exit = client.call_tool("anything", ()).await.unwrap_err();

    let text = exit.to_string();
    assert!(text.contains("exit status: 3"), "{text}");
    assert!(
        text.contains("  Welcome to the server.\n  {\"port\": 80}"),
        "{text}"
    );
    let errors = errors.lock().unwrap();
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(
        errors[0].ends_with("only: `Welcome to the server.`"),
        "{errors:?}"
    );
}

pub(crate) async fn a_silent_program_is_reported_at_the_connect_timeout() {
    let error = connect_briefly("exec sleep 600").await.unwrap_err();

    let expected =
        format!("the server process `sh` did not answer within {SHORT:?}; it printed nothing");
    assert_eq!(error.to_string(), expected);
    let source = std::error::Error::source(&error).unwrap();
    let timeout: &ConnectTimeout = source.downcast_ref().unwrap();
    assert_eq!(timeout.after, SHORT);
}

pub(crate) async fn the_lines_of_a_silent_program_are_reported() {
    let script = "echo Listening on port 80; echo no stdin >&2; exec sleep 600";

    // Long enough to print on a busy machine.
    let connect = Client::spawn(shell(script)).connect_timeout(4 * SHORT);
    let error = connect.await.unwrap_err();

    let text = error.to_string();
    assert!(
        text.contains("it printed to stdout:\n  Listening on port 80\n"),
        "{text}"
    );
    assert!(text.contains("and to stderr:\n  no stdin"), "{text}");
}

pub(crate) async fn a_program_that_prints_without_end_is_ended() {
    let error = Client::spawn(shell("yes")).await.unwrap_err();

    let text = error.to_string();
    assert!(
        text.contains("`sh` is not an MCP server over stdio"),
        "{text}"
    );
    assert!(text.contains("  y\n  y\n"), "{text}");
    assert!(text.len() < 1000, "{text}");
}

pub(crate) async fn control_characters_of_a_program_are_escaped() {
    let error = Client::spawn(shell(r"printf '\033[31mred\n'; exit 1")).await;

    let text = error.unwrap_err().to_string();
    assert!(text.contains(r"  \u{1b}[31mred"), "{text}");
}

/// With the default timeouts, on a paused clock.
pub(crate) async fn silence_is_a_warning_after_5_s_and_an_error_after_30_s() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let subscriber = WarningLog(log.clone());
    let run = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let started = tokio::time::Instant::now();
            let error = Client::spawn(shell("exec sleep 600")).await.unwrap_err();
            (error.to_string(), started.elapsed())
        })
    };
    let ran =
        tokio::task::spawn_blocking(move || tracing::subscriber::with_default(subscriber, run));

    let (error, elapsed) = ran.await.unwrap();

    assert!(error.contains("`sh` did not answer within 30s"), "{error}");
    assert_eq!(elapsed.as_secs(), 30);
    let log = log.lock().unwrap();
    assert_eq!(log.len(), 1, "{log:?}");
    assert!(log[0].contains("`sh` did not answer within 5s"), "{log:?}");
}

pub(crate) async fn a_missing_program_is_reported_with_the_path_that_was_searched() {
    let command = Command::new("no-such-program-anywhere").env("PATH", "/nowhere:/elsewhere");

    let error = Client::spawn(command).await.unwrap_err();

    let text = error.to_string();
    assert!(matches!(error, Error::Transport { .. }), "{error:?}");
    assert!(text.contains("`no-such-program-anywhere`"), "{text}");
    assert!(text.contains("not found in PATH"), "{text}");
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.to_string(), "PATH is /nowhere:/elsewhere");
}

pub(crate) async fn frequent_mistakes_in_commands_are_named() {
    let absent = |command| async { Client::spawn(command).await.unwrap_err().to_string() };

    let spaces = absent(Command::new("npx -y some-server")).await;
    let file = absent(Command::new("./no-such-server")).await;
    let dir = absent(Command::new("sh").current_dir("/no/such/dir")).await;

    assert!(
        spaces.contains("its arguments must be separate words"),
        "{spaces}"
    );
    assert!(file.contains("`./no-such-server`: no such file"), "{file}");
    assert!(
        dir.contains("working directory /no/such/dir does not exist"),
        "{dir}"
    );
}

fn shell(script: &str) -> Command {
    Command::new("sh").args(["-c", script])
}

fn connect_briefly(script: &str) -> ClientBuilder {
    Client::spawn(shell(script)).connect_timeout(SHORT)
}

/// Collects the messages of warnings.
struct WarningLog(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for WarningLog {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut message = Message::default();
        event.record(&mut message);
        self.0.lock().unwrap().push(message.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
        self.0.push_str(&format!("{value:?} "));
    }
}

const SHORT: Duration = Duration::from_millis(800);
