//! Sets of OAuth scopes.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A sorted set of scopes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Scopes(BTreeSet<String>);

impl Scopes {
    /// Parses scopes separated by spaces.
    pub(crate) fn parse(text: &str) -> Self {
        text.split_ascii_whitespace().map(str::to_owned).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn contains_all(&self, others: &Self) -> bool {
        others.0.is_subset(&self.0)
    }

    pub(crate) fn contains(&self, scope: &str) -> bool {
        self.0.contains(scope)
    }

    pub(crate) fn add(&mut self, scope: &str) {
        self.0.insert(scope.to_owned());
    }

    /// Returns the intersection.
    #[must_use]
    pub(crate) fn intersection(mut self, others: &Self) -> Self {
        self.0.retain(|scope| others.contains(scope));
        self
    }

    /// Returns the union.
    #[must_use]
    pub(crate) fn union(mut self, others: &Self) -> Self {
        self.0.extend(others.0.iter().cloned());
        self
    }
}

impl FromIterator<String> for Scopes {
    fn from_iter<I: IntoIterator<Item = String>>(scopes: I) -> Self {
        Self(scopes.into_iter().collect())
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, scope) in self.0.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { " " })?;
            f.write_str(scope)?;
        }
        Ok(())
    }
}
