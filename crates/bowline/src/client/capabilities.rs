//! Checks requests and subscriptions against the capabilities of the server.

use bowline_core::era::Dialect;
use bowline_core::{ServerCapability, restrict_filter};
use bowline_types::{
    Json, ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest, ListToolsRequest,
    Method, ServerCapabilities, SubscriptionFilter,
};
use serde_json::json;

use super::Client;
use crate::Error;
use crate::exchange::Exchange;
use crate::peer::Peer;

impl Client {
    /// Answers a request whose capability the server does not declare, without sending it: with an empty list, or an
    /// error. Returns `None` if the capability is declared or unknown.
    pub(super) fn answer_unsupported(&self, method: &str) -> Option<Exchange> {
        let declared = self.server_capabilities()?;
        let capability = missing_capability(declared, self.dialect(), method)?;
        Some(match empty_list(method) {
            Some(list) => Exchange::answered(list),
            None => Exchange::failed(Error::misuse(format!(
                "the server does not declare the capability `{}`; `{method}` was not sent",
                capability.name()
            ))),
        })
    }

    /// Removes from `filter` what the server does not declare, unless its capabilities are unknown or not checked.
    pub(super) fn supported_filter(&self, filter: SubscriptionFilter) -> SubscriptionFilter {
        match self.server_capabilities() {
            Some(declared) if self.inner.config.checks_capabilities => {
                restrict_filter(filter, declared)
            }
            _ => {
                if !self.inner.config.checks_capabilities {
                    self.peer()
                        .into_iter()
                        .for_each(Peer::skip_capability_check);
                }
                filter
            }
        }
    }
}

/// Returns the capability that `method` requires and the server does not declare.
fn missing_capability(
    declared: &ServerCapabilities,
    dialect: &Dialect,
    method: &str,
) -> Option<ServerCapability> {
    let required = ServerCapability::for_method(method)?;
    let is_implied =
        required == ServerCapability::Completions && !dialect.has_completions_capability;
    (!is_implied && !required.is_declared(declared)).then_some(required)
}

/// Returns the empty result of a method that lists; `None` for other methods.
fn empty_list(method: &str) -> Option<Json> {
    let member = match method {
        ListToolsRequest::NAME => "tools",
        ListPromptsRequest::NAME => "prompts",
        ListResourcesRequest::NAME => "resources",
        ListResourceTemplatesRequest::NAME => "resourceTemplates",
        _ => return None,
    };
    Some(json!({member: []}).into())
}
