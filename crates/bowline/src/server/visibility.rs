//! [`Visibility`], which callers see an entry of a server.

use std::fmt;
use std::sync::Arc;

use crate::exchange::{Context, Extensions};

/// An entry that may be hidden from some callers.
pub(super) trait Visible {
    /// Returns which callers see it.
    fn visibility(&self) -> &Visibility;
}

/// The callers that see an entry: all, unless a filter is set.
#[derive(Clone, Default)]
pub(super) struct Visibility(Option<Arc<VisibilityFilter>>);

/// Returns whether the caller of a request sees the entry.
type VisibilityFilter = dyn Fn(&Context) -> bool + Send + Sync;

impl Visibility {
    pub(super) fn filtered(filter: impl Fn(&Context) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(filter)))
    }

    /// Returns whether every caller sees the entry.
    pub(super) fn is_public(&self) -> bool {
        self.0.is_none()
    }

    /// Returns whether the caller of this request sees the entry. The filter finds the state of the mounted server that
    /// the entry comes from, as its handler does.
    pub(super) fn includes(&self, cx: &Context, state: &Extensions) -> bool {
        let Some(filter) = &self.0 else {
            return true;
        };
        if state.is_empty() {
            return filter(cx);
        }
        let mut cx = cx.clone();
        cx.extensions_mut().extend(state);
        filter(&cx)
    }
}

impl fmt::Debug for Visibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visibility")
            .field("is_public", &self.is_public())
            .finish()
    }
}
