//! The server of the matrix, whose handlers are counted, and the host of its client.

use std::collections::BTreeSet;

use bowline::exchange::{BoxFuture, Outcome, Request, Responder};
use bowline::layer::Next;
use bowline::types::{ClientCapabilities, RootsCapability};
use bowline::{CallToolResult, Context, Json, RpcError, Server, Tool};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::seen::{Seen, Working};

/// What the handlers of one server share.
#[derive(Clone, Debug)]
struct Tools {
    seen: Seen,
    released: watch::Sender<BTreeSet<String>>,
}

/// A server that tells `seen` what becomes of its handlers.
pub(crate) fn server(seen: &Seen) -> Server {
    let tools = Tools {
        seen: seen.clone(),
        released: watch::Sender::default(),
    };
    let pages = tools.clone();
    let mut server = Server::new("matrix", "1.0.0")
        .resource_updates()
        .page_size(1)
        .layer(move |request, next| pages.clone().hold_back(request, next))
        .tool(tools.tool("slow", |tools, name, _| async move {
            tools.work(&name).await;
            Ok(CallToolResult::text(name))
        }))
        .tool(tools.tool("talks", |tools, name, cx| async move {
            cx.progress(1.0);
            cx.progress(2.0);
            tools.work(&name).await;
            Ok(CallToolResult::text(name))
        }))
        .tool(tools.tool("asks", |tools, name, cx| async move {
            cx.roots().await?;
            tools.work(&name).await;
            Ok(CallToolResult::text(name))
        }));
    server = server.tool(tools.tool("gives up", |tools, name, cx| async move {
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

    /// Takes until it is released, and is counted.
    async fn work(&self, name: &str) {
        let working = Working::begin(&self.seen);
        let mut released = self.released.subscribe();
        let _ = released.wait_for(|released| released.contains(name)).await;
        working.finish();
    }

    /// Leaves every page but the first of the tools' list unanswered, and counts the subscriptions to resources.
    async fn hold_back(self, request: Request, next: Next) -> Outcome {
        let params: Value = request.params.decode().unwrap();
        match &*request.method {
            "tools/list" if params["cursor"].is_string() => {
                self.work("pages").await;
                next.run(request).await
            }
            "subscriptions/listen"
                if params["notifications"]["resourceSubscriptions"].is_array() =>
            {
                let working = Working::begin(&self.seen);
                let outcome = next.run(request).await;
                working.finish();
                outcome
            }
            _ => next.run(request).await,
        }
    }
}

/// A client's host that says at once what its folders are, or never.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) seen: Seen,
    answers: bool,
}

impl Host {
    pub(crate) fn that_answers() -> Self {
        let (seen, answers) = (Seen::here(), true);
        Self { seen, answers }
    }

    pub(crate) fn that_never_answers() -> Self {
        let (seen, answers) = (Seen::here(), false);
        Self { seen, answers }
    }
}

impl Responder for Host {
    fn respond<'a>(&'a self, _: Request, _: Context) -> BoxFuture<'a, Outcome> {
        Box::pin(async {
            let working = Working::begin(&self.seen);
            if !self.answers {
                std::future::pending::<()>().await;
            }
            working.finish();
            Ok(Json::from(json!({"roots": []})))
        })
    }

    fn answers(&self) -> ClientCapabilities {
        let mut answers = ClientCapabilities::default();
        answers.roots = Some(RootsCapability::default());
        answers
    }

    fn roots_changed(&self, _: &bowline::exchange::Caller) {}
}

#[derive(Deserialize)]
struct Named {
    name: String,
}
