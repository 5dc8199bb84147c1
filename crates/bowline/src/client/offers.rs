//! Whether a server offers what a request asks for.

use bowline_core::era::Dialect;
use bowline_types::{
    CallToolRequest, CompleteRequest, GetPromptRequest, ListPromptsRequest,
    ListResourceTemplatesRequest, ListResourcesRequest, ListToolsRequest, Method,
    ReadResourceRequest, ServerCapabilities, SetLevelRequest,
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
