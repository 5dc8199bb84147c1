//! The client's side of input requests: hosts, concurrency, timeouts and the limit of rounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bowline::client::Host;
use bowline::exchange::{Context, Responder};
use bowline::types::{CreateMessageResult, ElicitResult, ErrorCode, RpcError, TextContent};
use bowline::{CallToolResult, Client, Error, Json, Server, Tool};
use bowline_core::era::Request;
use serde_json::json;
use tokio::sync::Barrier;
use tokio::time::{sleep, timeout};

use super::{
    CONFIGURATIONS, HostLog, MODERN, TextForm, connect, modern_client, replying_host, server,
};

/// A server that answers every request with the result of a function.
fn respond_with<J: Into<Json>>(
    answer: impl Fn(&Request) -> J + Clone + Send + Sync + 'static,
) -> impl Responder + Clone {
    move |request: Request, _: Context| std::future::ready(Ok(answer(&request).into()))
}

#[tokio::test(start_paused = true)]
async fn the_elicitations_of_a_round_are_answered_concurrently() {
    for config in CONFIGURATIONS {
        // The host answers neither elicitation of the second round before it has received both.
        let both = Arc::new(Barrier::new(2));
        let host = Host::new().elicitation(move |form| {
            let both = both.clone();
            async move {
                if form.message.starts_with("A ") {
                    both.wait().await;
                }
                ElicitResult::accept(json!({"text": "yes"}))
            }
        });
        let client = connect(&server(), host, config).await;

        let call = client.call_tool("order", ());
        let reply = timeout(Duration::from_secs(3600), call).await;

        let reply = reply.unwrap().unwrap();
        assert_eq!(reply.text(), "yes and yes for yes: yes", "{config:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_timeout_of_a_call_is_paused_while_the_host_decides() {
    for config in CONFIGURATIONS {
        let host = Host::new().elicitation(async |_| {
            let thinking = std::future::pending::<()>();
            let _ = timeout(Duration::from_secs(4 * 60), thinking).await;
            ElicitResult::accept(json!({"text": "yes"}))
        });
        let client = connect(&server(), host, config).await;

        let reply = client
            .call_tool("order", ())
            .idle_timeout(Duration::from_secs(60))
            .timeout(Duration::from_secs(90))
            .await;

        assert_eq!(
            reply.unwrap().text(),
            "yes and yes for yes: yes",
            "{config:?}"
        );
    }
}

/// A spawned task elicits, so that nothing but the answer to it can resume the timeout.
#[tokio::test(start_paused = true)]
async fn the_timeout_of_a_call_resumes_when_the_host_has_decided() {
    for config in CONFIGURATIONS
        .into_iter()
        .filter(|(version, _)| *version != MODERN)
    {
        let stuck = Tool::raw("stuck", json!({"type": "object"}), async |_, cx| {
            tokio::spawn(async move { cx.elicit::<TextForm>("name", "Who?").await });
            std::future::pending().await
        });
        let host = Host::new().elicitation(async |_| {
            let thinking = std::future::pending::<()>();
            let _ = timeout(Duration::from_secs(4 * 60), thinking).await;
            ElicitResult::accept(json!({"text": "yes"}))
        });
        let client = connect(&Server::new("stuck", "1.0.0").tool(stuck), host, config).await;
        let minute = Duration::from_secs(60);
        for (idle, total) in [(minute, Duration::MAX), (Duration::MAX, minute)] {
            let begun = tokio::time::Instant::now();

            let call = client.call_tool("stuck", ());
            let call = call.idle_timeout(idle).timeout(total);
            let reply = timeout(60 * minute, call).await;

            let reply = reply.expect("the call ends");
            assert!(
                matches!(reply, Err(Error::Timeout { after }) if after == minute),
                "{config:?}: {reply:?}"
            );
            assert_eq!(begun.elapsed(), 5 * minute, "{config:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_input_request_without_its_capability_is_a_protocol_error_and_never_reaches_the_host() {
    let server = respond_with(|_| {
        json!({
            "resultType": "input_required",
            "inputRequests": {
                "a": {"method": "elicitation/create",
                      "params": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}},
                "b": {"method": "roots/list"},
            },
        })
    });
    let host_log = HostLog::default();
    let host = replying_host(&host_log);
    let client = modern_client(&server, host).await;

    let error = client.call_tool("any", ()).await.unwrap_err();

    assert!(
        matches!(&error, Error::Protocol { what, .. } if what.contains("input request `b`")),
        "{error}"
    );
    assert_eq!(host_log.all(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn rounds_are_limited_and_delayed_with_backoff() {
    let count = Arc::new(AtomicU32::new(0));
    let counter = count.clone();
    let server = respond_with(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        json!({"resultType": "input_required", "requestState": "again"})
    });
    let client = Client::in_process(&server)
        .protocol_version(MODERN)
        .max_rounds(3)
        .await
        .unwrap();
    let start = tokio::time::Instant::now();

    let error = client.call_tool("any", ()).await.unwrap_err();

    assert!(error.to_string().contains("more than 3 times"), "{error}");
    assert_eq!(count.load(Ordering::Relaxed), 4);
    assert_eq!(start.elapsed().as_millis(), 100 + 200 + 400);
}

#[tokio::test(start_paused = true)]
async fn the_total_timeout_covers_all_rounds_and_the_delays_between_them() {
    let server = respond_with(|_| json!({"resultType": "input_required", "requestState": "again"}));
    let client = Client::in_process(&server)
        .protocol_version(MODERN)
        .await
        .unwrap();
    let start = tokio::time::Instant::now();
    let total = Duration::from_millis(500);

    let error = client.call_tool("any", ()).timeout(total).await;

    assert!(
        matches!(error, Err(Error::Timeout { after }) if after == total),
        "{error:?}"
    );
    // After delays of 100 ms and 200 ms, one of 400 ms would exceed the timeout.
    assert_eq!(start.elapsed().as_millis(), 100 + 200);
}

#[tokio::test(start_paused = true)]
async fn the_total_timeout_applies_to_the_sum_of_all_rounds() {
    let slow = Tool::raw("slow", json!({"type": "object"}), async |_, cx: Context| {
        for _ in 0..3 {
            sleep(Duration::from_secs(2)).await;
            let _: TextForm = cx.elicit("more", "More?").await?;
        }
        Ok(CallToolResult::text("done"))
    });
    let server = Server::new("slow", "1").tool(slow);
    for config in CONFIGURATIONS {
        let host = Host::new().elicitation(|_| async {
            sleep(Duration::from_secs(60)).await; // does not count towards the timeouts
            ElicitResult::accept(json!({"text": "yes"}))
        });
        let client = connect(&server, host, config).await;
        // In the modern era the handler runs again in each round: 2 s, then 4 s, then 6 s, then 6 s.
        let spent = if config.0 == MODERN { 18 } else { 6 };
        let call = |total| {
            let call = client
                .call_tool("slow", ())
                .idle_timeout(Duration::from_secs(100));
            call.timeout(Duration::from_secs(total)).into_future()
        };

        let short = call(spent - 1).await;
        let enough = call(spent + 1).await;

        let total = Duration::from_secs(spent - 1);
        assert!(
            matches!(short, Err(Error::Timeout { after }) if after == total),
            "{config:?}: {short:?}"
        );
        assert_eq!(enough.unwrap().text(), "done", "{config:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_request_state_is_returned_byte_for_byte() {
    let odd = r#""\u0041/\/ é\n""#;
    let server = respond_with(move |request| {
        let text = request.params.as_str();
        if text.contains("requestState") {
            assert!(text.contains(&format!(r#""requestState":{odd}"#)), "{text}");
            return Json::from(json!({"content": []}));
        }
        // Not `json!`, which would normalize the escapes.
        let result = format!(r#"{{"resultType":"input_required","requestState":{odd}}}"#);
        Json::parse(result).unwrap()
    });
    let client = Client::in_process(&server)
        .protocol_version(MODERN)
        .await
        .unwrap();

    client.call_tool("any", ()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_host_error_ends_the_call() {
    let server = respond_with(|_| {
        let params = json!({"messages": [], "maxTokens": 1});
        let question = json!({"method": "sampling/createMessage", "params": params});
        json!({"resultType": "input_required", "inputRequests": {"write": question}})
    });
    let host = Host::new().sampling(async |params| match params.messages.len() {
        0 => Err(RpcError::new(ErrorCode::USER_REJECTED, "not today")),
        _ => Ok(CreateMessageResult::new("m", TextContent::new(""))),
    });
    let client = modern_client(&server, host).await;

    let error = client.call_tool("any", ()).await.unwrap_err();

    assert_eq!(
        error.to_string(),
        "call cancelled: the host refused `write`: not today"
    );
}

#[tokio::test]
async fn roots_changed_without_its_capability_is_misuse() {
    for config in CONFIGURATIONS {
        let host = Host::new().roots(async || vec![]);
        let client = connect(&server(), host, config).await;

        let result = client.roots_changed();

        assert!(matches!(result, Err(Error::Misuse { .. })), "{result:?}");
    }
}

#[tokio::test]
async fn a_modern_server_gets_no_roots_changed_notification() {
    let notifications = Arc::new(AtomicU32::new(0));
    let count = notifications.clone();
    let server = server().on_roots_changed(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let host = Host::new().roots(async || vec![]).roots_list_changed();
    let client = modern_client(&server, host).await;

    client.roots_changed().unwrap();

    assert_eq!(notifications.load(Ordering::Relaxed), 0);
}
