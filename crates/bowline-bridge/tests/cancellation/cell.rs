//! A client, a bridge and a server, with a concurrent call in flight from beginning to end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::client::{ClientBuilder, Host};
use bowline::http::HttpService;
use bowline::http::client::HyperClient;
use bowline::prelude::*;
use bowline::testing::{
    HandlerCounter, PipeConnector, RecordingWire, ResourceCounts, WireRecord, eventually,
};
use bowline::types::ElicitResult;
use bowline::{Call, Reply, wire};
use bowline_bridge::{Bridge, Target};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const LEGACY: &str = "2025-11-25";
pub(crate) const PARK_TIMEOUT: Duration = Duration::from_secs(30);

/// The wire and the version of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Front {
    Http(&'static str),
    Http2(&'static str),
    HttpSse,
    Wire(&'static str),
}

impl Front {
    pub(crate) const ALL: &'static [Self] = &[
        Self::Http(MODERN),
        Self::Http(LEGACY),
        Self::Http2(MODERN),
        Self::Http2(LEGACY),
        Self::HttpSse,
        Self::Wire(MODERN),
        Self::Wire(LEGACY),
    ];

    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::Http(version) | Self::Http2(version) | Self::Wire(version) => version,
            Self::HttpSse => "2024-11-05",
        }
    }

    pub(crate) fn is_modern(self) -> bool {
        self.version() == MODERN
    }

    /// Whether its cancel carries a reason: over HTTP of the modern version it is the end of the connection.
    pub(crate) fn carries_reason(self) -> bool {
        !matches!(self, Self::Http(MODERN) | Self::Http2(MODERN))
    }
}

pub(crate) struct Cell {
    pub(crate) front: Front,
    pub(crate) upstream: &'static str,
    pub(crate) client: Client,
    /// The handlers of the tools other than the concurrent call.
    pub(crate) handlers: HandlerCounter,
    /// The questions that the client was asked.
    pub(crate) host: HandlerCounter,
    records: Records,
    bridge: Bridge,
    service: HttpService,
    tasks_before: usize,
    finish: Arc<Notify>,
    concurrent: JoinHandle<bowline::Result<Reply>>,
}

/// What was sent to and received from each connection to the upstream.
type Records = Arc<Mutex<Vec<WireRecord>>>;

#[derive(Deserialize, schemars::JsonSchema)]
struct Name {
    name: String,
}

impl Cell {
    pub(crate) async fn open(front: Front, upstream: &'static str) -> Self {
        let tasks_before = ResourceCounts::now().tasks;
        let (handlers, host) = (HandlerCounter::default(), HandlerCounter::default());
        let (finish, records) = (Arc::new(Notify::new()), Records::default());
        let bridge = bridge(server(&handlers, &finish), upstream, records.clone());
        let service = bridge.http();
        let counter = host.clone();
        let answer = move |_| {
            let counter = counter.clone();
            async move { counter.run(std::future::pending::<ElicitResult>()).await }
        };
        let connect = connect(front, &bridge, &service).host(Host::new().elicitation(answer));
        let client = connect.await.unwrap();
        let concurrent = tokio::spawn(client.call_tool("concurrent", ()).start());
        let is_called = || called(&records, "concurrent").len() == 1;
        assert!(eventually(is_called).await);
        Self {
            front,
            upstream,
            client,
            handlers,
            host,
            records,
            bridge,
            service,
            tasks_before,
            finish,
            concurrent,
        }
    }

    /// Starts a call of a tool, and waits until its handler runs.
    pub(crate) async fn in_flight(&self, tool: &str) -> Call {
        self.poll_into_handler(self.client.call_tool(tool, ()).start())
            .await
    }

    pub(crate) async fn poll_into_handler(&self, mut call: Call) -> Call {
        let started = self.handlers.counts().started + 1;
        tokio::select! {
            reply = &mut call => panic!("the call ended: {reply:?}"),
            _ = self.handlers.wait_for(|counts| counts.started == started) => call,
        }
    }

    /// Cuts the connections to the upstream.
    pub(crate) fn cut(&self) {
        let records = self.records.lock().unwrap();
        records.iter().for_each(WireRecord::cut);
    }

    /// Returns the params of what was sent to the upstream with this method.
    pub(crate) fn sent(&self, method: &str) -> Vec<Value> {
        sent(&self.records, method)
    }

    /// Asserts that the upstream got the call of `tool` and exactly one cancel, of that call; returns its reason.
    pub(crate) async fn expect_cancel(&self, tool: &str) -> String {
        let is_dropped = eventually(|| {
            let counts = self.handlers.counts();
            counts.dropped == 1 && counts.started == 1
        });
        assert!(is_dropped.await, "{:?}", self.handlers.counts());
        let [id] = &called(&self.records, tool)[..] else {
            panic!("{:?}", called(&self.records, tool));
        };
        let cancels = self.sent("notifications/cancelled");
        let [cancel] = &cancels[..] else {
            panic!("{cancels:?}");
        };
        assert_eq!(cancel["params"]["requestId"], *id);
        let answered = self.received(id);
        assert_eq!(answered, 0, "the upstream answered a cancelled call");
        cancel["params"]["reason"].as_str().unwrap_or("").to_owned()
    }

    /// Asserts that the concurrent call has its own result, that a next call works, and that nothing is left.
    pub(crate) async fn end(mut self) {
        self.finish.notify_one();
        let concurrent = (&mut self.concurrent).await.unwrap().unwrap();
        assert_eq!(concurrent.text(), "concurrent");
        self.end_after_loss().await;
    }

    /// The same, after the concurrent call has failed or was dropped.
    pub(crate) async fn end_after_loss(self) {
        let next = self.client.call_tool("echo", json!({"name": "next"}));
        assert_eq!(next.await.unwrap().text(), "next");
        self.close().await;
    }

    /// Drops the client, and asserts that nothing is left.
    pub(crate) async fn end_by_dropping_client(self, call: Call) {
        let concurrent = self.concurrent.abort_handle();
        let drop_all = async move |client| {
            drop((client, call));
            concurrent.abort();
        };
        self.close_with(drop_all).await;
    }

    /// Fails if the concurrent call was not lost with the connection.
    pub(crate) async fn concurrent_error(&mut self) -> String {
        let lost = (&mut self.concurrent).await.unwrap();
        lost.unwrap_err().to_string()
    }

    async fn close(self) {
        self.close_with(async |client| client.close().await.unwrap())
            .await;
    }

    async fn close_with(self, close: impl AsyncFnOnce(Client)) {
        let counts = self.handlers.counts();
        let Self {
            client,
            bridge,
            service,
            handlers,
            concurrent,
            ..
        } = self;
        close(client).await;
        let is_unused = || bridge.usage().requests == 0 && bridge.usage().waiting_calls == 0;
        assert!(
            eventually(is_unused).await,
            "{:?} {counts:?}",
            bridge.usage()
        );
        assert!(eventually(|| service.in_flight() == 0).await);
        let all_ended = || {
            let counts = handlers.counts();
            counts.started == counts.dropped + counts.finished
        };
        assert!(eventually(all_ended).await, "{:?}", handlers.counts());
        drop((bridge, service, concurrent));
        let before = self.tasks_before;
        let is_clean = eventually(|| ResourceCounts::now().tasks == before).await;
        assert!(is_clean, "{before} tasks, then {:?}", ResourceCounts::now());
    }

    fn received(&self, id: &Value) -> usize {
        let records = self.records.lock().unwrap();
        let frames = records.iter().flat_map(WireRecord::received);
        let is_answer = |frame: &Value| frame["id"] == *id && frame.get("method").is_none();
        frames.filter(is_answer).count()
    }
}

fn server(handlers: &HandlerCounter, finish: &Arc<Notify>) -> Server {
    let (counter, finish) = (handlers.clone(), finish.clone());
    let slow = Tool::new("slow", move || {
        let counter = counter.clone();
        async move { counter.run(std::future::pending::<String>()).await }
    });
    let counter = handlers.clone();
    let noisy = Tool::new("noisy", move |cx: Context| {
        let counter = counter.clone();
        let noise = async move {
            let mut ticks = tokio::time::interval(Duration::from_millis(1));
            for step in 1.. {
                cx.progress(f64::from(step));
                ticks.tick().await;
            }
            String::new()
        };
        async move { counter.run(noise).await }
    });
    let counter = handlers.clone();
    let ask = Tool::new("ask", move |cx: Context| {
        let counter = counter.clone();
        let asking = async move {
            let name: Name = cx.elicit("name", "What is your name?").await?;
            Ok::<_, ToolError>(name.name)
        };
        async move { counter.run(asking).await }
    });
    let gives_up = Tool::new("gives up", async |cx: Context| {
        let asking = cx.elicit::<Name>("name", "What is your name?");
        let answer = tokio::time::timeout(Duration::from_secs(1), asking).await;
        if answer.is_err() {
            "gave up"
        } else {
            "was answered"
        }
    });
    let concurrent = Tool::new("concurrent", move || {
        let finish = finish.clone();
        async move {
            finish.notified().await;
            "concurrent"
        }
    });
    Server::new("upstream", "1.0.0")
        .tool(Tool::new("echo", async |Args(name): Args<Name>| name.name))
        .tool(slow)
        .tool(noisy)
        .tool(ask)
        .tool(gives_up)
        .tool(concurrent)
}

fn bridge(server: Server, version: &'static str, records: Records) -> Bridge {
    let target = Target::new("upstream", move |_| {
        let (near, far) = wire::memory();
        tokio::spawn(server.clone().serve(far));
        let (recording, record) = RecordingWire::new(near);
        records.lock().unwrap().push(record);
        Ok(Client::from_wire(recording).protocol_version(version))
    });
    Bridge::builder(target).park_timeout(PARK_TIMEOUT).build()
}

fn connect(front: Front, bridge: &Bridge, service: &HttpService) -> ClientBuilder {
    let over = |http: HyperClient| Client::connect("http://localhost/mcp").http_client(http);
    let connect = match front {
        Front::Http(_) | Front::HttpSse => {
            over(HyperClient::with_connector(PipeConnector::to(service)))
        }
        Front::Http2(_) => over(HyperClient::with_http2_connector(PipeConnector::to(
            service,
        ))),
        Front::Wire(_) => {
            let (near, far) = wire::memory();
            tokio::spawn(bridge.wire().serve(far));
            Client::from_wire(near)
        }
    };
    connect.protocol_version(front.version())
}

fn sent(records: &Records, method: &str) -> Vec<Value> {
    let records = records.lock().unwrap();
    let frames = records.iter().flat_map(WireRecord::sent);
    frames.filter(|frame| frame["method"] == method).collect()
}

/// Returns the ids of the calls of a tool.
fn called(records: &Records, tool: &str) -> Vec<Value> {
    let calls = sent(records, "tools/call").into_iter();
    let of_tool = calls.filter(|call| call["params"]["name"] == tool);
    of_tool.map(|call| call["id"].clone()).collect()
}
