//! [`WireService`], which serves any [`Responder`] over duplex wires.

use std::sync::Arc;
use std::time::Duration;

use bowline_core::era::{Dialects, DuplexAdmission};
use bowline_types::{Implementation, Json};

use crate::Result;
use crate::exchange::{BoxFuture, Responder};
use crate::exit_signals::{SignalHandling, serve_until_signal};
use crate::limits::{Account, Limits, Usage};
use crate::peer::{ListWatch, LocalRole, Peer};
use crate::shutdown::{DrainReport, Shutdown};
use crate::telemetry::Configured;
use crate::wire::{self, Wire};

/// Serves a [`Responder`] over duplex wires, such as stdio and sockets. Clones share their limits and their shutdown.
///
/// A [`Server`](crate::Server) is a responder with tools, prompts and resources, and [serves](crate::Server::serve)
/// itself. This type is for other responders, such as a proxy; [`HttpService`](crate::http::HttpService) is its
/// counterpart for HTTP.
///
/// Legacy clients can use `logging/setLevel` and `resources/subscribe` if the responder declares the capabilities in its
/// result of `server/discover`: the first is answered here and becomes the log level of the
/// [caller](crate::exchange::Request::caller); for the second the responder gets `subscriptions/listen`.
///
/// # Examples
///
/// ```
/// use bowline::exchange::{Outcome, Request};
/// use bowline::server::WireService;
/// use bowline::types::Implementation;
/// use bowline::{Client, Context, Json, wire};
///
/// /// Answers every request with an empty result.
/// async fn empty(_: Request, _: Context) -> Outcome {
///     Ok(Json::empty_object())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> bowline::Result<()> {
/// let service = WireService::new(empty, &Implementation::new("empty", "1.0.0"));
/// let (near, far) = wire::memory();
/// tokio::spawn(service.serve(far));
///
/// let client = Client::from_wire(near).protocol_version("2026-07-28").await?;
/// client.request_raw("com.example/anything", ()).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a service does nothing until it serves a wire"]
pub struct WireService {
    responder: Arc<dyn Responder>,
    /// The server's `Implementation`, encoded.
    identity: Json,
    served: Dialects,
    account: Arc<Account>,
    shutdown: Shutdown,
}

impl WireService {
    /// Creates a service from a responder and its `serverInfo`.
    pub fn new(responder: impl Responder, identity: &Implementation) -> Self {
        Self {
            responder: Arc::new(responder),
            identity: Json::encode(identity).unwrap_or_else(|_| Json::empty_object()),
            served: Dialects::all(),
            account: Account::total(Limits::default()),
            shutdown: Shutdown::default(),
        }
    }

    /// Sets the protocol versions to serve. Defaults to all that this library implements.
    pub fn versions(mut self, served: Dialects) -> Self {
        self.served = served;
        self
    }

    /// Sets the limits on the memory and the concurrent work that peers can cause, counted for all wires that this
    /// service and its later clones serve.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.account = Account::total(limits);
        self
    }

    pub(super) fn with_account(mut self, account: Arc<Account>, shutdown: Shutdown) -> Self {
        (self.account, self.shutdown) = (account, shutdown);
        self
    }

    /// Serves one wire until it ends.
    ///
    /// # Errors
    ///
    /// As [`Responder::check`]. A failure of the wire is logged and ends the wire without an error.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the wire and drops every handler.
    pub async fn serve(self, wire: impl Wire) -> Result<()> {
        self.responder.check()?;
        self.start(wire).1.await
    }

    /// Serves the client that started this process, over standard input and output; see
    /// [`Server::serve_stdio`](crate::Server::serve_stdio).
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`](crate::Error::Misuse) if standard input and output are already in use, [`Error::Transport`](crate::Error::Transport) if they
    /// or the signals are not available, and as [`Responder::check`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the wire and drops every handler. Standard input and output are not restored.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(service: bowline::server::WireService) -> bowline::Result<()> {
    /// service.serve_stdio().await
    /// # }
    /// ```
    pub async fn serve_stdio(self) -> Result<()> {
        let wire = wire::stdio()?;
        let handling = SignalHandling::without_delay(&self.shutdown);
        let account = self.account.clone();
        serve_until_signal(self.serve(wire), handling, move || account.requests()).await
    }

    /// Sets for how long a [drain](Self::drain) still takes new requests; see
    /// [`Server::drain_delay`](crate::Server::drain_delay). Defaults to 5 s.
    pub fn drain_delay(self, delay: Duration) -> Self {
        self.shutdown
            .change_settings(|settings| settings.delay = delay);
        self
    }

    /// Sets for how long running requests may go on after new ones are refused; see
    /// [`Server::grace`](crate::Server::grace). Defaults to 20 s.
    pub fn grace(self, grace: Duration) -> Self {
        self.shutdown
            .change_settings(|settings| settings.grace = grace);
        self
    }

    /// Drains the wires; see [`Server::drain`](crate::Server::drain).
    pub fn drain(&self) {
        self.shutdown.drain();
    }

    /// Drains without a delay: refuses new requests, ends subscriptions with a result, and cancels running requests
    /// after `grace`. Wires that are served later end immediately.
    pub fn shut_down(&self, grace: Duration) {
        self.shutdown.request(grace);
    }

    /// Returns what a drain did so far.
    #[must_use]
    pub fn drain_report(&self) -> DrainReport {
        self.shutdown.report()
    }

    /// Returns the current resource usage and the number of refusals.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.account.usage()
    }

    /// Serves one wire. The returned peer counts the exchanges in progress.
    pub(super) fn start(&self, wire: impl Wire) -> (Peer, BoxFuture<'static, Result<()>>) {
        let role = LocalRole::Server {
            admission: DuplexAdmission::new(self.served.clone()),
            identity: self.identity.clone(),
            responder: self.responder.clone(),
            list_watch: ListWatch::OnInitialized,
            shutdown: self.shutdown.clone(),
        };
        Configured::of(&*self.responder).watch(&self.account, &self.shutdown);
        let (peer, mut driver) = Peer::new(Box::new(wire), role, self.account.peer());
        let (counted, shutdown) = (peer.clone(), self.shutdown.clone());
        let responder = self.responder.clone();
        let serving = Box::pin(async move {
            // The driver is polled first: a wire that has ended needs no shutdown.
            tokio::select! {
                biased;
                () = &mut driver => return Ok(()),
                () = shutdown.refusing() => {}
            }
            if let Some(unfinished) = peer.drain(&mut driver, &*responder, &shutdown).await {
                // Calls that waited for a retry have no request to be counted by.
                let waiting = responder.open_calls().saturating_sub(unfinished);
                shutdown.count_cancelled(waiting);
            }
            Ok(())
        });
        (counted, serving)
    }
}

impl std::fmt::Debug for WireService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WireService")
            .field("served", &self.served)
            .finish_non_exhaustive()
    }
}
