//! The server of the matrix, whose handlers are counted, and the host of its client.

use std::collections::BTreeSet;

use bowline::exchange::{Outcome, Request};
use bowline::layer::Next;
use bowline::{CallToolResult, Context, Json, RpcError, Server, Tool};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::observer::{CountedHandler, Observer};

/// The state that the handlers of one server share.
#[derive(Clone, Debug)]
struct Tools {
    observer: Observer,
    released: watch::Sender<BTreeSet<String>>,
}

/// A server that reports its handlers to `observer`.
pub(crate) fn server(observer: &Observer) -> Server {
    let tools = Tools {
        observer: observer.clone(),
        released: watch::Sender::default(),
    };
    let pages = tools.clone();
    let mut server = Server::new("matrix", "1.0.0")
        .resource_updates()
        .page_size(1)
        .layer(move |request, next| pages.clone().intercept(request, next))
        .tool(tools.tool("slow", |tools, name, _| async move {
            tools.work(&name).await;
            Ok(CallToolResult::text(name))
        }))
        .tool(tools.tool("progress", |tools, name, cx| async move {
            cx.progress(1.0);
            cx.progress(2.0);
            tools.work(&name).await;
            Ok(CallToolResult::text(name))
        }))
        .tool(tools.tool("roots", |tools, name, cx| async move {
            cx.roots().await?;
            tools.work(&name).await;
            Ok(CallToolResult::text(name))
        }));
    server = server.tool(tools.tool("drop_roots", |tools, name, cx| async move {
        tokio::select! {
            _ = cx.roots() => Ok(CallToolResult::text("answered")),
            () = tools.work(&name) => Ok(CallToolResult::text(name)),
        }
    }));
    server.tool(tools.tool("release", |tools, name, _| async move {
        tools.released.send_modify(|released| {
            released.insert(name);
        });
        Ok(CallToolResult::text("released"))
    }))
}

impl Tools {
    fn tool<F>(
        &self,
        tool: &'static str,
        body: impl Fn(Self, String, Context) -> F + Send + Sync + 'static,
    ) -> Tool
    where
        F: Future<Output = Result<CallToolResult, RpcError>> + Send + 'static,
    {
        let tools = self.clone();
        Tool::raw(tool, json!({"type": "object"}), move |named: Json, cx| {
            let Named { name } = named.decode().unwrap();
            body(tools.clone(), name, cx)
        })
    }

    /// Waits for `release` with this name; counted as a running handler.
    async fn work(&self, name: &str) {
        let guard = CountedHandler::begin(&self.observer);
        let mut released = self.released.subscribe();
        let _ = released.wait_for(|released| released.contains(name)).await;
        guard.finish();
    }

    /// Blocks every page of `tools/list` but the first, and counts resource subscriptions as running handlers.
    async fn intercept(self, request: Request, next: Next) -> Outcome {
        let params: Value = request.params.decode().unwrap();
        match &*request.method {
            "tools/list" if params["cursor"].is_string() => {
                self.work("pages").await;
                next.run(request).await
            }
            "subscriptions/listen"
                if params["notifications"]["resourceSubscriptions"].is_array() =>
            {
                let guard = CountedHandler::begin(&self.observer);
                let outcome = next.run(request).await;
                guard.finish();
                outcome
            }
            _ => next.run(request).await,
        }
    }
}

/// A client's host that answers `roots/list` immediately, or never.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) observer: Observer,
    answers: bool,
}

impl Host {
    pub(crate) fn answering() -> Self {
        let (observer, answers) = (Observer::local(), true);
        Self { observer, answers }
    }

    pub(crate) fn never_answering() -> Self {
        let (observer, answers) = (Observer::local(), false);
        Self { observer, answers }
    }

    pub(crate) fn host(&self) -> bowline::client::Host {
        let host = self.clone();
        bowline::client::Host::new().roots(move || {
            let host = host.clone();
            async move {
                let guard = CountedHandler::begin(&host.observer);
                if !host.answers {
                    std::future::pending::<()>().await;
                }
                guard.finish();
                Vec::new()
            }
        })
    }
}

#[derive(Deserialize)]
struct Named {
    name: String,
}
