//! A request that is complete in itself: its handler lives inside the response.
//!
//! ```text
//! Handling ── outcome first ─────────────────────────▶ JSON, with the status that fits
//!     │
//!     └── something is said · progress is wanted ·
//!         the delay is over ──▶ SSE: events and keep-alives until the outcome
//! ```
//!
//! Dropping either form of the response drops the handler.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, Wake, Waker};

use ::http::request::Parts;
use ::http::{Response, StatusCode};
use bowline_core::era::{Dialect, Request, Seal, seal, tell};
use bowline_core::http::media::Accepts;
use bowline_core::http::status::{Head, needs_bad_request, of_outcome};
use bowline_core::sse::{self, encode_message};
use bowline_core::{self as core, Notification, Outcome};
use bowline_types::{
    CallToolRequest, CallToolResult, ErrorCode, Json, Method, RequestId, RpcError,
};
use bytes::Bytes;
use tokio::time::Sleep;

use super::body::{self, Events, HttpBody, charge_output, charged};
use super::{KeepAlive, Site};
use crate::exchange::{
    Alarm, BoxFuture, CancelMode, Channel, Context, InsufficientScope, Look, Outlet, Principal,
    Running, Said, run,
};
use crate::limits::{Account, Charge};

/// A request whose handler is at work.
pub(crate) struct Handling {
    id: RequestId,
    form: Seal,
    site: Arc<Site>,
    wants_progress: bool,
    running: Option<Running>,
    outlet: Arc<ToResponse>,
    outcome: Option<Outcome>,
    /// Raises the handler's alarm, then ends when its time is up. Made when the handler first waits.
    grace: Option<BoxFuture<'static, ()>>,
    /// Made when the response begins.
    keep_alive: Option<KeepAlive>,
    /// What the request takes up, until its handler is at its end.
    charge: Option<Charge>,
}

/// A response of which it is not clear yet which form it takes.
///
/// # Cancel safety
///
/// Dropping it, or the body of the response, drops the handler.
#[must_use = "dropping it drops the handler"]
pub(crate) struct Responding {
    /// `None` once the response has begun.
    handling: Option<Handling>,
    accepts: Accepts,
    /// When the response begins at the latest. Made when the handler first waits.
    delay: Option<Pin<Box<Sleep>>>,
}

/// What a handler does next.
enum Step {
    Says(Notification),
    /// Nothing, for so long that something has to be said in its place.
    KeepsSilent,
    Ends(Outcome),
}

impl Handling {
    pub(crate) fn new(
        site: &Arc<Site>,
        id: RequestId,
        request: Request,
        form: Seal,
        head: Arc<Parts>,
        charge: Charge,
    ) -> Self {
        let outlet = Arc::new(ToResponse {
            said: Said::default(),
            dialect: request.caller.dialect,
        });
        let principal = head.extensions.get::<Principal>().cloned();
        let mut cx = Context::new(id.clone(), &request, outlet.clone())
            .with_principal(principal.unwrap_or_default());
        cx.extensions_mut().insert_shared(head);
        Self {
            id,
            form,
            site: site.clone(),
            wants_progress: request.progress_token.is_some(),
            running: Some(run(site.responder.clone(), request, cx)),
            outlet,
            outcome: None,
            grace: None,
            keep_alive: None,
            charge: Some(charge),
        }
    }

    /// The response, as soon as it is clear which form it takes.
    pub(crate) fn respond(self, accepts: Accepts) -> Responding {
        Responding {
            handling: Some(self),
            accepts,
            delay: None,
        }
    }

    /// The response that begins with what the handler does first, or before that.
    fn begin(mut self, first: Option<Step>, accepts: Accepts) -> Response<HttpBody> {
        match first {
            Some(Step::Ends(Err(error)))
                if let Some(missing) = InsufficientScope::of_this_server(&error) =>
            {
                body::insufficient_scope(self.id.clone(), missing)
            }
            Some(Step::Ends(outcome)) if accepts.json || outcome.is_err() => {
                let (outcome, charge) = charge_output(self.account(), self.seal(outcome));
                let status = if self.form.dialect.is_modern() {
                    of_outcome(&outcome, Head::Uncommitted)
                } else {
                    StatusCode::OK
                };
                body::answer(status, self.id.clone(), (outcome, charge))
            }
            first => {
                match first {
                    Some(Step::Says(notification)) => self.outlet.said.put_back(notification),
                    Some(Step::Ends(outcome)) => self.outcome = Some(outcome),
                    Some(Step::KeepsSilent) | None => {}
                }
                self.keep_alive = Some(KeepAlive::new(self.site.keep_alive));
                // Whose timer has to be started: nobody waits until that is done.
                self.outlet.said.attend();
                body::stream(Answering {
                    handling: Some(self),
                })
            }
        }
    }

    /// What comes next. The handler is polled only when nothing is [at hand](Self::at_hand).
    fn poll_step(&mut self, cx: &mut task::Context<'_>) -> Poll<Step> {
        match self.outlet.said.look(cx.waker()) {
            Look::Said(notification) => return Poll::Ready(Step::Says(notification)),
            _ if let Some(outcome) = self.outcome.take() => {
                return Poll::Ready(Step::Ends(outcome));
            }
            // Whoever writes a response asks for more of it far more often than something has happened.
            Look::Nothing => return Poll::Pending,
            Look::Rung => {}
        }
        let is_silent = self.go_on().is_ready();
        if let Some(notification) = self.outlet.said.next_or_wake(cx.waker()) {
            return Poll::Ready(Step::Says(notification));
        }
        if let Some(outcome) = self.outcome.take() {
            return Poll::Ready(Step::Ends(outcome));
        }
        if is_silent {
            return Poll::Ready(Step::KeepsSilent);
        }
        Poll::Pending
    }

    /// Polls everything that the response waits for. Ready if it was silent for long.
    ///
    /// The outlet's bell is their waker, so that they need not be polled again before it has rung.
    fn go_on(&mut self) -> Poll<()> {
        let waker = Waker::from(self.outlet.clone());
        let cx = &mut task::Context::from_waker(&waker);
        if let Some(running) = &mut self.running {
            if let Poll::Ready(outcome) = Pin::new(running).poll(cx) {
                self.running = None;
                self.outcome = Some(outcome);
            } else if self.poll_shutdown(cx).is_ready() {
                self.stop();
                let error = RpcError::new(ErrorCode::INTERNAL_ERROR, "shutting down");
                self.outcome = Some(Err(error));
            }
        }
        match &mut self.keep_alive {
            Some(keep_alive) if !keep_alive.is_running() => keep_alive.poll(cx),
            _ => Poll::Pending,
        }
    }

    /// What the handler has done already. What it said before it ended comes before its answer.
    fn at_hand(&mut self) -> Option<Step> {
        let said = self.outlet.said.next();
        said.map(Step::Says)
            .or_else(|| self.outcome.take().map(Step::Ends))
    }

    /// Ready when a shutdown was asked for and its grace is over.
    fn poll_shutdown(&mut self, cx: &mut task::Context<'_>) -> Poll<()> {
        let (shutdown, running) = (&self.site.shutdown, &self.running);
        // It waits already, and what wakes it is always the same bell.
        if self.grace.is_some() && !shutdown.is_asked() {
            return Poll::Pending;
        }
        let grace = self.grace.get_or_insert_with(|| {
            let alarm = running.as_ref().map(|running| running.alarm().clone());
            let shutdown = shutdown.clone();
            Box::pin(async move {
                let grace = shutdown.asked().await;
                alarm.iter().for_each(Alarm::shut_down);
                tokio::time::sleep(grace).await;
            })
        });
        grace.as_mut().poll(cx)
    }

    /// What the answer is charged to.
    fn account(&self) -> &Arc<Account> {
        match &self.charge {
            Some(charge) => charge.account(),
            None => &self.site.account,
        }
    }

    /// The answer, as the caller's dialect has it.
    fn seal(&self, outcome: Outcome) -> Outcome {
        seal(&self.form, &self.site.identity, outcome)
    }

    /// An outcome that wants a status of its own comes too late for one: it is told in another way.
    fn after_head(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Err(error) if self.form.dialect.is_modern() && needs_bad_request(error.code) => {
                let internal = |message| RpcError::new(ErrorCode::INTERNAL_ERROR, message);
                if self.form.method != CallToolRequest::NAME {
                    return Err(internal(error.message));
                }
                let result = CallToolResult::error(error.message);
                Json::encode(&result).map_err(|error| internal(error.to_string()))
            }
            outcome => outcome,
        }
    }

    /// Stops the handler, or lets it run on unheard if that is how it wants to be cancelled.
    fn stop(&mut self) {
        self.outlet.said.close();
        let Some(running) = self.running.take() else {
            return;
        };
        if running.alarm().cancel_mode() == CancelMode::Signal {
            running.alarm().cancel();
            self.run_on(async move { drop(running.await) });
        }
    }

    /// The client has gone.
    fn let_go(&mut self) {
        if self.form.dialect.http.disconnect_cancels {
            return self.stop();
        }
        self.outlet.said.close();
        // Where a disconnect is no cancel, a handler that has begun may run on without its client, but not for ever.
        let has_begun = self.grace.is_some();
        let orphan_limit = self.site.legacy.orphan_limit_of_calls();
        if let Some(running) = self.running.take().filter(|_| has_begun) {
            self.run_on(async move { drop(tokio::time::timeout(orphan_limit, running).await) });
        }
    }

    /// Runs what is left of the handler as a task, which still takes up the request's room.
    fn run_on(&mut self, rest: impl Future<Output = ()> + Send + 'static) {
        let charge = self.charge.take();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                rest.await;
                drop(charge);
            });
        }
    }
}

impl Drop for Handling {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl Future for Responding {
    type Output = Response<HttpBody>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let first = task::ready!(self.poll_first(cx));
        let accepts = self.accepts;
        match self.handling.take() {
            Some(handling) => Poll::Ready(handling.begin(first, accepts)),
            None => Poll::Pending,
        }
    }
}

impl Responding {
    /// What the handler does first, unless the response should begin before that.
    fn poll_first(&mut self, cx: &mut task::Context<'_>) -> Poll<Option<Step>> {
        let Some(handling) = &mut self.handling else {
            return Poll::Pending;
        };
        loop {
            match handling.poll_step(cx) {
                // A client that reads no events is told the outcome only.
                Poll::Ready(Step::Says(_)) if !self.accepts.events => {}
                Poll::Ready(step) => return Poll::Ready(Some(step)),
                Poll::Pending => break,
            }
        }
        if !self.accepts.events {
            return Poll::Pending;
        }
        if handling.wants_progress {
            return Poll::Ready(None);
        }
        let after = handling.site.commit_after;
        let delay = self
            .delay
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(after)));
        delay.as_mut().poll(cx).map(|()| None)
    }
}

/// The stream of a response whose head is out.
struct Answering {
    /// `None` once the outcome is on the stream.
    handling: Option<Handling>,
}

impl Events for Answering {
    fn poll_next(&mut self, cx: &mut task::Context<'_>) -> Poll<Option<Bytes>> {
        let Some(handling) = &mut self.handling else {
            return Poll::Ready(None);
        };
        let mut out = Vec::new();
        let (mut is_over, mut charge) = (false, None);
        while out.len() < ENOUGH && !is_over {
            let step = if out.is_empty() {
                handling.poll_step(cx)
            } else {
                // Whoever takes this chunk asks for the next one, and polls the handler again by that.
                handling.at_hand().map_or(Poll::Pending, Poll::Ready)
            };
            let Poll::Ready(step) = step else {
                break;
            };
            match step {
                Step::Says(notification) => encode_message(&notification.into(), &mut out),
                Step::KeepsSilent => out.extend_from_slice(sse::KEEP_ALIVE),
                Step::Ends(outcome) => {
                    is_over = true;
                    let sealed = handling.seal(handling.after_head(outcome));
                    let outcome;
                    (outcome, charge) = charge_output(handling.account(), sealed);
                    let answer = core::Response {
                        id: Some(handling.id.clone()),
                        outcome,
                    };
                    encode_message(&answer.into(), &mut out);
                }
            }
        }
        if out.is_empty() {
            return Poll::Pending;
        }
        handling.keep_alive.iter_mut().for_each(KeepAlive::restart);
        if is_over {
            self.handling = None;
        }
        Poll::Ready(Some(charged(out.into(), charge)))
    }
}

/// Into the response of the request; and what wakes it.
struct ToResponse {
    said: Said,
    dialect: &'static Dialect,
}

impl Outlet for ToResponse {
    fn notify(&self, notification: Notification) {
        if let Some(notification) = tell(self.dialect, notification) {
            self.said.push(notification);
        }
    }

    fn way_back(&self) -> Option<Arc<dyn Channel>> {
        None
    }
}

impl Wake for ToResponse {
    fn wake(self: Arc<Self>) {
        self.said.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.said.ring();
    }
}

/// How much is put into one chunk before the connection gets its turn.
const ENOUGH: usize = 16 * 1024;
