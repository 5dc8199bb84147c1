//! A client and a server that are connected and busy, and what must hold when a scenario is over.
//!
//! In every world a bystander's call is in flight from beginning to end, on the same connection. However
//! a scenario ends, the bystander must get its own result, a next call must work, and nothing may be left.

use std::fmt::Debug;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::Poll;

use bowline::client::Connect;
use bowline::peer::Peer;
use bowline::{Call, Client, Reply, RequestId, Result, Server, wire};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::script::Script;
use crate::tap::{Fuse, Log, Tap};
use crate::tools::{Host, Tools};

/// A client, a server, and a bystander.
pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) server: Server,
    pub(crate) tools: Tools,
    /// The handlers of the client's host.
    pub(crate) host: Tools,
    /// What is there only if there is a wire.
    wire: Option<OverWire>,
    bystander: Option<JoinHandle<Result<Reply>>>,
    bystander_id: i64,
}

struct OverWire {
    log: Log,
    fuse: Fuse,
    server_end: Peer,
    serving: JoinHandle<Result<()>>,
}

impl World {
    pub(crate) async fn over_memory(version: &str) -> Self {
        let (tools, log, fuse) = (Tools::new(), Log::default(), Fuse::default());
        let server = tools.server();
        let (near, far) = wire::memory();
        let (server_end, serving) = server.clone().serve_counted(far);
        let wire = OverWire {
            log: log.clone(),
            fuse: fuse.clone(),
            server_end,
            serving: tokio::spawn(serving),
        };
        let connect = Client::over(Tap::new(near, &log, &fuse)).speaking(version);
        Self::with_bystander(connect, server, tools, Some(wire)).await
    }

    pub(crate) async fn in_process(version: &str) -> Self {
        let tools = Tools::new();
        let server = tools.server();
        let connect = Client::to(&server).speaking(version);
        Self::with_bystander(connect, server, tools, None).await
    }

    async fn with_bystander(
        connect: Connect,
        server: Server,
        tools: Tools,
        wire: Option<OverWire>,
    ) -> Self {
        let host = Tools::new();
        let client = connect.host(Host(host.clone())).await.unwrap();
        let call = client
            .call_tool("slow", json!({"name": "bystander"}))
            .start();
        let Some(RequestId::Number(bystander_id)) = call.id().cloned() else {
            panic!("a minted id is a number")
        };
        let bystander = tokio::spawn(call);
        tools.started(1).await;
        tools.forget();
        wire.iter().for_each(|wire| wire.log.clear());
        Self {
            client,
            server,
            tools,
            host,
            wire,
            bystander: Some(bystander),
            bystander_id,
        }
    }

    /// Starts a call of `tool`; nothing has happened yet.
    pub(crate) fn start(&self, tool: &str) -> Call {
        self.client.call_tool(tool, json!({"name": "mine"})).start()
    }

    /// A call of `tool` whose handler is at work.
    pub(crate) async fn in_flight(&self, tool: &str) -> Call {
        self.run_into_handler(self.start(tool)).await
    }

    /// Polls `call` until its handler is at work.
    pub(crate) async fn run_into_handler(&self, mut call: Call) -> Call {
        let started = self.tools.tally().started;
        assert!(poll_once(&mut call).await.is_pending());
        self.tools.started(started + 1).await;
        call
    }

    /// Polls `call` until the client's host is at work on what its handler asks.
    pub(crate) async fn run_into_host(&self, call: &mut (impl Future<Output: Debug> + Unpin)) {
        tokio::select! {
            reply = call => panic!("the call ended: {reply:?}"),
            () = self.host.started(1) => {}
        }
    }

    /// Cuts the wire under the client.
    pub(crate) fn break_wire(&self) {
        self.wire.as_ref().unwrap().fuse.blow();
    }

    /// Ends the server's end of the wire, without a word.
    pub(crate) async fn kill_server(&mut self) {
        let serving = &mut self.wire.as_mut().unwrap().serving;
        serving.abort();
        assert!((&mut *serving).await.unwrap_err().is_cancelled());
        *serving = tokio::spawn(async { Ok(()) });
    }

    /// What the bystander gets.
    pub(crate) async fn bystander(&mut self) -> Result<Reply> {
        self.bystander.take().unwrap().await.unwrap()
    }

    /// Waits until the server has seen all that was sent so far, by a call that comes back.
    pub(crate) async fn catch_up(&self) {
        let reply = self.client.call_tool("quick", ()).await.unwrap();
        assert_eq!(reply.text(), "quick");
    }

    /// The id of the scenario's `nth` request, counted from 1.
    pub(crate) fn id(&self, nth: i64) -> i64 {
        self.bystander_id + nth
    }

    /// The frame of the `nth` request, in short.
    pub(crate) fn request(&self, nth: i64, what: &str) -> String {
        format!("→ {} {what}", self.id(nth))
    }

    /// The frame that cancels the `nth` request, in full.
    pub(crate) fn cancel(&self, nth: i64, reason: &str) -> String {
        cancel_frame('→', &self.id(nth).to_string(), reason)
    }

    /// The frame that answers the `nth` request, in short.
    pub(crate) fn result(&self, nth: i64) -> String {
        format!("← {} result", self.id(nth))
    }

    /// Asserts what must hold at the end of every scenario, and that `frames` are all that passed.
    pub(crate) async fn end(mut self, frames: &[String]) {
        self.tools.release("bystander");
        assert_eq!(self.bystander().await.unwrap().text(), "bystander");
        let next = self.client.call_tool("quick", ()).await.unwrap();
        assert_eq!(next.text(), "quick");
        self.assert_all_handlers_are_gone();

        let Some(wire) = &self.wire else {
            return self.leave().await;
        };
        let (near, far) = (self.client.peer().unwrap(), &wire.server_end);
        assert!(near.is_idle(), "the client remembers {near:?}");
        assert!(far.is_idle(), "the server remembers {far:?}");
        self.client.clone().close().await.unwrap();
        let passed = wire.log.frames();
        let (scenario, end) = passed.split_at(passed.len() - 3);
        assert_eq!(end[0], format!("← {} result", self.bystander_id));
        assert!(end[1].ends_with(" tools/call quick"), "{end:?}");
        assert!(end[2].ends_with(" result"), "{end:?}");
        assert_eq!(scenario, frames);
        self.leave().await;
    }

    /// As [`World::end`], for a scenario at whose end the wire is gone and the bystander with it.
    pub(crate) async fn end_without_wire(mut self, frames: &[String]) {
        let wire = self.wire.as_mut().unwrap();
        (&mut wire.serving).await.unwrap().unwrap();
        assert_eq!(wire.log.frames(), frames);
        assert!(self.client.peer().unwrap().is_idle());
        assert!(wire.server_end.is_idle());
        self.wire = None;
        self.assert_all_handlers_are_gone();
        self.leave().await;
    }

    fn assert_all_handlers_are_gone(&self) {
        // The bystander started before the count began.
        let (tally, host) = (self.tools.tally(), self.host.tally());
        assert_eq!(tally.started + 1, tally.dropped + tally.finished);
        assert_eq!(host.started, host.dropped + host.finished);
    }

    /// Lets go of everything; then no task may be left.
    async fn leave(self) {
        if let Some(wire) = self.wire {
            wire.serving.await.unwrap().unwrap();
        }
        drop((self.client, self.server));
        no_task_is_left().await;
    }
}

/// A client that speaks `version` with a server that is a script.
pub(crate) async fn scripted_server(version: &'static str) -> (Client, Script) {
    scripted_server_for(version, &Tools::new()).await
}

/// As [`scripted_server`], for a client with a host.
pub(crate) async fn scripted_server_for(version: &'static str, host: &Tools) -> (Client, Script) {
    let (near, far) = wire::memory();
    let mut script = Script::new(far);
    let connect = Client::over(near).speaking(version);
    let connect = connect.host(Host(host.clone()));
    if is_modern(version) {
        return (connect.await.unwrap(), script);
    }
    let (client, ()) = tokio::join!(connect.into_future(), script.shake_hands(version));
    (client.unwrap(), script)
}

/// A server whose client is a script that speaks `version`.
pub(crate) async fn scripted_client(version: &str, tools: &Tools) -> (Peer, Script) {
    let (near, far) = wire::memory();
    let (server_end, serving) = tools.server().serve_counted(far);
    tokio::spawn(serving);
    let mut script = Script::new(near);
    script.open(version).await;
    (server_end, script)
}

/// The frame of a `tools/call` that a scripted client sends.
pub(crate) fn call_frame(version: &str, id: impl serde::Serialize, tool: &str) -> String {
    let mut params = json!({"name": tool, "arguments": {"name": "mine"}});
    if is_modern(version) {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientInfo": {"name": "script", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/logLevel": "debug",
            "progressToken": "p",
        });
    } else {
        params["_meta"] = json!({"progressToken": "p"});
    }
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

/// The frame of a cancel, in full; `id` is JSON.
pub(crate) fn cancel_frame(direction: char, id: &str, reason: &str) -> String {
    format!("{direction} {}", cancel_text(id, reason))
}

pub(crate) fn cancel_text(id: &str, reason: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"{reason}"}}}}"#
    )
}

pub(crate) fn is_modern(version: &str) -> bool {
    version == MODERN
}

pub(crate) async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await
}

/// Whatever was stopped needs a turn to be gone.
async fn no_task_is_left() {
    let metrics = tokio::runtime::Handle::current().metrics();
    for _ in 0..100 {
        if metrics.num_alive_tasks() == 0 {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{} tasks are left", metrics.num_alive_tasks());
}

/// Runs a scenario in process and over a wire in memory, in every era.
macro_rules! everywhere {
    ($sentence:ident) => {
        mod $sentence {
            use crate::world::World;

            #[tokio::test(start_paused = true)]
            async fn in_process_at_2026_07_28() {
                super::$sentence(World::in_process("2026-07-28").await).await;
            }

            #[tokio::test(start_paused = true)]
            async fn in_process_at_2025_11_25() {
                super::$sentence(World::in_process("2025-11-25").await).await;
            }

            columns!(World::over_memory, super::$sentence);
        }
    };
}

/// Runs a scenario in process, in both eras.
macro_rules! in_process {
    ($sentence:ident) => {
        mod $sentence {
            use crate::world::World;

            #[tokio::test(start_paused = true)]
            async fn in_process_at_2026_07_28() {
                super::$sentence(World::in_process("2026-07-28").await).await;
            }

            #[tokio::test(start_paused = true)]
            async fn in_process_at_2025_11_25() {
                super::$sentence(World::in_process("2025-11-25").await).await;
            }
        }
    };
}

/// Runs a scenario over a wire in memory, in every era.
macro_rules! on_every_wire {
    ($sentence:ident) => {
        mod $sentence {
            use crate::world::World;

            columns!(World::over_memory, super::$sentence);
        }
    };
}

/// Runs a scenario with a scripted peer over a wire in memory, in every era.
macro_rules! in_every_era {
    ($sentence:ident) => {
        mod $sentence {
            columns!(std::future::ready, super::$sentence);
        }
    };
}

/// Runs a scenario with a scripted peer over a wire in memory, in the eras that have a handshake.
macro_rules! in_every_legacy_era {
    ($sentence:ident) => {
        mod $sentence {
            legacy_columns!(std::future::ready, super::$sentence);
        }
    };
}

/// Runs a scenario in process and over a wire in memory, in the eras that have a handshake.
macro_rules! everywhere_legacy {
    ($sentence:ident) => {
        mod $sentence {
            use crate::world::World;

            #[tokio::test(start_paused = true)]
            async fn in_process_at_2025_11_25() {
                super::$sentence(World::in_process("2025-11-25").await).await;
            }

            legacy_columns!(World::over_memory, super::$sentence);
        }
    };
}

macro_rules! columns {
    ($open:expr, $scenario:path) => {
        #[tokio::test(start_paused = true)]
        async fn at_2026_07_28() {
            $scenario($open("2026-07-28").await).await;
        }

        legacy_columns!($open, $scenario);
    };
}

macro_rules! legacy_columns {
    ($open:expr, $scenario:path) => {
        #[tokio::test(start_paused = true)]
        async fn at_2025_11_25() {
            $scenario($open("2025-11-25").await).await;
        }

        #[tokio::test(start_paused = true)]
        async fn at_2025_06_18() {
            $scenario($open("2025-06-18").await).await;
        }

        #[tokio::test(start_paused = true)]
        async fn at_2025_03_26() {
            $scenario($open("2025-03-26").await).await;
        }

        #[tokio::test(start_paused = true)]
        async fn at_2024_11_05() {
            $scenario($open("2024-11-05").await).await;
        }
    };
}

pub(crate) const MODERN: &str = "2026-07-28";
/// What is heard when nothing is said.
pub(crate) const NOTHING: [&str; 0] = [];
