//! The server and the host of these tests, whose handlers a test counts and releases.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bowline::client::Host;
use bowline::exchange::{CallOptions, Channel, Exchange};
use bowline::{CallToolResult, CancelMode, Context, Json, RpcError, Server, Tool};
use bowline_core::era::Request;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;

/// The number of handlers that started, were dropped and finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HandlerTotals {
    pub(crate) started: usize,
    pub(crate) dropped: usize,
    pub(crate) finished: usize,
}

/// Counts handlers, and lets them finish.
#[derive(Clone, Debug)]
pub(crate) struct HandlerMonitor {
    counts: watch::Sender<HandlerTotals>,
    released: watch::Sender<BTreeSet<String>>,
}

impl HandlerMonitor {
    pub(crate) fn new() -> Self {
        Self {
            counts: watch::Sender::default(),
            released: watch::Sender::default(),
        }
    }

    pub(crate) fn counts(&self) -> HandlerTotals {
        *self.counts.borrow()
    }

    pub(crate) fn reset(&self) {
        self.counts.send_replace(HandlerTotals::default());
    }

    /// Waits until the counts satisfy `condition`; panics if they never do.
    pub(crate) async fn wait_until(&self, condition: impl Fn(&HandlerTotals) -> bool) {
        let mut counts = self.counts.subscribe();
        let waiting = counts.wait_for(|counts| condition(counts));
        // The paused clock advances only when every task is idle, so this elapses only if the counts no longer change.
        let waited = tokio::time::timeout(Duration::from_millis(50), waiting).await;
        let is_satisfied = waited.is_ok();
        drop(waited);
        assert!(is_satisfied, "every task is idle at {:?}", self.counts());
    }

    pub(crate) async fn wait_for_started(&self, count: usize) {
        self.wait_until(|counts| counts.started == count).await;
    }

    pub(crate) async fn wait_for_dropped(&self, count: usize) {
        self.wait_until(|counts| counts.dropped == count).await;
    }

    /// Lets the handlers finish that were called with this `name` argument.
    pub(crate) fn release(&self, name: &str) {
        self.released.send_modify(|released| {
            released.insert(name.to_owned());
        });
    }

    pub(crate) fn server(&self) -> Server {
        Server::new("cancellation", "1.0.0")
            .resource_updates()
            .logging()
            .tool(Tool::raw("quick", any_object(), async |_, _| {
                Ok(CallToolResult::text("quick"))
            }))
            .tool(self.tool("slow", |handlers, name, _| async move {
                handlers.wait_for_release(&name).await;
                Ok(CallToolResult::text(name))
            }))
            .tool(self.tool("reports", |handlers, name, cx| async move {
                cx.progress(1.0);
                cx.progress(2.0);
                handlers.wait_for_release(&name).await;
                Ok(CallToolResult::text(name))
            }))
            .tool(
                self.tool("signalled", |_, name, cx| async move {
                    cx.progress(1.0);
                    cx.cancelled().await;
                    cx.progress(2.0);
                    cx.log(bowline::types::LoggingLevel::Error, json!("after the cancel"));
                    Ok(CallToolResult::text(name))
                })
                .cancel_mode(CancelMode::Signal),
            )
            .tool(
                self.tool("ignores cancel", |handlers, name, _| async move {
                    handlers.wait_for_release(&name).await;
                    Ok(CallToolResult::text(name))
                })
                .cancel_mode(CancelMode::Signal),
            )
            .tool(self.tool("asks", |_, name, cx| async move {
                let answer = request_roots(&cx).answer().await;
                Ok(CallToolResult::text(format!("{name}: {answer:?}")))
            }))
            .tool(self.tool("drops request", |handlers, name, cx| async move {
                tokio::select! {
                    answer = request_roots(&cx).answer() => Ok(CallToolResult::text(format!("{answer:?}"))),
                    () = handlers.wait_for_release(&name) => Ok(CallToolResult::text(name)),
                }
            }))
            .tool(Tool::raw("id", any_object(), async |_, cx: Context| {
                let id = Json::encode(cx.request_id()).unwrap();
                Ok(CallToolResult::text(id.as_str()))
            }))
            .tool(self.tool("panics", |_, _, _| async { panic!("on purpose") }))
    }

    fn tool<F>(
        &self,
        tool: &'static str,
        body: impl Fn(Self, String, Context) -> F + Send + Sync + 'static,
    ) -> Tool
    where
        F: Future<Output = Result<CallToolResult, RpcError>> + Send + 'static,
    {
        let handlers = self.clone();
        Tool::raw(tool, any_object(), move |arguments: Json, cx| {
            let NameArgument { name } = arguments.decode().unwrap();
            let (counted, body) = (handlers.clone(), body(handlers.clone(), name, cx));
            async move {
                let guard = HandlerGuard::new(counted);
                let result = body.await;
                guard.finish();
                result
            }
        })
    }

    async fn wait_for_release(&self, name: &str) {
        let mut released = self.released.subscribe();
        let _ = released.wait_for(|released| released.contains(name)).await;
    }
}

/// A client's host that answers when `host` is released.
pub(crate) fn slow_host(monitor: &HandlerMonitor) -> Host {
    let monitor = monitor.clone();
    Host::new().roots(move || {
        let monitor = monitor.clone();
        async move {
            let guard = HandlerGuard::new(monitor.clone());
            monitor.wait_for_release("host").await;
            guard.finish();
            Vec::new()
        }
    })
}

/// Sends `roots/list` to the client, as a handler does in the legacy era.
fn request_roots(cx: &Context) -> Exchange {
    let back_channel: Arc<dyn Channel> = cx.back_channel().expect("a legacy version");
    let caller = cx.caller().clone();
    let request = Request::new("roots/list", Json::empty_object(), caller);
    back_channel.open(request, CallOptions::default())
}

/// Counts a handler as started, and when it is dropped as finished or dropped.
struct HandlerGuard {
    handlers: HandlerMonitor,
    finished: bool,
}

impl HandlerGuard {
    fn new(handlers: HandlerMonitor) -> Self {
        handlers.counts.send_modify(|counts| counts.started += 1);
        Self {
            handlers,
            finished: false,
        }
    }

    fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for HandlerGuard {
    fn drop(&mut self) {
        let finished = self.finished;
        self.handlers.counts.send_modify(|counts| match finished {
            true => counts.finished += 1,
            false => counts.dropped += 1,
        });
    }
}

#[derive(Deserialize)]
struct NameArgument {
    name: String,
}

fn any_object() -> serde_json::Value {
    json!({"type": "object"})
}
