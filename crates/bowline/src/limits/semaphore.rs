//! [`LimitSemaphore`], semaphores that limit concurrent handlers and subscriptions of a server.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use super::{Account, Limit, LimitReached, Limits, UsageCounters};

/// A semaphore for one [`Limit`], which counts refusals.
#[derive(Debug)]
pub(crate) struct LimitSemaphore {
    limit: Limit,
    max: usize,
    free: Arc<Semaphore>,
    counters: Arc<UsageCounters>,
}

impl LimitSemaphore {
    /// Creates the semaphore for [`Limits::handlers`].
    pub(crate) fn for_handlers(account: &Account) -> Self {
        Self::new(account, Limit::Handlers, |limits| limits.handlers)
    }

    /// Creates the semaphore for [`Limits::blocking`].
    pub(crate) fn for_blocking(account: &Account) -> Self {
        Self::new(account, Limit::Blocking, |limits| limits.blocking)
    }

    /// Creates the semaphore for [`Limits::subscriptions`].
    pub(crate) fn for_subscriptions(account: &Account) -> Self {
        Self::new(account, Limit::Subscriptions, |limits| limits.subscriptions)
    }

    fn new(account: &Account, limit: Limit, max: impl Fn(&Limits) -> usize) -> Self {
        let max = max(account.limits());
        Self {
            limit,
            max,
            free: Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS))),
            counters: account.counters().clone(),
        }
    }

    pub(crate) fn try_acquire(&self) -> Result<SemaphorePermit<'_>, LimitReached> {
        self.free.try_acquire().map_err(|_| self.refuse())
    }

    pub(crate) fn try_acquire_owned(&self) -> Result<OwnedSemaphorePermit, LimitReached> {
        let permit = self.free.clone().try_acquire_owned();
        permit.map_err(|_| self.refuse())
    }

    fn refuse(&self) -> LimitReached {
        self.counters.refuse(self.limit, self.max)
    }
}
