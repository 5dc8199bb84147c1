//! [`Replay`]: sends the requests of a recording to a server, and compares its answers with the recorded ones.

mod compare;

mod host;

mod ignore;

mod run;
pub use run::ConnectedReplay;

mod substitutions;

use std::collections::BTreeSet;
use std::time::Duration;

use bowline::client::ClientBuilder;
use bowline_core::input::InputKind;
use bowline_core::json::pick;
use bowline_types::ClientCapabilities;

use crate::conversation::{Conversation, Script};
use crate::{JsonChange, PathPattern, Recording};
use host::ReplayHost;
use ignore::IgnoreRules;

/// Sends the requests of a recording to a server again, and compares the answers.
///
/// Questions of the server are answered as in the recording. Differences in what cannot be the same twice do not count:
/// `_meta`, states, cursors, task ids, times and UUIDs. Subscriptions are not replayed.
///
/// # Examples
///
/// ```
/// use bowline::{Client, Server};
/// use bowline_recording::{Recording, Replay};
///
/// # async fn example(recording: Recording, server: Server) -> bowline::Result<()> {
/// let replay = Replay::new(&recording).ignore("result.structuredContent.elapsed".parse().unwrap());
/// let report = replay.connect(Client::in_process(&server)).await?.run(|_| {}).await;
/// for request in &report.requests {
///     println!("{} {:?}", request.method, request.outcome);
/// }
/// assert!(!report.has_differences());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a replay does nothing until it is connected and run"]
pub struct Replay {
    conversation: Conversation,
    settings: ReplaySettings,
}

#[derive(Clone, Debug)]
struct ReplaySettings {
    ignore: IgnoreRules,
    timeout: Duration,
    pacing: Pacing,
}

/// Which requests of a [`Replay`] are in flight at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "requests overlap as they did or not at all"
)]
pub enum Pacing {
    /// Each waits for the answer to the one before, except those that the recorded client cancelled.
    #[default]
    OneAtATime,
    /// Those that were in flight at the same time in the recording. The time between them is not reproduced.
    AsRecorded,
}

/// The result of a [`Replay`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReplayReport {
    /// The protocol version that was negotiated.
    pub version: &'static str,
    /// The requests, in the order of the recording.
    pub requests: Vec<ReplayedRequest>,
}

/// One request of a [`Replay`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReplayedRequest {
    /// The position in the recording, from 1. 0 is what the server says about itself.
    pub number: usize,
    /// The method.
    pub method: String,
    /// The tool, prompt, resource or task that it is about.
    pub name: Option<String>,
    /// How the answer compares.
    pub outcome: ReplayOutcome,
}

/// How the answer to a request compares with the recorded one.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ReplayOutcome {
    /// It is the same.
    Same,
    /// It differs.
    Different {
        /// Where; at most 100 places. The left side is the recorded one.
        changes: Vec<JsonChange>,
    },
    /// There is no answer to compare: the connection failed, or the timeout has elapsed.
    Failed {
        /// The error.
        why: String,
    },
    /// The request was cancelled, as in the recording.
    Cancelled,
    /// The request was not sent.
    Skipped {
        /// The reason.
        why: String,
    },
}

impl Replay {
    /// Creates a replay of a recording.
    pub fn new(recording: &Recording) -> Self {
        Self {
            conversation: Conversation::of(recording),
            settings: ReplaySettings {
                ignore: IgnoreRules::default(),
                timeout: DEFAULT_TIMEOUT,
                pacing: Pacing::default(),
            },
        }
    }

    /// Ignores differences at and below a path, such as `result.content[*].text` or `..elapsed`.
    pub fn ignore(mut self, path: PathPattern) -> Self {
        self.settings.ignore.add(path);
        self
    }

    /// Counts also differences that are ignored by default.
    pub fn strict(mut self) -> Self {
        self.settings.ignore.set_strict();
        self
    }

    /// Sets how long one request may take. 60 s by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// Sets which requests are in flight at the same time.
    pub fn pacing(mut self, pacing: Pacing) -> Self {
        self.settings.pacing = pacing;
        self
    }

    /// Returns the number of requests in the recording.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.conversation.scripts.len()
    }

    /// Returns the names of the tools that the recorded client called.
    #[must_use]
    pub fn called_tools(&self) -> BTreeSet<String> {
        let calls = self.conversation.scripts.iter();
        let calls = calls.filter(|script| script.method == "tools/call");
        calls.filter_map(name_of).collect()
    }

    /// Connects to the server, with the capabilities of the recorded client.
    ///
    /// # Errors
    ///
    /// As for the future of the builder.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn connect(self, builder: ClientBuilder) -> bowline::Result<ConnectedReplay> {
        let host = ReplayHost::default();
        let builder = builder.host_responder(host.clone(), capabilities(&self.conversation));
        let connection = builder.connection().await?;
        Ok(ConnectedReplay::new(
            self.conversation,
            self.settings,
            connection,
            host,
        ))
    }
}

impl ReplayReport {
    /// Returns whether an answer differs, or is missing.
    #[must_use]
    pub fn has_differences(&self) -> bool {
        self.requests.iter().any(|it| it.outcome.is_finding())
    }

    /// Returns the number of requests with this kind of outcome.
    #[must_use]
    pub fn count(&self, is_counted: impl Fn(&ReplayOutcome) -> bool) -> usize {
        let requests = self.requests.iter();
        requests.filter(|it| is_counted(&it.outcome)).count()
    }
}

impl ReplayOutcome {
    /// Returns whether the answer differs, or is missing.
    #[must_use]
    pub fn is_finding(&self) -> bool {
        match self {
            Self::Different { .. } | Self::Failed { .. } => true,
            Self::Same | Self::Cancelled | Self::Skipped { .. } => false,
        }
    }
}

/// Returns the capabilities of the recorded client: those that it declared, if the recording has them, and those that
/// the questions need which it was asked.
fn capabilities(conversation: &Conversation) -> ClientCapabilities {
    let mut capabilities = conversation.client_capabilities.clone().unwrap_or_default();
    let asks = conversation.scripts.iter().flat_map(Script::asks);
    for question in asks.flat_map(|(_, ask)| &ask.questions) {
        if question.request.check_capabilities(&capabilities).is_err() {
            declare(&mut capabilities, question.request.kind);
        }
    }
    capabilities
}

/// Declares all that questions of a kind may need.
fn declare(capabilities: &mut ClientCapabilities, kind: InputKind) {
    match kind {
        InputKind::Elicitation => {
            let elicitation = capabilities.elicitation.get_or_insert_default();
            elicitation.form.get_or_insert_default();
            elicitation.url.get_or_insert_default();
        }
        InputKind::Sampling => {
            let sampling = capabilities.sampling.get_or_insert_default();
            sampling.tools.get_or_insert_default();
            sampling.context.get_or_insert_default();
        }
        InputKind::Roots => {
            capabilities.roots.get_or_insert_default();
        }
    }
}

/// Returns the tool, prompt, resource or task that a request is about.
fn name_of(script: &Script) -> Option<String> {
    let names = pick(&script.params, ["name", "uri", "taskId"]).ok()?;
    let mut names = names.into_iter().flatten();
    names.find_map(|name| name.decode().ok())
}

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
