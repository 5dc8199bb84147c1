//! The first words over HTTP: which era the server speaks, and the channel for it.

use std::sync::Arc;

use bowline_core::era::probe::{HttpReply, Undecided, Verdict, judge_http, suggests_two_endpoints};
use bowline_core::era::{Caller, Request};
use bowline_types::{DiscoverRequest, Json, Method};

use super::Verdicts;
use super::link::{Answering, Link, Reached};
use super::opening::{MOST_PROBES, Opening, Terms, incompatible};
use super::remembered_version::Reprobe;
use crate::exchange::{BoxFuture, Pause, within};
use crate::http::client::{Endpoint, HttpChannel, UnexpectedStatus, legacy};
use crate::wire::Wire;
use crate::{Error, Result};

/// A server over HTTP, not yet known.
pub(super) struct HttpOpening {
    pub(super) endpoint: Endpoint,
    pub(super) terms: Terms,
    /// What was found out about others, and is about to be about this one.
    pub(super) verdicts: Verdicts,
}

impl HttpOpening {
    pub(super) async fn open(mut self, mut caller: Caller) -> Result<Reached> {
        if let Some(verdict) = self.terms.remembered.take() {
            let dialect = verdict.dialect_of(&self.terms.speaking)?;
            if dialect.is_modern() {
                caller.dialect = dialect;
                return Ok(Reached {
                    link: Link::by(HttpChannel::new(self.endpoint.clone())),
                    caller,
                    server: verdict.server().cloned(),
                    reprobe: Some(Box::new(self)),
                });
            }
            match self.shake_hands(caller.clone()).await {
                Err(error) if refutes(&error) => self.verdicts.forget_server(&self.endpoint.uri),
                reached_or_failed => return reached_or_failed,
            }
        }
        self.find_out(caller).await
    }

    /// Finds out what the server speaks.
    async fn find_out(&self, mut caller: Caller) -> Result<Reached> {
        let Some(modern) = self.terms.speaking.latest_modern() else {
            return self.shake_hands(caller).await;
        };
        let channel = HttpChannel::new(self.endpoint.clone());
        if self.terms.speaking.iter().count() == 1 {
            caller.dialect = modern;
            return Ok(Reached {
                link: Link::by(channel),
                caller,
                server: None,
                reprobe: None,
            });
        }
        if self
            .verdicts
            .is_legacy(&self.endpoint.uri, &self.terms.speaking)
        {
            match self.shake_hands(caller.clone()).await {
                Err(error) if refutes(&error) => self.verdicts.forget_server(&self.endpoint.uri),
                reached_or_failed => return reached_or_failed,
            }
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
            match judge_http(DiscoverRequest::NAME, reply, &self.terms.speaking, &tried) {
                Verdict::Modern(dialect) => {
                    let result = probe.ok().and_then(|(_, outcome)| outcome?.ok());
                    let server = result.and_then(|result| result.decode().ok());
                    caller.dialect = dialect;
                    return Ok(Reached {
                        link: Link::by(channel),
                        caller,
                        server,
                        reprobe: None,
                    });
                }
                Verdict::Retry(dialect) if tried.len() < MOST_PROBES => tried.push(dialect),
                Verdict::Retry(_) => return Err(incompatible(&[])),
                Verdict::Legacy(_) => {
                    let reached = self.shake_hands(caller).await?;
                    let dialect = reached.caller.dialect;
                    self.verdicts.keep(&self.endpoint.uri, dialect);
                    return Ok(reached);
                }
                Verdict::Incompatible(versions) => return Err(incompatible(&versions)),
                Verdict::Unauthorized => {
                    let refused = Error::Unauthorized {
                        challenges: Vec::new(),
                        source: None,
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
        let pause = Pause::default();
        within(
            self.terms.probe_timeout,
            &pause,
            channel.probe(&request, &pause),
        )
        .await
    }

    /// Opens a legacy wire made of HTTP requests: Streamable HTTP first, then HTTP+SSE.
    async fn shake_hands(&self, caller: Caller) -> Result<Reached> {
        let Some(wire) = legacy::wire(self.endpoint.clone()) else {
            return Err(incompatible(&[]));
        };
        let refused = match self.shake_hands_over(wire, caller.clone()).await {
            Err(error) if is_without_streamable_http(&error) => error,
            reached_or_failed => return reached_or_failed,
        };
        let pause = Pause::default();
        let opening = legacy::two_endpoints(self.endpoint.clone(), &pause);
        match within(self.terms.probe_timeout, &pause, opening).await {
            Ok(wire) => self.shake_hands_over(wire, caller).await,
            // It speaks neither; what it said to the first attempt says more.
            Err(_) => Err(refused),
        }
    }

    async fn shake_hands_over(&self, wire: Box<dyn Wire>, caller: Caller) -> Result<Reached> {
        let answering = Answering::by(self.terms.host.clone(), self.terms.hearing.clone());
        let link = Link::over(wire, None, answering.clone());
        let legacy = self.terms.speaking.without_modern();
        let opening = Opening {
            speaking: &legacy,
            timeout: self.terms.timeout,
            probe_timeout: self.terms.probe_timeout,
            respawn_after: self.terms.respawn_after,
            remembered: None,
        };
        let offered = opening.latest_legacy()?;
        let (caller, server) = opening.shake_hands(&link, caller, offered).await?;
        answering.server_is(&caller);
        Ok(Reached {
            link,
            caller,
            server,
            reprobe: None,
        })
    }
}

impl Reprobe for HttpOpening {
    fn probe<'a>(&'a self, _: &'a Link, caller: Caller) -> BoxFuture<'a, Result<Reached>> {
        Box::pin(self.find_out(caller))
    }

    fn confirm(&self, _: &Caller) {}
}

/// Whether a failed handshake shows that the server is not the one that was known. One that is down or wants to
/// know who is asking may be the same.
fn refutes(error: &Error) -> bool {
    match error {
        Error::Peer(_) | Error::Protocol { .. } => true,
        error => UnexpectedStatus::of(error).is_some_and(|status| status.is_client_error()),
    }
}

/// Whether a failed `initialize` suggests that the server has two endpoints. It may say no in words, too.
fn is_without_streamable_http(error: &Error) -> bool {
    let status = UnexpectedStatus::of(error);
    matches!(error, Error::Peer(_))
        || status.is_some_and(|status| suggests_two_endpoints(status.as_u16()))
}

fn undecided(why: Undecided) -> Error {
    Error::Transport {
        what: why.to_string(),
        source: None,
    }
}
