//! Checks requests and subscriptions against the capabilities of the server.

use bowline_core::era::Dialect;
use bowline_types::{
    CallToolRequest, CompleteRequest, GetPromptRequest, ListPromptsRequest,
    ListResourceTemplatesRequest, ListResourcesRequest, ListToolsRequest, Method,
    ReadResourceRequest, ServerCapabilities, SetLevelRequest, SubscriptionFilter,
};

use super::Client;
use crate::{Error, Result};

impl Client {
    /// Returns an error if the server does not declare the capability for `method`. Unknown capabilities pass.
    pub(super) fn check_capability(&self, method: &str) -> Result<()> {
        let missing = self
            .capabilities()
            .and_then(|declared| missing_capability(declared, self.dialect(), method));
        match missing {
            None => Ok(()),
            Some(capability) => Err(Error::misuse(format!(
                "the server does not declare the capability `{capability}`; `{method}` was not sent"
            ))),
        }
    }
}

impl Client {
    /// Removes from `filter` what the server does not declare, unless its capabilities are unknown or not checked.
    pub(super) fn supported_filter(&self, filter: SubscriptionFilter) -> SubscriptionFilter {
        match self.capabilities() {
            Some(declared) if self.inner.config.checks_capabilities => {
                restrict_filter(filter, declared)
            }
            _ => filter,
        }
    }
}

fn restrict_filter(
    mut filter: SubscriptionFilter,
    declared: &ServerCapabilities,
) -> SubscriptionFilter {
    let (tools, prompts) = (declared.tools.as_ref(), declared.prompts.as_ref());
    let resources = declared.resources.as_ref();
    let keep = |wanted: &mut Option<bool>, declared: Option<bool>| {
        *wanted = wanted.filter(|_| declared == Some(true));
    };
    keep(
        &mut filter.tools_list_changed,
        tools.and_then(|tools| tools.list_changed),
    );
    keep(
        &mut filter.prompts_list_changed,
        prompts.and_then(|prompts| prompts.list_changed),
    );
    keep(
        &mut filter.resources_list_changed,
        resources.and_then(|resources| resources.list_changed),
    );
    if resources.and_then(|resources| resources.subscribe) != Some(true) {
        filter.resource_subscriptions = None;
    }
    filter
}

/// Returns the capability that `method` requires and the server does not declare.
fn missing_capability(
    declared: &ServerCapabilities,
    dialect: &Dialect,
    method: &str,
) -> Option<&'static str> {
    let (capability, is_declared) = match method {
        ListToolsRequest::NAME | CallToolRequest::NAME => ("tools", declared.tools.is_some()),
        ListPromptsRequest::NAME | GetPromptRequest::NAME => {
            ("prompts", declared.prompts.is_some())
        }
        ListResourcesRequest::NAME
        | ListResourceTemplatesRequest::NAME
        | ReadResourceRequest::NAME => ("resources", declared.resources.is_some()),
        CompleteRequest::NAME => (
            "completions",
            declared.completions.is_some() || !dialect.has_completions_capability,
        ),
        SetLevelRequest::NAME => ("logging", declared.logging.is_some()),
        _ => return None,
    };
    (!is_declared).then_some(capability)
}
