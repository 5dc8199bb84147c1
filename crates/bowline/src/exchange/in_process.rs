//! A responder as a channel: the in-process transport.
//!
//! No framing and no task. The handler runs inside the caller's future, so dropping one drops the other.
//! Ids obey the same rules as on a wire.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{self, Poll, Waker};
use std::time::Duration;

use bowline_core::era::{Dialect, Request, ServerAsksBy, unseal};
use bowline_core::mux::{CallOptions, Refused};
use bowline_core::{CorrelationKey, Minter, Notification, Outcome};
use bowline_types::{Json, Method, PingRequest, RequestId, SetLevelRequest};
use tokio::time::Sleep;

use super::run::{Running, run};
use super::{Answer, CancelMode, Channel, Context, Exchange, Ongoing, Outlet, Responder, Step};
use crate::Error;

/// Reaches a responder in the same process.
#[derive(Clone)]
pub struct InProcess {
    responder: Arc<dyn Responder>,
    way_back: Option<Arc<dyn Channel>>,
    ids: Arc<Mutex<Ids>>,
}

#[derive(Default)]
struct Ids {
    in_use: BTreeSet<CorrelationKey>,
    minter: Minter,
}

impl InProcess {
    /// A channel to `responder`.
    #[must_use]
    pub fn new(responder: Arc<dyn Responder>) -> Self {
        Self {
            responder,
            way_back: None,
            ids: Arc::default(),
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
        lock(&self.ids).in_use.len()
    }

    fn reserve(&self, chosen: Option<RequestId>) -> Result<Reservation, Refused> {
        let mut ids = lock(&self.ids);
        let Ids { in_use, minter } = &mut *ids;
        let id = chosen.unwrap_or_else(|| minter.mint(|key| in_use.contains(key)));
        if !in_use.insert(CorrelationKey::from(&id)) {
            return Err(Refused::IdInUse(id));
        }
        Ok(Reservation {
            id,
            ids: self.ids.clone(),
        })
    }
}

impl Channel for InProcess {
    fn open(&self, request: Request, options: CallOptions) -> Exchange {
        if is_answered_at_the_door(&request) {
            return Exchange::answered(Json::empty_object());
        }
        let reservation = match self.reserve(options.id) {
            Ok(reservation) => reservation,
            Err(refused) => return Exchange::failed(Error::misuse(refused.to_string())),
        };
        let said = Arc::new(Said::default());
        let asks = request.caller.dialect.server_asks_by == ServerAsksBy::Request;
        let way_back = self.way_back.clone().filter(|_| asks);
        let outlet = ToCaller {
            said: said.clone(),
            way_back,
        };
        let cx = Context::new(reservation.id.clone(), &request, outlet);
        Exchange::new(Handled {
            method: request.method.clone(),
            cancel_mode: self.responder.cancel_mode(&request),
            running: Some(run(self.responder.clone(), request, cx)),
            has_started: false,
            outcome: None,
            said,
            reservation,
            idle: options.idle_timeout.map(Deadline::from),
            total: options.total_timeout.map(Deadline::from),
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

/// An id that nobody else has while this lives.
struct Reservation {
    id: RequestId,
    ids: Arc<Mutex<Ids>>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        lock(&self.ids)
            .in_use
            .remove(&CorrelationKey::from(&self.id));
    }
}

/// A handler that runs inside its caller's future.
struct Handled {
    method: Cow<'static, str>,
    cancel_mode: CancelMode,
    running: Option<Running>,
    has_started: bool,
    outcome: Option<Outcome>,
    said: Arc<Said>,
    reservation: Reservation,
    idle: Option<Deadline>,
    total: Option<Deadline>,
}

impl Ongoing for Handled {
    fn poll_step(&mut self, cx: &mut task::Context<'_>) -> Poll<Step> {
        if let Some(after) = self.poll_overdue(cx) {
            self.let_go();
            return Poll::Ready(Step::Answered(Err(Error::Timeout { after })));
        }
        self.said.wake_on_next(cx.waker());
        self.has_started = true;
        if let Some(running) = &mut self.running
            && let Poll::Ready(outcome) = Pin::new(running).poll(cx)
        {
            self.running = None;
            self.outcome = Some(outcome);
        }
        // What the handler said before it ended comes before its answer.
        if let Some(notification) = self.said.next() {
            self.idle.iter_mut().for_each(Deadline::restart);
            return Poll::Ready(Step::Notification(notification));
        }
        match self.outcome.take() {
            Some(outcome) => {
                let unsealed = unseal(&self.method, Dialect::LATEST, &[], outcome);
                Poll::Ready(Step::Answered(Answer::from_unsealed(unsealed)))
            }
            None => Poll::Pending,
        }
    }

    fn request_id(&self) -> Option<&RequestId> {
        Some(&self.reservation.id)
    }

    fn cancel(self: Box<Self>, reason: String) {
        tracing::debug!(id = %self.reservation.id, reason, "a call in process was cancelled");
    }
}

impl Handled {
    fn poll_overdue(&mut self, cx: &mut task::Context<'_>) -> Option<Duration> {
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
        if self.cancel_mode == CancelMode::Signal
            && self.has_started
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            running.context().cancel();
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

/// Notifications on their way from a handler to its caller.
#[derive(Default)]
struct Said(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    notifications: VecDeque<Notification>,
    waker: Option<Waker>,
    closed: bool,
}

impl Said {
    fn push(&self, notification: Notification) {
        let mut queue = lock(&self.0);
        if queue.closed {
            return;
        }
        // The caller's task runs the handler too, so this fills up only if a handler never awaits.
        if queue.notifications.len() == MOST_SAID {
            tracing::warn!("a handler said more than its caller took in; the oldest is dropped");
            queue.notifications.pop_front();
        }
        queue.notifications.push_back(notification);
        let waker = queue.waker.take();
        drop(queue);
        waker.into_iter().for_each(Waker::wake);
    }

    fn next(&self) -> Option<Notification> {
        lock(&self.0).notifications.pop_front()
    }

    fn wake_on_next(&self, waker: &Waker) {
        let waker = waker.clone();
        let old = lock(&self.0).waker.replace(waker);
        drop(old);
    }

    fn close(&self) {
        let mut queue = lock(&self.0);
        queue.closed = true;
        let old = queue.waker.take();
        drop(queue);
        drop(old);
    }
}

/// A time limit that starts at the first poll.
struct Deadline {
    after: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    fn poll_overdue(&mut self, cx: &mut task::Context<'_>) -> Option<Duration> {
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(self.after)));
        sleep.as_mut().poll(cx).is_ready().then_some(self.after)
    }

    fn restart(&mut self) {
        self.sleep = None;
    }
}

impl From<Duration> for Deadline {
    fn from(after: Duration) -> Self {
        Self { after, sleep: None }
    }
}

/// Whether the request is one that the door of a wire answers by itself; responders do not know it.
fn is_answered_at_the_door(request: &Request) -> bool {
    let answers = [PingRequest::NAME, SetLevelRequest::NAME];
    answers.contains(&&*request.method) && request.caller.dialect.knows_request(&request.method)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that could panic runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const MOST_SAID: usize = 1024;
