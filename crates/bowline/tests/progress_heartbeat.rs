//! Heartbeats restart the timers of clients while a handler is silent, and progress still only increases.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::exchange::{
    Caller, Channel, ConnectionState, Dialect, Notification, NotificationSink, Request,
};
use bowline::layer::ProgressHeartbeat;
use bowline::{Client, Context, Error, Progress, Reply, Server, Tool, wire};
use serde_json::json;
use tokio::time::{Instant, sleep};

const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";

/// The second of arrival, and the value, of each report.
type Reports = Vec<(u64, f64)>;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Calls the only tool of `server` without timeouts, and returns its reports.
async fn reports(server: Server, version: &str) -> Reports {
    let client = Client::in_process(&server).protocol_version(version);
    reports_of(&client.await.unwrap()).await.0
}

async fn reports_of(client: &Client) -> (Reports, Vec<Option<f64>>) {
    let reports = Arc::new(Mutex::new((Vec::new(), Vec::new())));
    let (seen, started) = (reports.clone(), Instant::now());
    let call = client.call_tool("tool", ()).idle_timeout(Duration::MAX);
    let reply = call.on_progress(move |report| {
        assert_eq!(report.message, None);
        let mut seen = seen.lock().unwrap();
        seen.0.push((started.elapsed().as_secs(), report.progress));
        seen.1.push(report.total);
    });

    assert_eq!(reply.await.unwrap().text(), "done");

    Arc::try_unwrap(reports).unwrap().into_inner().unwrap()
}

fn server<F>(handler: impl Fn(Context) -> F + Clone + Send + Sync + 'static) -> Server
where
    F: Future<Output = ()> + Send + 'static,
{
    let tool = Tool::new("tool", move |cx: Context| {
        let handled = handler(cx);
        async move {
            handled.await;
            "done"
        }
    });
    Server::new("silent", "1.0.0").tool(tool)
}

fn with_heartbeat<F>(handler: impl Fn(Context) -> F + Clone + Send + Sync + 'static) -> Server
where
    F: Future<Output = ()> + Send + 'static,
{
    server(handler).layer(ProgressHeartbeat::new())
}

fn send_raw(cx: &Context, progress: f64) {
    let params = json!({"progressToken": cx.progress_token(), "progress": progress});
    cx.send(Notification::new(
        "notifications/progress",
        Some(params.into()),
    ));
}

fn at(reports: &Reports) -> Vec<u64> {
    reports.iter().map(|(second, _)| *second).collect()
}

#[track_caller]
fn assert_increasing(reports: &Reports) {
    let increases = reports.is_sorted_by(|(_, one), (_, next)| one < next);
    assert!(increases, "{reports:?}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_handler_gets_one_every_20_s() {
    let reports = reports(with_heartbeat(|_| sleep(seconds(70))), LEGACY).await;

    assert_eq!(at(&reports), [20, 40, 60]);
    assert_eq!(reports[0].1, 1e-9);
    assert_increasing(&reports);
}

#[tokio::test(start_paused = true)]
async fn without_the_layer_there_are_none() {
    assert!(
        reports(server(|_| sleep(seconds(70))), LEGACY)
            .await
            .is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn real_progress_restarts_the_silence() {
    for is_raw in [false, true] {
        let handler = move |cx: Context| async move {
            for done in [0.0, 1.0] {
                match is_raw {
                    true => send_raw(&cx, done),
                    false => cx.progress(done),
                }
                sleep(seconds(15)).await;
            }
            sleep(seconds(10)).await;
        };

        let reports = reports(with_heartbeat(handler), LEGACY).await;

        let expected = [(0, 0.0), (15, 1.0), (35, 1.0 + f64::EPSILON)];
        assert_eq!(reports, expected, "raw: {is_raw}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_real_value_that_is_not_above_the_last_heartbeat_is_dropped() {
    for is_raw in [false, true] {
        let handler = move |cx: Context| async move {
            let report = |value: f64| match is_raw {
                true => send_raw(&cx, value),
                false => cx.progress(value),
            };
            report(5.0);
            sleep(seconds(50)).await;
            for value in [f64::NAN, 5.0, 5.0 + f64::EPSILON, 6.0] {
                report(value);
            }
            sleep(seconds(15)).await;
        };

        let reports = reports(with_heartbeat(handler), LEGACY).await;

        assert_eq!(at(&reports), [0, 20, 40, 50], "raw: {is_raw}");
        assert_eq!(reports[3].1, 6.0);
        assert_increasing(&reports);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_value_does_not_restart_the_silence() {
    let handler = |cx: Context| async move {
        cx.progress(5);
        for _ in 0..3 {
            sleep(seconds(15)).await;
            cx.progress(5);
        }
    };

    assert_eq!(
        at(&reports(with_heartbeat(handler), LEGACY).await),
        [0, 20, 40]
    );
}

#[tokio::test(start_paused = true)]
async fn they_carry_the_last_total_until_they_exceed_it() {
    let handler = |cx: Context| async move {
        for done in [4, 10] {
            cx.progress(Progress::new(done).total(10));
            sleep(seconds(30)).await;
        }
    };
    let server = with_heartbeat(handler);
    let client = Client::in_process(&server).protocol_version(LEGACY);

    let (_, totals) = reports_of(&client.await.unwrap()).await;

    assert_eq!(totals, [Some(10.0), Some(10.0), Some(10.0), None]);
}

#[tokio::test(start_paused = true)]
async fn they_stop_after_the_limit_and_continue_after_a_real_report() {
    let heartbeat = ProgressHeartbeat::new()
        .after(seconds(10))
        .limit(seconds(25));
    let handler = |cx: Context| async move {
        sleep(seconds(100)).await;
        cx.progress(1);
        sleep(seconds(100)).await;
    };

    let reports = reports(server(handler).layer(heartbeat), LEGACY).await;

    assert_eq!(at(&reports), [10, 20, 100, 110, 120]);
    assert_increasing(&reports);
}

#[tokio::test(start_paused = true)]
async fn the_limit_is_an_hour_by_default() {
    let reports = reports(with_heartbeat(|_| sleep(seconds(3 * 3600))), LEGACY).await;

    assert_eq!(reports.len(), 179);
    assert_increasing(&reports);
}

#[tokio::test(start_paused = true)]
async fn no_number_is_above_the_greatest() {
    let handler = |cx: Context| async move {
        cx.progress(f64::MAX);
        sleep(seconds(70)).await;
    };

    let reports = reports(with_heartbeat(handler), LEGACY).await;

    assert_eq!(reports, [(0, f64::MAX)]);
}

#[tokio::test(start_paused = true)]
async fn a_modern_caller_gets_them_only_if_the_layer_is_told_so() {
    let handler = |_| sleep(seconds(30));
    let all = server(handler).layer(ProgressHeartbeat::new().all_versions());

    assert!(reports(with_heartbeat(handler), MODERN).await.is_empty());
    assert_eq!(at(&reports(all, MODERN).await), [20]);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_token_gets_none() {
    let server = with_heartbeat(|_| sleep(seconds(70)));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let methods = seen.clone();
    let client = Client::in_process(&server)
        .protocol_version(LEGACY)
        .on_notification(move |it| methods.lock().unwrap().push(it.method.to_string()));
    let client = client.await.unwrap();

    let silent = client.call_tool("tool", ()).await;

    assert!(matches!(silent, Err(Error::Timeout { .. })));
    assert!(seen.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_layer_of_a_tool_and_of_the_server_work_together() {
    let tool = Tool::new("tool", async || {
        sleep(seconds(35)).await;
        "done"
    });
    let tool = tool.layer(
        ProgressHeartbeat::new()
            .after(seconds(10))
            .limit(seconds(15)),
    );
    let server = Server::new("silent", "1.0.0").tool(tool);

    let reports = reports(server.layer(ProgressHeartbeat::new()), LEGACY).await;

    assert_eq!(at(&reports), [10, 30]);
    assert_increasing(&reports);
}

#[tokio::test(start_paused = true)]
async fn they_keep_a_client_with_an_idle_timeout_waiting_on_a_wire() {
    for (is_on, expected) in [(false, None), (true, Some("done"))] {
        let handler = |_| sleep(seconds(150));
        let server = match is_on {
            true => with_heartbeat(handler),
            false => server(handler),
        };
        let (near, far) = wire::memory();
        tokio::spawn(async move { server.serve(far).await });
        let client = Client::from_wire(near).protocol_version(LEGACY);
        let client = client.idle_timeout(seconds(60)).await.unwrap();

        let reply = client.call_tool("tool", ()).on_progress(|_| {}).await;

        assert_eq!(
            reply.ok().map(|reply: Reply| reply.text()).as_deref(),
            expected
        );
    }
}

/// Counts notifications, also those after a cancel.
#[derive(Default)]
struct CountingSink(AtomicUsize);

impl NotificationSink for CountingSink {
    fn notify(&self, _: Notification) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn back_channel(&self) -> Option<Arc<dyn Channel>> {
        None
    }

    fn connection_state(&self) -> Option<&ConnectionState> {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_handler_that_runs_on_gets_none() {
    let caller = Arc::new(Caller::new(Dialect::LATEST_LEGACY));
    let mut request = Request::new("tools/call", json!({}), caller);
    request.progress_token = Some(1.into());
    let sink = Arc::new(CountingSink::default());
    let cx = Context::new(1.into(), &request, sink.clone());
    let handler = async {
        sleep(seconds(50)).await;
        cx.control().cancel();
        sleep(seconds(50)).await;
    };

    ProgressHeartbeat::new().run(&cx, handler).await;

    assert_eq!(sink.0.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_drops_its_heartbeat() {
    let held = Arc::new(());
    let weak = Arc::downgrade(&held);
    let held = Mutex::new(Some(held));
    let server = Server::new("silent", "1.0.0").tool(Tool::new("tool", move || {
        let held = held.lock().unwrap().take();
        async move {
            let _held = held;
            std::future::pending::<&str>().await
        }
    }));
    let server = server.layer(ProgressHeartbeat::new());
    let client = Client::in_process(&server).protocol_version(LEGACY);
    let client = client.await.unwrap();
    let call = client.call_tool("tool", ()).idle_timeout(Duration::MAX);

    let call = tokio::time::timeout(seconds(50), call.on_progress(|_| {}).into_future()).await;

    assert!(call.is_err());
    tokio::task::yield_now().await;
    assert!(weak.upgrade().is_none());
}
