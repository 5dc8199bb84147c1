//! [`ProgressHeartbeat`], a layer that sends progress while a handler sends none.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use bowline_core::Outcome;
use bowline_core::era::Request;

use super::{Layer, Next};
use crate::exchange::{BoxFuture, Context};

/// Sends `notifications/progress` while a handler is silent, so that its caller does not give up.
///
/// Many legacy clients end a call after 60 seconds, and only progress restarts their timer. If the caller sent a
/// progress token, and nothing was reported for 20 seconds ([`after`](Self::after)), it is sent the last value plus the
/// smallest step, with the last `total` and no `message`. After an hour in which the handler itself reported nothing
/// ([`limit`](Self::limit)) they stop, so that a handler that hangs still times out.
///
/// Values must increase. With this layer, a report that is not greater than the last value sent is dropped even if it is
/// raw ([`Context::send`]). The first heartbeat of a handler that has reported nothing is slightly above zero, so that
/// a report of 0 after it is dropped.
///
/// Heartbeats go to legacy callers only, unless [`all_versions`](Self::all_versions) is set. They are sent by the
/// handler's own future: they end with it, and a handler that blocks its thread gets none.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use bowline::{Client, Server, Tool, layer::ProgressHeartbeat};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> bowline::Result<()> {
/// let silent = Tool::new("silent", async || {
///     tokio::time::sleep(Duration::from_secs(600)).await;
///     "done"
/// });
/// let server = Server::new("calculator", "1.0.0").tool(silent).layer(ProgressHeartbeat::new());
///
/// // A call of this client ends after 60 s without progress.
/// let client = Client::in_process(&server).protocol_version("2025-11-25").await?;
/// let reply = client.call_tool("silent", ()).on_progress(|_| {}).await?;
/// assert_eq!(reply.text(), "done");
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ProgressHeartbeat {
    after: Duration,
    limit: Duration,
    is_for_modern: bool,
}

impl ProgressHeartbeat {
    /// Creates the layer: a heartbeat after 20 seconds of silence, for up to an hour.
    #[must_use]
    pub fn new() -> Self {
        Self {
            after: Duration::from_secs(20),
            limit: Duration::from_secs(60 * 60),
            is_for_modern: false,
        }
    }

    /// Sets after how much silence a heartbeat is sent, at least a millisecond. 20 seconds by default.
    #[must_use]
    pub fn after(mut self, silence: Duration) -> Self {
        self.after = silence.max(Duration::from_millis(1));
        self
    }

    /// Sets for how long heartbeats are sent since the last report of the handler, or since it started. 1 hour by
    /// default; `Duration::MAX` for no limit.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Sends heartbeats to callers of 2026-07-28 too.
    ///
    /// By default they get none: their transports show by themselves that the server is alive (keep-alives of HTTP,
    /// the open pipe of a child process), long calls can be tasks, and an idle timeout of such a client is meant to end
    /// calls that hang. Set this if they too have timers that only progress restarts.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::{Server, layer::ProgressHeartbeat};
    ///
    /// let server = Server::new("calculator", "1.0.0").layer(ProgressHeartbeat::new().all_versions());
    /// ```
    #[must_use]
    pub fn all_versions(mut self) -> Self {
        self.is_for_modern = true;
        self
    }

    /// Runs a future, and sends heartbeats to the caller of `cx` meanwhile. For responders, which have no layers, and for
    /// a single step of a handler.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the future.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::Context;
    /// use bowline::layer::ProgressHeartbeat;
    ///
    /// async fn import(cx: Context) -> usize {
    ///     let rows = ProgressHeartbeat::new().run(&cx, slow_query()).await;
    ///     cx.progress(1);
    ///     rows
    /// }
    /// # async fn slow_query() -> usize { 7 }
    /// ```
    pub async fn run<F: Future>(&self, cx: &Context, future: F) -> F::Output {
        if !self.applies_to(cx) {
            return future.await;
        }
        cx.watch_progress();
        tokio::select! {
            biased;
            output = future => output,
            never = self.beat(cx) => match never {},
        }
    }

    fn applies_to(&self, cx: &Context) -> bool {
        cx.progress_token().is_some() && (self.is_for_modern || !cx.caller().dialect.is_modern())
    }

    /// Sends heartbeats until it is dropped.
    async fn beat(&self, cx: &Context) -> Infallible {
        loop {
            let silence = cx.progress_silence();
            // Reports do not reset the timer, which would cost each of them: it looks at the last one when it fires.
            let wait = match self.after.saturating_sub(silence.since_sent) {
                Duration::ZERO => {
                    // A cancelled handler may run on, but nothing more is sent for it.
                    if silence.since_reported < self.limit && !cx.is_cancelled() {
                        cx.send_progress_heartbeat();
                    }
                    self.after
                }
                rest => rest,
            };
            tokio::time::sleep(wait).await;
        }
    }
}

impl Default for ProgressHeartbeat {
    fn default() -> Self {
        Self::new()
    }
}

impl Layer for ProgressHeartbeat {
    fn handle(&self, request: Request, next: Next) -> BoxFuture<'static, Outcome> {
        if !self.applies_to(next.context()) {
            return next.run(request);
        }
        let (heartbeat, cx) = (*self, next.context().clone());
        Box::pin(async move { heartbeat.run(&cx, next.run(request)).await })
    }
}
