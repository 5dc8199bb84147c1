//! [`Reconnect`], the settings of a client that reconnects by itself; [`Client::closed`], for clients that do not.

use std::sync::Arc;
use std::time::Duration;

use bowline_core::RawRequest;
use bowline_core::era::{Stamper, initialized_notification};
use bowline_core::json::Params;
use bowline_types::RequestId;

use super::http::status_of;
use super::opener::{Opener, discover_request};
use super::{Client, ClientBuilder, Connection};
use crate::Error;
use crate::backoff::Backoff;
use crate::limits::BudgetExceeded;
use crate::wire::{
    EngineWire, Handshake, OpenWireFn, ReconnectControl, ReconnectPolicy, ReconnectingWire,
};

/// When a client [reconnects](ClientBuilder::reconnect).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use bowline::client::Reconnect;
///
/// let reconnect = Reconnect::default().max_delay(Duration::from_secs(5)).max_attempts(20);
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "pass it to `ClientBuilder::reconnect`"]
pub struct Reconnect {
    backoff: Backoff,
    max_attempts: Option<u32>,
}

impl Reconnect {
    /// Sets the delay before the first attempt, which doubles with each further one. 200 ms by default.
    ///
    /// Delays are random: between half of this and all of it.
    pub fn min_delay(mut self, delay: Duration) -> Self {
        self.backoff.min = delay;
        self
    }

    /// Sets the maximum delay. 30 s by default.
    ///
    /// It is also how long a connection must last to count as a success, after which the delay is short again and
    /// attempts are counted from 0: a server that dies earlier is restarted after a longer delay each time.
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.backoff.max = delay;
        self
    }

    /// Sets the number of attempts in a row after which the client gives up: the connection is then closed. By default
    /// there is no limit.
    ///
    /// An attempt is a restart of the program or a new connection; the connection that was lost first does not count.
    /// Attempts are in a row if none of them led to a connection that lasted for the [`max_delay`](Self::max_delay).
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }
}

impl Default for Reconnect {
    fn default() -> Self {
        Self {
            backoff: Backoff {
                min: Duration::from_millis(200),
                max: Duration::from_secs(30),
            },
            max_attempts: None,
        }
    }
}

impl ClientBuilder {
    /// Makes the client reconnect by itself when the connection is lost. By default it does not.
    ///
    /// It starts the child process of [`Client::spawn`] again, connects again through [`Client::from_wire_fn`], or
    /// opens the stream of HTTP+SSE again; all callers share one attempt. The handshake is repeated in the same
    /// protocol version. `Client::server` keeps returning what the server declared at first.
    ///
    /// * Calls in flight fail with an error that [is a disconnect](Error::is_disconnected). They are never repeated,
    ///   because they may have run.
    /// * Calls that are made meanwhile wait, within their timeouts.
    /// * Subscriptions and watches continue, and yield [`Change::Missed`](super::Change::Missed), or each possible
    ///   change; cached results are dropped, and the log level is set again.
    /// * [`Client::closed`] resolves only if the client is closed or gives up.
    ///
    /// It has no effect over Streamable HTTP, where requests have no connection in common and the handshake of a legacy
    /// server is repeated anyway; nor in process, and with [`Client::from_wire`], whose wire cannot be opened again.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> bowline::Result<()> {
    /// use bowline::Client;
    /// use bowline::client::Reconnect;
    ///
    /// let client = Client::spawn("weather-server").reconnect(Reconnect::default()).await?;
    /// let mut forecast = client.call_tool("forecast", ()).await;
    /// if forecast.as_ref().is_err_and(bowline::Error::is_disconnected) {
    ///     forecast = client.call_tool("forecast", ()).await; // it is safe to repeat this one
    /// }
    /// # Ok(()) }
    /// ```
    pub fn reconnect(mut self, reconnect: Reconnect) -> Self {
        self.config.reconnect = Some(reconnect);
        self
    }
}

impl Client {
    /// Returns a future that resolves when the connection is over, with the reason: [`Error::Closed`] if one of the
    /// sides closed it, otherwise the error that calls fail with. It does not keep the connection open.
    ///
    /// In process and over Streamable HTTP no connection is held, so that it resolves when [`Client::close`] was called
    /// or the last clone is dropped, and not when the server is gone. With [`ClientBuilder::reconnect`] it resolves
    /// when the client has given up.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropping the future has no effect.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) {
    /// let closed = client.closed();
    /// tokio::spawn(async move { eprintln!("the server is gone: {}", closed.await) });
    /// # }
    /// ```
    pub fn closed(&self) -> impl Future<Output = Error> + Send + 'static + use<> {
        let (peer, closed) = (self.peer().cloned(), self.inner.closed.clone());
        async move {
            match peer {
                Some(peer) => {
                    peer.ended().await;
                    peer.end_error()
                }
                None => {
                    closed.wait().await;
                    Error::Closed
                }
            }
        }
    }
}

impl Error {
    /// Returns whether there is no answer because the connection is closed, was lost or could not be made: for
    /// [`Error::Closed`], and for [`Error::Transport`] unless the server responded with an HTTP status, or its message did
    /// not fit into a [`ReadBudget`](super::ReadBudget).
    ///
    /// The server may have run the request. Over Streamable HTTP, or with [`ClientBuilder::reconnect`], the next
    /// request connects again.
    #[must_use]
    pub fn is_disconnected(&self) -> bool {
        match self {
            Self::Closed => true,
            Self::Transport { source, .. } => {
                let source = source.as_ref();
                let is_over_budget = source.is_some_and(|source| source.is::<BudgetExceeded>());
                status_of(self).is_none() && !is_over_budget
            }
            _ => false,
        }
    }

    /// Returns the HTTP status of a response without a JSON-RPC answer, such as that of a proxy, which is an
    /// [`Error::Transport`]; `None` for other errors.
    #[must_use]
    pub fn http_status(&self) -> Option<u16> {
        status_of(self)
    }
}

impl Opener<'_> {
    /// Makes `wire` reconnect through `open`, if the client is configured to.
    pub(super) fn reconnecting(
        &self,
        wire: Box<dyn EngineWire>,
        open: OpenWireFn,
    ) -> (Box<dyn EngineWire>, Option<Arc<ReconnectControl>>) {
        let Some(reconnect) = self.config.reconnect else {
            return (wire, None);
        };
        let policy = ReconnectPolicy {
            backoff: reconnect.backoff,
            max_attempts: reconnect.max_attempts,
            attempt_timeout: self.config.connect_timeout(),
        };
        let (wire, control) = ReconnectingWire::new(wire, open, policy);
        (Box::new(wire), Some(control))
    }
}

impl Connection {
    /// Makes the wire reconnect from now on: its version is known.
    pub(super) fn arm_reconnect(&self) {
        let Some(control) = self.wire().and_then(|wire| wire.reconnect.as_ref()) else {
            return;
        };
        let request = discover_request(&self.caller());
        let stamped = Stamper::default().stamp(&request);
        control.arm(Handshake {
            request: RawRequest {
                // Not the id of a call, which are numbers.
                id: RequestId::from("bowline-reconnect"),
                method: stamped.method,
                params: stamped.params.map(Params::from),
            },
            version: (!self.dialect().is_modern()).then_some(self.dialect().version),
            initialized: initialized_notification(self.dialect()),
        });
    }

    /// Returns how often the connection was lost and opened again.
    pub(super) fn losses(&self) -> u64 {
        let control = self.wire().and_then(|wire| wire.reconnect.as_ref());
        control.map_or(0, |control| control.losses())
    }
}
