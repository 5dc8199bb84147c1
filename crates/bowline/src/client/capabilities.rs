//! Checks requests and subscriptions against the capabilities of the server.

use bowline_core::era::Dialect;
use bowline_core::{ServerCapability, restrict_filter};
use bowline_types::{ServerCapabilities, SubscriptionFilter};

use super::Client;
use crate::{Error, Result};

impl Client {
    /// Returns an error if the server does not declare the capability for `method`. Unknown capabilities pass.
    pub(super) fn check_capability(&self, method: &str) -> Result<()> {
        let missing = self
            .server_capabilities()
            .and_then(|declared| missing_capability(declared, self.dialect(), method));
        match missing {
            None => Ok(()),
            Some(capability) => Err(Error::misuse(format!(
                "the server does not declare the capability `{}`; `{method}` was not sent",
                capability.name()
            ))),
        }
    }

    /// Removes from `filter` what the server does not declare, unless its capabilities are unknown or not checked.
    pub(super) fn supported_filter(&self, filter: SubscriptionFilter) -> SubscriptionFilter {
        match self.server_capabilities() {
            Some(declared) if self.inner.config.checks_capabilities => {
                restrict_filter(filter, declared)
            }
            _ => filter,
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
