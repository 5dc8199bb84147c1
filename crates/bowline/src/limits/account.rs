//! Accounts that charges are made to, one within the other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use super::{Limit, LimitReached, Limits, Meters, Usage};

/// What is held on behalf of one peer, one principal, or all peers together.
///
/// A charge to an account is also one to its parent. It is made before the memory is taken, and given back when the
/// [`Charge`] is dropped.
#[derive(Debug)]
pub(crate) struct Account {
    scope: Scope,
    limits: Limits,
    bytes: AtomicUsize,
    requests: AtomicUsize,
    /// Tasks that wait for bytes of this account.
    waiting: AtomicUsize,
    freed: Notify,
    parent: Option<Arc<Self>>,
    meters: Arc<Meters>,
    /// The accounts of principals; only in the account of all peers.
    principals: Mutex<BTreeMap<String, Weak<Self>>>,
    /// The name of the principal, if this is the account of one.
    name: Option<String>,
}

/// On whose behalf something is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Total,
    Principal,
    Peer,
}

/// What is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// A request, from the first byte of its body until it is answered.
    Request,
    /// What waits for the peer to read it.
    Output,
    /// An event that a client may ask for again.
    Event,
}

impl Account {
    /// The account of all peers of one server.
    pub(crate) fn total(limits: Limits) -> Arc<Self> {
        Arc::new(Self::new(Scope::Total, limits, Arc::default()))
    }

    fn new(scope: Scope, limits: Limits, meters: Arc<Meters>) -> Self {
        Self {
            scope,
            limits,
            bytes: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            freed: Notify::new(),
            parent: None,
            meters,
            principals: Mutex::default(),
            name: None,
        }
    }

    fn child(self: &Arc<Self>, scope: Scope) -> Self {
        let mut account = Self::new(scope, self.limits, self.meters.clone());
        account.parent = Some(self.clone());
        account
    }

    /// An account of one peer within this one.
    pub(crate) fn peer(self: &Arc<Self>) -> Arc<Self> {
        Arc::new(self.child(Scope::Peer))
    }

    /// The account of a principal, which all of its peers share; this one, if it has no name. For the account of all
    /// peers only.
    pub(crate) fn principal(self: &Arc<Self>, name: Option<&str>) -> Arc<Self> {
        let Some(name) = name else {
            return self.clone();
        };
        let mut principals = self.lock_principals();
        if let Some(account) = principals.get(name).and_then(Weak::upgrade) {
            return account;
        }
        let mut account = self.child(Scope::Principal);
        account.name = Some(name.to_owned());
        let account = Arc::new(account);
        principals.insert(name.to_owned(), Arc::downgrade(&account));
        account
    }

    fn lock_principals(&self) -> MutexGuard<'_, BTreeMap<String, Weak<Self>>> {
        // No code that could panic runs under this lock.
        let principals = self.principals.lock();
        principals.unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn meters(&self) -> &Arc<Meters> {
        &self.meters
    }

    pub(crate) fn usage(&self) -> Usage {
        let total = self.and_parents().last().unwrap_or(self);
        self.meters.usage(total.requests())
    }

    /// How many requests are being read or answered.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// Charges one request of this many bytes.
    pub(crate) fn request(self: &Arc<Self>, bytes: usize) -> Result<Charge, LimitReached> {
        for (added, account) in self.and_parents().enumerate() {
            let (limit, max) = account.max_requests();
            if !add(&account.requests, 1, max) {
                for account in self.and_parents().take(added) {
                    account.requests.fetch_sub(1, Ordering::AcqRel);
                }
                return Err(self.meters.refuse(limit, max));
            }
        }
        let mut charge = Charge {
            account: self.clone(),
            held: Held::Request,
            bytes: 0,
            requests: 1,
        };
        charge.grow(bytes)?;
        Ok(charge)
    }

    /// Charges bytes that are no request's.
    pub(crate) fn hold(self: &Arc<Self>, held: Held, bytes: usize) -> Result<Charge, LimitReached> {
        let mut charge = self.nothing(held);
        charge.grow(bytes)?;
        Ok(charge)
    }

    /// A charge of nothing, to grow later.
    pub(crate) fn nothing(self: &Arc<Self>, held: Held) -> Charge {
        Charge {
            account: self.clone(),
            held,
            bytes: 0,
            requests: 0,
        }
    }

    fn and_parents(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |account| account.parent.as_deref())
    }

    fn max_requests(&self) -> (Limit, usize) {
        match self.scope {
            Scope::Total => (Limit::Requests, self.limits.requests),
            Scope::Principal => (Limit::PrincipalRequests, self.limits.principal_requests),
            Scope::Peer => (Limit::PeerRequests, self.limits.peer_requests),
        }
    }

    /// How many bytes may be held when a charge has grown to `size`.
    fn max_bytes(&self, size: usize) -> (Limit, usize) {
        match self.scope {
            // The last quarter is for small charges: few large ones must not lock everybody out.
            Scope::Total if size > SMALL => {
                let max = self.limits.total_bytes;
                (Limit::TotalBytes, max - max / 4)
            }
            Scope::Total => (Limit::TotalBytes, self.limits.total_bytes),
            Scope::Principal => (Limit::PrincipalBytes, self.limits.principal_bytes),
            Scope::Peer => (Limit::PeerBytes, self.limits.peer_bytes),
        }
    }

    /// Adds `more` bytes to a charge of `size`, here and in the parents, or nowhere: then the account that has no room
    /// is returned.
    fn try_add(&self, size: usize, more: usize) -> Result<(), &Self> {
        for (added, account) in self.and_parents().enumerate() {
            let (_, max) = account.max_bytes(size.saturating_add(more));
            if !add(&account.bytes, more, max) {
                for account in self.and_parents().take(added) {
                    account.bytes.fetch_sub(more, Ordering::AcqRel);
                }
                return Err(account);
            }
        }
        Ok(())
    }

    fn give_back(&self, bytes: usize, requests: usize) {
        for account in self.and_parents() {
            account.bytes.fetch_sub(bytes, Ordering::AcqRel);
            account.requests.fetch_sub(requests, Ordering::AcqRel);
            if account.waiting.load(Ordering::Acquire) > 0 {
                account.freed.notify_one();
            }
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let (Some(name), Some(total)) = (&self.name, &self.parent) else {
            return;
        };
        let mut principals = total.lock_principals();
        // Another account of the same name may have been made since the last holder of this one let go.
        if principals
            .get(name)
            .is_some_and(|account| account.strong_count() == 0)
        {
            principals.remove(name);
        }
    }
}

/// Something that is held, until this is dropped.
#[derive(Debug)]
#[must_use = "dropping a charge gives it back"]
pub(crate) struct Charge {
    account: Arc<Account>,
    held: Held,
    bytes: usize,
    requests: usize,
}

impl Charge {
    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Charges this many bytes more, if there is room; that there is none is not counted as a refusal.
    pub(crate) fn try_grow(&mut self, more: usize) -> bool {
        let has_room = self.account.try_add(self.bytes, more).is_ok();
        if has_room {
            self.grown(more);
        }
        has_room
    }

    /// Charges this many bytes more.
    pub(crate) fn grow(&mut self, more: usize) -> Result<(), LimitReached> {
        match self.account.try_add(self.bytes, more) {
            Ok(()) => {
                self.grown(more);
                Ok(())
            }
            Err(full) => {
                let (limit, max) = full.max_bytes(0);
                Err(self.account.meters.refuse(limit, max))
            }
        }
    }

    /// Charges this many bytes more as soon as there is room for them. Fails at once if too many tasks wait for room: each
    /// of them holds what it has read and could not charge.
    ///
    /// # Cancel safety
    ///
    /// Safe: they are charged when it returns.
    pub(crate) async fn grow_when_possible(&mut self, more: usize) -> Result<(), LimitReached> {
        let account = self.account.clone();
        let mut waiting: Option<Waiting<'_>> = None;
        while let Err(full) = account.try_add(self.bytes, more) {
            // A task that was woken in vain keeps its place.
            if !waiting
                .as_ref()
                .is_some_and(|own| std::ptr::eq(own.0, full))
            {
                let (limit, max) = full.max_bytes(0);
                let place = Waiting::of(full);
                waiting = Some(place.ok_or_else(|| account.meters.refuse(limit, max))?);
            }
            let freed = full.freed.notified();
            // Something may have been given back before this task was known to wait.
            if account.try_add(self.bytes, more).is_ok() {
                break;
            }
            freed.await;
            if account.try_add(self.bytes, more).is_ok() {
                // One task is woken at a time, and there may be room for the next one too.
                full.freed.notify_one();
                break;
            }
        }
        self.grown(more);
        Ok(())
    }

    /// Sets the charge to what is held, whether there is room or not: it is held already. New charges feel it.
    pub(crate) fn set(&mut self, bytes: usize) {
        if bytes < self.bytes {
            self.shrink(self.bytes - bytes);
        } else if bytes > self.bytes {
            let more = bytes - self.bytes;
            for account in self.account.and_parents() {
                account.bytes.fetch_add(more, Ordering::AcqRel);
            }
            self.grown(more);
        }
    }

    /// Moves this many bytes to a charge of their own, which counts as no request. Nothing is given back yet, so that no
    /// task is woken: whoever holds a lock can drop the new charge after releasing it.
    pub(crate) fn split(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self {
            account: self.account.clone(),
            held: self.held,
            bytes,
            requests: 0,
        }
    }

    /// Gives some of it back.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.meter().fetch_sub(bytes, Ordering::Relaxed);
        self.account.give_back(bytes, 0);
    }

    fn grown(&mut self, more: usize) {
        self.bytes += more;
        self.meter().fetch_add(more, Ordering::Relaxed);
    }

    fn meter(&self) -> &AtomicUsize {
        self.account.meters.bytes(self.held)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.meter().fetch_sub(self.bytes, Ordering::Relaxed);
        self.account.give_back(self.bytes, self.requests);
    }
}

/// A task that waits for bytes of an account.
struct Waiting<'a>(&'a Account);

impl<'a> Waiting<'a> {
    /// A place among those that wait, unless too many do.
    fn of(account: &'a Account) -> Option<Self> {
        add(&account.waiting, 1, MAX_WAITING).then(|| Self(account))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Adds to a counter unless that exceeds `max`.
fn add(counter: &AtomicUsize, more: usize, max: usize) -> bool {
    let added = counter.fetch_update(Ordering::AcqRel, Ordering::Acquire, |held| {
        held.checked_add(more).filter(|sum| *sum <= max)
    });
    added.is_ok()
}

/// Charges up to this many bytes may use the last quarter of the total: a message of 64 KiB, with what its connection reads
/// ahead.
const SMALL: usize = 96 * 1024;
/// How many tasks may wait for bytes of one account.
const MAX_WAITING: usize = 128;

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::task::Poll;

    use super::*;

    fn limits() -> Limits {
        Limits {
            total_bytes: 1_000_000,
            principal_bytes: 500_000,
            peer_bytes: 300_000,
            requests: 4,
            principal_requests: 3,
            peer_requests: 2,
            ..Limits::default()
        }
    }

    fn reached(charged: Result<Charge, LimitReached>) -> Limit {
        charged.expect_err("the limit is reached").limit
    }

    #[test]
    fn a_charge_is_given_back_everywhere_when_it_is_dropped() {
        let total = Account::total(limits());
        let peer = total.principal(Some("ada")).peer();

        let charge = peer.request(100).unwrap();
        let held = total.usage();
        drop(charge);

        assert_eq!((held.requests, held.request_bytes), (1, 100));
        assert_eq!(total.usage(), Usage::default());
        assert_eq!((total.requests(), peer.requests()), (0, 0));
    }

    #[test]
    fn a_refused_charge_leaves_nothing_behind() {
        let total = Account::total(limits());
        let peer = total.principal(Some("ada")).peer();

        assert_eq!(reached(peer.request(300_001)), Limit::PeerBytes);

        let usage = total.usage();
        assert_eq!((usage.requests, usage.bytes()), (0, 0));
        assert_eq!(usage.refused(Limit::PeerBytes), 1);
        assert_eq!(total.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn each_scope_has_limits_of_its_own() {
        let total = Account::total(limits());
        let principal = total.principal(Some("ada"));
        let (one, other) = (principal.peer(), principal.peer());
        let _two = [one.request(1).unwrap(), one.request(1).unwrap()];
        assert_eq!(reached(one.request(1)), Limit::PeerRequests);

        let _third = other.request(1).unwrap();
        assert_eq!(reached(other.request(1)), Limit::PrincipalRequests);

        let stranger = total.peer();
        let _fourth = stranger.request(1).unwrap();
        assert_eq!(reached(stranger.request(1)), Limit::Requests);
    }

    #[test]
    fn large_charges_leave_the_last_quarter_to_small_ones() {
        let total = Account::total(limits());
        let large: Vec<_> = (0..3)
            .map(|_| total.peer().hold(Held::Output, 250_000).unwrap())
            .collect();

        assert_eq!(
            reached(total.peer().hold(Held::Request, 100_000)),
            Limit::TotalBytes
        );
        assert!(total.peer().hold(Held::Request, SMALL).is_ok());

        drop(large);
        assert!(total.peer().hold(Held::Request, 100_000).is_ok());
    }

    #[test]
    fn peers_of_one_principal_share_its_account_for_as_long_as_one_is_there() {
        let total = Account::total(limits());
        let first = total.principal(Some("ada"));

        assert!(Arc::ptr_eq(&first, &total.principal(Some("ada"))));
        assert!(!Arc::ptr_eq(&first, &total.principal(Some("bob"))));
        drop(first);

        assert!(total.lock_principals().is_empty());
    }

    #[tokio::test]
    async fn whoever_waits_for_room_gets_it_when_something_is_given_back() {
        let total = Account::total(limits());
        let held = total.hold(Held::Request, 740_000).unwrap();
        let mut waiting: Vec<_> = (0..3)
            .map(|_| {
                let mut charge = total.nothing(Held::Request);
                tokio::spawn(async move {
                    charge.grow_when_possible(100_000).await.unwrap();
                    charge
                })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(waiting.iter().all(|task| !task.is_finished()));

        drop(held);

        for task in &mut waiting {
            assert_eq!(task.await.unwrap().bytes(), 100_000);
        }
        assert_eq!(total.waiting.load(Ordering::Relaxed), 0);
        drop(waiting);
    }

    #[tokio::test]
    async fn only_so_many_wait_for_room_and_the_next_is_refused_at_once() {
        let total = Account::total(limits());
        let held = total.hold(Held::Request, 700_000).unwrap();
        let mut charges: Vec<_> = (0..MAX_WAITING)
            .map(|_| total.nothing(Held::Request))
            .collect();
        let mut waiting: Vec<_> = charges
            .iter_mut()
            .map(|charge| Box::pin(charge.grow_when_possible(100_000)))
            .collect();
        for task in &mut waiting {
            assert!(
                std::future::poll_fn(|cx| Poll::Ready(task.as_mut().poll(cx).is_pending())).await
            );
        }

        let mut late = total.nothing(Held::Request);
        let refused = late.grow_when_possible(100_000).await;

        assert_eq!(refused.unwrap_err().limit, Limit::TotalBytes);
        assert_eq!(total.usage().refused(Limit::TotalBytes), 1);
        drop(held);
        drop(waiting);
        assert!(late.grow_when_possible(100_000).await.is_ok());
        assert_eq!(total.waiting.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_charge_can_be_given_back_in_parts() {
        let total = Account::total(limits());
        let mut whole = total.peer().request(100).unwrap();

        let part = whole.split(30);
        let after_split = total.usage();
        drop(whole);

        assert_eq!((after_split.requests, after_split.bytes()), (1, 100));
        assert_eq!((total.usage().requests, total.usage().bytes()), (0, 30));
        drop(part);
        assert_eq!(total.usage(), Usage::default());
    }

    #[test]
    fn what_is_held_already_counts_even_beyond_the_limit() {
        let total = Account::total(limits());
        let mut output = total.peer().nothing(Held::Output);

        output.set(2_000_000);

        assert_eq!(reached(total.peer().request(1)), Limit::TotalBytes);
        output.set(10);
        assert!(total.peer().request(1).is_ok());
        assert_eq!(total.usage().output_bytes, 10);
    }
}
