//! [`Transport`]: a server in process, at the other end of a duplex wire, or at a URL.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowline_core::era::{Caller, Dialect, Request};

use super::http::HttpTransport;
use super::opener::Opener;
use crate::Result;
use crate::exchange::{CANCEL_TIME, CallOptions, Channel, Exchange, InProcess, Responder};
use crate::limits::{Account, ReadBudget};
use crate::peer::{CloseMode, LocalRole, NotificationListener, Peer};
use crate::sync::Mutex;
use crate::telemetry::{Sender, TransportKind};
use crate::wire::{ChildHandle, Command, EngineWire, OpenWireFn, ReconnectControl};

/// A way to send requests to a server.
#[allow(
    clippy::large_enum_variant,
    reason = "there is one per connection, in an `Arc`"
)]
pub(super) enum Transport {
    InProcess {
        channel: InProcess,
        server: Arc<dyn Responder>,
        sender: Sender,
    },
    Wire(OpenWire),
    #[allow(dead_code, reason = "constructed with the feature `http-client` only")]
    Http(HttpTransport),
}

impl Transport {
    pub(super) fn in_process(
        server: Arc<dyn Responder>,
        host: Arc<dyn Responder>,
        sender: Sender,
    ) -> Self {
        let back_channel = Arc::new(InProcess::new(host));
        Self::InProcess {
            channel: InProcess::new(server.clone()).with_back_channel(back_channel),
            server,
            sender,
        }
    }

    /// Starts the driver of `wire`, whose server requests are answered by the host.
    pub(super) fn over_wire(
        wire: Box<dyn EngineWire>,
        child: Option<CurrentChild>,
        reconnect: Option<Arc<ReconnectControl>>,
        opener: &Opener<'_>,
    ) -> Self {
        let sender = Sender::new(opener.config.telemetry.clone(), wire.transport());
        let close_mode = CloseMode::Flush(match wire.transport() {
            // Cancels are requests of their own, which are answered.
            TransportKind::Http => CANCEL_TIME + FLUSH_TIME,
            _ => FLUSH_TIME,
        });
        let server = Arc::new(OnceLock::new());
        let role = LocalRole::Client {
            server: server.clone(),
            host: opener.config.host.clone(),
        };
        let (peer, driver) = Peer::new(
            wire,
            role,
            Account::of_client(opener.config.read_budget.clone()),
        );
        // Before the driver starts, so that no notification is missed.
        let unsolicited = match opener.config.is_bare {
            true => Some(peer.notification_hub().listen()),
            false => {
                opener.notifications.attach(&peer);
                None
            }
        };
        opener.notifications.attach_errors(&peer);
        // Owned by the connection: it ends when `OpenWire` is dropped.
        tokio::spawn(driver);
        Self::Wire(OpenWire {
            peer,
            child,
            reconnect,
            server,
            unsolicited: Mutex::new(unsolicited),
            sender,
            close_mode,
        })
    }

    /// Sets the host and port of the server, for telemetry.
    #[allow(dead_code, reason = "used with the feature `http-client` only")]
    pub(super) fn with_address(mut self, host: Option<&str>, port: Option<u16>) -> Self {
        if let Self::Wire(wire) = &mut self {
            wire.sender = std::mem::take(&mut wire.sender).with_address(host, port);
        }
        self
    }

    /// Returns the telemetry of the requests.
    pub(super) fn sender(&self) -> &Sender {
        match self {
            Self::InProcess { sender, .. } => sender,
            Self::Wire(wire) => &wire.sender,
            Self::Http(http) => http.sender(),
        }
    }

    fn open_unobserved(&self, request: Request, options: CallOptions) -> Exchange {
        match self {
            Self::InProcess { channel, .. } => channel.open(request, options),
            Self::Wire(wire) => wire.peer.open(request, options),
            Self::Http(http) => http.open(request, options),
        }
    }

    pub(super) fn wire(&self) -> Option<&OpenWire> {
        match self {
            Self::Wire(wire) => Some(wire),
            Self::InProcess { .. } | Self::Http(_) => None,
        }
    }
}

impl Channel for Transport {
    fn open(&self, mut request: Request, options: CallOptions) -> Exchange {
        match self.sender().start(&mut request) {
            None => self.open_unobserved(request, options),
            Some(sent) => sent.open(|| self.open_unobserved(request, options)),
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
    /// The notifications since the wire was opened, until [`Connection::unsolicited`](super::Connection::unsolicited) is
    /// called.
    unsolicited: Mutex<Option<NotificationListener>>,
    sender: Sender,
    /// How the wire is closed.
    close_mode: CloseMode,
}

impl OpenWire {
    /// Attributes requests from the server to a caller of this version. Until then they are those of an unknown caller.
    pub(super) fn confirm(&self, dialect: &'static Dialect) {
        // Fails if it is set already: a version is confirmed once per wire.
        let _ = self.server.set(Arc::new(Caller::new(dialect)));
    }

    /// Returns a listener to the notifications that belong to no call. The first one also gets those since the wire was
    /// opened.
    pub(super) fn listen(&self) -> NotificationListener {
        let first = self.unsolicited.lock().take();
        first.unwrap_or_else(|| self.peer.notification_hub().listen())
    }

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

    pub(super) fn begin_close(&self) {
        // First: the driver, which `close` wakes, must not start another process.
        if let Some(reconnect) = &self.reconnect {
            reconnect.stop();
        }
        self.peer.close(self.close_mode);
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
    pub(super) fn restarts(
        &self,
        command: &ChildCommand,
        budget: Option<&ReadBudget>,
    ) -> OpenWireFn {
        let (current, command, budget) = (self.clone(), command.clone(), budget.cloned());
        Box::new(move || {
            let (current, command, budget) = (current.clone(), command.clone(), budget.clone());
            Box::pin(async move {
                current.handle().reaped().await;
                let (wire, child) = command.spawn(budget.as_ref())?;
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

    pub(super) fn spawn(
        &self,
        budget: Option<&ReadBudget>,
    ) -> Result<(Box<dyn EngineWire>, ChildHandle)> {
        self.0.lock().spawn(budget)
    }
}

/// How long closing a wire waits until what is queued was written.
const FLUSH_TIME: Duration = Duration::from_secs(1);
