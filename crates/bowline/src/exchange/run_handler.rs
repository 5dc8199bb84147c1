//! [`run_handler`], which every transport uses to run a handler: it catches panics, and cancels the context on drop.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

use bowline_core::Outcome;
use bowline_core::era::Request;
use bowline_types::{ErrorCode, RpcError};

use super::{BoxFuture, Context, HandlerControl, Responder};
use crate::telemetry::HandledRequest;

/// Runs the handler of `request`. If the future is dropped before it is ready, `cx` is cancelled.
pub(crate) fn run_handler(
    responder: Arc<dyn Responder>,
    request: Request,
    mut cx: Context,
) -> RunningHandler {
    let control = cx.control();
    let telemetry = HandledRequest::start(&*responder, &request, &mut cx);
    let handler = async move { responder.respond(request, cx).await };
    let handler: Option<BoxFuture<'static, Outcome>> = Some(Box::pin(handler));
    RunningHandler {
        handler,
        control,
        telemetry,
    }
}

/// Like [`run_handler`], for a request of this side, which no peer has sent and which has no span.
#[cfg_attr(
    not(feature = "legacy"),
    allow(dead_code, reason = "legacy adapters have such requests")
)]
pub(crate) fn run_internal(
    responder: Arc<dyn Responder>,
    request: Request,
    cx: Context,
) -> RunningHandler {
    let control = cx.control();
    let handler = async move { responder.respond(request, cx).await };
    RunningHandler::new(Box::pin(handler), control)
}

/// The future of a running handler.
#[must_use = "dropping it stops the handler"]
pub(crate) struct RunningHandler {
    handler: Option<BoxFuture<'static, Outcome>>,
    control: HandlerControl,
    /// The spans of the request. Empty for a tool that an extension runs.
    telemetry: HandledRequest,
}

impl RunningHandler {
    /// Runs a handler whose context `control` belongs to.
    pub(crate) fn new(handler: BoxFuture<'static, Outcome>, control: HandlerControl) -> Self {
        Self {
            handler: Some(handler),
            control,
            telemetry: HandledRequest::default(),
        }
    }

    pub(crate) fn control(&self) -> &HandlerControl {
        &self.control
    }
}

impl Future for RunningHandler {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Outcome> {
        let this = self.get_mut();
        let Some(handler) = &mut this.handler else {
            return Poll::Pending;
        };
        let entered = this.telemetry.enter();
        // Unwind safe: the handler's future is dropped after a panic and not polled again.
        let polled = catch_unwind(AssertUnwindSafe(|| handler.as_mut().poll(cx)));
        drop(entered);
        let outcome = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(outcome)) => {
                this.telemetry.end(&outcome, &this.control);
                outcome
            }
            Err(panic) => {
                let entered = this.telemetry.enter();
                tracing::error!(panic = message(&*panic), "handler panicked");
                drop(entered);
                let error = RpcError::new(ErrorCode::INTERNAL_ERROR, "handler panicked");
                this.telemetry.panicked(&error);
                Err(error)
            }
        };
        this.handler = None;
        Poll::Ready(outcome)
    }
}

impl Drop for RunningHandler {
    fn drop(&mut self) {
        if let Some(handler) = self.handler.take() {
            self.control.cancel();
            let entered = self.telemetry.enter();
            // Destructors of values that the handler holds may panic too.
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(handler)));
            drop(entered);
            if dropped.is_err() {
                tracing::error!("handler panicked while it was dropped");
            }
            self.telemetry.dropped(&self.control);
            self.control.answer_discarded();
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
