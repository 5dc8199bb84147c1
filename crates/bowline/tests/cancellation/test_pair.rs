//! A connected client and server, and the assertions that end every scenario.
//!
//! In every pair an unrelated background call is in flight on the same connection. At the end of a scenario this call
//! must get its own result, a further call must succeed, and no handler, request or task may be left.

use std::fmt::Debug;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::Poll;

use bowline::client::Connect;
use bowline::peer::Peer;
use bowline::{Call, Client, Reply, RequestId, Result, Server, wire};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::handler_monitor::{HandlerMonitor, slow_host};
use crate::logged_wire::{FrameLog, LoggedWire, WireBreaker};
use crate::raw_peer::RawPeer;

/// A client, a server, and a background call between them.
pub(crate) struct TestPair {
    pub(crate) client: Client,
    pub(crate) server: Server,
    pub(crate) handlers: HandlerMonitor,
    /// The handlers of the client's host.
    pub(crate) host: HandlerMonitor,
    /// `None` in process.
    wire: Option<PairWire>,
    background_call: Option<JoinHandle<Result<Reply>>>,
    background_id: i64,
}

/// The wire of a pair, and the server's end of it.
struct PairWire {
    log: FrameLog,
    breaker: WireBreaker,
    server_end: Peer,
    serving: JoinHandle<Result<()>>,
}

impl TestPair {
    pub(crate) async fn over_memory(version: &str) -> Self {
        let (handlers, log, breaker) = (
            HandlerMonitor::new(),
            FrameLog::default(),
            WireBreaker::default(),
        );
        let server = handlers.server();
        let (near, far) = wire::memory();
        let (server_end, serving) = server.clone().serve_counted(far);
        let wire = PairWire {
            log: log.clone(),
            breaker: breaker.clone(),
            server_end,
            serving: tokio::spawn(serving),
        };
        let connect =
            Client::from_wire(LoggedWire::new(near, &log, &breaker)).protocol_version(version);
        Self::with_background_call(connect, server, handlers, Some(wire)).await
    }

    pub(crate) async fn in_process(version: &str) -> Self {
        let handlers = HandlerMonitor::new();
        let server = handlers.server();
        let connect = Client::in_process(&server).protocol_version(version);
        Self::with_background_call(connect, server, handlers, None).await
    }

    async fn with_background_call(
        connect: Connect,
        server: Server,
        handlers: HandlerMonitor,
        wire: Option<PairWire>,
    ) -> Self {
        let host = HandlerMonitor::new();
        let client = connect.host(slow_host(&host)).await.unwrap();
        let call = client
            .call_tool("slow", json!({"name": "background"}))
            .start();
        let Some(RequestId::Number(background_id)) = call.id().cloned() else {
            panic!("a generated id is a number")
        };
        let background_call = tokio::spawn(call);
        handlers.wait_for_started(1).await;
        handlers.reset();
        wire.iter().for_each(|wire| wire.log.clear());
        Self {
            client,
            server,
            handlers,
            host,
            wire,
            background_call: Some(background_call),
            background_id,
        }
    }

    /// Starts a call of `tool` without polling it.
    pub(crate) fn start(&self, tool: &str) -> Call {
        self.client.call_tool(tool, json!({"name": "mine"})).start()
    }

    /// Starts a call of `tool` and polls it until its handler has started.
    pub(crate) async fn in_flight(&self, tool: &str) -> Call {
        self.poll_until_handler_starts(self.start(tool)).await
    }

    pub(crate) async fn poll_until_handler_starts(&self, mut call: Call) -> Call {
        let started = self.handlers.counts().started;
        assert!(poll_once(&mut call).await.is_pending());
        self.handlers.wait_for_started(started + 1).await;
        call
    }

    /// Polls `call` until the client's host has started to answer a request of its handler.
    pub(crate) async fn poll_until_host_starts(
        &self,
        call: &mut (impl Future<Output: Debug> + Unpin),
    ) {
        tokio::select! {
            reply = call => panic!("the call ended: {reply:?}"),
            () = self.host.wait_for_started(1) => {}
        }
    }

    pub(crate) fn break_wire(&self) {
        self.wire.as_ref().unwrap().breaker.break_wire();
    }

    /// Aborts the task that serves the wire.
    pub(crate) async fn kill_server(&mut self) {
        let serving = &mut self.wire.as_mut().unwrap().serving;
        serving.abort();
        assert!((&mut *serving).await.unwrap_err().is_cancelled());
        *serving = tokio::spawn(async { Ok(()) });
    }

    pub(crate) async fn background_reply(&mut self) -> Result<Reply> {
        self.background_call.take().unwrap().await.unwrap()
    }

    /// Calls `quick`, after which the server has handled all earlier frames.
    pub(crate) async fn round_trip(&self) {
        let reply = self.client.call_tool("quick", ()).await.unwrap();
        assert_eq!(reply.text(), "quick");
    }

    /// Returns the id of the scenario's `nth` request, counted from 1.
    pub(crate) fn id(&self, nth: i64) -> i64 {
        self.background_id + nth
    }

    /// Returns the summary of the `nth` request.
    pub(crate) fn request(&self, nth: i64, method_and_name: &str) -> String {
        format!("→ {} {method_and_name}", self.id(nth))
    }

    /// Returns the frame that cancels the `nth` request.
    pub(crate) fn cancel(&self, nth: i64, reason: &str) -> String {
        cancel_frame('→', &self.id(nth).to_string(), reason)
    }

    /// Returns the summary of the response to the `nth` request.
    pub(crate) fn result(&self, nth: i64) -> String {
        format!("← {} result", self.id(nth))
    }

    /// Asserts what must hold at the end of every scenario, and that the wire carried exactly `frames`.
    pub(crate) async fn finish(mut self, frames: &[String]) {
        self.handlers.release("background");
        assert_eq!(self.background_reply().await.unwrap().text(), "background");
        let next = self.client.call_tool("quick", ()).await.unwrap();
        assert_eq!(next.text(), "quick");
        self.assert_no_handler_is_running();

        let Some(wire) = &self.wire else {
            return self.drop_all().await;
        };
        let (near, far) = (self.client.peer().unwrap(), &wire.server_end);
        assert!(near.is_idle(), "the client holds {near:?}");
        assert!(far.is_idle(), "the server holds {far:?}");
        self.client.clone().close().await.unwrap();
        let recorded = wire.log.frames();
        let (scenario, end) = recorded.split_at(recorded.len() - 3);
        assert_eq!(end[0], format!("← {} result", self.background_id));
        assert!(end[1].ends_with(" tools/call quick"), "{end:?}");
        assert!(end[2].ends_with(" result"), "{end:?}");
        assert_eq!(scenario, frames);
        self.drop_all().await;
    }

    /// As [`TestPair::finish`], for a scenario that ended the wire and with it the background call.
    pub(crate) async fn finish_without_wire(mut self, frames: &[String]) {
        let wire = self.wire.as_mut().unwrap();
        (&mut wire.serving).await.unwrap().unwrap();
        assert_eq!(wire.log.frames(), frames);
        assert!(self.client.peer().unwrap().is_idle());
        assert!(wire.server_end.is_idle());
        self.wire = None;
        self.assert_no_handler_is_running();
        self.drop_all().await;
    }

    fn assert_no_handler_is_running(&self) {
        // The background call's handler started before the counts were reset.
        let (counts, host) = (self.handlers.counts(), self.host.counts());
        assert_eq!(counts.started + 1, counts.dropped + counts.finished);
        assert_eq!(host.started, host.dropped + host.finished);
    }

    /// Drops the pair, and asserts that no task is left.
    async fn drop_all(self) {
        if let Some(wire) = self.wire {
            wire.serving.await.unwrap().unwrap();
        }
        drop((self.client, self.server));
        assert_no_task_is_left().await;
    }
}

/// Connects a client to a scripted server of `version`.
pub(crate) async fn scripted_server(version: &'static str) -> (Client, RawPeer) {
    scripted_server_for(version, &HandlerMonitor::new()).await
}

/// As [`scripted_server`], for a client with a host.
pub(crate) async fn scripted_server_for(
    version: &'static str,
    host: &HandlerMonitor,
) -> (Client, RawPeer) {
    let (near, far) = wire::memory();
    let mut peer = RawPeer::new(far);
    let connect = Client::from_wire(near).protocol_version(version);
    let connect = connect.host(slow_host(host));
    if is_modern(version) {
        return (connect.await.unwrap(), peer);
    }
    let (client, ()) = tokio::join!(connect.into_future(), peer.handshake_as_server(version));
    (client.unwrap(), peer)
}

/// Connects a scripted client of `version` to a server.
pub(crate) async fn scripted_client(version: &str, handlers: &HandlerMonitor) -> (Peer, RawPeer) {
    let (near, far) = wire::memory();
    let (server_end, serving) = handlers.server().serve_counted(far);
    tokio::spawn(serving);
    let mut peer = RawPeer::new(near);
    peer.handshake_as_client(version).await;
    (server_end, peer)
}

/// Returns the frame of a `tools/call` from a scripted client.
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

/// Returns a cancel as the frame log records it; `id` is JSON.
pub(crate) fn cancel_frame(direction: char, id: &str, reason: &str) -> String {
    format!("{direction} {}", cancel_json(id, reason))
}

pub(crate) fn cancel_json(id: &str, reason: &str) -> String {
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

/// An aborted task is alive until it is polled once more, hence the loop.
async fn assert_no_task_is_left() {
    let metrics = tokio::runtime::Handle::current().metrics();
    for _ in 0..100 {
        if metrics.num_alive_tasks() == 0 {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{} tasks are left", metrics.num_alive_tasks());
}

/// Runs a scenario in process in both eras, and over an in-memory wire in every version.
macro_rules! everywhere {
    ($scenario:ident) => {
        mod $scenario {
            use crate::test_pair::TestPair;

            #[tokio::test(start_paused = true)]
            async fn in_process_at_2026_07_28() {
                super::$scenario(TestPair::in_process("2026-07-28").await).await;
            }

            #[tokio::test(start_paused = true)]
            async fn in_process_at_2025_11_25() {
                super::$scenario(TestPair::in_process("2025-11-25").await).await;
            }

            versions!(TestPair::over_memory, super::$scenario);
        }
    };
}

/// Runs a scenario in process, in both eras.
macro_rules! in_process {
    ($scenario:ident) => {
        mod $scenario {
            use crate::test_pair::TestPair;

            #[tokio::test(start_paused = true)]
            async fn in_process_at_2026_07_28() {
                super::$scenario(TestPair::in_process("2026-07-28").await).await;
            }

            #[tokio::test(start_paused = true)]
            async fn in_process_at_2025_11_25() {
                super::$scenario(TestPair::in_process("2025-11-25").await).await;
            }
        }
    };
}

/// Runs a scenario over an in-memory wire, in every version.
macro_rules! over_a_wire {
    ($scenario:ident) => {
        mod $scenario {
            use crate::test_pair::TestPair;

            versions!(TestPair::over_memory, super::$scenario);
        }
    };
}

/// Runs a scenario with a scripted peer over an in-memory wire, in every version.
macro_rules! in_every_version {
    ($scenario:ident) => {
        mod $scenario {
            versions!(std::future::ready, super::$scenario);
        }
    };
}

/// Runs a scenario with a scripted peer over an in-memory wire, in the versions with a handshake.
macro_rules! in_every_legacy_version {
    ($scenario:ident) => {
        mod $scenario {
            legacy_versions!(std::future::ready, super::$scenario);
        }
    };
}

/// Runs a scenario in process and over an in-memory wire, in the versions with a handshake.
macro_rules! everywhere_legacy {
    ($scenario:ident) => {
        mod $scenario {
            use crate::test_pair::TestPair;

            #[tokio::test(start_paused = true)]
            async fn in_process_at_2025_11_25() {
                super::$scenario(TestPair::in_process("2025-11-25").await).await;
            }

            legacy_versions!(TestPair::over_memory, super::$scenario);
        }
    };
}

macro_rules! versions {
    ($open:expr, $scenario:path) => {
        #[tokio::test(start_paused = true)]
        async fn at_2026_07_28() {
            $scenario($open("2026-07-28").await).await;
        }

        legacy_versions!($open, $scenario);
    };
}

macro_rules! legacy_versions {
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
pub(crate) const NO_FRAMES: [&str; 0] = [];
