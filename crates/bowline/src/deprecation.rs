//! What the specification advises against is said once, not with every request.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use bowline_core::era::Dialect;

/// Warns that `method` is deprecated where it is used in `dialect`, the first time in this process.
pub(crate) fn warn_of(method: &'static str, dialect: &Dialect) {
    static TOLD: Told = Told::new();
    if dialect.deprecates(method) && TOLD.is_new(method) {
        let version = dialect.version;
        tracing::warn!(
            "`{method}` is deprecated since {version}: it works, and later versions may not have it"
        );
    }
}

/// What was told already.
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
    fn each_thing_is_told_once() {
        let told = Told::new();

        let new = ["roots/list", "sampling/createMessage", "roots/list"].map(|it| told.is_new(it));

        assert_eq!(new, [true, true, false]);
    }
}
