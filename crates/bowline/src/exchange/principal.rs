//! On whose behalf a request is made.

use std::fmt;
use std::sync::Arc;

/// On whose behalf a request is made, as far as the server has made sure of it.
///
/// Anonymous, unless a layer that has checked a credential says otherwise. What a client says of itself
/// is no principal.
///
/// # Examples
///
/// ```
/// use bowline::exchange::Principal;
///
/// let user = Principal::named("https://id.example/ada");
/// assert_eq!(user.name(), Some("https://id.example/ada"));
/// assert_eq!(Principal::anonymous().name(), None);
/// ```
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal(Option<Arc<str>>);

impl Principal {
    /// Nobody in particular.
    #[must_use]
    pub fn anonymous() -> Self {
        Self::default()
    }

    /// Somebody, under a name that nobody else has.
    #[must_use]
    pub fn named(name: impl Into<Arc<str>>) -> Self {
        Self(Some(name.into()))
    }

    /// The name, unless it is nobody in particular.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "Principal({name:?})"),
            None => f.write_str("Principal(anonymous)"),
        }
    }
}
