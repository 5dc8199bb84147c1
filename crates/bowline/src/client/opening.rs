//! The first words over a channel: which version both sides speak, and what the server offers.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bowline_core::Outcome;
use bowline_core::era::probe::{DuplexReply, Verdict, judge_duplex, judge_refused_handshake};
use bowline_core::era::{Caller, Dialect, Dialects, Request, after_opening};
use bowline_core::mux::CallOptions;
use bowline_types::{
    DiscoverRequest, DiscoverResult, ErrorCode, Json, Method, ProtocolVersion, RpcError,
};

use super::Verdict as Remembered;
use super::hearing::Hearing;
use super::link::Link;
use crate::exchange::{Answer, Responder};
use crate::{Error, Result};

/// What is needed to find out.
pub(super) struct Opening<'a> {
    /// What this client is willing to speak.
    pub(super) speaking: &'a Dialects,
    pub(super) timeout: Duration,
    pub(super) probe_timeout: Duration,
    pub(super) respawn_after: Duration,
    /// What was found out the last time.
    pub(super) remembered: Option<&'a Remembered>,
}

/// What a client is told before it knows its server, however that is reached.
pub(super) struct Terms {
    pub(super) host: Arc<dyn Responder>,
    pub(super) hearing: Arc<Hearing>,
    /// What this client is willing to speak.
    pub(super) speaking: Dialects,
    pub(super) timeout: Duration,
    pub(super) probe_timeout: Duration,
    pub(super) respawn_after: Duration,
    /// What was found out the last time.
    pub(super) remembered: Option<Remembered>,
}

impl Terms {
    pub(super) fn opening(&self) -> Opening<'_> {
        Opening {
            speaking: &self.speaking,
            timeout: self.timeout,
            probe_timeout: self.probe_timeout,
            respawn_after: self.respawn_after,
            remembered: self.remembered.as_ref(),
        }
    }
}

/// How the first words went.
#[allow(clippy::large_enum_variant, reason = "there is one, and not for long")]
pub(super) enum Opened {
    /// Both sides know what they speak, and we may know what the server says of itself.
    Open(Caller, Option<DiscoverResult>),
    /// The server exited at the probe, or answers nothing after it. Older ones do; start it again and shake
    /// hands at once, offering this.
    Respawn(Caller, &'static Dialect),
}

impl Opening<'_> {
    /// Opens `link` for `caller`, whose dialect is decided here or was the last time. A server that the probe has
    /// broken is [`Opened::Respawn`] if it `can_restart`.
    pub(super) async fn open(
        &self,
        link: &Link,
        mut caller: Caller,
        can_restart: bool,
    ) -> Result<Opened> {
        if let Some(verdict) = self.remembered {
            let dialect = verdict.dialect_of(self.speaking)?;
            if !dialect.is_modern() {
                let opened = self.shake_hands(link, caller, dialect).await;
                return opened.map(|(caller, server)| Opened::Open(caller, server));
            }
            caller.dialect = dialect;
            return Ok(Opened::Open(caller, verdict.server().cloned()));
        }
        let Some(modern) = self.speaking.latest_modern() else {
            let opened = self.shake_hands(link, caller, self.latest_legacy()?).await;
            return opened.map(|(caller, server)| Opened::Open(caller, server));
        };
        if self.speaking.iter().count() == 1 && !can_restart {
            // A version without a handshake that is spoken whatever the server says: nothing to ask. A child process is probed
            // nevertheless: a legacy server might execute the first modern request before it turns out to be legacy.
            caller.dialect = modern;
            return Ok(Opened::Open(caller, None));
        }
        self.probe(link, caller, modern, can_restart).await
    }

    /// Probes a server that is connected already.
    pub(super) async fn probe_again(&self, link: &Link, caller: Caller) -> Result<Opened> {
        match self.speaking.latest_modern() {
            Some(modern) => self.probe(link, caller, modern, false).await,
            None => self.open(link, caller, false).await,
        }
    }

    async fn probe(
        &self,
        link: &Link,
        mut caller: Caller,
        modern: &'static Dialect,
        can_restart: bool,
    ) -> Result<Opened> {
        let mut tried = vec![modern];
        loop {
            caller.dialect = tried.last().copied().unwrap_or(modern);
            let mut asking = Box::pin(discover(link, &caller, None));
            let answer = within(self.probe_timeout, &mut asking).await;
            let outcome = as_outcome(&answer);
            let reply = match (&outcome, &answer) {
                (Some(outcome), _) => DuplexReply::Outcome(outcome),
                (None, Err(Error::Timeout { .. })) => DuplexReply::Silence,
                (None, Err(Error::Transport { .. } | Error::Closed)) if can_restart => {
                    DuplexReply::Gone
                }
                // The wire cannot be opened anew, so what broke it is what there is to tell.
                (None, _) => return Err(answer.err().unwrap_or(Error::Closed)),
            };
            match (judge_duplex(reply, self.speaking, &tried), reply) {
                (Verdict::Modern(dialect), _) => {
                    let server = answer.ok().and_then(|result| result.decode().ok());
                    caller.dialect = dialect;
                    return Ok(Opened::Open(caller, server));
                }
                (Verdict::Retry(dialect), _) if tried.len() < MOST_PROBES => tried.push(dialect),
                (Verdict::Legacy(dialect), DuplexReply::Gone) => {
                    return Ok(Opened::Respawn(caller, dialect));
                }
                (Verdict::Legacy(dialect), DuplexReply::Silence) => {
                    let falling_back =
                        self.fall_back(link, caller.clone(), dialect, asking, &tried);
                    if can_restart && self.respawn_after < Duration::MAX {
                        return self.or_respawn(falling_back, caller, dialect).await;
                    }
                    let opened = falling_back.await;
                    return opened.map(|(caller, server)| Opened::Open(caller, server));
                }
                (Verdict::Legacy(dialect), DuplexReply::Outcome(_)) => {
                    let opened = self.shake_hands(link, caller, dialect).await;
                    return opened.map(|(caller, server)| Opened::Open(caller, server));
                }
                (Verdict::Incompatible(versions), _) => return Err(incompatible(&versions)),
                (Verdict::Retry(_) | Verdict::Unauthorized | Verdict::Undecided(_), _) => {
                    return Err(answer.err().unwrap_or_else(|| incompatible(&[])));
                }
            }
        }
    }

    /// Waits for a child that was silent at the probe to shake hands. If it is silent at that too, or exits, the probe
    /// has broken it: it would shake hands if that came first.
    async fn or_respawn(
        &self,
        falling_back: impl Future<Output = Result<(Caller, Option<DiscoverResult>)>>,
        caller: Caller,
        offered: &'static Dialect,
    ) -> Result<Opened> {
        match tokio::time::timeout(self.respawn_after, falling_back).await {
            Ok(Ok((caller, server))) => Ok(Opened::Open(caller, server)),
            Err(_) | Ok(Err(Error::Timeout { .. } | Error::Transport { .. } | Error::Closed)) => {
                Ok(Opened::Respawn(caller, offered))
            }
            Ok(Err(error)) => Err(error),
        }
    }

    /// Shakes hands with a server that was silent at the probe, unless the `late` answer to it shows that the
    /// server was only slow to start.
    async fn fall_back(
        &self,
        link: &Link,
        caller: Caller,
        offered: &'static Dialect,
        late: impl Future<Output = Result<Json>>,
        tried: &[&'static Dialect],
    ) -> Result<(Caller, Option<DiscoverResult>)> {
        let mut heard_after_all = pin!(async {
            let answer = late.await;
            if let Some(reply) = as_outcome(&answer)
                && let Verdict::Modern(dialect) =
                    judge_duplex(DuplexReply::Outcome(&reply), self.speaking, tried)
            {
                let server = answer.ok().and_then(|result| result.decode().ok());
                let mut caller = caller.clone();
                caller.dialect = dialect;
                return (caller, server);
            }
            pending().await
        });
        tokio::select! {
            biased;
            opened = &mut heard_after_all => Ok(opened),
            opened = self.shake_hands(link, caller.clone(), offered) => {
                // Both may have come between the two polls, and this one was asked first.
                match poll_fn(|cx| Poll::Ready(heard_after_all.as_mut().poll(cx))).await {
                    Poll::Ready(earlier) => Ok(earlier),
                    Poll::Pending => opened,
                }
            }
        }
    }

    /// The legacy opening. Inside it is a `server/discover` like any other.
    pub(super) async fn shake_hands(
        &self,
        link: &Link,
        mut caller: Caller,
        offered: &'static Dialect,
    ) -> Result<(Caller, Option<DiscoverResult>)> {
        caller.dialect = offered;
        let mut answer = discover(link, &caller, Some(self.timeout)).await;
        if let Err(Error::Peer(error)) = &answer
            && let Some(modern) = judge_refused_handshake(error, self.speaking)
        {
            caller.dialect = modern;
            answer = discover(link, &caller, Some(self.timeout)).await;
        }
        let server: DiscoverResult = answer?.decode().map_err(|error| {
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
        if let (Some(peer), Some(ready)) = (link.peer(), after_opening(dialect)) {
            peer.notify(ready);
        }
        Ok((caller, Some(server)))
    }

    pub(super) fn latest_legacy(&self) -> Result<&'static Dialect> {
        let latest = self.speaking.latest_legacy();
        latest.ok_or_else(|| Error::misuse("this client is to speak no version at all"))
    }
}

/// Asks the server what it is. The limit is kept by the channel, which knows when time does not count.
fn discover(
    link: &Link,
    caller: &Caller,
    limit: Option<Duration>,
) -> impl Future<Output = Result<Json>> + use<> {
    let request = Request::new(
        DiscoverRequest::NAME,
        Json::empty_object(),
        Arc::new(caller.clone()),
    );
    let options = CallOptions {
        total_timeout: limit,
        ..CallOptions::default()
    };
    let exchange = link.channel.open(request, options);
    async {
        match exchange.answer().await? {
            Answer::Complete(result) => Ok(result),
            Answer::InputRequired(_) | Answer::Extension { .. } => Err(Error::protocol(
                "`server/discover` was not answered by its result",
            )),
        }
    }
}

async fn within<T>(limit: Duration, asking: impl Future<Output = Result<T>>) -> Result<T> {
    let timed_out = |_| Err(Error::Timeout { after: limit });
    tokio::time::timeout(limit, asking)
        .await
        .unwrap_or_else(timed_out)
}

/// What the server said, if it said anything.
fn as_outcome(answer: &Result<Json>) -> Option<Outcome> {
    match answer {
        Ok(result) => Some(Ok(result.clone())),
        Err(Error::Peer(error)) => Some(Err(error.clone())),
        Err(Error::Protocol { .. }) => Some(unusable()),
        Err(_) => None,
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
    let mut why = "there is no version that both sides speak".to_owned();
    if !versions.is_empty() {
        why.push_str("; the server has: ");
        why.push_str(&versions.join(", "));
    }
    Error::protocol(why)
}

pub(super) const MOST_PROBES: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_speaks_nothing_in_common_is_told_what_the_server_has_if_that_is_known() {
        let known = incompatible(&["1".to_owned(), "2".to_owned()]).to_string();
        let unknown = incompatible(&[]).to_string();

        assert!(
            known.ends_with("both sides speak; the server has: 1, 2"),
            "{known}"
        );
        assert!(unknown.ends_with("both sides speak"), "{unknown}");
    }
}
