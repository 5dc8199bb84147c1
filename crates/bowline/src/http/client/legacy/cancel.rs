//! The legacy cancel: a POST of its own that must not overtake its request, and the end of the response to that.
//!
//! ```text
//! dropped ──▶ head, or 100 ms after the body was handed over ──▶ its turn ──▶ POST
//!    └───────▶ the response is drained, for 5 s after the drop ──▶ closed
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::Posting;
use super::link::Link;
use super::progress::Progress;
use super::session::Session;
use crate::http::client::WhenRefused;
use crate::http::client::send::Handed;

/// The cancel of one request that a connection has had.
pub(super) struct Cancel {
    pub(super) link: Arc<Link>,
    pub(super) frame: Bytes,
    /// Of the request.
    pub(super) handed: Handed,
    /// Of the request. The other end is dropped when the response is at its end.
    pub(super) progress: watch::Receiver<Progress>,
    /// The task that carries the request.
    pub(super) carrier: AbortHandle,
    pub(super) turns: Arc<Semaphore>,
    pub(super) posting: Posting,
    /// A request with the same id waits until this is dropped.
    pub(super) left: watch::Sender<()>,
}

impl Cancel {
    /// Posts the cancel and lets the response run out. Everything is over 5 s after the drop, unless the cancel had to
    /// wait for its turn.
    pub(super) async fn run(mut self) {
        let drain_until = Instant::now() + DRAIN_LIMIT;
        let session = self
            .progress
            .borrow()
            .session()
            .cloned()
            .unwrap_or_default();
        if session.id.is_none() {
            // No session, so no cancel can be matched: a server like that notices a closed response, if anything.
            self.carrier.abort();
        }
        if !self.must_be_posted().await {
            return;
        }
        let Self {
            link,
            frame,
            mut progress,
            carrier,
            turns,
            posting,
            left,
            ..
        } = self;
        let cancelling = async {
            if let Ok(_turn) = turns.acquire().await {
                post(&link, &session, frame).await;
            }
            drop(posting);
        };
        // A disconnect is no signal in this era, so the response is drained rather than cut.
        let draining = async {
            let ended = async { while progress.changed().await.is_ok() {} };
            let _ = timeout_at(drain_until, ended).await;
            carrier.abort();
        };
        tokio::join!(cancelling, draining);
        drop(left);
    }

    /// Waits until the cancel cannot overtake its request. Returns whether there is something to cancel.
    async fn must_be_posted(&mut self) -> bool {
        let head_start = self.handed.since() + HEAD_START;
        let decided = async {
            let decided = self.progress.wait_for(Progress::is_decided).await;
            decided.map(|progress| matches!(&*progress, Progress::Refused))
        };
        match timeout_at(head_start, decided).await {
            Ok(Ok(is_refused)) => !is_refused,
            // Nobody reads the response any more; the request may still be on its way.
            Ok(Err(_)) => {
                sleep_until(head_start).await;
                true
            }
            Err(_) => true,
        }
    }
}

/// Posts a cancel in the session of its request. Its answer is of no interest: it is waited for so that the connection
/// can be used again, and not for long.
async fn post(link: &Link, session: &Session, frame: Bytes) {
    let handed = Handed::new();
    let overdue = async {
        for _ in 0..CONNECT_SECONDS {
            sleep(Duration::from_secs(1)).await;
            if handed.is_handed_over() {
                return;
            }
        }
    };
    tokio::select! {
        biased; // an answer that is there counts, even if it is late
        () = link.post_quietly(session, frame, &handed, WhenRefused::GiveUp) => {}
        () = overdue => tracing::debug!("a cancel was not answered in time"),
    }
}

/// The responses that are being drained. Beyond a limit the oldest is cut, for each may hold a connection.
#[derive(Default)]
pub(super) struct Draining(VecDeque<AbortHandle>);

impl Draining {
    pub(super) fn push(&mut self, carrier: AbortHandle) {
        self.0.retain(|carrier| !carrier.is_finished());
        self.0.push_back(carrier);
        if self.0.len() > MAX_DRAINING {
            self.0
                .pop_front()
                .into_iter()
                .for_each(|oldest| oldest.abort());
        }
    }
}

/// How long after its request a cancel waits for the head of the response.
const HEAD_START: Duration = Duration::from_millis(100);
/// How long the response to a cancelled request is drained, counted from the drop.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// How long a cancel waits for a connection.
const CONNECT_SECONDS: usize = 5;
/// How many responses to cancelled requests are drained at once.
const MAX_DRAINING: usize = 16;
/// How many cancels are posted at once; the others wait for their turn.
pub(super) const MAX_CANCELS: usize = 16;
