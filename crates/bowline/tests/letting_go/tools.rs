//! The tools of the server in these tests, and a tally of what became of their handlers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bowline::exchange::{BoxFuture, Channel, Exchange, Responder};
use bowline::types::{ClientCapabilities, RootsCapability};
use bowline::{CallToolResult, CancelMode, Context, Json, RpcError, Server, Tool};
use bowline_core::Outcome;
use bowline_core::era::Request;
use bowline_core::mux::CallOptions;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;

/// What became of the handlers so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) started: usize,
    pub(crate) dropped: usize,
    pub(crate) finished: usize,
}

/// What a test holds to watch the handlers and to let them finish.
#[derive(Clone, Debug)]
pub(crate) struct Tools {
    tally: watch::Sender<Tally>,
    released: watch::Sender<BTreeSet<String>>,
}

impl Tools {
    pub(crate) fn new() -> Self {
        Self {
            tally: watch::Sender::default(),
            released: watch::Sender::default(),
        }
    }

    pub(crate) fn tally(&self) -> Tally {
        *self.tally.borrow()
    }

    /// Starts counting anew.
    pub(crate) fn forget(&self) {
        self.tally.send_replace(Tally::default());
    }

    /// Waits until the handlers are where the test wants them.
    pub(crate) async fn until(&self, reached: impl Fn(&Tally) -> bool) {
        let mut tally = self.tally.subscribe();
        let waiting = tally.wait_for(|tally| reached(tally));
        // The clock stands still while anything moves, so this only rings if nothing does any more.
        let waited = tokio::time::timeout(Duration::from_millis(50), waiting).await;
        let came = waited.is_ok();
        drop(waited);
        assert!(came, "nothing moves any more: {:?}", self.tally());
    }

    pub(crate) async fn started(&self, count: usize) {
        self.until(|tally| tally.started == count).await;
    }

    pub(crate) async fn dropped(&self, count: usize) {
        self.until(|tally| tally.dropped == count).await;
    }

    /// Lets the handlers that were called with this name finish.
    pub(crate) fn release(&self, name: &str) {
        self.released.send_modify(|released| {
            released.insert(name.to_owned());
        });
    }

    pub(crate) fn server(&self) -> Server {
        Server::new("letting go", "1.0.0")
            .resource_updates()
            .logging()
            .tool(Tool::raw("quick", any_object(), async |_, _| {
                Ok(CallToolResult::text("quick"))
            }))
            .tool(self.tool("slow", |tools, name, _| async move {
                tools.released(&name).await;
                Ok(CallToolResult::text(name))
            }))
            .tool(self.tool("talks", |tools, name, cx| async move {
                cx.progress(1.0);
                cx.progress(2.0);
                tools.released(&name).await;
                Ok(CallToolResult::text(name))
            }))
            .tool(
                self.tool("stubborn", |_, name, cx| async move {
                    cx.progress(1.0);
                    cx.cancelled().await;
                    cx.progress(2.0);
                    cx.log(bowline::types::LoggingLevel::Error, json!("unheard"));
                    Ok(CallToolResult::text(name))
                })
                .cancel_mode(CancelMode::Signal),
            )
            .tool(
                self.tool("deaf", |tools, name, _| async move {
                    tools.released(&name).await;
                    Ok(CallToolResult::text(name))
                })
                .cancel_mode(CancelMode::Signal),
            )
            .tool(self.tool("asks", |_, name, cx| async move {
                let answer = ask(&cx).answer().await;
                Ok(CallToolResult::text(format!("{name}: {answer:?}")))
            }))
            .tool(self.tool("gives up", |tools, name, cx| async move {
                tokio::select! {
                    answer = ask(&cx).answer() => Ok(CallToolResult::text(format!("{answer:?}"))),
                    () = tools.released(&name) => Ok(CallToolResult::text(name)),
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
        let tools = self.clone();
        Tool::raw(tool, any_object(), move |arguments: Json, cx| {
            let Named { name } = arguments.decode().unwrap();
            let (counted, body) = (tools.clone(), body(tools.clone(), name, cx));
            async move {
                let guard = Guard::new(counted);
                let result = body.await;
                guard.finish();
                result
            }
        })
    }

    async fn released(&self, name: &str) {
        let mut released = self.released.subscribe();
        let _ = released.wait_for(|released| released.contains(name)).await;
    }
}

/// A client's host that takes its time.
pub(crate) struct Host(pub(crate) Tools);

impl Responder for Host {
    fn respond<'a>(&'a self, _: Request, _: Context) -> BoxFuture<'a, Outcome> {
        Box::pin(async {
            let guard = Guard::new(self.0.clone());
            self.0.released("host").await;
            guard.finish();
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

/// A question to the client, as a handler puts it in the legacy era.
fn ask(cx: &Context) -> Exchange {
    let way_back: Arc<dyn Channel> = cx.way_back().expect("this era lets a server ask");
    let caller = cx.caller().clone();
    let request = Request::new("roots/list", Json::empty_object(), caller);
    way_back.open(request, CallOptions::default())
}

/// Counts a handler: that it started, and whether it finished or was dropped.
struct Guard {
    tools: Tools,
    finished: bool,
}

impl Guard {
    fn new(tools: Tools) -> Self {
        tools.tally.send_modify(|tally| tally.started += 1);
        Self {
            tools,
            finished: false,
        }
    }

    fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let finished = self.finished;
        self.tools.tally.send_modify(|tally| match finished {
            true => tally.finished += 1,
            false => tally.dropped += 1,
        });
    }
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

fn any_object() -> serde_json::Value {
    json!({"type": "object"})
}
