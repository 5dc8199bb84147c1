//! Settings of servers with several replicas: the keys of session ids, and how clients are routed.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bowline_types::Json;
use serde_json::Value;
use tokio::time::Instant;

use super::Legacy;
use super::session_id::HandshakeFacts;
use super::streams::StreamLayout;
use crate::http::server::ServiceState;
use crate::seal::Sealer;

/// The keys of session ids, and what is known of the replicas that have them.
#[derive(Clone)]
pub(super) struct ReplicaSettings {
    pub(super) keys: Sealer,
    /// How long after the handshake an id can be opened.
    pub(super) lifetime: Duration,
    sharing: KeySharing,
    routing: Routing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeySharing {
    /// A random key: ids open in this process only.
    Random,
    /// Other processes have the key.
    Shared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Routing {
    AnyReplica,
    /// Each client is sent to one replica for as long as that lives.
    Sticky,
}

impl ReplicaSettings {
    fn is_shared(&self) -> bool {
        self.sharing == KeySharing::Shared
    }
}

impl ServiceState {
    /// Returns the keys of session ids: those that were set, or of the cluster, or random ones.
    pub(super) fn session_keys(&self) -> &Sealer {
        let settings = &self.legacy.replicas;
        match &self.cluster {
            Some(cluster) if !settings.is_shared() => cluster.keys(),
            _ => &settings.keys,
        }
    }

    /// Returns whether other processes may serve the same session.
    pub(super) fn has_replicas(&self) -> bool {
        self.cluster.is_some() || self.legacy.replicas.is_shared()
    }

    /// Returns whether `resources.subscribe` is not offered: without a cluster, the notifications would be sent by the
    /// replica that received the request, and the client may listen to another.
    pub(super) fn hides_subscribe(&self, layout: StreamLayout) -> bool {
        // With HTTP+SSE there is one replica that has the stream of a session, and no other can serve it.
        self.cluster.is_none()
            && self.has_replicas()
            && self.legacy.replicas.routing == Routing::AnyReplica
            && layout == StreamLayout::StreamableHttp
    }
}

impl Default for ReplicaSettings {
    fn default() -> Self {
        Self {
            keys: Sealer::random(),
            lifetime: DEFAULT_LIFETIME,
            sharing: KeySharing::Random,
            routing: Routing::AnyReplica,
        }
    }
}

/// Prints no key.
impl fmt::Debug for ReplicaSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicaSettings")
            .field("lifetime", &self.lifetime)
            .field("sharing", &self.sharing)
            .field("routing", &self.routing)
            .finish_non_exhaustive()
    }
}

impl Legacy {
    /// Sets the keys of session ids, which all replicas share.
    ///
    /// A session id contains what the handshake fixed, encrypted. Any replica that has the keys serves the session, and
    /// so does a process that was started again: clients of a rolling deploy keep their sessions. Without this, each
    /// process has a random key.
    ///
    /// [`Server::cluster`](crate::Server::cluster) sets the keys of the cluster. Without a cluster, what changes after the
    /// handshake stays on the replica that received it: a cancel or the answer to a request of the
    /// server must reach the replica that it concerns, and a stream is resumed where it was. Clients are not offered
    /// `resources.subscribe`, unless [routing is sticky](Self::sticky_routing).
    ///
    /// To rotate a key, first add the new key to all replicas with [`Sealer::also_decrypt`], then encrypt with it, and
    /// remove the old key one [`session_lifetime`](Self::session_lifetime) later.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::Server;
    /// use bowline::http::legacy::Legacy;
    /// use bowline::seal::Sealer;
    ///
    /// # let (today, yesterday) = ([1; 32], [2; 32]);
    /// let keys = Sealer::new(today).also_decrypt(yesterday);
    /// let service = Server::new("notes", "1.0.0").http().legacy(Legacy::sessions().shared_keys(keys));
    /// ```
    pub fn shared_keys(mut self, keys: impl Into<Sealer>) -> Self {
        self.replicas.keys = keys.into();
        self.replicas.sharing = KeySharing::Shared;
        self
    }

    /// Declares that a load balancer sends all requests of a session to one replica, by its `Mcp-Session-Id`. Clients are
    /// then offered `resources.subscribe`.
    ///
    /// A replica does not revive a session of a server with subscriptions that another replica has opened, because the
    /// subscriptions would be lost: the client gets status 404 and opens another session.
    pub fn sticky_routing(mut self) -> Self {
        self.replicas.routing = Routing::Sticky;
        self
    }

    /// Sets how long after its handshake a session can be restored, or served by another replica. Default: 24 h. Afterwards
    /// it lasts while it is in use here; then the client gets status 404 and opens another session.
    pub fn session_lifetime(mut self, lifetime: Duration) -> Self {
        self.replicas.lifetime = lifetime;
        self
    }
}

impl HandshakeFacts {
    /// Returns when the handshake was, or now if that cannot be represented.
    pub(super) fn opened_at(&self) -> Instant {
        let age = unix_seconds().saturating_sub(self.created);
        let now = Instant::now();
        now.checked_sub(Duration::from_secs(age)).unwrap_or(now)
    }
}

/// Returns the seconds since 1970.
pub(super) fn unix_seconds() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

/// Removes `resources.subscribe` from the result of a handshake.
pub(super) fn without_subscribe(result: Json) -> Json {
    let Ok(mut edited) = result.decode::<Value>() else {
        return result;
    };
    let resources = edited.pointer_mut("/capabilities/resources");
    let Some(resources) = resources.and_then(Value::as_object_mut) else {
        return result;
    };
    match resources.remove("subscribe") {
        Some(_) => Json::from(edited),
        None => result,
    }
}

const DEFAULT_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn subscribe_is_removed_from_a_handshake_and_nothing_else() {
        let result = json!({"capabilities": {"resources": {"subscribe": true, "listChanged": true},
            "tools": {}}, "serverInfo": {"name": "s", "version": "1"}});
        let other = json!({"capabilities": {"tools": {}}});

        let edited = without_subscribe(result.into());

        let expected = json!({"capabilities": {"resources": {"listChanged": true}, "tools": {}},
            "serverInfo": {"name": "s", "version": "1"}});
        assert_eq!(edited.decode::<Value>().unwrap(), expected);
        let unchanged = without_subscribe(other.clone().into());
        assert_eq!(unchanged.decode::<Value>().unwrap(), other);
    }

    #[test]
    fn keys_are_not_in_the_debug_output() {
        let legacy = Legacy::sessions().shared_keys([77; 32]);

        let shown = format!("{:?}", legacy.replicas);

        assert!(!shown.contains("77"), "{shown}");
    }
}
