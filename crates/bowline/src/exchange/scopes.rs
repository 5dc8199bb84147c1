//! What a request needs its principal to be allowed, and what is said if it is not.

use bowline_types::{ErrorCode, Json, RpcError};
use serde::{Deserialize, Serialize};

use super::Principal;

/// The principal of a request may not do what is asked; whoever asks may ask for more.
///
/// Over HTTP it becomes status 403, among whose extensions a layer that knows how to ask for more finds it.
/// A handler that learns only on its way what it needs says so by this error.
///
/// # Examples
///
/// ```
/// use bowline::exchange::{InsufficientScope, Principal};
/// use bowline::RpcError;
///
/// fn may_delete(user: &Principal) -> Result<(), RpcError> {
///     Ok(InsufficientScope::check(["files:write"], user)?)
/// }
/// assert!(may_delete(&Principal::named("ada")).is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the credential does not allow this; it takes the scopes: {}", required.join(" "))]
pub struct InsufficientScope {
    required: Vec<String>,
}

impl InsufficientScope {
    /// All of these are needed.
    pub fn new<S: Into<String>>(required: impl IntoIterator<Item = S>) -> Self {
        Self {
            required: required.into_iter().map(Into::into).collect(),
        }
    }

    /// Checks that `principal` has all of these scopes.
    ///
    /// # Errors
    ///
    /// With all of them, those included that it has: that is what a credential for this needs.
    pub fn check<'a, S: AsRef<str> + 'a>(
        required: impl IntoIterator<Item = S>,
        principal: &Principal,
    ) -> Result<(), Self> {
        let required: Vec<S> = required.into_iter().collect();
        let mut names = required.iter().map(AsRef::as_ref);
        if names.all(|scope| principal.has_scope(scope)) {
            return Ok(());
        }
        Err(Self::new(required.iter().map(AsRef::as_ref)))
    }

    /// Everything that is needed, also what the principal has already.
    #[must_use]
    pub fn required(&self) -> &[String] {
        &self.required
    }

    /// What an error says is needed, if that is what it says.
    #[must_use]
    pub fn read(error: &RpcError) -> Option<Self> {
        let wants: Wants = error.data.as_ref()?.decode().ok()?;
        Some(Self {
            required: wants.required_scopes,
        })
    }
}

impl InsufficientScope {
    /// What an error says is needed here. An error that another server sent, and that a handler passed on, is about
    /// that server's scopes: asking our authorization server for them would be wrong.
    #[cfg_attr(
        not(feature = "http-server"),
        allow(dead_code, reason = "there is no status")
    )]
    pub(crate) fn of_this_server(error: &RpcError) -> Option<Self> {
        error.is_marked_as_own().then(|| Self::read(error))?
    }
}

impl From<InsufficientScope> for RpcError {
    fn from(insufficient: InsufficientScope) -> Self {
        let error = Self::new(ErrorCode::INVALID_REQUEST, insufficient.to_string());
        let error = error.marked_as_own();
        let wants = Wants {
            required_scopes: insufficient.required,
        };
        match Json::encode(&wants) {
            Ok(data) => error.with_data(data),
            Err(_) => error,
        }
    }
}

/// What travels with the error, for callers and transports.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Wants {
    required_scopes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_needed_is_named_also_what_is_there() {
        let reader = Principal::named("ada").with_scopes(["read"]);

        assert_eq!(InsufficientScope::check(["read"], &reader), Ok(()));
        let missing = InsufficientScope::check(["read", "write"], &reader).unwrap_err();

        assert_eq!(missing.required(), ["read", "write"]);
        assert_eq!(
            InsufficientScope::read(&missing.clone().into()),
            Some(missing)
        );
    }

    #[test]
    fn other_errors_say_nothing_of_scopes() {
        let error = RpcError::new(ErrorCode::INVALID_REQUEST, "no");
        let with_data = error.with_data(Json::empty_object());

        assert_eq!(InsufficientScope::read(&with_data), None);
    }
}
