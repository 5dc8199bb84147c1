//! Warnings about deprecated protocol features, once per process.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use bowline_core::era::Dialect;

/// Logs a warning the first time that a deprecated method is used in this process.
pub(crate) fn warn_of(method: &'static str, dialect: &Dialect) {
    static TOLD: Told = Told::new();
    if dialect.deprecates(method) && TOLD.is_new(method) {
        let version = dialect.version;
        tracing::warn!(
            "`{method}` is deprecated since {version} and may be removed in a later revision"
        );
    }
}

/// The methods that were warned about.
struct Told(Mutex<BTreeSet<&'static str>>);

impl Told {
    const fn new() -> Self {
        Self(Mutex::new(BTreeSet::new()))
    }

    fn is_new(&self, method: &'static str) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.insert(method)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_is_warned_about_once() {
        let told = Told::new();

        let new = ["roots/list", "sampling/createMessage", "roots/list"].map(|it| told.is_new(it));

        assert_eq!(new, [true, true, false]);
    }
}
