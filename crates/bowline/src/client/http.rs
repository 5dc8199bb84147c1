//! The first words over HTTP: which era the server speaks, and the channel for it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowline_core::era::probe::{HttpReply, Undecided, Verdict, judge_http};
use bowline_core::era::{Caller, Dialects, Request};
use bowline_core::mux::Limits;
use bowline_types::{DiscoverRequest, DiscoverResult, Json, Method};

use super::OpenWire;
use super::opening::{MOST_PROBES, Opening, incompatible};
use crate::exchange::{Channel, Responder};
use crate::http::client::{Endpoint, HttpChannel, legacy};
use crate::peer::{Peer, Role};
use crate::{Error, Result};

/// A server over HTTP, not yet known.
pub(super) struct HttpOpening {
    pub(super) endpoint: Endpoint,
    pub(super) host: Arc<dyn Responder>,
    pub(super) speaking: Dialects,
    pub(super) timeout: Duration,
    pub(super) probe_timeout: Duration,
}

/// A server that was reached.
pub(super) struct Opened {
    pub(super) channel: Arc<dyn Channel>,
    pub(super) caller: Caller,
    pub(super) server: Option<DiscoverResult>,
    pub(super) wire: Option<OpenWire>,
}

impl HttpOpening {
    pub(super) async fn open(self, mut caller: Caller) -> Result<Opened> {
        let Some(modern) = self.speaking.latest_modern() else {
            return self.shake_hands(caller).await;
        };
        let channel = HttpChannel::new(self.endpoint.clone());
        if self.speaking.iter().count() == 1 {
            caller.dialect = modern;
            return Ok(Opened {
                channel: Arc::new(channel),
                caller,
                server: None,
                wire: None,
            });
        }
        let mut tried = vec![modern];
        loop {
            caller.dialect = tried.last().copied().unwrap_or(modern);
            let probe = self.probe(&channel, &caller).await;
            let reply = match &probe {
                Ok((status, Some(outcome))) => HttpReply::Outcome {
                    status: status.as_u16(),
                    outcome,
                },
                Ok((status, None)) => HttpReply::Status(status.as_u16()),
                Err(Error::Timeout { .. }) => HttpReply::Silence,
                Err(_) => HttpReply::Unreachable,
            };
            match judge_http(DiscoverRequest::NAME, reply, &self.speaking, &tried) {
                Verdict::Modern(dialect) => {
                    let result = probe.ok().and_then(|(_, outcome)| outcome?.ok());
                    let server = result.and_then(|result| result.decode().ok());
                    caller.dialect = dialect;
                    return Ok(Opened {
                        channel: Arc::new(channel),
                        caller,
                        server,
                        wire: None,
                    });
                }
                Verdict::Retry(dialect) if tried.len() < MOST_PROBES => tried.push(dialect),
                Verdict::Retry(_) => return Err(incompatible(&[])),
                Verdict::Legacy(_) => return self.shake_hands(caller).await,
                Verdict::Incompatible(versions) => return Err(incompatible(&versions)),
                Verdict::Unauthorized => {
                    let refused = Error::Unauthorized {
                        challenge: String::new(),
                    };
                    return Err(probe.err().unwrap_or(refused));
                }
                Verdict::Undecided(why) => {
                    return Err(probe.err().unwrap_or_else(|| undecided(why)));
                }
            }
        }
    }

    async fn probe(
        &self,
        channel: &HttpChannel,
        caller: &Caller,
    ) -> Result<(http::StatusCode, Option<bowline_core::Outcome>)> {
        let request = Request::new(
            DiscoverRequest::NAME,
            Json::empty_object(),
            Arc::new(caller.clone()),
        );
        // Dropping the probe releases its POST at once, so that whatever follows is on time.
        tokio::time::timeout(self.probe_timeout, channel.probe(&request))
            .await
            .unwrap_or(Err(Error::Timeout {
                after: self.probe_timeout,
            }))
    }

    /// Opens a legacy wire made of HTTP requests.
    async fn shake_hands(self, caller: Caller) -> Result<Opened> {
        let Some(wire) = legacy::wire(self.endpoint) else {
            return Err(incompatible(&[]));
        };
        let server_caller = Arc::new(OnceLock::new());
        let role = Role::Client {
            server: server_caller.clone(),
            host: self.host,
        };
        let (peer, driver) = Peer::new(wire, role, Limits::default());
        // Owned by the connection: it ends when `OpenWire` is dropped.
        tokio::spawn(driver);
        let wire = OpenWire(peer.clone());
        let opening = Opening {
            channel: &peer,
            peer: Some(&peer),
            speaking: Dialects::only(|dialect| {
                !dialect.is_modern() && self.speaking.of(dialect.version).is_some()
            }),
            timeout: self.timeout,
            probe_timeout: self.probe_timeout,
        };
        let (caller, server) = opening.open(caller).await?;
        // Set once, here; a server that asks earlier is answered as an unknown one.
        let _ = server_caller.set(Arc::new(Caller::new(caller.dialect)));
        Ok(Opened {
            channel: Arc::new(peer),
            caller,
            server,
            wire: Some(wire),
        })
    }
}

fn undecided(why: Undecided) -> Error {
    Error::Transport {
        what: why.to_string(),
        source: None,
    }
}
