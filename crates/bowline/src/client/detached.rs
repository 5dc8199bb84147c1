//! [`Client::request_detached`], which sends a request that no caller waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline_core::era::Request;
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use super::{Client, encode_object};
use crate::exchange::{CallOptions, Channel, Exchange};
use crate::signal::Signal;
use crate::{Error, Result};

impl Client {
    /// Sends a request whose result is discarded, in a task of its own. For the `Drop` of a value, which cannot wait: for
    /// example, to cancel work at the server when a call of a [`ClientExtension`](super::ClientExtension) is dropped.
    ///
    /// The task runs in the runtime that the client was connected in. It ends with the response, after `timeout`, which is
    /// never paused, and at most a second after the client was closed or its last clone dropped: it does not keep the
    /// connection open. An error of the request is logged.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] if the client is closed. [`Error::Misuse`] if `params` do not serialize to a JSON object, if 1,024
    /// such requests of this client are in flight, or if there is no runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use bowline::Client;
    ///
    /// struct Ticket {
    ///     client: Client,
    ///     id: String,
    /// }
    ///
    /// impl Drop for Ticket {
    ///     fn drop(&mut self) {
    ///         let params = serde_json::json!({"ticket": self.id});
    ///         let sent = self.client.request_detached("tickets/return", params, Duration::from_secs(5));
    ///         if let Err(error) = sent {
    ///             eprintln!("the ticket {} was not returned: {error}", self.id);
    ///         }
    ///     }
    /// }
    /// ```
    pub fn request_detached(
        &self,
        method: impl Into<String>,
        params: impl Serialize,
        timeout: Duration,
    ) -> Result<()> {
        let (method, params) = (method.into(), encode_object(&params)?);
        if self.inner.closed.is_raised() {
            return Err(Error::Closed);
        }
        let detached = &self.inner.detached;
        let runtime = detached
            .runtime
            .clone()
            .or_else(|| Handle::try_current().ok());
        let Some(runtime) = runtime else {
            return Err(Error::misuse(format!(
                "`{method}` was not sent: there is no tokio runtime"
            )));
        };
        let Some(slot) = DetachedSlot::take(&detached.in_flight) else {
            return Err(Error::misuse(format!(
                "`{method}` was not sent: {MAX_DETACHED} detached requests are in flight"
            )));
        };
        let request = Request::new(method.clone(), params, self.caller());
        let connection = self.inner.current_connection();
        let _entered = runtime.enter();
        let exchange = connection.open(request, CallOptions::default());
        // Owned by nothing, and bounded by the timeout and the life of the client. It holds neither.
        let closed = self.inner.closed.clone();
        runtime.spawn(async move {
            if let Err(error) = run(exchange, timeout, &closed).await {
                tracing::debug!(method, %error, "a detached request failed");
            }
            drop(slot);
        });
        Ok(())
    }

    /// Returns the number of requests of [`request_detached`](Self::request_detached) that are in flight.
    #[must_use]
    pub fn detached_requests(&self) -> usize {
        self.inner.detached.in_flight.load(Ordering::Relaxed)
    }
}

async fn run(exchange: Exchange, limit: Duration, closed: &Signal) -> Result<()> {
    let answer = timeout(limit, exchange.answer());
    let end_of_client = async {
        closed.wait().await;
        sleep(FLUSH_TIME).await; // as long as a wire has to send what is queued
    };
    tokio::select! {
        // A response that arrived in time counts.
        biased;
        answer = answer => match answer {
            Ok(answer) => answer.map(drop),
            Err(_) => Err(Error::Timeout { after: limit }),
        },
        () = end_of_client => Err(Error::Closed),
    }
}

/// The detached requests of a client.
pub(super) struct DetachedRequests {
    /// The runtime of the client: a `Drop` may run outside of it.
    runtime: Option<Handle>,
    in_flight: Arc<AtomicUsize>,
}

impl DetachedRequests {
    pub(super) fn new() -> Self {
        Self {
            runtime: Handle::try_current().ok(),
            in_flight: Arc::default(),
        }
    }
}

/// One of the [`MAX_DETACHED`] requests, counted until it is dropped.
struct DetachedSlot(Arc<AtomicUsize>);

impl DetachedSlot {
    fn take(in_flight: &Arc<AtomicUsize>) -> Option<Self> {
        let taken = in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
            (count < MAX_DETACHED).then_some(count + 1)
        });
        taken.is_ok().then(|| Self(in_flight.clone()))
    }
}

impl Drop for DetachedSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

const MAX_DETACHED: usize = 1_024;
const FLUSH_TIME: Duration = Duration::from_secs(1);
