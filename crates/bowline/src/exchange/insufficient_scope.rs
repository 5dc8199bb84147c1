//! [`InsufficientScope`], the error of a request whose principal lacks scopes.

use bowline_types::{ErrorCode, Json, RpcError};
use serde::{Deserialize, Serialize};

use super::Principal;

/// The principal of a request lacks scopes that the request requires.
///
/// Over HTTP it becomes status 403, with this value among the extensions of the response, from which a layer can make
/// a `WWW-Authenticate` challenge. Handlers can return it as an error, too.
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
#[error("insufficient scope: missing `{}`; required scopes: {}", missing.join("`, `"), required.join(" "))]
pub struct InsufficientScope {
    required: Vec<String>,
    missing: Vec<String>,
}

impl InsufficientScope {
    /// Creates the error with all scopes that are required, of which none is present.
    pub fn new<S: Into<String>>(required: impl IntoIterator<Item = S>) -> Self {
        let required: Vec<String> = required.into_iter().map(Into::into).collect();
        Self {
            missing: required.clone(),
            required,
        }
    }

    /// Checks that `principal` has all of these scopes.
    ///
    /// # Errors
    ///
    /// An error with all of them, because a new credential needs those that the principal already has, too.
    pub fn check<'a, S: AsRef<str> + 'a>(
        required: impl IntoIterator<Item = S>,
        principal: &Principal,
    ) -> Result<(), Self> {
        let required: Vec<S> = required.into_iter().collect();
        let names = required.iter().map(AsRef::as_ref);
        if names.clone().all(|scope| principal.has_scope(scope)) {
            return Ok(());
        }
        let missing = names.clone().filter(|scope| !principal.has_scope(scope));
        Err(Self {
            missing: missing.map(str::to_owned).collect(),
            required: names.map(str::to_owned).collect(),
        })
    }

    /// Returns all required scopes, including those that the principal has.
    #[must_use]
    pub fn required(&self) -> &[String] {
        &self.required
    }

    /// Returns the required scopes that the principal lacks.
    #[must_use]
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Reads the required scopes from the `data` of an error, if it has any.
    #[must_use]
    pub fn read(error: &RpcError) -> Option<Self> {
        let data: RequiredScopes = error.data.as_ref()?.decode().ok()?;
        let (required, missing) = (data.required_scopes, data.missing_scopes);
        Some(Self {
            missing: missing.unwrap_or_else(|| required.clone()),
            required,
        })
    }
}

impl InsufficientScope {
    /// Reads the required scopes from an error of this server. A handler may also return an error that it received from
    /// another server; the client must not request that server's scopes from our authorization server.
    #[cfg_attr(
        not(feature = "http-server"),
        allow(dead_code, reason = "used for the HTTP status")
    )]
    pub(crate) fn of_this_server(error: &RpcError) -> Option<Self> {
        error.is_local().then(|| Self::read(error))?
    }
}

impl From<InsufficientScope> for RpcError {
    fn from(insufficient: InsufficientScope) -> Self {
        let error = Self::new(ErrorCode::INVALID_REQUEST, insufficient.to_string());
        let error = error.mark_local();
        let data = RequiredScopes {
            required_scopes: insufficient.required,
            missing_scopes: Some(insufficient.missing),
        };
        match Json::encode(&data) {
            Ok(data) => error.with_data(data),
            Err(_) => error,
        }
    }
}

/// The `data` of the JSON-RPC error.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct RequiredScopes {
    required_scopes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing_scopes: Option<Vec<String>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_all_required_scopes_and_those_that_are_missing() {
        let reader = Principal::named("ada").with_scopes(["read"]);

        assert_eq!(InsufficientScope::check(["read"], &reader), Ok(()));
        let missing = InsufficientScope::check(["read", "write"], &reader).unwrap_err();

        assert_eq!(missing.required(), ["read", "write"]);
        assert_eq!(missing.missing(), ["write"]);
        let text = "insufficient scope: missing `write`; required scopes: read write";
        assert_eq!(missing.to_string(), text);
        assert_eq!(
            InsufficientScope::read(&missing.clone().into()),
            Some(missing)
        );
    }

    #[test]
    fn other_errors_have_no_required_scopes() {
        let error = RpcError::new(ErrorCode::INVALID_REQUEST, "no");
        let with_data = error.with_data(Json::empty_object());

        assert_eq!(InsufficientScope::read(&with_data), None);
    }
}
