//! A connected client and server, and the assertions that end every scenario.
//!
//! In every pair an unrelated background call is in flight on the same connection. At the end of a scenario this call
//! must get its own result, a further call must succeed, and no handler, request or task may be left.

use std::fmt::Debug;
use std::pin::Pin;
use std::task::Poll;

use bowline::client::ClientBuilder;
use bowline::peer::Peer;
use bowline::testing::{
    Direction, RecordingWire, ResourceCounts, ScriptedPeer, WireRecord, eventually,
};
use bowline::{Call, Client, Reply, RequestId, Result, Server, wire};
use bowline_core::era::Dialect;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::handler_monitor::{HandlerMonitor, slow_host};
use crate::scripted_peers::{ScriptedClient, scripted_server};

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
    record: WireRecord,
    server_end: Peer,
    serving: JoinHandle<Result<()>>,
}

impl TestPair {
    pub(crate) async fn over_memory(dialect: &'static Dialect) -> Self {
        let handlers = HandlerMonitor::default();
        let server = handlers.server();
        let (near, far) = wire::memory();
        let (near, record) = RecordingWire::new(near);
        let (server_end, serving) = server.clone().serve_counted(far);
        let wire = PairWire {
            record,
            server_end,
            serving: tokio::spawn(serving),
        };
        let connect = Client::from_wire(near).protocol_version(dialect.version);
        Self::with_background_call(connect, server, handlers, Some(wire)).await
    }

    pub(crate) async fn in_process(dialect: &'static Dialect) -> Self {
        let handlers = HandlerMonitor::default();
        let server = handlers.server();
        let connect = Client::in_process(&server).protocol_version(dialect.version);
        Self::with_background_call(connect, server, handlers, None).await
    }

    async fn with_background_call(
        connect: ClientBuilder,
        server: Server,
        handlers: HandlerMonitor,
        wire: Option<PairWire>,
    ) -> Self {
        let host = HandlerMonitor::default();
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
        wire.iter().for_each(|wire| wire.record.clear());
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
        self.wire.as_ref().unwrap().record.cut();
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

    /// Returns the summary of the message that cancels the `nth` request.
    pub(crate) fn cancel(&self, nth: i64, reason: &str) -> String {
        format!("→ cancel {}: {reason}", self.id(nth))
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
        let recorded = wire.frames();
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
        assert_eq!(wire.frames(), frames);
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
        let tasks = || ResourceCounts::now().tasks;
        assert!(eventually(|| tasks() == 0).await, "{} tasks", tasks());
    }
}

impl PairWire {
    /// Returns the summaries of all frames: `→` was sent by the client, `←` was received by it.
    fn frames(&self) -> Vec<String> {
        let frames = self.record.frames();
        let lines = frames.iter().map(|frame| match frame.direction {
            Direction::Sent => format!("→ {}", frame.summary()),
            Direction::Received => format!("← {}", frame.summary()),
        });
        lines.collect()
    }
}

pub(crate) async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await
}

/// Runs a scenario in process in both eras, and over an in-memory wire in every version.
pub(crate) fn everywhere<F: Future<Output = ()>>(scenario: impl Fn(TestPair) -> F) {
    in_process(&scenario);
    over_a_wire(&scenario);
}

/// Runs a scenario in process and over an in-memory wire, in the versions with a handshake.
pub(crate) fn everywhere_legacy<F: Future<Output = ()>>(scenario: impl Fn(TestPair) -> F) {
    each(&[Dialect::LATEST_LEGACY], TestPair::in_process, &scenario);
    each(&legacy_dialects(), TestPair::over_memory, &scenario);
}

/// Runs a scenario in process, in both eras.
pub(crate) fn in_process<F: Future<Output = ()>>(scenario: impl Fn(TestPair) -> F) {
    let eras = [Dialect::LATEST, Dialect::LATEST_LEGACY];
    each(&eras, TestPair::in_process, scenario);
}

/// Runs a scenario over an in-memory wire, in every version.
pub(crate) fn over_a_wire<F: Future<Output = ()>>(scenario: impl Fn(TestPair) -> F) {
    each(Dialect::ALL, TestPair::over_memory, scenario);
}

/// Runs a scenario with a scripted server over an in-memory wire, in every version.
pub(crate) fn with_scripted_server<F: Future<Output = ()>>(
    scenario: impl Fn((Client, ScriptedPeer)) -> F,
) {
    each(Dialect::ALL, scripted_server, scenario);
}

/// Runs a scenario with a scripted server over an in-memory wire, in the versions with a handshake.
pub(crate) fn with_scripted_legacy_server<F: Future<Output = ()>>(
    scenario: impl Fn((Client, ScriptedPeer)) -> F,
) {
    each(&legacy_dialects(), scripted_server, scenario);
}

/// Runs a scenario with a scripted client over an in-memory wire, in every version.
pub(crate) fn with_scripted_client<F: Future<Output = ()>>(scenario: impl Fn(ScriptedClient) -> F) {
    each(Dialect::ALL, ScriptedClient::connect, scenario);
}

/// Runs a scenario that connects by itself, in the versions with a handshake.
pub(crate) fn in_every_legacy_version<F: Future<Output = ()>>(
    scenario: impl Fn(&'static Dialect) -> F,
) {
    each(&legacy_dialects(), std::future::ready, scenario);
}

fn legacy_dialects() -> Vec<&'static Dialect> {
    let all = Dialect::ALL.iter().copied();
    all.filter(|dialect| !dialect.is_modern()).collect()
}

/// Runs a scenario in each of these versions, on a paused clock.
fn each<T, O: Future<Output = T>, F: Future<Output = ()>>(
    dialects: &[&'static Dialect],
    open: impl Fn(&'static Dialect) -> O,
    scenario: impl Fn(T) -> F,
) {
    for dialect in dialects {
        // Shown if the scenario fails.
        eprintln!("at {}", dialect.version);
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async { scenario(open(dialect).await).await });
    }
}

/// Makes a test of a scenario and the function that runs it.
macro_rules! run {
    ($run:ident, $scenario:ident) => {
        mod $scenario {
            #[test]
            fn in_each_version() {
                crate::test_pair::$run(super::$scenario);
            }
        }
    };
}

pub(crate) const NO_FRAMES: [&str; 0] = [];
