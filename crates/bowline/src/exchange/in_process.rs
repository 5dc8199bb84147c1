//! A responder as a channel: the in-process transport.
//!
//! No framing and no task. The handler runs inside the caller's future, so dropping one drops the other.
//! Ids obey the same rules as on a wire.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use bowline_core::era::{Dialect, Request, Seal, ServerAsksBy, seal, unseal};
use bowline_core::mux::CallOptions;
use bowline_core::{Notification, Outcome};
use bowline_types::{Json, Method, PingRequest, RequestId, SetLevelRequest};

use super::deadline::Deadline;
use super::ids::{Ids, Reservation};
use super::run::{Running, run};
use super::said::Said;
use super::way_back::{Questions, WayBack};
use super::{Answer, CancelMode, Channel, Context, Exchange, Ongoing, Outlet, Responder, Step};
use crate::Error;

/// Reaches a responder in the same process.
///
/// # Examples
///
/// ```
/// # use bowline::exchange::{CallOptions, Request};
/// # async fn example(server: bowline::Server, request: Request) -> bowline::Result<()> {
/// use std::sync::Arc;
/// use bowline::exchange::{Channel, InProcess};
///
/// let channel = InProcess::new(Arc::new(server));
/// let answer = channel.open(request, CallOptions::default()).answer().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct InProcess {
    responder: Arc<dyn Responder>,
    way_back: Option<Arc<dyn Channel>>,
    ids: Ids,
}

impl InProcess {
    /// A channel to `responder`.
    #[must_use]
    pub fn new(responder: Arc<dyn Responder>) -> Self {
        Self {
            responder,
            way_back: None,
            ids: Ids::default(),
        }
    }

    /// Lets handlers ask the caller through `way_back`, where its era has server requests.
    #[must_use]
    pub fn with_way_back(mut self, way_back: Arc<dyn Channel>) -> Self {
        self.way_back = Some(way_back);
        self
    }

    /// How many requests are in progress.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.ids.in_use()
    }
}

impl Channel for InProcess {
    fn open(&self, request: Request, options: CallOptions) -> Exchange {
        if is_answered_at_the_door(&request) {
            return Exchange::answered(Json::empty_object());
        }
        let reservation = match self.ids.reserve(options.id) {
            Ok(reservation) => reservation,
            Err(refused) => return Exchange::failed(Error::misuse(refused.to_string())),
        };
        let said = Arc::new(Said::default());
        let asks = request.caller.dialect.server_asks_by == ServerAsksBy::Request;
        let questions = Questions::default();
        let way_back = self.way_back.clone().filter(|_| asks);
        let way_back = way_back.map(|channel| WayBack::new(channel, questions.clone()));
        let outlet = Arc::new(ToCaller {
            said: said.clone(),
            way_back: way_back.map(|it| Arc::new(it) as _),
        });
        let cx = Context::new(reservation.id().clone(), &request, outlet);
        Exchange::new(Handled {
            method: request.method.clone(),
            dialect: request.caller.dialect,
            running: Some(run(self.responder.clone(), request, cx)),
            outcome: None,
            said,
            questions,
            reservation,
            idle: options.idle_timeout.map(Deadline::from),
            total: options.total_timeout.map(Deadline::from),
            is_subscription: options.is_subscription,
        })
    }
}

impl std::fmt::Debug for InProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InProcess")
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

/// A handler that runs inside its caller's future.
struct Handled {
    method: Cow<'static, str>,
    dialect: &'static Dialect,
    running: Option<Running>,
    outcome: Option<Outcome>,
    said: Arc<Said>,
    questions: Questions,
    reservation: Reservation,
    idle: Option<Deadline>,
    total: Option<Deadline>,
    is_subscription: bool,
}

impl Ongoing for Handled {
    fn poll_step(&mut self, cx: &mut task::Context<'_>) -> Poll<Step> {
        if let Some(after) = self.poll_overdue(cx) {
            self.let_go();
            return Poll::Ready(Step::Answered(Err(Error::Timeout { after })));
        }
        // What the handler says now is seen below, and need not wake this task.
        self.said.attend();
        if let Some(running) = &mut self.running
            && let Poll::Ready(outcome) = Pin::new(running).poll(cx)
        {
            self.running = None;
            self.outcome = Some(outcome);
        }
        // What the handler said before it ended comes before its answer.
        if let Some(notification) = self.said.next_or_wake(cx.waker()) {
            self.idle
                .iter_mut()
                .for_each(|idle| idle.hear(&notification));
            return Poll::Ready(Step::Notification(notification));
        }
        // Of a subscription every notification counts.
        if self.is_subscription && self.said.has_lost() {
            self.let_go();
            return Poll::Ready(Step::Answered(Err(Error::Lagged)));
        }
        match self.outcome.take() {
            Some(outcome) => {
                // A result is inside already; an error has the code that its caller's dialect has for it.
                let form = Seal::new(self.dialect, self.method.clone());
                let outcome = match outcome {
                    Ok(result) => Ok(result),
                    refused => seal(&form, &Json::empty_object(), refused),
                };
                let unsealed = unseal(&self.method, Dialect::LATEST, &[], outcome);
                Poll::Ready(Step::Answered(Answer::from_unsealed(unsealed)))
            }
            None => Poll::Pending,
        }
    }

    fn request_id(&self) -> Option<&RequestId> {
        Some(self.reservation.id())
    }

    fn paused(&self) -> Duration {
        Duration::ZERO
    }

    fn cancel(self: Box<Self>, reason: String) {
        tracing::debug!(id = %self.reservation.id(), reason, "a call in process was cancelled");
    }
}

impl Handled {
    fn poll_overdue(&mut self, cx: &mut task::Context<'_>) -> Option<Duration> {
        if self.questions.are_open(cx.waker()) {
            // It counts again from where this is woken by the last answer.
            self.idle.iter_mut().for_each(Deadline::restart);
            return self.total.as_mut().and_then(|total| total.poll_overdue(cx));
        }
        // The total deadline is asked first: it is the one that nothing moves.
        let deadlines = [&mut self.total, &mut self.idle];
        deadlines
            .into_iter()
            .flatten()
            .find_map(|deadline| deadline.poll_overdue(cx))
    }

    /// Stops the handler, or lets it run on unheard if that is how it wants to be cancelled.
    fn let_go(&mut self) {
        self.said.close();
        let Some(running) = self.running.take() else {
            return;
        };
        if running.alarm().cancel_mode() == CancelMode::Signal
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            running.alarm().cancel();
            runtime.spawn(running);
        }
    }
}

impl Drop for Handled {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// What a handler says to a caller in the same process.
struct ToCaller {
    said: Arc<Said>,
    way_back: Option<Arc<dyn Channel>>,
}

impl Outlet for ToCaller {
    fn notify(&self, notification: Notification) {
        self.said.push(notification);
    }

    fn way_back(&self) -> Option<Arc<dyn Channel>> {
        self.way_back.clone()
    }
}

/// Whether the request is one that the door of a wire answers by itself; responders do not know it.
fn is_answered_at_the_door(request: &Request) -> bool {
    let answers = [PingRequest::NAME, SetLevelRequest::NAME];
    answers.contains(&&*request.method) && request.caller.dialect.knows_request(&request.method)
}
