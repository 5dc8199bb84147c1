//! The legacy cancel: a POST of its own that must not overtake its request, and the end of the response to that.
//!
//! ```text
//! dropped ──▶ head, or 100 ms after the body was handed over ──▶ its turn ──▶ POST
//!    └───────▶ the response is drained, for 5 s after the drop ──▶ closed
//! ```

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bowline_core::shortened;
use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::Posting;
use super::link::{Link, headers};
use super::progress::Progress;
use crate::Result;
use crate::http::client::body::ResponseBody;
use crate::http::client::send::Handed;
use crate::http::client::{Endpoint, Outgoing, WhenRefused, message_headers};

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
    /// A request with the same id waits until this is dropped, and for as long as it says.
    pub(super) left: watch::Sender<Option<Reserved>>,
}

/// An id that may not be used again for a while, because its request may never have arrived: a server may keep a cancel
/// that came before its request, and would apply it to the successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reserved {
    pub(super) until: Instant,
    /// The number of the session in which the cancel was posted; it means nothing in another.
    pub(super) session: u64,
}

impl Cancel {
    /// Posts the cancel and lets the response run out. Everything is over 5 s after the drop, unless the cancel had to
    /// wait for its turn or for a connection, or is posted again because its connection ended.
    pub(super) async fn run(mut self) {
        let drain_until = Instant::now() + DRAIN_LIMIT;
        let posted_in = self.progress.borrow().session().cloned();
        let session = posted_in.unwrap_or_default();
        if session.id.is_none() {
            // No session, so no cancel can be matched: a server like that notices a closed response, if anything.
            self.carrier.abort();
        }
        if !cannot_overtake(&self.handed, &mut self.progress).await {
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
        let seen = progress.clone();
        let cancelling = async {
            let headers = headers(&session, message_headers());
            let status = post_cancel(&turns, &link.endpoint, &headers, frame).await;
            if status == Some(StatusCode::NOT_FOUND) {
                link.forget(&session);
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
        if session.id.is_some() && !has_arrived(&seen) {
            left.send_replace(Some(Reserved {
                until: Instant::now() + RESERVED_FOR,
                session: session.number,
            }));
        }
        drop(left);
    }
}

/// Whether the server is known to have the request.
fn has_arrived(progress: &watch::Receiver<Progress>) -> bool {
    matches!(&*progress.borrow(), Progress::Answering(_))
}

/// Waits until a cancel cannot overtake its request: for the head of the response, or for a moment after a connection
/// got the body. Returns whether there is something to cancel.
pub(super) async fn cannot_overtake(
    handed: &Handed,
    progress: &mut watch::Receiver<Progress>,
) -> bool {
    let head_start = handed.since() + HEAD_START;
    let decided = async {
        let decided = progress.wait_for(Progress::is_decided).await;
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

/// Posts a cancel when it is its turn, and returns the status of the response if there is one. Where no connection can
/// be had, or the connection ends before there is a response, it is tried again for a while, for the work would go on
/// otherwise: to cancel twice does no harm. A server that has it and does not answer is not asked again.
pub(super) async fn post_cancel(
    turns: &Semaphore,
    endpoint: &Endpoint,
    headers: &HeaderMap,
    frame: Bytes,
) -> Option<StatusCode> {
    let mut pause = FIRST_PAUSE;
    let give_up_at = Instant::now() + CANCEL_LIMIT;
    loop {
        let turn = turns.acquire().await.ok()?;
        let handed = Handed::new();
        let outgoing = Outgoing {
            method: Method::POST,
            headers: &|| Ok(headers.clone()),
            frame: frame.clone(),
            handed: &handed,
            when_refused: WhenRefused::GiveUp,
        };
        let posted = in_time(&handed, endpoint.request(&outgoing)).await;
        drop(turn); // others may be luckier meanwhile
        match posted {
            Posted::Answered(status) => return Some(status),
            Posted::Unanswered => return None,
            Posted::Failed if Instant::now() + pause > give_up_at => return None,
            Posted::Failed => {}
        }
        sleep(pause).await;
        pause *= 2;
    }
}

/// What became of one attempt to post a cancel.
enum Posted {
    Answered(StatusCode),
    /// A connection has it, and nothing came back.
    Unanswered,
    /// No connection could be had, or it ended.
    Failed,
}

/// Waits for the answer to a cancel, so that its connection can be used again, but not for long: what the server answers
/// is of little interest.
async fn in_time(
    handed: &Handed,
    posting: impl Future<Output = Result<Response<ResponseBody>>>,
) -> Posted {
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
        posted = posting => match posted {
            Ok(response) => Posted::Answered(response.status()),
            Err(error) => {
                tracing::debug!(error = %shortened(&error), "failed to post a cancel");
                Posted::Failed
            }
        },
        () = overdue => {
            tracing::debug!("a cancel was not answered in time");
            match handed.is_handed_over() {
                true => Posted::Unanswered,
                false => Posted::Failed,
            }
        }
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
/// How long a cancel waits for a connection, and how long it is tried again to get one.
const CONNECT_SECONDS: usize = 5;
const CANCEL_LIMIT: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// How long the id of a request that may never have arrived is reserved. Our server keeps an early cancel for 10 s.
const RESERVED_FOR: Duration = Duration::from_secs(15);
/// How many responses to cancelled requests are drained at once.
const MAX_DRAINING: usize = 16;
/// How many cancels are posted at once; the others wait for their turn.
pub(super) const MAX_CANCELS: usize = 16;
