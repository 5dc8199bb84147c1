//! A client, a bridge and a server, with a concurrent call in flight from beginning to end.

use std::time::Duration;

use bowline::client::{ClientBuilder, Host};
use bowline::http::HttpService;
use bowline::http::client::HyperClient;
use bowline::prelude::*;
use bowline::testing::{
    HandlerCounter, PipeConnector, RecordedEvent, ResourceCounts, WireRecord, eventually,
};
use bowline::types::ElicitResult;
use bowline::{Call, Reply, wire};
use bowline_bridge::{Bridge, Target};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::column::{CancelForm, Front, Upstream};
use super::server::{Connections, ServerCounters};

pub(crate) struct Cell {
    pub(crate) front: Front,
    pub(crate) upstream: Upstream,
    pub(crate) client: Client,
    pub(crate) counters: ServerCounters,
    /// The questions that the client was asked.
    pub(crate) host: HandlerCounter,
    connections: Connections,
    bridge: Bridge,
    service: HttpService,
    before: ResourceCounts,
    concurrent: JoinHandle<bowline::Result<Reply>>,
}

impl Cell {
    pub(crate) async fn open(front: Front, upstream: Upstream) -> Self {
        let before = ResourceCounts::now();
        let (counters, connections) = (ServerCounters::default(), Connections::default());
        let bridge = bridge(counters.clone(), upstream, connections.clone());
        let service = bridge.http();
        let host = HandlerCounter::default();
        let counter = host.clone();
        let answer = move |_| {
            let counter = counter.clone();
            async move { counter.run(std::future::pending::<ElicitResult>()).await }
        };
        let connect = connect(front, &bridge, &service).host(Host::new().elicitation(answer));
        let client = connect.await.unwrap();
        let concurrent = tokio::spawn(client.call_tool("concurrent", ()).start());
        let is_called = || called(&connections, "concurrent").len() == 1;
        assert!(eventually(is_called).await);
        Self {
            front,
            upstream,
            client,
            counters,
            host,
            connections,
            bridge,
            service,
            before,
            concurrent,
        }
    }

    /// Starts a call of a tool, and waits until its handler runs.
    pub(crate) async fn in_flight(&self, tool: &str) -> Call {
        self.poll_into_handler(self.client.call_tool(tool, ()).start())
            .await
    }

    pub(crate) async fn poll_into_handler(&self, mut call: Call) -> Call {
        let handlers = &self.counters.handlers;
        let started = handlers.counts().started + 1;
        tokio::select! {
            reply = &mut call => panic!("the call ended: {reply:?}"),
            _ = handlers.wait_for(|counts| counts.started == started) => call,
        }
    }

    /// Lets time pass. The clock runs only if the server is another process.
    pub(crate) async fn pass(&self, duration: Duration) {
        if self.upstream.is_process() {
            tokio::time::pause();
        }
        tokio::time::advance(duration).await;
        if self.upstream.is_process() {
            tokio::time::resume();
        }
    }

    /// Ends the server, as if its process were killed.
    pub(crate) fn cut(&self) {
        self.connections.cut(&self.counters, self.upstream);
    }

    /// Returns how many messages with this method the server got.
    pub(crate) fn received(&self, method: &str) -> usize {
        let records = self.connections.records();
        let messages = records.iter().flat_map(WireRecord::received);
        messages.filter(|it| it["method"] == method).count()
    }

    /// Asserts that the server got the call of `tool`, and exactly one cancel, of that call and in the form of its wire.
    /// Returns the reason, if that form has one.
    pub(crate) async fn expect_cancel(&self, tool: &str) -> Option<String> {
        let is_dropped = eventually(|| {
            let counts = self.counters.handlers.counts();
            counts.dropped == 1 && counts.started == 1
        });
        assert!(is_dropped.await, "{:?}", self.counters.handlers.counts());
        let [(id, record)] = &called(&self.connections, tool)[..] else {
            panic!("not called once");
        };
        let reason = self.expect_form(id, record);
        let answers = answers(record, id);
        match self.upstream.cancel_form() {
            CancelForm::PostedMessage => {
                let is_end = |answer: &Value| answer["error"]["code"] == -32800;
                assert!(
                    answers.iter().all(is_end) && answers.len() < 2,
                    "{answers:?}"
                );
            }
            CancelForm::Message | CancelForm::Close => assert_eq!(answers, [Value::Null; 0]),
        }
        reason
    }

    /// Asserts that no call was cancelled.
    pub(crate) fn expect_no_cancel(&self) {
        assert_eq!(self.received("notifications/cancelled"), 0);
        let records = self.connections.records();
        assert_eq!(records.iter().flat_map(closed).count(), 0);
    }

    fn expect_form(&self, id: &Value, record: &WireRecord) -> Option<String> {
        let records = self.connections.records();
        let all_closed = records.iter().flat_map(closed).count();
        let cancels = self.received("notifications/cancelled");
        if self.upstream.cancel_form() == CancelForm::Close {
            assert_eq!((cancels, all_closed), (0, 1));
            assert_eq!(closed(record), std::slice::from_ref(id));
            return None;
        }
        assert_eq!((cancels, all_closed), (1, 0));
        let mut messages = record.received().into_iter();
        let cancel = messages.find(|it| it["method"] == "notifications/cancelled");
        let cancel = cancel.expect("on the connection of the call");
        assert_eq!(cancel["params"]["requestId"], *id);
        let reason = cancel["params"]["reason"].as_str();
        Some(reason.unwrap_or_default().to_owned())
    }

    /// Asserts that the concurrent call has its own result, that a next call works, and that nothing is left.
    pub(crate) async fn end(mut self) {
        self.connections.finish(&self.counters);
        let concurrent = (&mut self.concurrent).await.unwrap().unwrap();
        assert_eq!(concurrent.text(), "concurrent");
        self.end_after_loss().await;
    }

    /// The same, after the concurrent call has failed or was dropped.
    pub(crate) async fn end_after_loss(self) {
        let next = self.client.call_tool("echo", json!({"name": "next"}));
        assert_eq!(next.await.unwrap().text(), "next");
        self.close_with(async |client| client.close().await.unwrap())
            .await;
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

    /// Returns the error of the concurrent call, which was lost with the server.
    pub(crate) async fn concurrent_error(&mut self) -> String {
        let lost = (&mut self.concurrent).await.unwrap();
        lost.unwrap_err().to_string()
    }

    async fn close_with(self, close: impl AsyncFnOnce(Client)) {
        let Self {
            client,
            bridge,
            service,
            counters,
            concurrent,
            connections,
            ..
        } = self;
        close(client).await;
        let is_unused = || bridge.usage().requests == 0 && bridge.usage().waiting_calls == 0;
        assert!(eventually(is_unused).await, "{:?}", bridge.usage());
        assert!(eventually(|| service.in_flight() == 0).await);
        for counter in [&counters.handlers, &counters.subscriptions] {
            let all_ended = || {
                let counts = counter.counts();
                counts.started == counts.dropped + counts.finished
            };
            assert!(eventually(all_ended).await, "{:?}", counter.counts());
        }
        if self.upstream.is_process() {
            bridge.close().await;
        }
        drop((bridge, service, concurrent, connections));
        let before = self.before;
        let is_clean = || match self.upstream.is_process() {
            true => ResourceCounts::now() == before,
            // In memory, and next to other cells of the same process.
            false => ResourceCounts::now().tasks == before.tasks,
        };
        let is_clean = eventually(is_clean).await;
        assert!(is_clean, "{before:?}, then {:?}", ResourceCounts::now());
    }
}

fn bridge(counters: ServerCounters, upstream: Upstream, connections: Connections) -> Bridge {
    let target = Target::new("upstream", move |_| {
        Ok(connections.connect(&counters, upstream))
    });
    Bridge::builder(target)
        .park_timeout(PARK_TIMEOUT)
        // A call is asked while another one runs, of clients that the bridge cannot tell apart.
        .max_connections_each(4)
        .build()
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

/// Returns the ids of the calls of a tool, each with the record of its connection.
fn called(connections: &Connections, tool: &str) -> Vec<(Value, WireRecord)> {
    let mut calls = Vec::new();
    for record in connections.records() {
        let messages = record.received().into_iter();
        let of_tool =
            messages.filter(|it| it["method"] == "tools/call" && it["params"]["name"] == tool);
        calls.extend(of_tool.map(|call| (call["id"].clone(), record.clone())));
    }
    calls
}

/// Returns the ids of the calls whose responses were closed before their end.
fn closed(record: &WireRecord) -> Vec<Value> {
    let closed = record.events().into_iter().filter_map(|event| match event {
        RecordedEvent::Closed(request) | RecordedEvent::Reset(request) => Some(request.json()),
        _ => None,
    });
    let calls = closed.filter(|request| request["method"] == "tools/call");
    calls.map(|request| request["id"].clone()).collect()
}

fn answers(record: &WireRecord, id: &Value) -> Vec<Value> {
    let mut sent = record.sent();
    sent.retain(|it| it["id"] == *id && it.get("method").is_none());
    sent
}

pub(crate) const PARK_TIMEOUT: Duration = Duration::from_secs(30);
