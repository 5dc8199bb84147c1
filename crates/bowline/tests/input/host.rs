//! The client's side: who answers, how many at once, and how often.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bowline::client::Host;
use bowline::exchange::{BoxFuture, Context, Responder};
use bowline::types::{CreateMessageResult, ElicitResult, ErrorCode, RpcError, TextContent};
use bowline::{CallToolResult, Client, Error, Json, Server, Tool};
use bowline_core::Outcome;
use bowline_core::era::Request;
use serde_json::json;
use tokio::sync::Barrier;
use tokio::time::{sleep, timeout};

use super::{COLUMNS, Heard, MODERN, Said, connect, replying, server};

/// A server that answers whatever it is told to.
#[derive(Clone)]
struct Says(Arc<dyn Fn(&Request) -> Json + Send + Sync>);

impl Responder for Says {
    fn respond<'a>(&'a self, request: Request, _: Context) -> BoxFuture<'a, Outcome> {
        let result = (self.0)(&request);
        Box::pin(async { Ok(result) })
    }

    fn roots_changed(&self, _: &bowline::exchange::Caller) {}
}

fn says<J: Into<Json>>(answer: impl Fn(&Request) -> J + Send + Sync + 'static) -> Says {
    Says(Arc::new(move |request| answer(request).into()))
}

#[tokio::test(start_paused = true)]
async fn the_questions_of_a_round_are_answered_side_by_side() {
    for column in COLUMNS {
        // Both questions of the second round must be with the host for either to be answered.
        let both = Arc::new(Barrier::new(2));
        let host = Host::new().elicitation(move |form| {
            let both = both.clone();
            async move {
                if form.message.starts_with("A ") {
                    both.wait().await;
                }
                ElicitResult::accept(json!({"said": "yes"}))
            }
        });
        let client = connect(&server(), host, column).await;

        let call = client.call_tool("order", ());
        let reply = timeout(Duration::from_secs(3600), call).await;

        let reply = reply.unwrap().unwrap();
        assert_eq!(reply.text(), "yes and yes for yes: yes", "{column:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_clock_of_a_call_stands_still_while_the_host_decides() {
    for column in COLUMNS {
        let host = Host::new().elicitation(async |_| {
            let thinking = std::future::pending::<()>();
            let _ = timeout(Duration::from_secs(4 * 60), thinking).await;
            ElicitResult::accept(json!({"said": "yes"}))
        });
        let client = connect(&server(), host, column).await;

        let reply = client
            .call_tool("order", ())
            .timeout(Duration::from_secs(60))
            .await;

        assert_eq!(
            reply.unwrap().text(),
            "yes and yes for yes: yes",
            "{column:?}"
        );
    }
}

/// The question is asked by a task of the handler's own, so that nothing but its answer tells that time counts again.
#[tokio::test(start_paused = true)]
async fn the_clock_goes_on_when_the_host_has_decided() {
    for column in COLUMNS
        .into_iter()
        .filter(|(version, _)| *version != MODERN)
    {
        let stuck = Tool::raw("stuck", json!({"type": "object"}), async |_, cx| {
            tokio::spawn(async move { cx.elicit::<Said>("name", "Who?").await });
            std::future::pending().await
        });
        let host = Host::new().elicitation(async |_| {
            let thinking = std::future::pending::<()>();
            let _ = timeout(Duration::from_secs(4 * 60), thinking).await;
            ElicitResult::accept(json!({"said": "yes"}))
        });
        let client = connect(&Server::new("stuck", "1.0.0").tool(stuck), host, column).await;
        let begun = tokio::time::Instant::now();

        let call = client
            .call_tool("stuck", ())
            .timeout(Duration::from_secs(60));
        let reply = timeout(Duration::from_secs(3600), call).await;

        let reply = reply.expect("the call ends");
        assert!(matches!(reply, Err(Error::Timeout { .. })), "{column:?}");
        assert_eq!(begun.elapsed().as_secs(), 5 * 60, "{column:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_what_was_not_declared_breaks_the_protocol_and_nobody_is_asked() {
    let server = says(|_| {
        json!({
            "resultType": "input_required",
            "inputRequests": {
                "a": {"method": "elicitation/create",
                      "params": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}},
                "b": {"method": "roots/list"},
            },
        })
    });
    let heard = Heard::default();
    let host = replying(&heard);
    let client = Client::to(&server)
        .speaking(MODERN)
        .host(host)
        .await
        .unwrap();

    let error = client.call_tool("any", ()).await.unwrap_err();

    assert!(
        matches!(&error, Error::Protocol { what, .. } if what.contains("asked `b`")),
        "{error}"
    );
    assert_eq!(heard.all(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_server_may_ask_again_only_so_often_and_each_time_a_little_later() {
    let count = Arc::new(AtomicU32::new(0));
    let counter = count.clone();
    let server = says(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        json!({"resultType": "input_required", "requestState": "again"})
    });
    let client = Client::to(&server)
        .speaking(MODERN)
        .most_rounds(3)
        .await
        .unwrap();
    let start = tokio::time::Instant::now();

    let error = client.call_tool("any", ()).await.unwrap_err();

    assert!(error.to_string().contains("more than 3 times"), "{error}");
    assert_eq!(count.load(Ordering::Relaxed), 4);
    assert_eq!(start.elapsed().as_millis(), 100 + 200 + 400);
}

#[tokio::test(start_paused = true)]
async fn the_total_deadline_is_that_of_all_rounds_and_of_the_pauses_between_them() {
    let server = says(|_| json!({"resultType": "input_required", "requestState": "again"}));
    let client = Client::to(&server).speaking(MODERN).await.unwrap();
    let start = tokio::time::Instant::now();
    let total = Duration::from_millis(500);

    let error = client.call_tool("any", ()).total_timeout(total).await;

    assert!(
        matches!(error, Err(Error::Timeout { after }) if after == total),
        "{error:?}"
    );
    // 100 ms and 200 ms were waited for; 400 ms more would have been too long.
    assert_eq!(start.elapsed().as_millis(), 100 + 200);
}

#[tokio::test(start_paused = true)]
async fn rounds_that_each_take_less_than_the_total_deadline_do_not_outlive_it_together() {
    let slow = Tool::raw("slow", json!({"type": "object"}), async |_, cx: Context| {
        for _ in 0..3 {
            sleep(Duration::from_secs(2)).await;
            cx.roots().await?;
        }
        Ok(CallToolResult::text("done"))
    });
    let server = Server::new("slow", "1").tool(slow);
    let host = Host::new().roots(|| async {
        sleep(Duration::from_secs(60)).await; // a person decides
        Vec::new()
    });
    let client = Client::to(&server)
        .speaking(MODERN)
        .host(host)
        .await
        .unwrap();
    let call = |total| {
        let call = client
            .call_tool("slow", ())
            .timeout(Duration::from_secs(100));
        call.total_timeout(Duration::from_secs(total)).into_future()
    };

    let short = call(5).await;
    let enough = call(100).await;

    assert!(matches!(short, Err(Error::Timeout { .. })), "{short:?}");
    assert_eq!(enough.unwrap().text(), "done");
}

#[tokio::test(start_paused = true)]
async fn the_state_goes_back_byte_for_byte() {
    let odd = r#""\u0041/\/ é\n""#;
    let server = says(move |request| {
        let text = request.params.as_str();
        if text.contains("requestState") {
            assert!(text.contains(&format!(r#""requestState":{odd}"#)), "{text}");
            return Json::from(json!({"content": []}));
        }
        // Built as text: its spelling is the point.
        let result = format!(r#"{{"resultType":"input_required","requestState":{odd}}}"#);
        Json::parse(result).unwrap()
    });
    let client = Client::to(&server).speaking(MODERN).await.unwrap();

    client.call_tool("any", ()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_host_that_refuses_ends_the_call() {
    let server = says(|_| {
        let params = json!({"messages": [], "maxTokens": 1});
        let question = json!({"method": "sampling/createMessage", "params": params});
        json!({"resultType": "input_required", "inputRequests": {"write": question}})
    });
    let host = Host::new().sampling(async |params| match params.messages.len() {
        0 => Err(RpcError::new(ErrorCode::USER_REJECTED, "not today")),
        _ => Ok(CreateMessageResult::new("m", TextContent::new(""))),
    });
    let client = Client::to(&server)
        .speaking(MODERN)
        .host(host)
        .await
        .unwrap();

    let error = client.call_tool("any", ()).await.unwrap_err();

    assert_eq!(
        error.to_string(),
        "the call was cancelled: the host did not answer `write`: not today"
    );
}

#[tokio::test]
async fn a_client_that_did_not_promise_to_tell_of_its_roots_does_not() {
    for column in COLUMNS {
        let host = Host::new().roots(async || vec![]);
        let client = connect(&server(), host, column).await;

        let told = client.roots_changed();

        assert!(matches!(told, Err(Error::Misuse { .. })), "{told:?}");
    }
}

#[tokio::test]
async fn a_server_of_the_modern_era_is_not_told_of_changed_roots() {
    let heard = Arc::new(AtomicU32::new(0));
    let count = heard.clone();
    let server = server().on_roots_changed(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let host = Host::new().roots(async || vec![]).roots_change();
    let client = Client::to(&server)
        .speaking(MODERN)
        .host(host)
        .await
        .unwrap();

    client.roots_changed().unwrap();

    assert_eq!(heard.load(Ordering::Relaxed), 0);
}
