//! [`Account`], a hierarchy of resource accounts, and [`Charge`], a guard for charged bytes and requests.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::Notify;

use super::{Limit, LimitReached, Limits, ReadBudget, Usage, UsageCounters};
use crate::sync::Mutex;

/// The bytes and requests of one peer, one principal, or all peers.
///
/// A charge is applied to an account and its parents before memory is allocated, and returned when the [`Charge`] is
/// dropped.
#[derive(Debug)]
pub(crate) struct Account {
    scope: AccountScope,
    limits: Limits,
    bytes: AtomicUsize,
    requests: AtomicUsize,
    /// Tasks that wait for bytes of this account.
    waiting: AtomicUsize,
    freed: Notify,
    parent: Option<Arc<Self>>,
    counters: Arc<UsageCounters>,
    /// The accounts of principals; only used in the total account.
    principals: Mutex<BTreeMap<String, Weak<Self>>>,
    /// The name of the principal, in the account of one.
    name: Option<String>,
    /// Limits what a client has not read, together with other connections.
    read_budget: Option<ReadBudget>,
}

/// The level of an account in the hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccountScope {
    Total,
    Principal,
    Peer,
}

/// The kind of charged memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChargeKind {
    /// A request, from the first byte of its body until it is answered.
    Request,
    /// Output that the peer has not read.
    Output,
    /// An SSE event that is stored for resumption.
    Event,
    /// A response over HTTP/2 that the client may leave unread, while it sends other requests. Counted as output.
    Unread,
    /// What a legacy client has set, such as its subscriptions, and its capabilities. All of it is limited to a share of
    /// `Limits::total_bytes`, because it is kept for longer than a request.
    Kept,
}

/// How much of the total a charge leaves to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TotalReserve {
    None,
    Eighth,
    Quarter,
}

impl Account {
    /// Creates the total account of a server.
    pub(crate) fn total(limits: Limits) -> Arc<Self> {
        Arc::new(Self::new(AccountScope::Total, limits, Arc::default()))
    }

    fn new(scope: AccountScope, limits: Limits, counters: Arc<UsageCounters>) -> Self {
        Self {
            scope,
            limits,
            bytes: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            freed: Notify::new(),
            parent: None,
            counters,
            principals: Mutex::default(),
            name: None,
            read_budget: None,
        }
    }

    fn child(self: &Arc<Self>, scope: AccountScope) -> Self {
        let mut account = Self::new(scope, self.limits, self.counters.clone());
        account.parent = Some(self.clone());
        account
    }

    /// Creates the account of the connection of a client.
    pub(crate) fn of_client(read_budget: Option<ReadBudget>) -> Arc<Self> {
        let mut account = Self::total(Limits::default()).child(AccountScope::Peer);
        account.read_budget = read_budget;
        Arc::new(account)
    }

    pub(crate) fn read_budget(&self) -> Option<&ReadBudget> {
        self.read_budget.as_ref()
    }

    /// Creates the account of a peer within this one.
    pub(crate) fn peer(self: &Arc<Self>) -> Arc<Self> {
        Arc::new(self.child(AccountScope::Peer))
    }

    /// Returns the account that all peers of a principal share, or this one for an anonymous principal. Must be called
    /// on the total account.
    pub(crate) fn principal(self: &Arc<Self>, name: Option<&str>) -> Arc<Self> {
        let Some(name) = name else {
            return self.clone();
        };
        let mut principals = self.principals.lock();
        if let Some(account) = principals.get(name).and_then(Weak::upgrade) {
            return account;
        }
        let mut account = self.child(AccountScope::Principal);
        account.name = Some(name.to_owned());
        let account = Arc::new(account);
        principals.insert(name.to_owned(), Arc::downgrade(&account));
        account
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn counters(&self) -> &Arc<UsageCounters> {
        &self.counters
    }

    pub(crate) fn usage(&self) -> Usage {
        let total = self.ancestors().last().unwrap_or(self);
        self.counters.usage(total.requests())
    }

    /// Returns the number of requests in progress.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// Charges one request with its bytes.
    pub(crate) fn charge_request(self: &Arc<Self>, bytes: usize) -> Result<Charge, LimitReached> {
        for (added, account) in self.ancestors().enumerate() {
            let (limit, max) = account.max_requests();
            if !add(&account.requests, 1, max) {
                for account in self.ancestors().take(added) {
                    account.requests.fetch_sub(1, Ordering::AcqRel);
                }
                return Err(self.counters.refuse(limit, max));
            }
        }
        let mut charge = Charge {
            account: self.clone(),
            kind: ChargeKind::Request,
            bytes: 0,
            requests: 1,
        };
        charge.grow(bytes)?;
        Ok(charge)
    }

    /// Charges bytes without a request.
    pub(crate) fn charge(
        self: &Arc<Self>,
        kind: ChargeKind,
        bytes: usize,
    ) -> Result<Charge, LimitReached> {
        let mut charge = self.empty_charge(kind);
        charge.grow(bytes)?;
        Ok(charge)
    }

    /// Charges bytes that are kept for longer than a request.
    pub(crate) fn charge_kept(self: &Arc<Self>, bytes: usize) -> Result<Charge, LimitReached> {
        let (kept, max) = (
            self.counters.charged_bytes(ChargeKind::Kept),
            self.max_kept(),
        );
        if bytes > 0 && kept.saturating_add(bytes) > max {
            return Err(self.counters.refuse(Limit::TotalBytes, max));
        }
        self.charge(ChargeKind::Kept, bytes)
    }

    /// Returns how many bytes may be kept for longer than a request, for all peers.
    pub(crate) fn max_kept(&self) -> usize {
        self.limits.total_bytes / KEPT_SHARE
    }

    /// Returns an empty charge, to grow later.
    pub(crate) fn empty_charge(self: &Arc<Self>, kind: ChargeKind) -> Charge {
        Charge {
            account: self.clone(),
            kind,
            bytes: 0,
            requests: 0,
        }
    }

    /// Returns the charged bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns this account and its parents.
    fn ancestors(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |account| account.parent.as_deref())
    }

    fn max_requests(&self) -> (Limit, usize) {
        match self.scope {
            AccountScope::Total => (Limit::Requests, self.limits.requests),
            AccountScope::Principal => (Limit::PrincipalRequests, self.limits.principal_requests),
            AccountScope::Peer => (Limit::PeerRequests, self.limits.peer_requests),
        }
    }

    /// Returns what a charge leaves to others when it grows to `size`. The last quarter is reserved for small charges, so
    /// that a few large ones cannot block all others. Small responses that clients leave unread can be many: those of one
    /// connection together count as one charge, and the last eighth is reserved for what a client does not control.
    fn reserve(&self, kind: ChargeKind, size: usize) -> TotalReserve {
        match kind {
            ChargeKind::Unread if size + self.bytes.load(Ordering::Relaxed) > MAX_FEW_UNREAD => {
                TotalReserve::Quarter
            }
            _ if size > MAX_SMALL_CHARGE => TotalReserve::Quarter,
            ChargeKind::Unread => TotalReserve::Eighth,
            _ => TotalReserve::None,
        }
    }

    /// Returns the maximum bytes of this account for a charge that leaves this reserve.
    fn max_bytes(&self, reserve: TotalReserve) -> (Limit, usize) {
        match self.scope {
            AccountScope::Total => {
                let max = self.limits.total_bytes;
                let reserved = match reserve {
                    TotalReserve::None => 0,
                    TotalReserve::Eighth => max / 8,
                    TotalReserve::Quarter => max / 4,
                };
                (Limit::TotalBytes, max - reserved)
            }
            AccountScope::Principal => (Limit::PrincipalBytes, self.limits.principal_bytes),
            AccountScope::Peer => (Limit::PeerBytes, self.limits.peer_bytes),
        }
    }

    /// Adds `more` bytes to a charge of `size`, in this account and its parents or in none of them. Fails with the
    /// account that is full.
    fn try_add(&self, kind: ChargeKind, size: usize, more: usize) -> Result<(), &Self> {
        let reserve = self.reserve(kind, size.saturating_add(more));
        for (added, account) in self.ancestors().enumerate() {
            let (_, max) = account.max_bytes(reserve);
            if !add(&account.bytes, more, max) {
                for account in self.ancestors().take(added) {
                    account.bytes.fetch_sub(more, Ordering::AcqRel);
                }
                return Err(account);
            }
        }
        Ok(())
    }

    fn release(&self, bytes: usize, requests: usize) {
        for account in self.ancestors() {
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
        let mut principals = total.principals.lock();
        // `principal` may have created a new account of this name since the last `Arc` of this one was dropped.
        if principals
            .get(name)
            .is_some_and(|account| account.strong_count() == 0)
        {
            principals.remove(name);
        }
    }
}

/// Charged bytes, and possibly a request; returned to the account when dropped.
#[derive(Debug)]
#[must_use = "dropping a charge returns it to the account"]
pub(crate) struct Charge {
    account: Arc<Account>,
    kind: ChargeKind,
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

    /// Charges `more` bytes if possible. A failure is not counted as a refusal.
    pub(crate) fn try_grow(&mut self, more: usize) -> bool {
        let is_charged = self.account.try_add(self.kind, self.bytes, more).is_ok();
        if is_charged {
            self.grown(more);
        }
        is_charged
    }

    /// Charges `more` bytes.
    pub(crate) fn grow(&mut self, more: usize) -> Result<(), LimitReached> {
        match self.account.try_add(self.kind, self.bytes, more) {
            Ok(()) => {
                self.grown(more);
                Ok(())
            }
            Err(full) => {
                let (limit, max) = full.max_bytes(TotalReserve::None);
                Err(self.account.counters.refuse(limit, max))
            }
        }
    }

    /// Waits until `more` bytes can be charged. Fails immediately if too many tasks are waiting, since each of them
    /// holds bytes that it has read and could not charge.
    ///
    /// # Cancel safety
    ///
    /// Safe: the bytes are charged only when it returns.
    pub(crate) async fn wait_and_grow(&mut self, more: usize) -> Result<(), LimitReached> {
        let account = self.account.clone();
        let mut waiting: Option<WaitingTask<'_>> = None;
        while let Err(full) = account.try_add(self.kind, self.bytes, more) {
            // A task that was woken and failed again stays counted as waiting.
            if !waiting
                .as_ref()
                .is_some_and(|own| std::ptr::eq(own.0, full))
            {
                let (limit, max) = full.max_bytes(TotalReserve::None);
                let task = WaitingTask::of(full);
                waiting = Some(task.ok_or_else(|| account.counters.refuse(limit, max))?);
            }
            let freed = full.freed.notified();
            // Bytes may have been returned before `waiting` was incremented; that sent no notification.
            if account.try_add(self.kind, self.bytes, more).is_ok() {
                break;
            }
            freed.await;
            if account.try_add(self.kind, self.bytes, more).is_ok() {
                // `release` wakes one task, so this one wakes the next: there may be bytes for it, too.
                full.freed.notify_one();
                break;
            }
        }
        self.grown(more);
        Ok(())
    }

    /// Sets the charge to bytes that are already held, even beyond the limit. New charges are then refused.
    pub(crate) fn set(&mut self, bytes: usize) {
        if bytes < self.bytes {
            self.shrink(self.bytes - bytes);
        } else if bytes > self.bytes {
            let more = bytes - self.bytes;
            for account in self.account.ancestors() {
                account.bytes.fetch_add(more, Ordering::AcqRel);
            }
            self.grown(more);
        }
    }

    /// Moves bytes to a new charge, which counts as no request. Since no bytes are returned, no task is woken: a caller
    /// that holds a lock can drop the new charge after unlocking.
    pub(crate) fn split(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self {
            account: self.account.clone(),
            kind: self.kind,
            bytes,
            requests: 0,
        }
    }

    /// Returns some bytes to the account.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.counter().fetch_sub(bytes, Ordering::Relaxed);
        self.account.release(bytes, 0);
    }

    fn grown(&mut self, more: usize) {
        self.bytes += more;
        self.counter().fetch_add(more, Ordering::Relaxed);
    }

    fn counter(&self) -> &AtomicUsize {
        self.account.counters.bytes(self.kind)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.counter().fetch_sub(self.bytes, Ordering::Relaxed);
        self.account.release(self.bytes, self.requests);
    }
}

/// A guard that counts a task as waiting for bytes of an account.
struct WaitingTask<'a>(&'a Account);

impl<'a> WaitingTask<'a> {
    /// Counts a waiting task, unless there are too many.
    fn of(account: &'a Account) -> Option<Self> {
        add(&account.waiting, 1, MAX_WAITING).then(|| Self(account))
    }
}

impl Drop for WaitingTask<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Adds to a counter, unless the sum exceeds `max`.
fn add(counter: &AtomicUsize, more: usize, max: usize) -> bool {
    let added = counter.fetch_update(Ordering::AcqRel, Ordering::Acquire, |held| {
        held.checked_add(more).filter(|sum| *sum <= max)
    });
    added.is_ok()
}

/// Charges up to this size may use the last quarter of the total: a message of 64 KiB and the read-ahead of its
/// connection.
const MAX_SMALL_CHARGE: usize = 96 * 1024;
/// What a connection of HTTP/2 may leave unread before its charges count as large ones: a few small responses.
const MAX_FEW_UNREAD: usize = 16 * 1024;
/// The maximum number of tasks that wait for bytes of one account.
const MAX_WAITING: usize = 128;

/// The part of `Limits::total_bytes` that may be kept for longer than a request: requests need the rest.
const KEPT_SHARE: usize = 4;

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
    fn a_dropped_charge_is_released_in_all_accounts() {
        let total = Account::total(limits());
        let peer = total.principal(Some("ada")).peer();

        let charge = peer.charge_request(100).unwrap();
        let held = total.usage();
        drop(charge);

        assert_eq!((held.requests, held.request_bytes), (1, 100));
        assert_eq!(total.usage(), Usage::default());
        assert_eq!((total.requests(), peer.requests()), (0, 0));
    }

    #[test]
    fn a_refused_charge_changes_no_account() {
        let total = Account::total(limits());
        let peer = total.principal(Some("ada")).peer();

        assert_eq!(reached(peer.charge_request(300_001)), Limit::PeerBytes);

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
        let _two = [
            one.charge_request(1).unwrap(),
            one.charge_request(1).unwrap(),
        ];
        assert_eq!(reached(one.charge_request(1)), Limit::PeerRequests);

        let _third = other.charge_request(1).unwrap();
        assert_eq!(reached(other.charge_request(1)), Limit::PrincipalRequests);

        let anonymous = total.peer();
        let _fourth = anonymous.charge_request(1).unwrap();
        assert_eq!(reached(anonymous.charge_request(1)), Limit::Requests);
    }

    #[test]
    fn large_charges_leave_the_last_quarter_to_small_ones() {
        let total = Account::total(limits());
        let large: Vec<_> = (0..3)
            .map(|_| total.peer().charge(ChargeKind::Output, 250_000).unwrap())
            .collect();

        assert_eq!(
            reached(total.peer().charge(ChargeKind::Request, 100_000)),
            Limit::TotalBytes
        );
        assert!(
            total
                .peer()
                .charge(ChargeKind::Request, MAX_SMALL_CHARGE)
                .is_ok()
        );

        drop(large);
        assert!(total.peer().charge(ChargeKind::Request, 100_000).is_ok());
    }

    #[test]
    fn unread_responses_leave_the_last_eighth_to_requests_and_the_last_quarter_to_other_connections()
     {
        let total = Account::total(limits());
        let few = [total.peer(), total.peer(), total.peer()];
        let mut held: Vec<_> = few
            .iter()
            .flat_map(|it| std::iter::from_fn(|| it.charge(ChargeKind::Unread, 10_000).ok()))
            .collect();
        assert!((740_000..=750_000).contains(&total.usage().bytes()));
        assert_eq!(total.usage().output_bytes, total.usage().bytes());

        // Many connections with one response each.
        let other = || total.peer().charge(ChargeKind::Unread, 10_000).ok();
        held.extend(std::iter::from_fn(other).take(1000));

        assert!((865_000..=875_000).contains(&total.usage().bytes()));
        assert_eq!(
            reached(total.peer().charge(ChargeKind::Unread, 10_000)),
            Limit::TotalBytes
        );
        assert!(total.charge_request(10_000).is_ok());
    }

    #[test]
    fn peers_of_one_principal_share_its_account_while_one_exists() {
        let total = Account::total(limits());
        let first = total.principal(Some("ada"));

        assert!(Arc::ptr_eq(&first, &total.principal(Some("ada"))));
        assert!(!Arc::ptr_eq(&first, &total.principal(Some("bob"))));
        drop(first);

        assert!(total.principals.lock().is_empty());
    }

    #[tokio::test]
    async fn waiting_charges_grow_when_bytes_are_released() {
        let total = Account::total(limits());
        let held = total.charge(ChargeKind::Request, 740_000).unwrap();
        let mut waiting: Vec<_> = (0..3)
            .map(|_| {
                let mut charge = total.empty_charge(ChargeKind::Request);
                tokio::spawn(async move {
                    charge.wait_and_grow(100_000).await.unwrap();
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
    async fn beyond_the_limit_of_waiting_tasks_a_charge_is_refused_immediately() {
        let total = Account::total(limits());
        let held = total.charge(ChargeKind::Request, 700_000).unwrap();
        let mut charges: Vec<_> = (0..MAX_WAITING)
            .map(|_| total.empty_charge(ChargeKind::Request))
            .collect();
        let mut waiting: Vec<_> = charges
            .iter_mut()
            .map(|charge| Box::pin(charge.wait_and_grow(100_000)))
            .collect();
        for task in &mut waiting {
            assert!(
                std::future::poll_fn(|cx| Poll::Ready(task.as_mut().poll(cx).is_pending())).await
            );
        }

        let mut late = total.empty_charge(ChargeKind::Request);
        let refused = late.wait_and_grow(100_000).await;

        assert_eq!(refused.unwrap_err().limit, Limit::TotalBytes);
        assert_eq!(total.usage().refused(Limit::TotalBytes), 1);
        drop(held);
        drop(waiting);
        assert!(late.wait_and_grow(100_000).await.is_ok());
        assert_eq!(total.waiting.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_charge_can_be_released_in_parts() {
        let total = Account::total(limits());
        let mut whole = total.peer().charge_request(100).unwrap();

        let part = whole.split(30);
        let after_split = total.usage();
        drop(whole);

        assert_eq!((after_split.requests, after_split.bytes()), (1, 100));
        assert_eq!((total.usage().requests, total.usage().bytes()), (0, 30));
        drop(part);
        assert_eq!(total.usage(), Usage::default());
    }

    #[test]
    fn bytes_already_held_count_even_beyond_the_limit() {
        let total = Account::total(limits());
        let mut output = total.peer().empty_charge(ChargeKind::Output);

        output.set(2_000_000);

        assert_eq!(reached(total.peer().charge_request(1)), Limit::TotalBytes);
        output.set(10);
        assert!(total.peer().charge_request(1).is_ok());
        assert_eq!(total.usage().output_bytes, 10);
    }
}
