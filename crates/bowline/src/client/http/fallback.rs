//! [`fall_back`]: a server that does not answer the probe gets a handshake too, while the probe stays open.
//!
//! Over HTTP silence does not show the era: a legacy server may hang at an unknown method, and a server of any era may
//! be starting, behind a platform that holds requests until it is up. So the first answer that shows the era decides.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bowline_core::era::probe::HttpReply;
use bowline_core::era::{OpeningFailure, OpeningStep, Prober};
use tokio::time::{sleep, timeout};

use super::opener::contradicts_legacy;
use super::opening_time::OpeningTime;
use crate::client::Connection;
use crate::exchange::{TimeoutPause, timeout_with_pauses};
use crate::http::client::{ProbeResponse, SendState};
use crate::{Error, Result};

/// The answer to a probe.
pub(super) type Probe = Result<ProbeResponse>;

/// The result of [`fall_back`].
pub(super) enum Fallback {
    /// The probe was answered after all, and the server is not a legacy one.
    Probed(Probe),
    /// The server is legacy.
    Opened(Connection),
    Failed(Error),
    /// The server refuses the handshake, and the probe was lost.
    ProbeAgain,
}

/// Returns the answer to a probe; `None` if there was none for `limit` and a connection has the probe. Without a
/// connection another request would wait as well.
pub(super) async fn answer_within(
    limit: Duration,
    mut probing: Pin<&mut impl Future<Output = Probe>>,
    pause: &TimeoutPause,
    send_state: &SendState,
) -> Option<Probe> {
    loop {
        let answer = async { Ok(probing.as_mut().await) };
        match timeout_with_pauses(limit, pause, answer).await {
            Ok(probe) => return Some(probe),
            Err(_) if send_state.is_handed_over() => return None,
            Err(_) => {}
        }
    }
}

/// Performs a handshake while the probe is still open. Both end by their timeouts.
pub(super) async fn fall_back(
    mut probing: Pin<&mut impl Future<Output = Probe>>,
    handshake: impl Future<Output = Result<Connection>>,
    prober: &Prober<'_>,
    time: &OpeningTime,
) -> Fallback {
    tracing::debug!("the server does not answer the probe; trying the handshake of older versions");
    let mut handshake = Box::pin(handshake);
    let opened = tokio::select! {
        // The probe was sent first.
        biased;
        probe = &mut probing => match verdict(prober, &probe) {
            Verdict::NotLegacy => return Fallback::Probed(probe),
            Verdict::Legacy | Verdict::Unknown => return match handshake.await {
                Ok(connection) => Fallback::Opened(connection),
                Err(error) => Fallback::Failed(error),
            },
        },
        opened = &mut handshake => opened,
    };
    // The server is awake now. One that is not legacy answers the probe at once too.
    let grace = || LATE_ANSWER.min(time.remaining());
    let mut late = timeout(grace(), probing.as_mut()).await.ok();
    if late.is_none()
        && let Err(error) = &opened
        && is_outage(error)
    {
        // Of a part of the server, or of a proxy: only the probe can still succeed.
        late = Some(probing.await);
    }
    let verdict = late.as_ref().map(|probe| verdict(prober, probe));
    match (opened, verdict, late) {
        (_, Some(Verdict::NotLegacy), Some(probe)) => Fallback::Probed(probe),
        (Ok(connection), ..) => Fallback::Opened(connection),
        (Err(error), None | Some(Verdict::Unknown), late) if contradicts_legacy(&error) => {
            if late.is_some() {
                sleep(grace()).await;
            }
            Fallback::ProbeAgain
        }
        (Err(error), ..) => Fallback::Failed(error),
    }
}

/// What the answer to a probe shows.
#[derive(Clone, Copy)]
enum Verdict {
    Legacy,
    NotLegacy,
    Unknown,
}

fn verdict(prober: &Prober<'_>, probe: &Probe) -> Verdict {
    match prober.clone().handle_http(reply_of(probe)) {
        OpeningStep::Initialize(_) => Verdict::Legacy,
        OpeningStep::Failed(OpeningFailure::Inconclusive(_)) => Verdict::Unknown,
        OpeningStep::Ready(_) | OpeningStep::Discover(_) | OpeningStep::Failed(_) => {
            Verdict::NotLegacy
        }
    }
}

pub(super) fn reply_of(probe: &Probe) -> HttpReply<'_> {
    match probe {
        Ok(ProbeResponse {
            status,
            outcome: Some(outcome),
            ..
        }) => HttpReply::Outcome {
            status: status.as_u16(),
            outcome,
        },
        Ok(response) => HttpReply::Status(response.status.as_u16()),
        Err(Error::Timeout { .. }) => HttpReply::TimedOut,
        Err(_) => HttpReply::Unreachable,
    }
}

/// Whether the handshake failed for a reason that does not depend on the era.
fn is_outage(error: &Error) -> bool {
    matches!(error, Error::Transport { .. }) && !contradicts_legacy(error)
}

/// How long the probe may be answered after the handshake was.
const LATE_ANSWER: Duration = Duration::from_secs(1);
