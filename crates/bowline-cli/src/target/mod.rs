//! [`Target`], the server that a command talks to: a URL, a command, a name from a host's configuration, or a recording.

mod connect_options;
pub(crate) use connect_options::{ConnectOptions, TargetArgs};

mod resolve;
pub(crate) use resolve::{configured_server, resolve, split_words};

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bowline::Client;
use bowline::client::ClientBuilder;
use bowline::http::RedactedUrl;
use bowline::types::{DiscoverRequest, DiscoverResult, Method as _};
use bowline::wire::Command;
use bowline_auth::client::OAuth;
use bowline_recording::Mock;

use crate::child_stderr::StderrWriter;
use crate::failure::Failure;
use crate::interrupt::until_interrupted;
use crate::mock::open_recording;
use crate::output::visible_line;
use crate::redact::redact_words;
use crate::sign_in::SignIn;
use crate::usage_error::is_program;
use crate::values::NamedValue;

/// A server to talk to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Url(UrlTarget),
    Command(CommandTarget),
    /// A file that `bowline tap --record` wrote.
    Recording(PathBuf),
}

/// A server that is reached over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UrlTarget {
    pub(crate) url: String,
    pub(crate) headers: Vec<NamedValue>,
    pub(crate) sign_in: SignIn,
}

/// A server that is started as a child process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandTarget {
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: Vec<NamedValue>,
    pub(crate) inherit_env: bool,
    pub(crate) cwd: Option<PathBuf>,
}

impl CommandTarget {
    /// Returns whether the program and its arguments are one word, as if there were a shell.
    pub(crate) fn is_one_word(&self) -> bool {
        let program = self.program.to_string_lossy();
        let mut words = program.split_whitespace();
        words.next().is_some_and(is_program) && words.next().is_some()
    }

    /// Returns the command. Its stderr is not passed on.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program).args(&self.args);
        if self.inherit_env {
            command = command.inherit_env();
        }
        for variable in &self.env {
            command = command.env(&variable.name, &variable.value);
        }
        match &self.cwd {
            Some(cwd) => command.current_dir(cwd),
            None => command,
        }
    }
}

impl UrlTarget {
    /// Returns a client that signs in as `name` when the server refuses a request; `None` if it must not.
    pub(crate) fn oauth(&self, name: &str) -> Option<OAuth> {
        self.sign_in.oauth(&self.url, name)
    }

    /// Returns the URL with another path; `None` if the path is not a plain one.
    pub(crate) fn with_path(&self, path: &str) -> Option<String> {
        let is_plain = |it: char| it.is_ascii_alphanumeric() || "/-_.".contains(it);
        let mut url = url::Url::parse(&self.url).ok()?;
        if !path.starts_with('/') || !path.chars().all(is_plain) {
            return None;
        }
        url.set_path(path);
        Some(url.into())
    }

    /// Returns a builder that sends the headers, without signing in.
    pub(crate) fn client(&self) -> ClientBuilder {
        let mut builder = Client::connect(&self.url);
        for header in &self.headers {
            builder = builder.header(&header.name, &header.value);
        }
        builder
    }
}

impl Target {
    /// Returns the builder of a client, with the options of the command line. Await it to connect, or use
    /// [`connect`](Self::connect).
    ///
    /// # Errors
    ///
    /// If the target is a recording that cannot be read.
    pub(crate) fn client(&self, options: &ConnectOptions) -> Result<ClientBuilder, Failure> {
        let builder = match self {
            Self::Command(target) => {
                let command = target.command();
                Client::spawn(match options.verbose > 0 {
                    true => {
                        let stderr = StderrWriter::shared();
                        command.on_stderr(move |line| stderr.write(&visible_line(line)))
                    }
                    // The error of a server that exits contains what it printed.
                    false => command,
                })
            }
            Self::Url(target) => {
                let builder = target.client();
                match target.oauth("Bowline") {
                    Some(oauth) => builder.authorizer(oauth),
                    None => builder,
                }
            }
            Self::Recording(file) => Client::in_process(&Mock::new(&open_recording(file)?)),
        };
        let builder = builder.client_info("bowline", env!("CARGO_PKG_VERSION"));
        let builder = match &options.protocol_version {
            Some(version) => builder.protocol_version(version),
            None => builder,
        };
        Ok(match options.connect_timeout {
            Some(timeout) => builder.connect_timeout(timeout),
            None => builder,
        })
    }

    /// Connects, with the settings that `configure` adds.
    ///
    /// # Errors
    ///
    /// With the exit code of a failure to connect.
    pub(crate) async fn connect(
        &self,
        options: &ConnectOptions,
        configure: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Result<Client, Failure> {
        let client = configure(self.client(options)?).await;
        client.map_err(|error| Failure::connecting(self, error))
    }
}

/// The URL, or the words of the command, without secrets.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Url(target) => RedactedUrl::new(&target.url).to_string(),
            Self::Command(target) => {
                let words = std::iter::once(&target.program).chain(&target.args);
                redact_words(words.map(|word| word.to_string_lossy())).join(" ")
            }
            Self::Recording(file) => file.to_string_lossy().into_owned(),
        };
        f.write_str(&visible_line(&text))
    }
}

/// Connects, does `work`, and closes the connection, also after an error or Ctrl-C: what was dropped must still be
/// cancelled at the server.
///
/// # Errors
///
/// Those of connecting and of `work`, and the interruption.
///
/// # Cancel safety
///
/// Dropping the future drops `work` and closes the connection.
pub(crate) async fn with_client<T>(
    target: &Target,
    options: &ConnectOptions,
    configure: impl FnOnce(ClientBuilder) -> ClientBuilder,
    work: impl AsyncFnOnce(&Client) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let client = until_interrupted(target.connect(options, configure)).await?;
    let result = until_interrupted(work(&client)).await;
    finish(client).await;
    result.map_err(|failure| failure.at(target))
}

/// Returns what a server says about itself. It is requested if connecting did not need it.
///
/// # Cancel safety
///
/// Dropping the future cancels the request.
pub(crate) async fn server_facts(client: &Client) -> Option<DiscoverResult> {
    if let Some(server) = client.server() {
        return Some(server.clone());
    }
    let reply = client.request_raw(DiscoverRequest::NAME, ()).await;
    reply.and_then(|reply| reply.decode()).ok()
}

/// Closes a connection when all is printed, and when the server has answered what cancels the work of dropped calls.
/// Bounded: a server that does not exit must not keep the user waiting.
///
/// # Cancel safety
///
/// Safe: the connection is closed even if the future is dropped.
pub(crate) async fn finish(client: Client) {
    // A command that is still running when the time is up is killed with the runtime.
    let _ = tokio::time::timeout(CLOSE_TIME, client.close()).await;
    StderrWriter::flush_shared();
}

/// Returns whether a file is a recording: its first line says so.
pub(crate) fn is_recording(path: &Path) -> bool {
    use std::io::Read as _;

    let mut start = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(256).read_to_end(&mut start));
    let start: Vec<u8> = start.into_iter().filter(|byte| *byte != b' ').collect();
    read.is_ok() && start.starts_with(br#"{"format":"bowline-recording""#)
}

/// Four seconds for cancels, as `Client::close` allows, and five for the end of a process.
const CLOSE_TIME: Duration = Duration::from_secs(9);
