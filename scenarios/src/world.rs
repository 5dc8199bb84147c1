//! What a scenario runs in: a transport, a protocol version, and ways to connect over them.

use std::cell::RefCell;

use bowline::client::Connect;
use bowline::testing::{self, Scripted, Tapped};
use bowline::types::{DiscoverRequest, DiscoverResult, RequestParams};
use bowline::{Client, Result, Server};
use bowline_core::era::Dialect;
use serde_json::Value;

use crate::{Column, Transport};

/// A transport and a protocol version, for one run of one scenario.
#[derive(Debug)]
pub struct World {
    column: Column,
    tapped: RefCell<Option<Tapped>>,
}

impl World {
    pub(crate) fn new(column: Column) -> Self {
        Self {
            column,
            tapped: RefCell::new(None),
        }
    }

    /// The protocol version.
    #[must_use]
    pub fn dialect(&self) -> &'static Dialect {
        self.column.dialect
    }

    /// The name of the protocol version.
    #[must_use]
    pub fn version(&self) -> &'static str {
        self.column.dialect.version
    }

    /// Whether the version is one without a handshake.
    #[must_use]
    pub fn is_modern(&self) -> bool {
        self.column.dialect.is_modern()
    }

    /// Connects a client to `server`.
    ///
    /// # Panics
    ///
    /// If that fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn connect(&self, server: &Server) -> Client {
        self.connect_with(server, |connect| connect).await
    }

    /// Connects a client, with a say in how it is made.
    ///
    /// # Panics
    ///
    /// If that fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn connect_with(
        &self,
        server: &Server,
        choose: impl FnOnce(Connect) -> Connect,
    ) -> Client {
        self.try_connect(server, choose).await.unwrap()
    }

    /// Connects a client, which may fail.
    ///
    /// # Errors
    ///
    /// Those of the connection.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn try_connect(
        &self,
        server: &Server,
        choose: impl FnOnce(Connect) -> Connect,
    ) -> Result<Client> {
        let transport = match self.column.transport {
            Transport::InProcess => testing::Transport::InProcess,
            Transport::Memory => testing::Transport::Memory,
        };
        let reach = testing::Column::new(transport, self.column.dialect).reach(server);
        *self.tapped.borrow_mut() = reach.tapped;
        choose(reach.connect).await
    }

    /// What passed over the wire of the last connection, where there is a wire to look at.
    #[must_use]
    pub fn tapped(&self) -> Option<Tapped> {
        self.tapped.borrow().clone()
    }

    /// Connects a client to a server that follows a script.
    ///
    /// # Panics
    ///
    /// If that fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn scripted_server(
        &self,
        capabilities: Value,
        choose: impl FnOnce(Connect) -> Connect,
    ) -> (Client, Scripted) {
        let (wire, mut server) = testing::scripted();
        let connect = choose(Client::over(wire).speaking(self.version()));
        if self.is_modern() {
            return (connect.await.unwrap(), server);
        }
        let handshake = server.shake_hands(self.version(), capabilities);
        let (client, ()) = tokio::join!(connect.into_future(), handshake);
        (client.unwrap(), server)
    }

    /// Serves `server` to a client that follows a script and has opened the connection.
    ///
    /// # Panics
    ///
    /// If the server does not go along.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn scripted_client(&self, server: &Server, capabilities: Value) -> Scripted {
        let mut client = testing::scripted_client(server);
        client.open(self.dialect(), capabilities).await;
        client
    }

    /// What the server says of itself: when the connection is opened, or when it is asked.
    ///
    /// # Panics
    ///
    /// If it does not say.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is lost by dropping it.
    pub async fn introduction(&self, client: &Client) -> DiscoverResult {
        match client.server() {
            Some(server) => server.clone(),
            None => {
                let params = RequestParams::default();
                client.request::<DiscoverRequest>(&params).await.unwrap()
            }
        }
    }
}
