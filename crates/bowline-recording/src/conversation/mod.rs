//! [`Conversation`]: what a recording says about a server, independent of the version and transport that were recorded.
//!
//! ```text
//! timeline ──▶ introduction      what the server says about itself, as of `server/discover`
//!              scripts           one per request: notifications, questions, answer
//!              change groups     what each subscription was sent
//! ```

mod draft;
pub(crate) use draft::same_answer;

mod from_timeline;

mod request_key;
pub(crate) use request_key::{RequestKey, bare_params};

use std::borrow::Cow;
use std::time::Duration;

use bowline_core::era::Dialect;
use bowline_core::input::RawInputRequest;
use bowline_core::{Notification, Outcome};
use bowline_types::{ClientCapabilities, Implementation, Json, SubscriptionFilter};

use crate::Recording;

/// The recorded behaviour of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conversation {
    /// The first result of `server/discover`, or that of `initialize` in the same form.
    pub(crate) introduction: Option<Json>,
    /// The `serverInfo` of the introduction, or else of another result.
    pub(crate) server_info: Option<Implementation>,
    /// The capabilities that the clients declared, the first of each.
    pub(crate) client_capabilities: Option<ClientCapabilities>,
    pub(crate) scripts: Vec<Script>,
    pub(crate) changes: Vec<ChangeGroup>,
}

/// One request of a client, with all of its rounds.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) method: Cow<'static, str>,
    /// The params without `_meta`, answers and state.
    pub(crate) params: Json,
    pub(crate) key: RequestKey,
    pub(crate) dialect: &'static Dialect,
    pub(crate) steps: Vec<Step>,
    pub(crate) ending: Ending,
    /// When the request was sent, since the start of the recording.
    pub(crate) started: Duration,
    /// When it was answered or cancelled.
    pub(crate) ended: Option<Duration>,
}

/// What happened between a request and its answer.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Notify {
        /// The time since the previous step.
        after: Duration,
        notification: Notification,
    },
    Ask(Ask),
}

/// The questions of one round. None if the server only wanted the request to be sent again.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// The time since the previous step.
    pub(crate) after: Duration,
    pub(crate) questions: Vec<Question>,
}

/// A question, with the recorded answer.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// The key in `inputRequests`.
    pub(crate) key: String,
    pub(crate) request: RawInputRequest,
    /// `None` if the recording has no answer.
    pub(crate) answer: Option<Outcome>,
}

/// How a request ended.
#[derive(Clone, Debug)]
pub(crate) enum Ending {
    /// The server answered. The result is in the internal form.
    Answer { after: Duration, outcome: Outcome },
    /// The client cancelled the request.
    Cancelled,
    /// The recording has no answer.
    Silence,
}

/// What one subscription was sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangeGroup {
    /// What the client requested; `None` for what a legacy server sent outside of requests.
    pub(crate) filter: Option<SubscriptionFilter>,
    pub(crate) changes: Vec<Change>,
}

/// A notification of a change.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// The time since the acknowledgement, or since the handshake of a legacy client.
    pub(crate) after: Duration,
    pub(crate) method: Cow<'static, str>,
    /// The resource, of `notifications/resources/updated`.
    pub(crate) uri: Option<String>,
    /// The params without `_meta`.
    pub(crate) params: Json,
}

impl Conversation {
    pub(crate) fn of(recording: &Recording) -> Self {
        from_timeline::conversation(recording)
    }
}

impl Script {
    /// Returns the questions of a step.
    pub(crate) fn ask_at(&self, step: usize) -> Option<&Ask> {
        match self.steps.get(step) {
            Some(Step::Ask(ask)) => Some(ask),
            _ => None,
        }
    }

    /// Returns the rounds of questions, with the steps at which they are.
    pub(crate) fn asks(&self) -> impl Iterator<Item = (usize, &Ask)> {
        self.steps.iter().enumerate().filter_map(|(at, step)| {
            let Step::Ask(ask) = step else { return None };
            Some((at, ask))
        })
    }
}
