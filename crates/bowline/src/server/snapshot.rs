//! [`ServerShared`], the state of all clones of a [`Server`], [`ServerUse`], a counted reference to it, and
//! [`ServerSnapshot`], which answers requests with the settings that the server had when a wire, an HTTP service or an
//! in-process client started.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bowline_core::drain::continues_work;
use bowline_core::era::Request;
use bowline_core::{Notification, Outcome};
use bowline_types::{NotificationMethod, RootsListChangedNotification};

use super::change_bus::ServerChange;
use super::definition::ServerDefinition;
use super::extension::BackgroundTasks;
use super::{Server, WireService, input_required, router};
use crate::Result;
use crate::callback::catch_panic;
use crate::exchange::{BoxFuture, Context, NotifiedContext, Params, Responder};
use crate::layer::Next;
use crate::peer::Peer;
use crate::shutdown::Shutdown;
use crate::sync::Mutex;
use crate::telemetry::Telemetry;
use crate::wire::Wire;

/// The state that all clones of a server share.
pub(super) struct ServerShared {
    definition: Mutex<Arc<ServerDefinition>>,
    /// Whether a snapshot was taken, so that there may be subscribers.
    is_served: AtomicBool,
    pub(super) shutdown: Shutdown,
    /// The number of [`ServerUse`]s.
    uses: AtomicUsize,
    background: BackgroundTasks,
}

/// A reference to a server that keeps the background work of its extensions running. The last one that is dropped
/// stops the work.
///
/// The contexts of requests refer to the server without it: those that the background work owns would otherwise keep
/// the work, and the server, alive for ever.
pub(super) struct ServerUse(Arc<ServerShared>);

impl ServerUse {
    pub(super) fn new(shared: Arc<ServerShared>) -> Self {
        shared.uses.fetch_add(1, Ordering::Relaxed);
        Self(shared)
    }

    pub(super) fn shared(&self) -> Arc<ServerShared> {
        self.0.clone()
    }
}

impl Clone for ServerUse {
    fn clone(&self) -> Self {
        Self::new(self.0.clone())
    }
}

impl Drop for ServerUse {
    fn drop(&mut self) {
        if self.0.uses.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.background.stop();
        }
    }
}

impl Deref for ServerUse {
    type Target = ServerShared;

    fn deref(&self) -> &ServerShared {
        &self.0
    }
}

impl ServerShared {
    pub(super) fn new(definition: ServerDefinition) -> Self {
        Self {
            definition: Mutex::new(Arc::new(definition)),
            is_served: AtomicBool::new(false),
            shutdown: Shutdown::default(),
            uses: AtomicUsize::new(0),
            background: BackgroundTasks::default(),
        }
    }

    /// Returns whether the server can still be used, and is not only referred to by contexts.
    pub(super) fn is_in_use(&self) -> bool {
        self.uses.load(Ordering::Acquire) > 0
    }

    pub(super) fn definition(&self) -> Arc<ServerDefinition> {
        Arc::clone(&self.definition.lock())
    }

    /// Changes the settings, for later snapshots.
    pub(super) fn change(&self, change: impl FnOnce(&mut ServerDefinition)) {
        let mut current = self.definition.lock();
        // Kept until the lock is free: the values that `change` replaces run foreign code when they are dropped.
        let old = Arc::clone(&current);
        change(Arc::make_mut(&mut current));
        drop(current);
        drop(old);
    }

    /// Publishes a change of the registries, unless the server was never served and is still being built.
    pub(super) fn announce(&self, change: ServerChange) {
        if self.is_served() {
            self.definition().bus.publish(change);
        }
    }

    /// Returns whether a snapshot was taken.
    pub(super) fn is_served(&self) -> bool {
        self.is_served.load(Ordering::Acquire)
    }
}

/// A server with the settings of one moment. The registries are those of the server.
#[derive(Clone)]
pub(super) struct ServerSnapshot {
    pub(super) shared: ServerUse,
    pub(super) definition: Arc<ServerDefinition>,
}

impl ServerSnapshot {
    pub(super) fn of(shared: &ServerUse) -> Self {
        // Before the first list is served, so that a client misses no change after it.
        shared.is_served.store(true, Ordering::Release);
        let snapshot = Self {
            shared: shared.clone(),
            definition: shared.definition(),
        };
        snapshot.start_background();
        snapshot
    }

    /// Starts the background work of the extensions, unless it has started or there is no tokio runtime.
    fn start_background(&self) {
        let background = &self.shared.background;
        background.start(&self.shared.0, &self.definition);
    }

    /// Serves one wire. The returned peer counts the exchanges in progress.
    pub(super) fn serve(self, wire: impl Wire) -> (Peer, BoxFuture<'static, Result<()>>) {
        let (definition, shutdown) = (self.definition.clone(), self.shared.shutdown.clone());
        WireService::new(self, &definition.identity)
            .versions(definition.served.clone())
            .with_account(definition.account.clone(), shutdown)
            .start(wire)
    }

    /// Waits until a drain refuses new requests.
    pub(super) async fn shutting_down(&self) {
        self.shared.shutdown.refusing().await;
    }

    /// Answers a request that has passed all layers.
    fn respond_inside_layers<'a>(
        &'a self,
        request: Request,
        cx: Context,
    ) -> BoxFuture<'a, Outcome> {
        input_required::run_round(&self.definition.input, request, cx, |request, cx| {
            router::route(self, request, cx)
        })
    }
}

impl Responder for ServerSnapshot {
    fn respond<'a>(&'a self, mut request: Request, mut cx: Context) -> BoxFuture<'a, Outcome> {
        // The transports refuse new requests themselves; in-process requests are refused here.
        let shutdown = &self.shared.shutdown;
        if shutdown.is_refusing() && !continues_work(&request.method, Some(&request.params)) {
            return Box::pin(std::future::ready(Err(shutdown.refuse())));
        }
        if !self.definition.extensions.is_empty() {
            self.start_background();
            self.definition.declare_legacy_extensions(&mut request);
        }
        self.definition.prepare(&mut cx, &self.shared.0);
        if self.definition.layers.is_empty() {
            return self.respond_inside_layers(request, cx);
        }
        let server = self.clone();
        let inner = move |request, cx| -> BoxFuture<'static, Outcome> {
            let server = server.clone();
            Box::pin(async move { server.respond_inside_layers(request, cx).await })
        };
        Next::new(&self.definition.layers, inner, cx).run(request)
    }

    fn required_scopes(&self, method: &str, params: Option<&Params>) -> Vec<String> {
        router::required_scopes(&self.definition, method, params)
    }

    fn check(&self) -> Result<()> {
        self.definition.check()
    }

    fn notified(&self, notification: &Notification, cx: &NotifiedContext) {
        if notification.method != RootsListChangedNotification::NAME {
            return;
        }
        for on_roots_changed in &self.definition.on_roots_changed {
            catch_panic("`on_roots_changed`", || on_roots_changed(cx.caller()));
        }
    }

    fn telemetry(&self) -> Option<&Telemetry> {
        self.definition.telemetry.get()
    }

    /// Returns the number of extensions whose background work has not ended: it may run tasks.
    fn open_calls(&self) -> usize {
        self.shared.background.running()
    }
}

/// A server that is used as a responder itself answers with the settings that it had at its first request.
impl Responder for Server {
    fn respond<'a>(&'a self, request: Request, cx: Context) -> BoxFuture<'a, Outcome> {
        self.first_snapshot().respond(request, cx)
    }

    fn required_scopes(&self, method: &str, params: Option<&Params>) -> Vec<String> {
        self.first_snapshot().required_scopes(method, params)
    }

    fn check(&self) -> Result<()> {
        self.first_snapshot().check()
    }

    fn notified(&self, notification: &Notification, cx: &NotifiedContext) {
        self.first_snapshot().notified(notification, cx);
    }

    fn telemetry(&self) -> Option<&Telemetry> {
        self.first_snapshot().telemetry()
    }

    fn open_calls(&self) -> usize {
        self.shared.background.running()
    }
}

impl Context {
    /// Returns the server that answers this request; for a handler of a [mounted](Server::mount) server, the outer one.
    ///
    /// Use this, and not a [`Server`] in a closure or in the [state](Server::state), which would keep the server from
    /// being dropped.
    ///
    /// # Panics
    ///
    /// If the request is not answered by a [`Server`] but by another [`Responder`], such as the host of a client.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::{Client, Context, Server, Tool};
    ///
    /// async fn unlock(cx: Context) -> bowline::Result<()> {
    ///     cx.server().tools().add(Tool::new("secret", async || "42"))
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> bowline::Result<()> {
    /// let client = Client::in_process(&Server::new("vault", "1.0.0").tool(Tool::new("unlock", unlock))).await?;
    /// client.call_tool("unlock", ()).await?;
    /// assert_eq!(client.call_tool("secret", ()).await?.text(), "42");
    /// # Ok(()) }
    /// ```
    pub fn server(&self) -> Server {
        let shared = self
            .shared_server()
            .and_then(|shared| shared.downcast::<ServerShared>().ok());
        let shared = shared.expect("the context belongs to a request that a `Server` answers");
        Server::from_shared(shared)
    }
}
