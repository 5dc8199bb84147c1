//! Places for what may run at once on a server, whichever peer it runs for.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use super::{Account, Limit, LimitReached, Limits, Meters};

/// Places of one kind, each held by a permit.
#[derive(Debug)]
pub(crate) struct Places {
    limit: Limit,
    max: usize,
    free: Arc<Semaphore>,
    meters: Arc<Meters>,
}

impl Places {
    /// As many places for handlers as the limits of an account say.
    pub(crate) fn for_handlers(account: &Account) -> Self {
        Self::new(account, Limit::Handlers, |limits| limits.handlers)
    }

    /// As many places for synchronous handlers as the limits of an account say.
    pub(crate) fn for_blocking(account: &Account) -> Self {
        Self::new(account, Limit::Blocking, |limits| limits.blocking)
    }

    /// As many places for subscriptions as the limits of an account say.
    pub(crate) fn for_subscriptions(account: &Account) -> Self {
        Self::new(account, Limit::Subscriptions, |limits| limits.subscriptions)
    }

    fn new(account: &Account, limit: Limit, max: impl Fn(&Limits) -> usize) -> Self {
        let max = max(account.limits());
        Self {
            limit,
            max,
            free: Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS))),
            meters: account.meters().clone(),
        }
    }

    pub(crate) fn take(&self) -> Result<SemaphorePermit<'_>, LimitReached> {
        self.free.try_acquire().map_err(|_| self.refuse())
    }

    pub(crate) fn take_owned(&self) -> Result<OwnedSemaphorePermit, LimitReached> {
        let permit = self.free.clone().try_acquire_owned();
        permit.map_err(|_| self.refuse())
    }

    fn refuse(&self) -> LimitReached {
        self.meters.refuse(self.limit, self.max)
    }
}
