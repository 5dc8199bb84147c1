//! Whether a server offers what a request asks for.

use bowline_core::era::Dialect;
use bowline_types::{
    CallToolRequest, CompleteRequest, GetPromptRequest, ListPromptsRequest,
    ListResourceTemplatesRequest, ListResourcesRequest, ListToolsRequest, Method,
    ReadResourceRequest, ServerCapabilities, SetLevelRequest, SubscriptionFilter,
};

use super::Client;
use crate::{Error, Result};

impl Client {
    /// Refuses a request that the server said it has no answer to. A server that said nothing is asked.
    pub(super) fn check_offered(&self, method: &str) -> Result<()> {
        let missing = self
            .capabilities()
            .and_then(|offered| missing(offered, self.dialect(), method));
        match missing {
            None => Ok(()),
            Some(capability) => Err(Error::misuse(format!(
                "the server does not offer `{capability}`, so `{method}` was not sent"
            ))),
        }
    }
}

impl Client {
    /// What of a wish the server can grant. One that did not say what it offers decides for itself.
    pub(super) fn offered(&self, wish: SubscriptionFilter) -> SubscriptionFilter {
        match self.capabilities() {
            Some(offered) if self.inner.checks_capabilities => granted(wish, offered),
            _ => wish,
        }
    }
}

fn granted(mut wish: SubscriptionFilter, offered: &ServerCapabilities) -> SubscriptionFilter {
    let (tools, prompts) = (offered.tools.as_ref(), offered.prompts.as_ref());
    let resources = offered.resources.as_ref();
    let keep =
        |wish: &mut Option<bool>, told: Option<bool>| *wish = wish.filter(|_| told == Some(true));
    keep(
        &mut wish.tools_list_changed,
        tools.and_then(|tools| tools.list_changed),
    );
    keep(
        &mut wish.prompts_list_changed,
        prompts.and_then(|prompts| prompts.list_changed),
    );
    keep(
        &mut wish.resources_list_changed,
        resources.and_then(|resources| resources.list_changed),
    );
    if resources.and_then(|resources| resources.subscribe) != Some(true) {
        wish.resource_subscriptions = None;
    }
    wish
}

/// The capability that a server must have for `method` and does not have.
fn missing(offered: &ServerCapabilities, dialect: &Dialect, method: &str) -> Option<&'static str> {
    let (capability, is_offered) = match method {
        ListToolsRequest::NAME | CallToolRequest::NAME => ("tools", offered.tools.is_some()),
        ListPromptsRequest::NAME | GetPromptRequest::NAME => ("prompts", offered.prompts.is_some()),
        ListResourcesRequest::NAME
        | ListResourceTemplatesRequest::NAME
        | ReadResourceRequest::NAME => ("resources", offered.resources.is_some()),
        CompleteRequest::NAME => (
            "completions",
            offered.completions.is_some() || !dialect.completions_are_declared,
        ),
        SetLevelRequest::NAME => ("logging", offered.logging.is_some()),
        _ => return None,
    };
    (!is_offered).then_some(capability)
}
