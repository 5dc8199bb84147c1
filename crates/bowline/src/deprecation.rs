//! Warnings about deprecated protocol features, once per process.

use std::collections::BTreeSet;

use bowline_core::era::Dialect;

use crate::sync::Mutex;

/// Logs a warning the first time that a deprecated method is used in this process.
pub(crate) fn warn_deprecated(method: &'static str, dialect: &Dialect) {
    static WARNED: WarnedMethods = WarnedMethods::new();
    if dialect.is_deprecated(method) && WARNED.is_new(method) {
        let version = dialect.version;
        tracing::warn!(
            "`{method}` is deprecated since {version} and may be removed in a later revision"
        );
    }
}

/// The methods that have been warned about.
struct WarnedMethods(Mutex<BTreeSet<&'static str>>);

impl WarnedMethods {
    const fn new() -> Self {
        Self(Mutex::new(BTreeSet::new()))
    }

    fn is_new(&self, method: &'static str) -> bool {
        let mut warned = self.0.lock();
        warned.insert(method)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_is_warned_about_once() {
        let warned = WarnedMethods::new();

        let new =
            ["roots/list", "sampling/createMessage", "roots/list"].map(|it| warned.is_new(it));

        assert_eq!(new, [true, true, false]);
    }
}
