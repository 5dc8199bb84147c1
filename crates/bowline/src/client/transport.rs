//! An open connection to a server: in process, over a duplex wire, or over HTTP.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bowline_core::era::{Caller, Dialect, Request};
use bowline_types::{DiscoverResult, LoggingLevel};

use super::http::HttpTransport;
use super::known_tools::ArgumentHeaders;
use super::opener::Opener;
use crate::exchange::{CallOptions, Channel, Exchange, InProcess, Responder};
use crate::limits::{Account, Limits};
use crate::peer::{CloseMode, LocalRole, Peer};
use crate::sync::Mutex;
use crate::wire::{ChildHandle, Command, EngineWire, OpenWireFn, ReconnectControl};
use crate::{Error, Result};

/// A way to send requests to a server.
#[allow(
    clippy::large_enum_variant,
    reason = "there is one per connection, in an `Arc`"
)]
pub(super) enum Transport {
    InProcess {
        channel: InProcess,
        server: Arc<dyn Responder>,
    },
    Wire(OpenWire),
    #[allow(dead_code, reason = "constructed with the feature `http-client` only")]
    Http(HttpTransport),
}

/// A transport, and the protocol version that is used over it.
pub(super) struct Connection {
    pub(super) transport: Arc<Transport>,
    pub(super) dialect: &'static Dialect,
    /// This client as the server sees it, with the log level that was set last.
    caller: Mutex<Arc<Caller>>,
    /// The server's `server/discover` result, if it was requested.
    pub(super) server: Option<DiscoverResult>,
    is_closed: AtomicBool,
}

impl Connection {
    /// The version is that of `caller`.
    pub(super) fn new(
        transport: Arc<Transport>,
        caller: Caller,
        server: Option<DiscoverResult>,
    ) -> Self {
        Self {
            transport,
            dialect: caller.dialect,
            caller: Mutex::new(Arc::new(caller)),
            server,
            is_closed: AtomicBool::new(false),
        }
    }

    /// Marks the version as the server's actual one. Until then requests from the server are attributed to an unknown
    /// caller.
    pub(super) fn confirm(&self) {
        if let Transport::Wire(wire) = &*self.transport {
            // Fails if it is set already: a version is confirmed once per wire.
            let _ = wire.server.set(Arc::new(Caller::new(self.dialect)));
        }
    }

    pub(super) fn wire(&self) -> Option<&OpenWire> {
        self.transport.wire()
    }

    /// Returns whether requests mirror tool arguments in headers.
    pub(super) fn argument_headers(&self) -> ArgumentHeaders {
        match &*self.transport {
            Transport::Http(_) => ArgumentHeaders::Sent,
            Transport::InProcess { .. } | Transport::Wire(_) => ArgumentHeaders::NotSent,
        }
    }

    pub(super) fn caller(&self) -> Arc<Caller> {
        self.caller.lock().clone()
    }

    /// Sets the log level of all later requests.
    pub(super) fn set_log_level(&self, level: LoggingLevel) {
        Arc::make_mut(&mut self.caller.lock()).log_level = Some(level);
    }

    /// Closes the wire after sending what is queued. Without a wire, later requests fail, and those in flight go on.
    ///
    /// # Cancel safety
    ///
    /// Safe: the wire closes even if the future is dropped.
    pub(super) async fn close(&self) {
        match self.wire() {
            Some(wire) => wire.close().await,
            None => self.is_closed.store(true, Ordering::Release),
        }
    }
}

impl Channel for Connection {
    fn open(&self, request: Request, options: CallOptions) -> Exchange {
        if self.is_closed.load(Ordering::Acquire) {
            return Exchange::failed(Error::Closed);
        }
        self.transport.open(request, options)
    }
}

impl Transport {
    pub(super) fn in_process(server: Arc<dyn Responder>, host: Arc<dyn Responder>) -> Self {
        let back_channel = Arc::new(InProcess::new(host));
        Self::InProcess {
            channel: InProcess::new(server.clone()).with_back_channel(back_channel),
            server,
        }
    }

    /// Starts the driver of `wire`, whose server requests are answered by the host.
    pub(super) fn over_wire(
        wire: Box<dyn EngineWire>,
        child: Option<CurrentChild>,
        reconnect: Option<Arc<ReconnectControl>>,
        opener: &Opener<'_>,
    ) -> Self {
        let server = Arc::new(OnceLock::new());
        let role = LocalRole::Client {
            server: server.clone(),
            host: opener.config.host.clone(),
        };
        let (peer, driver) = Peer::new(wire, role, Account::total(Limits::default()).peer());
        opener.notifications.attach(&peer);
        // Owned by the connection: it ends when `OpenWire` is dropped.
        tokio::spawn(driver);
        Self::Wire(OpenWire {
            peer,
            child,
            reconnect,
            server,
        })
    }

    pub(super) fn wire(&self) -> Option<&OpenWire> {
        match self {
            Self::Wire(wire) => Some(wire),
            Self::InProcess { .. } | Self::Http(_) => None,
        }
    }
}

impl Channel for Transport {
    fn open(&self, request: Request, options: CallOptions) -> Exchange {
        match self {
            Self::InProcess { channel, .. } => channel.open(request, options),
            Self::Wire(wire) => wire.peer.open(request, options),
            Self::Http(http) => http.open(request, options),
        }
    }
}

/// A wire that is closed on drop, after what is queued was sent.
pub(super) struct OpenWire {
    pub(super) peer: Peer,
    /// The child process at the other end, if [`Client::spawn`](super::Client::spawn) started it.
    child: Option<CurrentChild>,
    /// Set if the wire reconnects.
    pub(super) reconnect: Option<Arc<ReconnectControl>>,
    /// The caller that requests from the server are attributed to; set when its version is confirmed.
    server: Arc<OnceLock<Arc<Caller>>>,
}

impl OpenWire {
    /// Sends what is queued, closes the wire and ends the child process.
    ///
    /// # Cancel safety
    ///
    /// Safe: both end even if the future is dropped.
    pub(super) async fn close(&self) {
        if let Some(child) = &self.child {
            child.handle().request_sigterm();
        }
        self.begin_close();
        self.peer.ended().await;
        if let Some(child) = &self.child {
            child.handle().reaped().await;
        }
    }

    /// Returns the id of the child process that runs now.
    pub(super) fn process_id(&self) -> Option<u32> {
        self.child.as_ref().and_then(|child| child.handle().id())
    }

    fn begin_close(&self) {
        // First: the driver, which `close` wakes, must not start another process.
        if let Some(reconnect) = &self.reconnect {
            reconnect.stop();
        }
        self.peer.close(FLUSH);
    }
}

impl Drop for OpenWire {
    fn drop(&mut self) {
        self.begin_close();
    }
}

/// The child process of a wire, which may be another one after a reconnect.
#[derive(Clone)]
pub(super) struct CurrentChild(Arc<Mutex<ChildHandle>>);

impl CurrentChild {
    pub(super) fn new(child: ChildHandle) -> Self {
        Self(Arc::new(Mutex::new(child)))
    }

    fn handle(&self) -> ChildHandle {
        self.0.lock().clone()
    }

    /// Returns a function that starts `command` again once the current process, whose wire is dropped, has ended: it
    /// may hold a resource that the new process needs, a lock for example.
    pub(super) fn restarts(&self, command: &ChildCommand) -> OpenWireFn {
        let (current, command) = (self.clone(), command.clone());
        Box::new(move || {
            let (current, command) = (current.clone(), command.clone());
            Box::pin(async move {
                current.handle().reaped().await;
                let (wire, child) = command.spawn()?;
                *current.0.lock() = child;
                Ok(wire)
            })
        })
    }
}

/// The command of a server that can be started more than once.
#[derive(Clone)]
pub(super) struct ChildCommand(Arc<Mutex<Command>>);

impl ChildCommand {
    pub(super) fn new(command: Command) -> Self {
        Self(Arc::new(Mutex::new(command)))
    }

    pub(super) fn spawn(&self) -> Result<(Box<dyn EngineWire>, ChildHandle)> {
        let mut command = self.0.lock();
        let (wire, child) = command.spawn()?;
        Ok((wire, child))
    }
}

const FLUSH: CloseMode = CloseMode::Flush(std::time::Duration::from_secs(1));
