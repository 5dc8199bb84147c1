//! `Deferred`, a builder that is a future too: it starts its work when it is first polled.

use std::future::Future;
use std::pin::Pin;
use std::task::{self, Poll};

/// The settings `D` of a builder until it is first polled, then the future `F` that they start.
pub(super) enum Deferred<D, F> {
    Draft(D),
    Running(F),
    /// Only while `start` runs, and after a panic of it.
    Starting,
}

impl<D, F> Deferred<D, F> {
    /// Returns the settings.
    ///
    /// # Panics
    ///
    /// If the builder was polled already: the work is running, and a change would have no effect.
    pub(super) fn draft(&mut self) -> &mut D {
        let draft = match self {
            Self::Draft(draft) => Some(draft),
            Self::Running(_) | Self::Starting => None,
        };
        draft.expect(NOT_POLLED)
    }

    /// Like [`draft`](Self::draft), by value.
    pub(super) fn into_draft(self) -> D {
        let draft = match self {
            Self::Draft(draft) => Some(draft),
            Self::Running(_) | Self::Starting => None,
        };
        draft.expect(NOT_POLLED)
    }
}

impl<D, F: Future + Unpin> Deferred<D, F> {
    /// Polls the future, which `start` makes of the settings at the first call.
    pub(super) fn poll(
        &mut self,
        cx: &mut task::Context<'_>,
        start: impl FnOnce(D) -> F,
    ) -> Poll<F::Output> {
        if let Self::Draft(_) = self {
            *self = Self::Running(start(std::mem::replace(self, Self::Starting).into_draft()));
        }
        let running = match self {
            Self::Running(future) => Some(future),
            Self::Draft(_) | Self::Starting => None,
        };
        Pin::new(running.expect("`start` does not panic")).poll(cx)
    }
}

const NOT_POLLED: &str = "options are set before the builder is polled";
