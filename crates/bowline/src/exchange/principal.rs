//! On whose behalf a request is made, and what it may do for them.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use bowline_types::Json;

/// On whose behalf a request is made, as far as the server has made sure of it.
///
/// Anonymous, unless a layer that has checked a credential says otherwise. What a client says of itself
/// is no principal.
///
/// Two principals are equal if they have the same name: what somebody may do can differ from one request
/// to the next, and it is still the same somebody.
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
pub struct Principal(Option<Arc<Identity>>);

#[derive(Clone)]
struct Identity {
    name: Arc<str>,
    scopes: BTreeSet<String>,
    claims: Option<Json>,
    expires_at: Option<Instant>,
}

impl Principal {
    /// Nobody in particular.
    #[must_use]
    pub fn anonymous() -> Self {
        Self::default()
    }

    /// Somebody, under a name that nobody else has.
    #[must_use]
    pub fn named(name: impl Into<Arc<str>>) -> Self {
        Self(Some(Arc::new(Identity {
            name: name.into(),
            scopes: BTreeSet::new(),
            claims: None,
            expires_at: None,
        })))
    }

    /// Adds to what may be done on their behalf. Nobody in particular may do nothing in particular.
    #[must_use]
    pub fn with_scopes<S: Into<String>>(mut self, scopes: impl IntoIterator<Item = S>) -> Self {
        if let Some(identity) = &mut self.0 {
            let scopes = scopes.into_iter().map(Into::into);
            Arc::make_mut(identity).scopes.extend(scopes);
        }
        self
    }

    /// The same, who may do nothing in particular.
    #[must_use]
    pub fn without_scopes(mut self) -> Self {
        if let Some(identity) = &mut self.0 {
            Arc::make_mut(identity).scopes.clear();
        }
        self
    }

    /// Sets what else their credential says, an object.
    #[must_use]
    pub fn with_claims(mut self, claims: Json) -> Self {
        if let Some(identity) = &mut self.0 {
            Arc::make_mut(identity).claims = Some(claims);
        }
        self
    }

    /// Sets when their credential ends. Streams that listen for changes on their behalf end with it.
    #[must_use]
    pub fn with_expiry(mut self, expires_at: Instant) -> Self {
        if let Some(identity) = &mut self.0 {
            Arc::make_mut(identity).expires_at = Some(expires_at);
        }
        self
    }

    /// Returns when their credential ends, if that is known.
    #[must_use]
    pub fn expires_at(&self) -> Option<Instant> {
        self.0.as_ref()?.expires_at
    }

    /// The name, unless it is nobody in particular.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.as_ref().map(|identity| &*identity.name)
    }

    /// What may be done on their behalf, in alphabetical order.
    pub fn scopes(&self) -> impl Iterator<Item = &str> {
        let scopes = self.0.iter().flat_map(|identity| &identity.scopes);
        scopes.map(String::as_str)
    }

    /// Whether this may be done on their behalf.
    #[must_use]
    pub fn has_scope(&self, scope: &str) -> bool {
        self.0
            .as_ref()
            .is_some_and(|identity| identity.scopes.contains(scope))
    }

    /// What else their credential says: the claims of a token, for example.
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

/// The name only: claims are nobody else's business.
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
    fn somebody_who_may_do_more_is_still_the_same() {
        let before = Principal::named("ada").with_scopes(["read"]);
        let after = before.clone().with_scopes(["write"]);

        assert_eq!(before, after);
        assert!(after.scopes().eq(["read", "write"]));
        assert!(before.scopes().eq(["read"]));
        assert_eq!(after.clone().without_scopes().scopes().count(), 0);
    }

    #[test]
    fn nobody_in_particular_may_do_nothing_in_particular() {
        let nobody = Principal::anonymous()
            .with_scopes(["read"])
            .with_claims(Json::empty_object());

        assert!(!nobody.has_scope("read"));
        assert_eq!(nobody.claims(), None);
        assert_ne!(nobody, Principal::named(""));
    }

    #[test]
    fn claims_are_not_shown() {
        let claims = Json::parse(r#"{"email":"ada@example"}"#.to_owned()).unwrap();
        let ada = Principal::named("ada").with_claims(claims);

        assert_eq!(format!("{ada:?}"), r#"Principal("ada")"#);
    }
}
