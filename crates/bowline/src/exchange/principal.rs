//! [`Principal`], the authenticated identity of a request's sender.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use bowline_types::Json;

/// The authenticated identity of a request's sender: a name, scopes and claims.
///
/// A request's principal is anonymous unless a layer that verified a credential sets one. What a client declares about
/// itself does not affect its principal.
///
/// Two principals are equal if they have the same name: scopes and claims may differ from one request to the next.
///
/// The `with_` and `without_` methods do nothing on an anonymous principal.
///
/// # Examples
///
/// ```
/// use bowline::exchange::Principal;
///
/// let user = Principal::named("https://id.example/ada").with_scopes(["files:read"]);
/// assert_eq!(user.name(), Some("https://id.example/ada"));
/// assert!(user.has_scope("files:read") && !user.has_scope("files:write"));
/// assert_eq!(Principal::anonymous().name(), None);
/// ```
#[derive(Clone, Default)]
pub struct Principal(Option<Arc<NamedPrincipal>>);

#[derive(Clone)]
struct NamedPrincipal {
    name: Arc<str>,
    /// `None` if it is the name.
    subject: Option<Arc<str>>,
    scopes: BTreeSet<String>,
    claims: Option<Json>,
    expires_at: Option<Instant>,
}

impl Principal {
    /// Returns the anonymous principal, which has no scopes.
    #[must_use]
    pub fn anonymous() -> Self {
        Self::default()
    }

    /// Creates a principal with this name, which must identify one user or client.
    #[must_use]
    pub fn named(name: impl Into<Arc<str>>) -> Self {
        Self(Some(Arc::new(NamedPrincipal {
            name: name.into(),
            subject: None,
            scopes: BTreeSet::new(),
            claims: None,
            expires_at: None,
        })))
    }

    /// Sets the user or client within its issuer, if the name contains more than that.
    #[must_use]
    pub fn with_subject(mut self, subject: impl Into<Arc<str>>) -> Self {
        if let Some(named) = &mut self.0 {
            Arc::make_mut(named).subject = Some(subject.into());
        }
        self
    }

    /// Adds scopes.
    #[must_use]
    pub fn with_scopes<S: Into<String>>(mut self, scopes: impl IntoIterator<Item = S>) -> Self {
        if let Some(named) = &mut self.0 {
            let scopes = scopes.into_iter().map(Into::into);
            Arc::make_mut(named).scopes.extend(scopes);
        }
        self
    }

    /// Removes all scopes.
    #[must_use]
    pub fn without_scopes(mut self) -> Self {
        if let Some(named) = &mut self.0 {
            Arc::make_mut(named).scopes.clear();
        }
        self
    }

    /// Sets the claims of the credential, a JSON object.
    #[must_use]
    pub fn with_claims(mut self, claims: Json) -> Self {
        if let Some(named) = &mut self.0 {
            Arc::make_mut(named).claims = Some(claims);
        }
        self
    }

    /// Sets when the credential expires.
    ///
    /// Over HTTP, `subscriptions/listen` and legacy GET streams end at that time if the principal is in the extensions
    /// of the HTTP request; other requests continue.
    #[must_use]
    pub fn with_expiry(mut self, expires_at: Instant) -> Self {
        if let Some(named) = &mut self.0 {
            Arc::make_mut(named).expires_at = Some(expires_at);
        }
        self
    }

    /// Returns when the credential expires, if that is known.
    #[must_use]
    pub fn expires_at(&self) -> Option<Instant> {
        self.0.as_ref()?.expires_at
    }

    /// Returns the name, or `None` if anonymous.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.as_ref().map(|named| &*named.name)
    }

    /// Returns the user or client: the `sub` claim of a token, or the [name](Self::name) if there is no issuer. Two
    /// issuers may use the same subject, so identify users by the name.
    #[must_use]
    pub fn subject(&self) -> Option<&str> {
        let named = self.0.as_ref()?;
        Some(named.subject.as_deref().unwrap_or(&named.name))
    }

    /// Returns the scopes, in alphabetical order.
    pub fn scopes(&self) -> impl Iterator<Item = &str> {
        let scopes = self.0.iter().flat_map(|named| &named.scopes);
        scopes.map(String::as_str)
    }

    /// Returns whether the principal has this scope.
    #[must_use]
    pub fn has_scope(&self, scope: &str) -> bool {
        self.0
            .as_ref()
            .is_some_and(|named| named.scopes.contains(scope))
    }

    /// Returns the claims of the credential, such as those of a token.
    #[must_use]
    pub fn claims(&self) -> Option<&Json> {
        self.0.as_ref()?.claims.as_ref()
    }
}

impl PartialEq for Principal {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Principal {}

impl PartialOrd for Principal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Principal {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name().cmp(&other.name())
    }
}

impl Hash for Principal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

/// Prints the name only, because claims may be confidential.
impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "Principal({name:?})"),
            None => f.write_str("Principal(anonymous)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn principals_with_the_same_name_are_equal_whatever_their_scopes() {
        let before = Principal::named("ada").with_scopes(["read"]);
        let after = before.clone().with_scopes(["write"]);

        assert_eq!(before, after);
        assert!(after.scopes().eq(["read", "write"]));
        assert!(before.scopes().eq(["read"]));
        assert_eq!(after.clone().without_scopes().scopes().count(), 0);
    }

    #[test]
    fn an_anonymous_principal_has_no_scopes_and_no_claims() {
        let anonymous = Principal::anonymous()
            .with_scopes(["read"])
            .with_claims(Json::empty_object());

        assert!(!anonymous.has_scope("read"));
        assert_eq!(anonymous.claims(), None);
        assert_ne!(anonymous, Principal::named(""));
    }

    #[test]
    fn the_subject_is_the_name_unless_it_is_set() {
        let ada = Principal::named("https://id.example ada");

        assert_eq!(ada.subject(), ada.name());
        assert_eq!(ada.with_subject("ada").subject(), Some("ada"));
        assert_eq!(Principal::anonymous().with_subject("ada").subject(), None);
    }

    #[test]
    fn claims_are_not_shown() {
        let claims = Json::parse(r#"{"email":"ada@example"}"#.to_owned()).unwrap();
        let ada = Principal::named("ada").with_claims(claims);

        assert_eq!(format!("{ada:?}"), r#"Principal("ada")"#);
    }
}
