//! [`Pool`]: which connection to an upstream a call uses.
//!
//! A legacy server is told the capabilities of its client once, when the connection opens, and its requests to the
//! client name no call. So connections are kept by what they were told ([`PoolKey`]). All calls with the same key use one
//! connection, because the server may keep state for it, unless a higher limit allows a connection of its own to a call
//! about which the server may ask.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bowline::exchange::Digest;
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// What all calls of a connection have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PoolKey {
    /// The name of the principal.
    pub(crate) principal: Option<Arc<str>>,
    /// The digest of the client's capabilities; `None` for a connection that clients with any capabilities share.
    pub(crate) capabilities: Option<Digest>,
}

/// Whether a call wants a connection for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    Alone,
    Shared,
    /// Not a call but a subscription: it uses the connection that calls use, and does not keep them away from it, so
    /// that the changes of a process are those that its calls cause.
    Subscription,
}

/// The connections to one upstream. Clones share them.
pub(crate) struct Pool<C> {
    slots: Arc<Mutex<Slots<C>>>,
}

/// The connections of a [`Pool`], as long as it exists.
pub(crate) struct WeakPool<C>(Weak<Mutex<Slots<C>>>);

struct Slots<C> {
    by_key: BTreeMap<PoolKey, Vec<Slot<C>>>,
    next_id: u64,
    max_each: usize,
}

/// A connection, or the place for one that is being opened by its first call.
struct Slot<C> {
    id: u64,
    connection: Arc<OnceCell<C>>,
    calls: usize,
    subscriptions: usize,
    /// Whether its call is alone. More calls are added only if every slot is taken.
    is_taken: bool,
    /// When the last call ended, unless there is one.
    idle_since: Option<Instant>,
}

/// The use of a connection by one call. Dropping it gives the connection back.
pub(crate) struct Lease<C> {
    slots: Arc<Mutex<Slots<C>>>,
    key: PoolKey,
    id: u64,
    connection: Arc<OnceCell<C>>,
    is_subscription: bool,
}

impl<C> Pool<C> {
    /// Creates a pool with at most `max_each` connections per key.
    pub(crate) fn new(max_each: usize) -> Self {
        let slots = Slots {
            by_key: BTreeMap::new(),
            next_id: 0,
            max_each: max_each.max(1),
        };
        Self {
            slots: Arc::new(Mutex::new(slots)),
        }
    }

    /// Sets how many connections have the same key. Those that exist stay until they are idle for too long.
    pub(crate) fn set_max_each(&self, max_each: usize) {
        lock(&self.slots).max_each = max_each.max(1);
    }

    /// Chooses a connection: an idle one, the last used first, so that a client that makes one call after the other
    /// stays with one process; else one that is shared, if the call shares; else a new one; else the least used one.
    /// Connections that are not `usable` any more are removed.
    pub(crate) fn lease(
        &self,
        key: PoolKey,
        sharing: Sharing,
        usable: impl Fn(&C) -> bool,
    ) -> Lease<C> {
        let mut slots = lock(&self.slots);
        let new_id = slots.next_id;
        slots.next_id += 1;
        let max_each = slots.max_each;
        let of_key = slots.by_key.entry(key.clone()).or_default();
        let is_over = |slot: &mut Slot<C>| slot.connection.get().is_some_and(|it| !usable(it));
        // Nothing is allocated if all are usable, which is nearly always so.
        let removed: Vec<_> = of_key.extract_if(.., is_over).collect();
        let chosen = choose(of_key, sharing, max_each).unwrap_or_else(|| {
            of_key.push(Slot::new(new_id));
            of_key.len() - 1
        });
        let slot = &mut of_key[chosen];
        slot.enter(sharing);
        let lease = Lease {
            slots: self.slots.clone(),
            key,
            id: slot.id,
            connection: slot.connection.clone(),
            is_subscription: sharing == Sharing::Subscription,
        };
        drop(slots);
        drop(removed); // not under the lock: it may close a connection
        lease
    }

    /// Removes and returns the connections that have been idle since before `limit`.
    pub(crate) fn take_idle(&self, limit: Instant) -> Vec<Arc<OnceCell<C>>> {
        let mut slots = lock(&self.slots);
        let mut idle = Vec::new();
        slots.by_key.retain(|_, of_key| {
            of_key.retain(|slot| {
                let is_idle = slot.unused_since().is_some_and(|since| since <= limit);
                if is_idle {
                    idle.push(slot.connection.clone());
                }
                !is_idle
            });
            !of_key.is_empty()
        });
        idle
    }

    /// Returns all connections, and places of those that are being opened.
    pub(crate) fn connections(&self) -> Vec<Arc<OnceCell<C>>> {
        let slots = lock(&self.slots);
        let all = slots.by_key.values().flatten();
        all.map(|slot| slot.connection.clone()).collect()
    }

    pub(crate) fn downgrade(&self) -> WeakPool<C> {
        WeakPool(Arc::downgrade(&self.slots))
    }

    /// Removes the connection that has been idle longest of those that `may_close`, to make room for another.
    pub(crate) fn take_idlest(&self, may_close: impl Fn(&C) -> bool) -> Option<Arc<OnceCell<C>>> {
        let mut slots = lock(&self.slots);
        let all = slots.by_key.iter();
        let all = all.flat_map(|(key, of_key)| of_key.iter().map(move |slot| (key, slot)));
        let open = all.filter(|(_, slot)| slot.connection.get().is_some_and(&may_close));
        let idle =
            open.filter_map(|(key, slot)| Some((slot.unused_since()?, key.clone(), slot.id)));
        let (_, key, id) = idle.min_by_key(|(since, ..)| *since)?;
        slots.remove(&key, id)
    }
}

impl<C> WeakPool<C> {
    pub(crate) fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }

    /// Removes all connections. Those that are in use are closed after their last call.
    pub(crate) fn clear(&self) {
        let Some(slots) = self.0.upgrade() else {
            return;
        };
        let removed = std::mem::take(&mut lock(&slots).by_key);
        drop(removed); // not under the lock: it closes connections
    }
}

impl<C> Clone for Pool<C> {
    fn clone(&self) -> Self {
        Self {
            slots: self.slots.clone(),
        }
    }
}

/// Returns the index of the slot to use; `None` for a new one.
fn choose<C>(of_key: &[Slot<C>], sharing: Sharing, max: usize) -> Option<usize> {
    let indexed = || of_key.iter().enumerate();
    let idle = indexed().filter_map(|(index, slot)| Some((slot.idle_since?, index)));
    if let Some((_, index)) = idle.max() {
        return Some(index);
    }
    if sharing != Sharing::Alone
        && let Some((index, _)) = indexed().find(|(_, slot)| !slot.is_taken)
    {
        return Some(index);
    }
    let may_open = of_key.is_empty() || sharing != Sharing::Subscription;
    if of_key.len() < max && may_open {
        return None;
    }
    indexed()
        .min_by_key(|(_, slot)| slot.calls)
        .map(|(index, _)| index)
}

impl<C> Slot<C> {
    fn new(id: u64) -> Self {
        Self {
            id,
            connection: Arc::default(),
            calls: 0,
            subscriptions: 0,
            is_taken: false,
            idle_since: None,
        }
    }

    fn enter(&mut self, sharing: Sharing) {
        if sharing == Sharing::Subscription {
            self.subscriptions += 1;
            if self.calls == 0 {
                self.idle_since.get_or_insert_with(Instant::now);
            }
            return;
        }
        self.calls += 1;
        self.is_taken |= sharing == Sharing::Alone;
        self.idle_since = None;
    }

    /// Returns whether it is unused now.
    fn leave(&mut self, is_subscription: bool) -> bool {
        if is_subscription {
            self.subscriptions -= 1;
        } else {
            self.calls -= 1;
        }
        if self.calls == 0 {
            self.is_taken = false;
            self.idle_since = Some(Instant::now());
        }
        self.calls + self.subscriptions == 0
    }

    fn unused_since(&self) -> Option<Instant> {
        self.idle_since.filter(|_| self.subscriptions == 0)
    }
}

impl<C> Slots<C> {
    /// Returns a slot that was leased with `key`. It may have [another one](Lease::set_key) now.
    fn get_mut(&mut self, key: &PoolKey, id: u64) -> Option<&mut Slot<C>> {
        let has_slot = |of_key: &Vec<Slot<C>>| of_key.iter().any(|slot| slot.id == id);
        let of_key = match self.by_key.get(key).is_some_and(has_slot) {
            true => self.by_key.get_mut(key),
            false => self.by_key.values_mut().find(|of_key| has_slot(of_key)),
        };
        of_key?.iter_mut().find(|slot| slot.id == id)
    }

    /// Moves a slot, unless there is one with the key `to` already.
    fn set_key(&mut self, from: &PoolKey, id: u64, to: &PoolKey) {
        if self.by_key.get(to).is_some_and(|of_key| !of_key.is_empty()) {
            return;
        }
        let Some(of_key) = self.by_key.get_mut(from) else {
            return;
        };
        let moved: Vec<_> = of_key.extract_if(.., |slot| slot.id == id).collect();
        if of_key.is_empty() {
            self.by_key.remove(from);
        }
        if !moved.is_empty() {
            self.by_key.insert(to.clone(), moved);
        }
    }

    fn remove(&mut self, key: &PoolKey, id: u64) -> Option<Arc<OnceCell<C>>> {
        let of_key = self.by_key.get_mut(key)?;
        let index = of_key.iter().position(|slot| slot.id == id)?;
        let removed = of_key.remove(index);
        if of_key.is_empty() {
            self.by_key.remove(key);
        }
        Some(removed.connection)
    }
}

impl<C> Lease<C> {
    /// Returns the place of the connection, which the first call fills.
    pub(crate) fn cell(&self) -> &Arc<OnceCell<C>> {
        &self.connection
    }

    /// Makes the connection that of another key, if this key has none yet: opening it has shown that more calls can use
    /// it. Other calls that use it now are not affected.
    pub(crate) fn set_key(&self, key: &PoolKey) {
        lock(&self.slots).set_key(&self.key, self.id, key);
    }

    /// Removes the connection from the pool. It is closed after its last call.
    pub(crate) fn discard(&self) {
        let removed = lock(&self.slots).remove(&self.key, self.id);
        drop(removed); // not under the lock
    }

    /// Returns the connection, once it is open.
    pub(crate) fn get(&self) -> Option<&C> {
        self.connection.get()
    }
}

impl<C> Drop for Lease<C> {
    fn drop(&mut self) {
        let mut slots = lock(&self.slots);
        let Some(slot) = slots.get_mut(&self.key, self.id) else {
            return;
        };
        let is_unused = slot.leave(self.is_subscription);
        if is_unused && slot.connection.get().is_none() {
            // It was never opened: the next call starts afresh.
            let removed = slots.remove(&self.key, self.id);
            drop(slots);
            drop(removed);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use bowline::exchange::request_digest;

    use super::*;

    fn capabilities(text: &str) -> Option<Digest> {
        Some(request_digest(text, None))
    }

    fn open(pool: &Pool<u32>, sharing: Sharing, number: u32) -> Lease<u32> {
        let lease = pool.lease(PoolKey::default(), sharing, |_| true);
        let _ = lease.cell().set(number); // fails if it is open already
        lease
    }

    #[test]
    fn a_call_alone_has_its_own_connection_until_the_limit_and_then_shares_the_least_used() {
        let pool = Pool::new(2);

        let leases = [1, 2, 3, 4].map(|number| open(&pool, Sharing::Alone, number));

        assert_eq!(
            leases.each_ref().map(|lease| *lease.get().unwrap()),
            [1, 2, 1, 2]
        );
    }

    #[test]
    fn shared_calls_use_one_connection_and_not_that_of_a_call_alone() {
        let pool = Pool::new(4);

        let alone = open(&pool, Sharing::Alone, 1);
        let shared = [2, 3].map(|number| open(&pool, Sharing::Shared, number));

        assert_eq!(alone.get(), Some(&1));
        assert_eq!(shared.each_ref().map(|lease| *lease.get().unwrap()), [2, 2]);
    }

    #[test]
    fn calls_one_after_the_other_stay_with_the_connection_that_was_used_last() {
        let pool = Pool::new(4);
        let (first, second) = (
            open(&pool, Sharing::Alone, 1),
            open(&pool, Sharing::Alone, 2),
        );
        drop(second);
        drop(first);

        for _ in 0..3 {
            assert_eq!(open(&pool, Sharing::Alone, 9).get(), Some(&1));
        }
    }

    #[test]
    fn a_subscription_uses_the_connection_of_calls_and_calls_use_that_of_a_subscription() {
        let pool = Pool::new(4);

        let subscription = open(&pool, Sharing::Subscription, 1);
        let alone = open(&pool, Sharing::Alone, 2);
        let second = open(&pool, Sharing::Subscription, 3);
        assert_eq!(
            [&subscription, &alone, &second].map(|lease| *lease.get().unwrap()),
            [1, 1, 1]
        );

        drop((alone, second));
        assert!(pool.take_idle(Instant::now()).is_empty());
        drop(subscription);
        assert_eq!(pool.take_idle(Instant::now()).len(), 1);
    }

    #[test]
    fn a_connection_with_another_key_is_found_by_it_and_given_back_by_all_its_calls() {
        let pool = Pool::new(4);
        let lease = || {
            let key = PoolKey {
                principal: None,
                capabilities: capabilities("{}"),
            };
            pool.lease(key, Sharing::Shared, |_| true)
        };
        let calls = [lease(), lease()];
        calls[0].cell().set(1).unwrap();

        calls
            .iter()
            .for_each(|call| call.set_key(&PoolKey::default()));

        let later = open(&pool, Sharing::Shared, 2);
        assert_eq!(later.get(), Some(&1));
        assert_eq!(lease().get(), None);
        drop(later);
        assert!(pool.take_idle(Instant::now()).is_empty());
        drop(calls);
        assert_eq!(pool.take_idle(Instant::now()).len(), 1);
    }

    #[test]
    fn a_connection_does_not_get_a_key_that_has_another_connection() {
        let pool = Pool::new(4);
        let shared = PoolKey::default();
        let own = PoolKey {
            capabilities: capabilities("own"),
            ..shared.clone()
        };
        let _shared = open(&pool, Sharing::Shared, 1);
        let lease = pool.lease(own.clone(), Sharing::Shared, |_| true);
        lease.cell().set(2).unwrap();

        lease.set_key(&shared);

        let of_own = pool.lease(own, Sharing::Shared, |_| true);
        assert_eq!(of_own.get(), Some(&2));
        assert_eq!(open(&pool, Sharing::Shared, 3).get(), Some(&1));
    }

    #[test]
    fn another_principal_or_other_capabilities_have_another_connection() {
        let pool = Pool::new(4);
        let keys = [("ada", "{}"), ("ada", r#"{"roots":{}}"#), ("eve", "{}")];

        for (number, (principal, declared)) in keys.into_iter().enumerate() {
            let key = PoolKey {
                principal: Some(principal.into()),
                capabilities: capabilities(declared),
            };
            let lease = pool.lease(key, Sharing::Shared, |_| true);
            assert_eq!(lease.get(), None);
            lease.cell().set(number).unwrap();
        }
    }

    #[test]
    fn a_connection_that_is_not_usable_is_replaced() {
        let pool = Pool::new(1);
        drop(open(&pool, Sharing::Shared, 1));

        let next = pool.lease(PoolKey::default(), Sharing::Shared, |number| *number != 1);

        assert_eq!(next.get(), None);
    }

    #[test]
    fn a_discarded_connection_is_replaced_and_given_back_by_its_calls() {
        let pool = Pool::new(1);
        let calls = [
            open(&pool, Sharing::Shared, 1),
            open(&pool, Sharing::Shared, 1),
        ];

        calls[0].discard();

        assert_eq!(open(&pool, Sharing::Shared, 2).get(), Some(&2));
        drop(calls);
        assert_eq!(open(&pool, Sharing::Shared, 3).get(), Some(&2));
    }

    #[test]
    fn a_connection_that_was_never_opened_is_forgotten() {
        let pool = Pool::<u32>::new(1);
        drop(pool.lease(PoolKey::default(), Sharing::Shared, |_| true));

        assert!(pool.take_idlest(|_| true).is_none());
    }

    #[test]
    fn idle_connections_are_taken_and_used_ones_are_not() {
        let pool = Pool::new(4);
        let (used, idle) = (
            open(&pool, Sharing::Alone, 1),
            open(&pool, Sharing::Alone, 2),
        );
        drop(idle);

        let taken: Vec<_> = pool
            .take_idle(Instant::now())
            .iter()
            .filter_map(|cell| cell.get().copied())
            .collect();

        assert_eq!(taken, [2]);
        drop(used);
        assert!(pool.take_idlest(|_| false).is_none());
        let idlest = pool.take_idlest(|_| true).unwrap();
        assert_eq!(idlest.get(), Some(&1));
    }
}
