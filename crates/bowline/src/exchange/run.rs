//! How a handler is run, wherever it runs: its panics stay with its request, and dropping it is heard.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

use bowline_core::Outcome;
use bowline_core::era::Request;
use bowline_types::{ErrorCode, RpcError};

use super::{Alarm, BoxFuture, Context, Responder};

/// Runs the handler for `request`. If the future is dropped before it is ready, `cx` is cancelled.
pub(crate) fn run(responder: Arc<dyn Responder>, request: Request, cx: Context) -> Running {
    let alarm = cx.alarm();
    let handler = async move { responder.respond(request, cx).await };
    Running {
        handler: Some(Box::pin(handler)),
        alarm,
    }
}

/// A handler at work.
#[must_use = "dropping it stops the handler"]
pub(crate) struct Running {
    handler: Option<BoxFuture<'static, Outcome>>,
    alarm: Alarm,
}

impl Running {
    pub(crate) fn alarm(&self) -> &Alarm {
        &self.alarm
    }
}

impl Future for Running {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Outcome> {
        let Some(handler) = &mut self.handler else {
            return Poll::Pending;
        };
        // A panic may leave the handler's own state torn, but nobody looks at it again.
        let polled = catch_unwind(AssertUnwindSafe(|| handler.as_mut().poll(cx)));
        let outcome = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(outcome)) => outcome,
            Err(panic) => {
                tracing::error!(panic = message(&*panic), "a handler panicked");
                Err(RpcError::new(
                    ErrorCode::INTERNAL_ERROR,
                    "the handler panicked",
                ))
            }
        };
        self.handler = None;
        Poll::Ready(outcome)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(handler) = self.handler.take() {
            self.alarm.cancel();
            // A destructor of the handler's may panic too.
            if catch_unwind(AssertUnwindSafe(|| drop(handler))).is_err() {
                tracing::error!("a handler panicked while it was stopped");
            }
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
