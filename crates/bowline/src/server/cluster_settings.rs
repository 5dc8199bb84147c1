//! The settings of a [`Server`] that its replicas share: changes, marks and keys.

use std::sync::Arc;

use super::cluster_bus::ClusterBus;
use super::{ChangeBus, RequestStateKeys, Server};
use crate::cluster::{Cluster, Marks};

impl Server {
    /// Makes this server one of several replicas, which share an engine such as Redis:
    ///
    /// - change notifications reach the subscriptions of all replicas, as with a [`change_bus`](Self::change_bus);
    /// - the effects of [`Context::once`](crate::Context::once) happen once, whichever replica a request reaches, as with
    ///   shared [`marks`](Self::marks);
    /// - the rounds of a request continue on any replica, with the [keys](Self::request_state_keys) of the cluster.
    ///
    /// Each of the three can be replaced by its own method afterwards. Replicas are servers with the same name. Set the
    /// cluster before the server is served.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::Server;
    /// use bowline::cluster::MemoryCluster;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), bowline::cluster::Unavailable> {
    /// let cluster = MemoryCluster::new();
    /// let server = Server::new("notes", "1.0.0").cluster(cluster.replica()?);
    /// assert!(server.joined_cluster().is_some());
    /// # Ok(()) }
    /// ```
    pub fn cluster(self, cluster: impl Into<Cluster>) -> Self {
        let cluster = cluster.into();
        self.with_definition(|definition| {
            let bus = ClusterBus::new(cluster.clone(), &definition.identity.name);
            definition.bus = Arc::new(bus);
            definition.input.marks = cluster.marks();
            definition.input.keys.set_sealer(cluster.keys().clone());
            definition.cluster = Some(cluster);
        })
    }

    /// Returns the cluster that was set with [`cluster`](Self::cluster).
    #[must_use]
    pub fn joined_cluster(&self) -> Option<Cluster> {
        self.definition().cluster.clone()
    }

    /// Sets the bus for change notifications. Defaults to a [`LocalChangeBus`](super::LocalChangeBus) of this server.
    ///
    /// Set it before the server is served: connections that exist already stay subscribed to the earlier bus.
    pub fn change_bus(self, bus: impl ChangeBus) -> Self {
        self.with_definition(|definition| definition.bus = Arc::new(bus))
    }

    /// Sets the keys that encrypt the `requestState` of multi round-trip requests.
    ///
    /// By default each server generates its own key, so that no other replica can continue its requests.
    pub fn request_state_keys(self, keys: impl Into<RequestStateKeys>) -> Self {
        self.with_definition(|definition| definition.input.keys = keys.into())
    }

    /// Sets the marks of effects that [`Context::once`](crate::Context::once) has performed. Defaults to
    /// [`MemoryMarks`](crate::cluster::MemoryMarks), which holds 100,000. Replicas that share
    /// [keys](Self::request_state_keys) must share marks; [`cluster`](Self::cluster) sets those of its engine.
    pub fn marks(self, marks: impl Marks) -> Self {
        self.with_definition(|definition| definition.input.marks = Arc::new(marks))
    }
}
