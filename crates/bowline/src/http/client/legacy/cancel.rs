//! Cancelling a request in the legacy era: `notifications/cancelled` is a POST of its own, which must not overtake the
//! request; the response to the request is drained.
//!
//! ```text
//! dropped ──▶ response head, or 100 ms after the body was handed over ──▶ permit ──▶ POST
//!    └───────▶ the response is drained, for 5 s after the drop ──▶ closed
//! ```

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bowline_core::shortened;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::PostingGuard;
use super::post_state::PostState;
use super::wire_state::{WireState, headers};
use crate::Result;
use crate::http::client::send::SendState;
use crate::http::client::{Endpoint, OutgoingRequest, RefusalPolicy, message_headers};

/// Cancels one request whose body was handed to a connection.
pub(super) struct CancelTask {
    pub(super) state: Arc<WireState>,
    pub(super) frame: Bytes,
    /// State of the request's body.
    pub(super) send_state: SendState,
    /// State of the POST of the request. The sender is dropped when the response has ended.
    pub(super) post_state: watch::Receiver<PostState>,
    /// The task that sends the request and reads its response.
    pub(super) request_task: AbortHandle,
    pub(super) permits: Arc<Semaphore>,
    pub(super) posting: PostingGuard,
    /// A request with the same id waits until this is dropped, and then until the `ReservedId` in it expires.
    pub(super) reservation: watch::Sender<Option<ReservedId>>,
}

/// An id that must not be reused for a while, because its request may not have arrived: a server that stores early
/// cancels would apply the cancel to the next request with this id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReservedId {
    pub(super) until: Instant,
    /// The number of the session in which the cancel was posted; it has no effect in another.
    pub(super) session: u64,
}

impl CancelTask {
    /// Posts the cancel and drains the response. Ends 5 s after the drop at the latest, unless the cancel waits for a
    /// permit or a connection, or is posted again because its connection failed.
    pub(super) async fn run(mut self) {
        let drain_until = Instant::now() + DRAIN_LIMIT;
        let posted_in = self.post_state.borrow().session().cloned();
        let session = posted_in.unwrap_or_default();
        if session.id.is_none() {
            // Without a session the server cannot match the cancel, but it may notice a closed response.
            self.request_task.abort();
        }
        if !wait_for_order(&self.send_state, &mut self.post_state).await {
            return;
        }
        let Self {
            state,
            frame,
            mut post_state,
            request_task,
            permits,
            posting,
            reservation,
            ..
        } = self;
        let seen = post_state.clone();
        let cancelling = async {
            let headers = headers(&session, message_headers());
            let status = post_cancel(&permits, &state.endpoint, &headers, frame).await;
            if status == Some(StatusCode::NOT_FOUND) {
                state.forget(&session);
            }
            drop(posting);
        };
        // A disconnect does not cancel in the legacy era, so the response is drained rather than closed.
        let draining = async {
            let ended = async { while post_state.changed().await.is_ok() {} };
            let _ = timeout_at(drain_until, ended).await;
            request_task.abort();
        };
        tokio::join!(cancelling, draining);
        if session.id.is_some() && !has_arrived(&seen) {
            reservation.send_replace(Some(ReservedId {
                until: Instant::now() + RESERVED_FOR,
                session: session.number,
            }));
        }
        drop(reservation);
    }
}

/// Returns whether the server is known to have received the request.
fn has_arrived(post_state: &watch::Receiver<PostState>) -> bool {
    matches!(&*post_state.borrow(), PostState::Responded(_))
}

/// Waits until a cancel cannot overtake its request: until the response head arrives, or 100 ms after a connection got
/// the body. Returns `false` if the server refused the request.
pub(super) async fn wait_for_order(
    send_state: &SendState,
    post_state: &mut watch::Receiver<PostState>,
) -> bool {
    let deadline = send_state.handed_over_at() + ORDER_DELAY;
    let decided = async {
        let decided = post_state.wait_for(PostState::is_received_or_refused).await;
        decided.map(|post_state| matches!(&*post_state, PostState::Refused))
    };
    match timeout_at(deadline, decided).await {
        Ok(Ok(is_refused)) => !is_refused,
        // The request task was aborted; the request may still be in transit.
        Ok(Err(_)) => {
            sleep_until(deadline).await;
            true
        }
        Err(_) => true,
    }
}

/// Posts a cancel once it has a permit, and returns the status of the response if there is one. Retries for 30 s if
/// connecting fails or the connection breaks, because the handler would run on otherwise and a duplicate cancel is
/// harmless. Does not retry if the server received it and does not respond.
pub(super) async fn post_cancel(
    permits: &Semaphore,
    endpoint: &Endpoint,
    headers: &HeaderMap,
    frame: Bytes,
) -> Option<StatusCode> {
    let mut delay = FIRST_DELAY;
    let give_up_at = Instant::now() + CANCEL_LIMIT;
    loop {
        let permit = permits.acquire().await.ok()?;
        let send_state = SendState::new();
        let outgoing = OutgoingRequest {
            method: Method::POST,
            headers: &|| Ok(headers.clone()),
            frame: frame.clone(),
            send_state: &send_state,
            refusal_policy: RefusalPolicy::Fail,
        };
        let posting = async {
            let posted = endpoint.request(&outgoing).await;
            posted.map(|response| endpoint.drain_response(response))
        };
        let posted = in_time(&send_state, posting).await;
        drop(permit); // not held during the pause
        match posted {
            PostResult::Answered(status) => return Some(status),
            PostResult::Unanswered => return None,
            PostResult::Failed if Instant::now() + delay > give_up_at => return None,
            PostResult::Failed => {}
        }
        sleep(delay).await;
        delay *= 2;
    }
}

/// The result of one attempt to post a cancel.
enum PostResult {
    Answered(StatusCode),
    /// A connection has it, and no response arrived in time.
    Unanswered,
    /// Connecting failed, or the connection broke.
    Failed,
}

/// Waits for the response to a cancel, so that its connection can be reused, but not for long: the response itself
/// does not matter.
async fn in_time(
    send_state: &SendState,
    posting: impl Future<Output = Result<StatusCode>>,
) -> PostResult {
    let overdue = async {
        for _ in 0..CONNECT_SECONDS {
            sleep(Duration::from_secs(1)).await;
            if send_state.is_handed_over() {
                return;
            }
        }
    };
    tokio::select! {
        biased; // a response that has arrived counts, even if it is late
        posted = posting => match posted {
            Ok(status) => PostResult::Answered(status),
            Err(error) => {
                tracing::debug!(error = %shortened(&error), "failed to post a cancel");
                PostResult::Failed
            }
        },
        () = overdue => {
            tracing::debug!("timed out posting a cancel");
            match send_state.is_handed_over() {
                true => PostResult::Unanswered,
                false => PostResult::Failed,
            }
        }
    }
}

/// The responses being drained. Beyond a limit the oldest is closed, because each may occupy a connection.
#[derive(Default)]
pub(super) struct Draining(VecDeque<AbortHandle>);

impl Draining {
    pub(super) fn push(&mut self, request_task: AbortHandle) {
        self.0.retain(|request_task| !request_task.is_finished());
        self.0.push_back(request_task);
        if self.0.len() > MAX_DRAINING {
            self.0
                .pop_front()
                .into_iter()
                .for_each(|oldest| oldest.abort());
        }
    }
}

/// How long after the body was handed over a cancel waits for the response head.
const ORDER_DELAY: Duration = Duration::from_millis(100);
/// How long the response to a cancelled request is drained, from the drop on.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// How long one attempt waits for a connection, and how long attempts are repeated.
const CONNECT_SECONDS: usize = 5;
const CANCEL_LIMIT: Duration = Duration::from_secs(30);
const FIRST_DELAY: Duration = Duration::from_millis(250);
/// How long the id of a request that may not have arrived is reserved. Our server stores an early cancel for 10 s.
const RESERVED_FOR: Duration = Duration::from_secs(15);
/// Maximum number of responses to cancelled requests that are drained concurrently.
const MAX_DRAINING: usize = 16;
/// Maximum number of cancels that are posted concurrently; the others wait for a permit.
pub(super) const MAX_CANCELS: usize = 16;
