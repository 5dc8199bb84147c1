//! [`Owners`]: which replica has the connections of a client to a server that keeps state.
//!
//! The owner is a mark with a lease. It is set by the first request, renewed while the connections may be open, and taken
//! over when the owner has ended.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline::RpcError;
use bowline::cluster::{Cluster, Marks, ReplicaId};
use bowline::exchange::request_digest;
use serde_json::json;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

/// What has one owner: the connections to an upstream with the same principal and capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OwnerKey([u8; 32]);

impl OwnerKey {
    /// `parts` are the service, the upstream and the capabilities.
    pub(super) fn new(parts: [&str; 3], principal: Option<&str>) -> Self {
        let text = json!(["owner of connections", parts, principal]);
        Self(*request_digest(&text.to_string(), None).as_bytes())
    }
}

/// Where a request is answered.
pub(super) enum Owner {
    Here(OwnerUse),
    At(ReplicaId),
}

/// The owned keys of this replica. Dropping it ends the renewal of their leases.
pub(super) struct Owners {
    shared: Arc<OwnersShared>,
    renewing: JoinHandle<()>,
}

struct OwnersShared {
    cluster: Cluster,
    owned: Mutex<BTreeMap<OwnerKey, OwnedKey>>,
}

struct OwnedKey {
    /// `None` for anonymous clients, which are not counted one by one.
    principal: Option<Arc<str>>,
    /// Earlier than the end of the mark.
    valid_until: Instant,
    uses: usize,
    used_at: Instant,
    /// For how long connections are kept after their last use.
    idle_timeout: Duration,
}

/// A request that uses the connections.
pub(super) struct OwnerUse {
    shared: Arc<OwnersShared>,
    key: OwnerKey,
}

impl Drop for OwnerUse {
    fn drop(&mut self) {
        if let Some(owned) = self.shared.lock().get_mut(&self.key) {
            owned.uses = owned.uses.saturating_sub(1);
            owned.used_at = Instant::now();
        }
    }
}

impl Owners {
    /// Must be called within a tokio runtime.
    pub(super) fn start(cluster: Cluster) -> Self {
        let shared = Arc::new(OwnersShared {
            cluster,
            owned: Mutex::default(),
        });
        let renewing = tokio::spawn(renew(shared.clone()));
        Self { shared, renewing }
    }

    /// Returns the use of connections that this replica owns.
    pub(super) fn here(&self, key: OwnerKey) -> Option<OwnerUse> {
        let mut owned = self.shared.lock();
        let entry = owned.get_mut(&key)?;
        if entry.valid_until <= Instant::now() {
            return None;
        }
        entry.uses += 1;
        drop(owned);
        Some(OwnerUse {
            shared: self.shared.clone(),
            key,
        })
    }

    /// Returns the owner, which is this replica if there was none.
    ///
    /// # Errors
    ///
    /// If the engine is away: two replicas might run the server for one client otherwise. If this replica, or the
    /// principal on it, owns too many connections.
    pub(super) async fn find(
        &self,
        key: OwnerKey,
        principal: Option<&str>,
        idle_timeout: Duration,
    ) -> Result<Owner, RpcError> {
        if let Some(used) = self.here(key) {
            return Ok(Owner::Here(used));
        }
        self.shared.check_room(principal)?;
        let marks = self.shared.cluster.marks();
        let own = self.shared.cluster.replica();
        let asked_at = Instant::now();
        let found = marks.set_if_absent(&key.0, own.as_bytes(), LEASE).await;
        let found = found.map_err(|error| unknown_owner(&error))?;
        let other = found.and_then(|owner| <[u8; ReplicaId::LEN]>::try_from(&*owner).ok());
        match other.map(ReplicaId::from_bytes) {
            None => Ok(self.own(key, principal, asked_at, idle_timeout)),
            // The lease was not renewed in time, and is still there.
            Some(owner) if owner == own => match marks.renew(&key.0, own.as_bytes(), LEASE).await {
                Ok(true) => Ok(self.own(key, principal, asked_at, idle_timeout)),
                Ok(false) => Err(unknown_owner(&"the lease has just expired")),
                Err(error) => Err(unknown_owner(&error)),
            },
            Some(owner) => Ok(Owner::At(owner)),
        }
    }

    /// Makes this replica the owner in place of one that has ended. Without effect if another one was faster.
    pub(super) async fn take_over(&self, key: OwnerKey, from: ReplicaId) -> Result<(), RpcError> {
        let own = self.shared.cluster.replica();
        let marks = self.shared.cluster.marks();
        let replaced = marks.replace(&key.0, from.as_bytes(), own.as_bytes(), LEASE);
        let replaced = replaced.await.map_err(|error| unknown_owner(&error))?;
        if replaced {
            tracing::warn!(%from, "took over the connections of a replica that has ended; their state is lost");
        }
        Ok(())
    }

    fn own(
        &self,
        key: OwnerKey,
        principal: Option<&str>,
        asked_at: Instant,
        idle_timeout: Duration,
    ) -> Owner {
        let mut owned = self.shared.lock();
        let entry = owned.entry(key).or_insert_with(|| OwnedKey {
            principal: principal.map(Arc::from),
            valid_until: asked_at,
            uses: 0,
            used_at: asked_at,
            idle_timeout,
        });
        entry.valid_until = asked_at + LEASE - MARGIN;
        entry.uses += 1;
        drop(owned);
        Owner::Here(OwnerUse {
            shared: self.shared.clone(),
            key,
        })
    }

    /// Gives all connections up, so that other replicas need not wait for the end of the leases. Leases that are left
    /// after a few seconds expire.
    pub(super) async fn release(&self) {
        let owned = std::mem::take(&mut *self.shared.lock());
        let keys: Vec<_> = owned.into_keys().collect();
        let removing = for_each(&self.shared, &keys, remove);
        if tokio::time::timeout(RELEASE_TIME, removing).await.is_err() {
            tracing::debug!(
                "the engine did not answer in time; the leases of this replica will expire"
            );
        }
    }
}

impl Drop for Owners {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

impl OwnersShared {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<OwnerKey, OwnedKey>> {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that one more key can be owned. A client has another key for each set of capabilities that it declares, so
    /// that one principal could have all of them.
    fn check_room(&self, principal: Option<&str>) -> Result<(), RpcError> {
        let owned = self.lock();
        if owned.len() >= MAX_OWNED {
            return Err(unknown_owner(&"this replica has too many clients"));
        }
        let is_own = |entry: &&OwnedKey| entry.principal.as_deref() == principal;
        let has_room = |_: &str| owned.values().filter(is_own).count() < MAX_OWNED_EACH;
        match principal.is_none_or(has_room) {
            true => Ok(()),
            false => Err(unknown_owner(
                &"this replica has too many clients of this principal",
            )),
        }
    }

    /// Removes keys whose connections are closed, and returns those to give up and those to renew.
    fn due(&self) -> (Vec<OwnerKey>, Vec<OwnerKey>) {
        let now = Instant::now();
        let mut owned = self.lock();
        let is_idle = |entry: &OwnedKey| {
            entry.uses == 0 && now.saturating_duration_since(entry.used_at) > entry.idle_timeout
        };
        let idle: Vec<_> = (owned.iter())
            .filter(|(_, entry)| is_idle(entry))
            .map(|(key, _)| *key)
            .collect();
        owned.retain(|_, entry| !is_idle(entry));
        (idle, owned.keys().copied().collect())
    }
}

/// Renews the leases, until the task is aborted.
async fn renew(shared: Arc<OwnersShared>) {
    let mut ticks = tokio::time::interval(LEASE / 3);
    loop {
        ticks.tick().await;
        let (idle, used) = shared.due();
        // First the renewals, which are urgent.
        for_each(&shared, &used, renew_one).await;
        for_each(&shared, &idle, remove).await;
    }
}

/// Runs `act` for each key, for some at the same time.
///
/// # Cancel safety
///
/// Dropping the future ends those that are running.
async fn for_each<F: Future<Output = ()> + Send + 'static>(
    shared: &Arc<OwnersShared>,
    keys: &[OwnerKey],
    act: fn(Arc<OwnersShared>, OwnerKey) -> F,
) {
    for keys in keys.chunks(AT_ONCE) {
        let mut acting = JoinSet::new();
        for key in keys {
            acting.spawn(act(shared.clone(), *key));
        }
        while acting.join_next().await.is_some() {}
    }
}

async fn remove(shared: Arc<OwnersShared>, key: OwnerKey) {
    let own = shared.cluster.replica();
    let removed = shared.cluster.marks().remove(&key.0, own.as_bytes()).await;
    if let Err(error) = removed {
        tracing::debug!(%error, "failed to give up the connections of a client; the lease will expire");
    }
}

async fn renew_one(shared: Arc<OwnersShared>, key: OwnerKey) {
    let own = shared.cluster.replica();
    let asked_at = Instant::now();
    let marks = shared.cluster.marks();
    let renewed = marks.renew(&key.0, own.as_bytes(), LEASE).await;
    let mut owned = shared.lock();
    match (renewed, owned.get_mut(&key)) {
        (Ok(true), Some(entry)) => entry.valid_until = asked_at + LEASE - MARGIN,
        (Ok(false), Some(_)) => {
            owned.remove(&key);
            tracing::warn!("another replica has taken over the connections of a client");
        }
        // Tried again, until the lease has expired.
        (Err(error), _) => tracing::warn!(%error, "failed to renew a lease"),
        (_, None) => {}
    }
}

fn unknown_owner(error: &dyn std::fmt::Display) -> RpcError {
    let what = format!("failed to find the replica that is connected to the server: {error}");
    let data = json!({"reason": "ownerUnknown", "retryable": true, "mayHaveRun": false});
    RpcError::internal(what).with_data(data)
}

/// How long a replica that has ended keeps its clients from the others, if it cannot be found to be gone.
const LEASE: Duration = Duration::from_secs(30);
/// How much earlier than the mark the lease ends for its owner: two replicas must not both have it.
const MARGIN: Duration = Duration::from_secs(5);

/// The clients whose connections one replica owns; some 200 bytes and a mark each.
const MAX_OWNED: usize = 10_000;
/// Those of one authenticated principal.
const MAX_OWNED_EACH: usize = 1_000;
/// Ten thousand leases are renewed in time if a renewal takes less than 60 ms.
const AT_ONCE: usize = 64;
/// How long a bridge that closes waits for the engine.
const RELEASE_TIME: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use bowline::cluster::{MarkFuture, MemoryCluster, MemoryMarks};
    use bytes::Bytes;

    use super::*;

    fn owners(memory: &MemoryCluster) -> Owners {
        Owners::start(memory.replica().unwrap().into())
    }

    /// Passes so many thirds of a lease, after each of which leases are renewed.
    async fn pass_time(thirds: usize) {
        for _ in 0..thirds {
            tokio::time::advance(LEASE / 3).await;
            for _ in 0..8 {
                tokio::task::yield_now().await;
            }
        }
    }

    const IDLE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn connections_have_one_owner_until_they_were_idle_for_long() {
        let memory = MemoryCluster::new();
        let (first, second) = (owners(&memory), owners(&memory));
        let key = OwnerKey::new(["bridge", "files", "{}"], Some("ada"));

        let used = first.find(key, None, IDLE).await.unwrap();
        assert!(matches!(used, Owner::Here(_)));
        pass_time(30).await;
        let found = second.find(key, None, IDLE).await.unwrap();
        let own = first.shared.cluster.replica();
        assert!(matches!(found, Owner::At(owner) if owner == own));

        drop(used);
        pass_time(9).await;
        assert!(first.here(key).is_none());
        let found = second.find(key, None, IDLE).await.unwrap();
        assert!(matches!(found, Owner::Here(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_ended_owner_is_replaced_by_one_of_the_others() {
        let memory = MemoryCluster::new();
        let (ended, [second, third]) = (owners(&memory), [(); 2].map(|()| owners(&memory)));
        let key = OwnerKey::new(["bridge", "files", "{}"], None);
        drop(ended.find(key, None, IDLE).await.unwrap());
        let from = ended.shared.cluster.replica();
        drop(ended);

        second.take_over(key, from).await.unwrap();
        third.take_over(key, from).await.unwrap();

        assert!(matches!(
            second.find(key, None, IDLE).await,
            Ok(Owner::Here(_))
        ));
        assert!(matches!(
            third.find(key, None, IDLE).await,
            Ok(Owner::At(_))
        ));
        second.release().await;
        assert!(matches!(
            third.find(key, None, IDLE).await,
            Ok(Owner::Here(_))
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn a_principal_with_many_sets_of_capabilities_leaves_room_for_others() {
        let owners = owners(&MemoryCluster::new());
        let find = async |name: &str, number: usize| {
            let key = OwnerKey::new(["bridge", "files", &number.to_string()], Some(name));
            owners.find(key, Some(name), IDLE).await.map(drop)
        };

        for number in 0..MAX_OWNED_EACH {
            find("ada", number).await.unwrap();
        }

        let refused = find("ada", MAX_OWNED_EACH).await.unwrap_err();
        assert!(refused.message.contains("of this principal"), "{refused:?}");
        find("ada", 0).await.unwrap();
        find("bob", MAX_OWNED_EACH).await.unwrap();
    }

    /// Marks that can be set, and whose engine answers nothing else.
    struct SilentMarks(MemoryMarks);

    impl Marks for SilentMarks {
        fn set_if_absent<'a>(
            &'a self,
            key: &'a [u8],
            value: &'a [u8],
            lifetime: Duration,
        ) -> MarkFuture<'a, Option<Bytes>> {
            self.0.set_if_absent(key, value, lifetime)
        }

        fn set<'a>(&'a self, _: &'a [u8], _: &'a [u8], _: Duration) -> MarkFuture<'a, ()> {
            Box::pin(std::future::pending())
        }

        fn replace<'a>(
            &'a self,
            _: &'a [u8],
            _: &'a [u8],
            _: &'a [u8],
            _: Duration,
        ) -> MarkFuture<'a, bool> {
            Box::pin(std::future::pending())
        }

        fn read<'a>(&'a self, _: &'a [u8]) -> MarkFuture<'a, Option<Bytes>> {
            Box::pin(std::future::pending())
        }

        fn remove<'a>(&'a self, _: &'a [u8], _: &'a [u8]) -> MarkFuture<'a, bool> {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn giving_connections_up_ends_in_time_while_the_engine_is_silent() {
        let replica = MemoryCluster::new().replica().unwrap();
        let owners = Owners::start(Cluster::new(
            replica,
            SilentMarks(MemoryMarks::new()),
            [7; 32],
        ));
        let key = OwnerKey::new(["bridge", "files", "{}"], None);
        drop(owners.find(key, None, IDLE).await.unwrap());
        let begun = Instant::now();

        let released = tokio::time::timeout(2 * RELEASE_TIME, owners.release()).await;

        assert!(released.is_ok());
        assert!(begun.elapsed() >= RELEASE_TIME, "it has not tried");
    }

    #[test]
    fn other_upstreams_principals_and_capabilities_have_other_owners() {
        let keys = [
            OwnerKey::new(["bridge", "a", "{}"], None),
            OwnerKey::new(["bridge", "b", "{}"], None),
            OwnerKey::new(["bridge", "a", "{}"], Some("")),
            OwnerKey::new(["bridge", "a", ""], None),
            OwnerKey::new(["other", "a", "{}"], None),
        ];
        for (index, key) in keys.iter().enumerate() {
            assert!(!keys[..index].contains(key), "{index}");
        }
    }
}
