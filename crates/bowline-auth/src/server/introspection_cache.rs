//! [`IntrospectionCache`]: shares introspection responses between concurrent requests, and caches them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bowline::exchange::BoxFuture;
use futures_util::FutureExt as _;
use futures_util::future::{Shared, WeakShared};
use tokio::time::Instant;

use super::credential::{TokenDigest, token_digest};
use super::{AccessToken, Claims, VerifyError};
use crate::sync::Mutex;

/// A bounded cache of introspection results, by the SHA-256 digest of the token.
pub(super) struct IntrospectionCache {
    lifetime: Duration,
    max: usize,
    state: Mutex<CacheState>,
}

type IntrospectionResult = Result<Claims, VerifyError>;
type PendingIntrospection = BoxFuture<'static, IntrospectionResult>;

#[derive(Default)]
struct CacheState {
    pending: BTreeMap<TokenDigest, WeakShared<PendingIntrospection>>,
    cached: BTreeMap<TokenDigest, (Instant, IntrospectionResult)>,
    /// In order of expiry.
    expiry_order: VecDeque<(Instant, TokenDigest)>,
}

impl IntrospectionCache {
    pub(super) fn new(lifetime: Duration, max: usize) -> Self {
        Self {
            lifetime,
            max,
            state: Mutex::default(),
        }
    }

    pub(super) fn lifetime(&self) -> Duration {
        self.lifetime
    }

    pub(super) fn max(&self) -> usize {
        self.max
    }

    /// Returns the cached result, the result of the request in progress, or that of a new request.
    ///
    /// # Cancel safety
    ///
    /// Safe: a request in progress is dropped with the last waiter.
    pub(super) async fn get<F>(
        &self,
        token: &AccessToken,
        introspect: impl FnOnce() -> F,
    ) -> IntrospectionResult
    where
        F: Future<Output = IntrospectionResult> + Send + 'static,
    {
        let key = token_digest(token.as_str());
        let pending = match self.find(&key) {
            Ok(result) => return result,
            Err(Some(pending)) => pending,
            Err(None) => self.start(key, Box::pin(introspect())),
        };
        let result = pending.await;
        self.finish(key, &result);
        result
    }

    fn find(
        &self,
        key: &TokenDigest,
    ) -> Result<IntrospectionResult, Option<Shared<PendingIntrospection>>> {
        let state = self.state.lock();
        if let Some((_, result)) = state
            .cached
            .get(key)
            .filter(|(until, _)| Instant::now() < *until)
        {
            return Ok(result.clone());
        }
        Err(state.pending.get(key).and_then(WeakShared::upgrade))
    }

    fn start(
        &self,
        key: TokenDigest,
        pending: PendingIntrospection,
    ) -> Shared<PendingIntrospection> {
        let pending = pending.shared();
        let mut state = self.state.lock();
        // Dropped requests leave dead entries; sweep them once there are many.
        if state.pending.len() >= state.pending_limit() {
            state
                .pending
                .retain(|_, pending| pending.upgrade().is_some());
        }
        if let Some(weak) = pending.downgrade() {
            state.pending.insert(key, weak);
        }
        pending
    }

    fn finish(&self, key: TokenDigest, result: &IntrospectionResult) {
        let mut state = self.state.lock();
        state.pending.remove(&key);
        // A failed introspection is not a result for this token.
        if self.lifetime.is_zero()
            || self.max == 0
            || matches!(result, Err(VerifyError::Unavailable(_)))
        {
            return;
        }
        while let Some((at, old)) = state.expiry_order.front().copied() {
            let is_known = state.cached.contains_key(&key);
            if at > Instant::now() && (is_known || state.cached.len() < self.max) {
                break;
            }
            state.expiry_order.pop_front();
            state.cached.remove(&old);
        }
        if state.cached.contains_key(&key) {
            return; // cached by another waiter
        }
        let until = Instant::now() + self.lifetime.min(MAX_LIFETIME);
        state.expiry_order.push_back((until, key));
        state.cached.insert(key, (until, result.clone()));
    }
}

impl CacheState {
    fn pending_limit(&self) -> usize {
        1024.max(self.cached.len())
    }
}

/// The maximum lifetime of a cached result.
const MAX_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    async fn introspect(
        cache: &IntrospectionCache,
        token: &str,
        result: IntrospectionResult,
        requests: &AtomicUsize,
    ) -> IntrospectionResult {
        let token = AccessToken::new(token);
        let request = || {
            requests.fetch_add(1, Ordering::SeqCst);
            std::future::ready(result)
        };
        cache.get(&token, request).await
    }

    fn good() -> IntrospectionResult {
        Ok(Claims::default())
    }

    #[tokio::test(start_paused = true)]
    async fn results_are_cached_until_they_expire_and_failures_are_not() {
        let (cache, requests) = (IntrospectionCache::new(MINUTE, 10), AtomicUsize::new(0));

        for _ in 0..3 {
            assert!(introspect(&cache, "a", good(), &requests).await.is_ok());
            let bad = Err(VerifyError::invalid("revoked"));
            assert!(introspect(&cache, "b", bad, &requests).await.is_err());
            let down = Err(VerifyError::unavailable("down"));
            assert!(introspect(&cache, "c", down, &requests).await.is_err());
        }
        assert_eq!(requests.swap(0, Ordering::SeqCst), 1 + 1 + 3);
        tokio::time::advance(MINUTE).await;
        let revoked =
            introspect(&cache, "a", Err(VerifyError::invalid("revoked")), &requests).await;

        assert!(revoked.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn the_cache_is_bounded() {
        let (cache, requests) = (IntrospectionCache::new(MINUTE, 10), AtomicUsize::new(0));

        for number in 0..1000 {
            let token = number.to_string();
            introspect(&cache, &token, good(), &requests).await.unwrap();
        }

        let state = cache.state.lock();
        assert_eq!(state.cached.len(), 10);
        assert_eq!((state.expiry_order.len(), state.pending.len()), (10, 0));
    }

    #[tokio::test]
    async fn dropped_introspections_are_swept() {
        let cache = IntrospectionCache::new(MINUTE, 10);

        for number in 0..5000 {
            let token = AccessToken::new(&number.to_string());
            let never = cache.get(&token, std::future::pending);
            assert!(never.now_or_never().is_none());
        }

        assert!(cache.state.lock().pending.len() <= 1024);
    }
}
