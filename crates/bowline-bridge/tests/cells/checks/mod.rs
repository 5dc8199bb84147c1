//! The checks of a cell, each written once for all endpoints.

mod call;
mod cancel;
mod changes;
mod forbidden;
mod logs;
mod progress;
mod questions;
mod tasks;

use std::time::Duration;

use serde_json::Value;

use crate::endpoint::{Endpoint, Revision};
use crate::front::{Capability, FrontClient};
use crate::upstream::{Fault, SeenEvent, SeenRequest, UpstreamServer};

/// A check: what passes between a front client and an upstream server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Call,
    Progress,
    Cancel,
    Elicitation,
    Sampling,
    ListChange,
    ResourceUpdate,
    LogLevel,
    Completion,
    Task,
}

/// Both ends of a cell.
pub(crate) struct Ends<'a, F, U> {
    /// How long a cancel took, from the client to the socket of the server.
    pub(crate) cancel_time: Option<Duration>,
    pub(crate) front: F,
    pub(crate) front_endpoint: Endpoint,
    pub(crate) upstream: &'a U,
    pub(crate) upstream_endpoint: Endpoint,
}

impl Check {
    pub(crate) const ALL: [Self; 10] = [
        Self::Call,
        Self::Progress,
        Self::Cancel,
        Self::Elicitation,
        Self::Sampling,
        Self::ListChange,
        Self::ResourceUpdate,
        Self::LogLevel,
        Self::Completion,
        Self::Task,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Progress => "progress",
            Self::Cancel => "cancel",
            Self::Elicitation => "elicitation",
            Self::Sampling => "sampling",
            Self::ListChange => "list change",
            Self::ResourceUpdate => "resource update",
            Self::LogLevel => "log level",
            Self::Completion => "completion",
            Self::Task => "task",
        }
    }

    /// The sentence of the specification that forbids it between these endpoints.
    pub(crate) fn forbidden(self, front: Endpoint, upstream: Endpoint) -> Option<&'static str> {
        forbidden::sentence(self, front.revision, upstream.revision)
    }

    /// What the front client declares.
    pub(crate) fn capabilities(self) -> &'static [Capability] {
        match self {
            Self::Elicitation => &[Capability::Elicitation],
            Self::Sampling => &[Capability::Sampling],
            Self::Task => &[Capability::Tasks],
            _ => &[],
        }
    }

    /// The fault of an upstream that makes this check fail.
    pub(crate) fn fault(self) -> Fault {
        match self {
            Self::Call => Fault::WrongResult,
            Self::Progress => Fault::NoProgress,
            Self::Cancel => Fault::IgnoresCancel,
            Self::Elicitation | Self::Sampling => Fault::NeverAsks,
            Self::ListChange | Self::ResourceUpdate => Fault::NoAnnouncements,
            Self::LogLevel => Fault::IgnoresLogLevel,
            Self::Completion => Fault::NoCompletions,
            Self::Task => Fault::TasksNeverEnd,
        }
    }

    /// Runs it. Where it is forbidden, a check that the upstream is not led to believe otherwise is run instead.
    pub(crate) async fn run<F: FrontClient, U: UpstreamServer>(
        self,
        ends: &mut Ends<'_, F, U>,
    ) -> Result<(), String> {
        ends.front.open().await?;
        if self
            .forbidden(ends.front_endpoint, ends.upstream_endpoint)
            .is_some()
        {
            forbidden::run(self, ends).await?;
        } else {
            match self {
                Self::Call => call::call(ends).await?,
                Self::Progress => progress::run(ends).await?,
                Self::Cancel => cancel::run(ends).await?,
                Self::Elicitation | Self::Sampling => questions::run(self, ends).await?,
                Self::ListChange => changes::list_change(ends).await?,
                Self::ResourceUpdate => changes::resource_update(ends).await?,
                Self::LogLevel => logs::run(ends).await?,
                Self::Completion => call::completion(ends).await?,
                Self::Task => tasks::run(ends).await?,
            }
        }
        ends.check_rules()
    }
}

impl<F: FrontClient, U: UpstreamServer> Ends<'_, F, U> {
    /// Checks that the client was told of a capability of the server; `pointer` is a JSON pointer.
    fn expect_offer(&self, pointer: &str) -> Result<(), String> {
        let offered = self.front.offered();
        match offered.pointer(pointer) {
            Some(found) if *found != Value::Bool(false) => Ok(()),
            _ => Err(format!("expected the capability {pointer}, got {offered}")),
        }
    }

    /// The requests of this method that the upstream received.
    fn seen(&self, method: &str) -> Vec<SeenRequest> {
        let entries = self.upstream.record().entries().into_iter();
        let requests = entries.filter_map(|seen| match seen.event {
            SeenEvent::Request(request) => Some(request),
            _ => None,
        });
        requests
            .filter(|request| request.method == method)
            .collect()
    }

    fn revisions(&self) -> [Revision; 2] {
        [
            self.front_endpoint.revision,
            self.upstream_endpoint.revision,
        ]
    }

    /// The only call of this tool that the upstream received.
    fn only_call(&self, tool: &str) -> Result<SeenRequest, String> {
        let mut calls = self.calls(tool);
        match calls.len() {
            1 => Ok(calls.remove(0)),
            count => Err(format!("the upstream received {count} calls of `{tool}`")),
        }
    }

    fn calls(&self, tool: &str) -> Vec<SeenRequest> {
        let mut calls = self.seen("tools/call");
        calls.retain(|call| call.params["name"] == tool);
        calls
    }

    /// Waits until the upstream has received a call of this tool.
    async fn called(&self, tool: &str) -> SeenRequest {
        let called = self.upstream.record().wait(|entries| {
            entries.iter().find_map(|seen| match &seen.event {
                SeenEvent::Request(request) if request.params["name"] == tool => {
                    Some(request.clone())
                }
                _ => None,
            })
        });
        called.await
    }

    /// Checks that neither end saw a violation of the protocol.
    fn check_rules(&mut self) -> Result<(), String> {
        let entries = self.upstream.record().entries().into_iter();
        let violations = entries.filter_map(|seen| match seen.event {
            SeenEvent::Violation(text) => Some(format!("seen by the upstream: {text}")),
            _ => None,
        });
        let mut violations: Vec<String> = violations.collect();
        let at_front = self.front.inbox().violations.drain(..);
        violations.extend(at_front.map(|text| format!("seen by the front client: {text}")));
        match violations.is_empty() {
            true => Ok(()),
            false => Err(violations.join("\n")),
        }
    }
}

/// Compares; the error names what was compared.
fn expect<T: PartialEq + std::fmt::Debug + ?Sized>(
    what: &str,
    found: &T,
    expected: &T,
) -> Result<(), String> {
    match found == expected {
        true => Ok(()),
        false => Err(format!("{what}: expected {expected:?}, got {found:?}")),
    }
}
