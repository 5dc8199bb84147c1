//! A server and a host whose handlers a test counts and releases; also used by `scenarios/tests/matrix`.

use std::collections::BTreeSet;

use bowline::client::Host;
use bowline::testing::HandlerCounter;
use bowline::{CallToolResult, CancelMode, Context, Json, Server, Tool, ToolError};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;

/// Counts handlers, and lets them finish.
#[derive(Clone, Debug, Default)]
pub(crate) struct HandlerMonitor {
    pub(crate) counter: HandlerCounter,
    released: watch::Sender<BTreeSet<String>>,
}

impl HandlerMonitor {
    /// Lets the handlers finish that were called with this `name` argument.
    pub(crate) fn release(&self, name: &str) {
        self.released.send_modify(|released| {
            released.insert(name.to_owned());
        });
    }

    pub(crate) fn server(&self) -> Server {
        Server::new("cancellation", "1.0.0")
            .resource_subscriptions()
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
                    cx.log(
                        bowline::types::LoggingLevel::Error,
                        json!("after the cancel"),
                    );
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
                cx.roots().await?;
                Ok(CallToolResult::text(name))
            }))
            .tool(self.tool("drops request", |handlers, name, cx| async move {
                tokio::select! {
                    _ = cx.roots() => Ok(CallToolResult::text("answered")),
                    () = handlers.wait_for_release(&name) => Ok(CallToolResult::text(name)),
                }
            }))
            .tool(Tool::raw("id", any_object(), async |_, cx: Context| {
                let id = Json::encode(cx.request_id()).unwrap();
                Ok(CallToolResult::text(id.as_str()))
            }))
            .tool(self.tool("panics", |_, _, _| async { panic!("on purpose") }))
            .tool(
                self.uncounted_tool("release", |handlers, name, _| async move {
                    handlers.release(&name);
                    Ok(CallToolResult::text("released"))
                }),
            )
            // Counted only in the round that has the roots.
            .tool(
                self.uncounted_tool("roots", |handlers, name, cx| async move {
                    cx.roots().await?;
                    handlers.counter.run(handlers.wait_for_release(&name)).await;
                    Ok(CallToolResult::text(name))
                }),
            )
    }

    fn tool<F>(
        &self,
        tool: &'static str,
        body: impl Fn(Self, String, Context) -> F + Send + Sync + 'static,
    ) -> Tool
    where
        F: Future<Output = Result<CallToolResult, ToolError>> + Send + 'static,
    {
        self.uncounted_tool(tool, move |handlers, name, cx| {
            let (counter, body) = (handlers.counter.clone(), body(handlers, name, cx));
            async move { counter.run(body).await }
        })
    }

    fn uncounted_tool<F>(
        &self,
        tool: &'static str,
        body: impl Fn(Self, String, Context) -> F + Send + Sync + 'static,
    ) -> Tool
    where
        F: Future<Output = Result<CallToolResult, ToolError>> + Send + 'static,
    {
        let handlers = self.clone();
        Tool::raw(tool, any_object(), move |arguments: Json, cx| {
            let NameArgument { name } = arguments.decode().unwrap();
            body(handlers.clone(), name, cx)
        })
    }

    pub(crate) async fn wait_for_release(&self, name: &str) {
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
            let release = monitor.wait_for_release("host");
            monitor.counter.run(release).await;
            Vec::new()
        }
    })
}

#[derive(Deserialize)]
struct NameArgument {
    name: String,
}

fn any_object() -> serde_json::Value {
    json!({"type": "object"})
}
