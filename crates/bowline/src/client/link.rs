//! What a client has of the other side: a channel, and whatever must live for it to stay open.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bowline_core::era::Caller;
use bowline_types::DiscoverResult;

use super::hearing::Hearing;
use super::remembered_version::Reprobe;
use crate::Result;
use crate::exchange::{Channel, InProcess, Responder};
use crate::limits::{Account, Limits};
use crate::peer::{Closing, Peer, Role};
use crate::wire::{Command, Leash, Wire};

/// What is at the other end of a link.
pub(super) enum End {
    InProcess(Arc<dyn Responder>),
    Wire(Box<dyn Wire>),
    Child(Start),
}

/// What a server is started by, as often as need be.
#[derive(Clone)]
pub(super) struct Start(Arc<Mutex<Command>>);

/// Who hears what the server says and answers what it asks, and who it is, once that is known.
#[derive(Clone)]
pub(super) struct Answering {
    host: Arc<dyn Responder>,
    server: Arc<OnceLock<Arc<Caller>>>,
    hearing: Arc<Hearing>,
}

/// A channel to the server.
pub(super) struct Link {
    pub(super) channel: Arc<dyn Channel>,
    pub(super) wire: Option<OpenWire>,
    /// The server itself, if it is in this process.
    pub(super) responder: Option<Arc<dyn Responder>>,
}

/// A server that was reached, and what is known of it.
pub(super) struct Reached {
    pub(super) link: Link,
    /// Who we are to it: the dialect is decided.
    pub(super) caller: Caller,
    pub(super) server: Option<DiscoverResult>,
    /// Probes again if a remembered version turns out to be wrong.
    pub(super) reprobe: Option<Box<dyn Reprobe>>,
}

/// A wire that is closed when this is dropped, after what is queued was sent.
pub(super) struct OpenWire {
    pub(super) peer: Peer,
    /// The child process at the other end, if we started it.
    child: Option<Leash>,
}

impl End {
    /// Connects, and returns by what the server can be started once more, if it can.
    pub(super) fn link(self, answering: Answering) -> Result<(Link, Option<Start>)> {
        match self {
            Self::InProcess(responder) => {
                responder.check()?;
                Ok((Link::in_process(responder, answering.host), None))
            }
            Self::Wire(wire) => Ok((Link::over(wire, None, answering), None)),
            Self::Child(start) => Ok((start.link(answering)?, Some(start))),
        }
    }
}

impl Start {
    pub(super) fn by(command: Command) -> Self {
        Self(Arc::new(Mutex::new(command)))
    }

    /// Starts the server and connects to it.
    pub(super) fn link(&self, answering: Answering) -> Result<Link> {
        let mut command = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (wire, leash) = command.spawn()?;
        drop(command);
        Ok(Link::over(wire, Some(leash), answering))
    }
}

impl Answering {
    pub(super) fn by(host: Arc<dyn Responder>, hearing: Arc<Hearing>) -> Self {
        let server = Arc::new(OnceLock::new());
        Self {
            host,
            server,
            hearing,
        }
    }

    /// Tells who the server is, by what is spoken with it. One that asks earlier is an unknown one.
    pub(super) fn server_is(&self, caller: &Caller) {
        let server = Arc::new(Caller::new(caller.dialect));
        // Set once: a connection is opened once.
        let _ = self.server.set(server);
    }
}

impl Link {
    /// A channel that needs nothing else.
    pub(super) fn by(channel: impl Channel) -> Self {
        Self {
            channel: Arc::new(channel),
            wire: None,
            responder: None,
        }
    }

    /// A second link over the same channel. The first one keeps the wire.
    pub(super) fn over_the_same(&self) -> Self {
        Self {
            channel: self.channel.clone(),
            wire: None,
            responder: self.responder.clone(),
        }
    }

    fn in_process(responder: Arc<dyn Responder>, host: Arc<dyn Responder>) -> Self {
        let way_back = Arc::new(InProcess::new(host));
        let channel = InProcess::new(responder.clone()).with_way_back(way_back);
        Self {
            responder: Some(responder),
            ..Self::by(channel)
        }
    }

    pub(super) fn over(wire: Box<dyn Wire>, child: Option<Leash>, answering: Answering) -> Self {
        let Answering {
            host,
            server,
            hearing,
        } = answering;
        let role = Role::Client { server, host };
        let (peer, driver) = Peer::new(wire, role, Account::total(Limits::default()).peer());
        hearing.tap(&peer);
        // Owned by the connection: it ends when `OpenWire` is dropped.
        tokio::spawn(driver);
        Self {
            channel: Arc::new(peer.clone()),
            wire: Some(OpenWire { peer, child }),
            responder: None,
        }
    }

    pub(super) fn peer(&self) -> Option<&Peer> {
        self.wire.as_ref().map(|wire| &wire.peer)
    }
}

impl OpenWire {
    /// Sends what is queued, closes the wire and ends the child.
    ///
    /// # Cancel safety
    ///
    /// Safe: both end even if nobody waits for it.
    pub(super) async fn close(&self) {
        if let Some(child) = &self.child {
            child.end_in_order();
        }
        self.peer.close(FLUSH);
        self.peer.ended().await;
        if let Some(child) = &self.child {
            child.reaped().await;
        }
    }
}

impl Drop for OpenWire {
    fn drop(&mut self) {
        self.peer.close(FLUSH);
    }
}

const FLUSH: Closing = Closing::Flush(std::time::Duration::from_secs(1));
