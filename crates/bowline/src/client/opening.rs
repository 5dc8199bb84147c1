//! The first words over a channel: which version both sides speak, and what the server offers.

use std::time::Duration;

use bowline_core::Outcome;
use bowline_core::era::probe::{DuplexReply, Verdict, judge_duplex};
use bowline_core::era::{Caller, Dialect, Dialects, Request, after_opening};
use bowline_core::mux::CallOptions;
use bowline_types::{
    DiscoverRequest, DiscoverResult, ErrorCode, Json, Method, ProtocolVersion, RpcError,
};
use std::sync::Arc;

use crate::exchange::{Answer, Channel};
use crate::peer::Peer;
use crate::{Error, Result};

/// What is needed to find out.
pub(super) struct Opening<'a> {
    pub(super) channel: &'a dyn Channel,
    /// The wire, where there is one: the legacy handshake ends with a notification.
    pub(super) peer: Option<&'a Peer>,
    /// What this client is willing to speak.
    pub(super) speaking: Dialects,
    pub(super) timeout: Duration,
    pub(super) probe_timeout: Duration,
}

impl Opening<'_> {
    /// Opens the channel for `caller`, whose dialect is decided here.
    pub(super) async fn open(
        &self,
        mut caller: Caller,
    ) -> Result<(Caller, Option<DiscoverResult>)> {
        let Some(modern) = self.speaking.latest_modern() else {
            return self.shake_hands(caller, self.latest_legacy()?).await;
        };
        if self.speaking.iter().count() == 1 {
            // A version without a handshake that is spoken whatever the server says: nothing to ask.
            caller.dialect = modern;
            return Ok((caller, None));
        }
        self.probe(caller, modern).await
    }

    async fn probe(
        &self,
        mut caller: Caller,
        modern: &'static Dialect,
    ) -> Result<(Caller, Option<DiscoverResult>)> {
        let mut tried = vec![modern];
        loop {
            caller.dialect = tried.last().copied().unwrap_or(modern);
            let answer = self.discover(&caller, self.probe_timeout).await;
            let outcome = match &answer {
                Ok(result) => Some(Ok(result.clone())),
                Err(Error::Peer(error)) => Some(Err(error.clone())),
                Err(Error::Protocol { .. }) => Some(unusable()),
                Err(_) => None,
            };
            let reply = match (&outcome, &answer) {
                (Some(outcome), _) => DuplexReply::Outcome(outcome),
                (None, Err(Error::Timeout { .. })) => DuplexReply::Silence,
                // The wire cannot be opened anew from here, so what broke it is what there is to tell.
                (None, _) => return answer.map(|_| (caller, None)),
            };
            match judge_duplex(reply, &self.speaking, &tried) {
                Verdict::Modern(dialect) => {
                    let server = answer.ok().and_then(|result| result.decode().ok());
                    caller.dialect = dialect;
                    return Ok((caller, server));
                }
                Verdict::Retry(dialect) if tried.len() < MOST_PROBES => tried.push(dialect),
                Verdict::Legacy(dialect) => return self.shake_hands(caller, dialect).await,
                Verdict::Incompatible(versions) => return Err(incompatible(&versions)),
                Verdict::Retry(_) | Verdict::Unauthorized | Verdict::Undecided(_) => {
                    return Err(answer.err().unwrap_or_else(|| incompatible(&[])));
                }
            }
        }
    }

    /// The legacy opening. Inside it is a `server/discover` like any other.
    async fn shake_hands(
        &self,
        mut caller: Caller,
        offered: &'static Dialect,
    ) -> Result<(Caller, Option<DiscoverResult>)> {
        caller.dialect = offered;
        let answer = self.discover(&caller, self.timeout).await?;
        let server: DiscoverResult = answer.decode().map_err(|error| {
            Error::undecodable("the server's introduction is unreadable", error)
        })?;
        let spoken = server
            .supported_versions
            .iter()
            .map(ProtocolVersion::as_str);
        let Some(dialect) = spoken.clone().find_map(|version| self.speaking.of(version)) else {
            return Err(incompatible(&spoken.map(str::to_owned).collect::<Vec<_>>()));
        };
        caller.dialect = dialect;
        if let (Some(peer), Some(ready)) = (self.peer, after_opening(dialect)) {
            peer.notify(ready);
        }
        Ok((caller, Some(server)))
    }

    async fn discover(&self, caller: &Caller, timeout: Duration) -> Result<Json> {
        let request = Request::new(
            DiscoverRequest::NAME,
            Json::empty_object(),
            Arc::new(caller.clone()),
        );
        let options = CallOptions {
            total_timeout: Some(timeout),
            ..CallOptions::default()
        };
        match self.channel.open(request, options).answer().await? {
            Answer::Complete(result) => Ok(result),
            Answer::InputRequired(_) | Answer::Extension { .. } => Err(Error::protocol(
                "`server/discover` was not answered by its result",
            )),
        }
    }

    fn latest_legacy(&self) -> Result<&'static Dialect> {
        let latest = self.speaking.latest_legacy();
        latest.ok_or_else(|| Error::misuse("this client is to speak no version at all"))
    }
}

/// Stands for an answer that breaks the protocol: on a duplex wire, a sign of an older server.
fn unusable() -> Outcome {
    Err(RpcError::new(
        ErrorCode::INTERNAL_ERROR,
        "an unusable answer",
    ))
}

pub(super) fn incompatible(versions: &[String]) -> Error {
    let versions = versions.join(", ");
    Error::protocol(format!(
        "there is no version that both sides speak; the server has: {versions}"
    ))
}

pub(super) const MOST_PROBES: usize = 3;
