//! [`NotifiedContext`], the context of a notification from a client.

use std::sync::Arc;

use bowline_core::era::Caller;

use super::{ConnectionState, Principal};

/// The context of a notification that a client sent; see [`Responder::notified`](super::Responder::notified).
///
/// # Examples
///
/// ```
/// use bowline::exchange::{Notification, NotifiedContext};
///
/// struct RootsAreStale;
///
/// fn notified(notification: &Notification, cx: &NotifiedContext) {
///     if notification.method == "notifications/roots/list_changed"
///         && let Some(state) = cx.connection_state()
///     {
///         state.insert(RootsAreStale);
///     }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct NotifiedContext {
    caller: Arc<Caller>,
    principal: Principal,
    connection_state: Option<ConnectionState>,
}

impl NotifiedContext {
    /// Creates the context of a notification of `caller`, an anonymous one without a connection.
    #[must_use]
    pub fn new(caller: Arc<Caller>) -> Self {
        Self {
            caller,
            principal: Principal::anonymous(),
            connection_state: None,
        }
    }

    /// Sets the principal.
    #[must_use]
    pub fn with_principal(mut self, principal: Principal) -> Self {
        self.principal = principal;
        self
    }

    /// Sets the state of the connection.
    #[must_use]
    pub fn with_connection_state(mut self, state: ConnectionState) -> Self {
        self.connection_state = Some(state);
        self
    }

    /// Returns the client's protocol version, implementation and capabilities. Only the version is known of a modern
    /// client whose notification does not contain the rest.
    #[must_use]
    pub fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    /// Returns the authenticated principal. That of a legacy client over HTTP has no scopes.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Returns the state of the connection, the same as [`Context::connection_state`](super::Context::connection_state)
    /// of its requests, or `None` if there is no connection, as in modern HTTP.
    #[must_use]
    pub fn connection_state(&self) -> Option<&ConnectionState> {
        self.connection_state.as_ref()
    }
}
