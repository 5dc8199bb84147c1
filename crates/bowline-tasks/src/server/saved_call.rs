//! [`CallDetails`], what a task is created from, and [`SavedCall`], the part of it that another process needs to run
//! the handler again.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bowline::exchange::{Caller, Dialect, Principal};
use bowline::server::ToolCall;
use bowline::{CancelMode, Context};
use bowline_types::{ClientCapabilities, Implementation, Json};
use serde::{Deserialize, Serialize};

use super::{Env, TaskSettings};
use crate::TaskId;
use crate::store::{JournalEntry, NewTask, RunMode, TaskRecord};

/// What a task is created from.
pub(super) struct CallDetails {
    tool: String,
    arguments: Json,
    meta: Option<Json>,
    principal: Principal,
    caller: Arc<Caller>,
    is_signalled: bool,
    pub(super) run_mode: RunMode,
    pub(super) ttl: Option<Duration>,
    poll_interval: Option<Duration>,
}

impl CallDetails {
    pub(super) fn new(call: &ToolCall, cx: &Context) -> Self {
        let settings = call.tool().settings::<TaskSettings>();
        let run_mode = settings.map_or(RunMode::NotResumable, TaskSettings::run_mode);
        Self {
            tool: call.name().to_owned(),
            arguments: call.arguments().clone(),
            meta: call.meta().cloned(),
            principal: cx.principal().clone(),
            // Not that of the context: the request of a legacy client declares the extension in its own way.
            caller: call.request().caller.clone(),
            is_signalled: call.tool().handler_cancel_mode() == CancelMode::Signal,
            run_mode,
            ttl: settings.and_then(TaskSettings::own_ttl),
            poll_interval: settings.and_then(TaskSettings::own_poll_interval),
        }
    }

    /// Returns the task that is to be stored.
    pub(super) fn into_task(self, id: TaskId, env: &Env, journal: Vec<JournalEntry>) -> NewTask {
        let options = &env.options;
        // No other process runs the handler again, unless it is resumable: encoding costs as much as storing the task.
        let is_needed = self.run_mode != RunMode::NotResumable || self.is_signalled;
        let saved = is_needed.then(|| SavedCall::encode(&self)).flatten();
        let mut task = NewTask::new(id, self.tool, env.owner, options.lease)
            .arguments(self.arguments)
            .run_mode(self.run_mode)
            .removal_delay(options.removal_delay)
            .poll_interval(self.poll_interval.unwrap_or(options.poll_interval));
        if let Some(saved) = saved {
            task = task.context(saved);
        }
        if let Some(name) = self.principal.name() {
            task = task.principal(name);
        }
        if let Some(meta) = self.meta {
            task = task.meta(meta);
        }
        let is_limited = options.max_ttl < Duration::MAX;
        let longest = is_limited.then_some(options.max_ttl);
        let ttl = self.ttl.or(options.ttl).or(longest);
        if let Some(ttl) = ttl {
            task = task.ttl(ttl.min(options.max_ttl));
        }
        journal.into_iter().fold(task, NewTask::journal_entry)
    }
}

/// What the record contains for another process, besides the call itself. The principal has no claims then, and what
/// layers added to the context is not saved.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SavedCall<'a> {
    protocol_version: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_info: Option<Cow<'a, Implementation>>,
    #[serde(default)]
    capabilities: Cow<'a, ClientCapabilities>,
    /// The scopes with which the call was admitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    scopes: Vec<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subject: Option<Cow<'a, str>>,
    /// Whether a cancelled handler is only signalled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_signalled: bool,
}

impl<'a> SavedCall<'a> {
    fn encode(call: &'a CallDetails) -> Option<Json> {
        let (caller, principal) = (&*call.caller, &call.principal);
        let subject = principal.subject();
        let subject = subject.filter(|it| Some(*it) != principal.name());
        let saved = Self {
            protocol_version: caller.dialect.version.into(),
            client_info: caller.implementation.as_ref().map(Cow::Borrowed),
            capabilities: Cow::Borrowed(&caller.capabilities),
            scopes: principal.scopes().map(Cow::Borrowed).collect(),
            subject: subject.map(Cow::Borrowed),
            is_signalled: call.is_signalled,
        };
        let encoded = Json::encode(&saved);
        encoded
            .inspect_err(
                |error| tracing::error!(%error, "failed to serialize the context of a call"),
            )
            .ok()
    }
}

impl SavedCall<'static> {
    /// Returns what was saved with a task.
    pub(super) fn read(record: &TaskRecord) -> Self {
        let context = record.request.context.as_ref();
        let saved = context.and_then(|context| context.decode().ok());
        saved.unwrap_or_default()
    }

    pub(super) fn is_signalled(&self) -> bool {
        self.is_signalled
    }

    /// Returns the caller; `None` if this program does not know its protocol version.
    pub(super) fn caller(&self) -> Option<Arc<Caller>> {
        let mut caller = Caller::new(Dialect::of(&self.protocol_version)?);
        caller.implementation = self.client_info.as_deref().cloned();
        caller.capabilities = ClientCapabilities::clone(&self.capabilities);
        Some(Arc::new(caller))
    }

    /// Returns the principal of a task.
    pub(super) fn principal(&self, record: &TaskRecord) -> Principal {
        let Some(name) = &record.principal else {
            return Principal::anonymous();
        };
        let principal =
            Principal::named(name.clone()).with_scopes(self.scopes.iter().map(|scope| &**scope));
        match &self.subject {
            Some(subject) => principal.with_subject(&**subject),
            None => principal,
        }
    }
}
