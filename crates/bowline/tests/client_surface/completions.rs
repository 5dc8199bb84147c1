//! Results that an extension obtains for a request of another time: `Client::complete_with`.

use std::time::Duration;

use bowline::client::{ClientExtension, ExtensionCall, Host};
use bowline::exchange::BoxFuture;
use bowline::types::ElicitResult;
use bowline::{Error, Json, Result};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{modern, modern_with, protocol_error};

fn returns(result: Value) -> impl FnOnce(ExtensionCall) -> BoxFuture<'static, Result<Json>> {
    move |_| Box::pin(async { Ok(result.into()) })
}

#[tokio::test(start_paused = true)]
async fn the_output_is_validated_as_a_result_of_the_method_which_is_not_sent() {
    let (client, mut server) = modern().await;
    let schema = json!({"type": "object", "required": ["n"]});
    let tool = json!({"name": "t", "inputSchema": {"type": "object"}, "outputSchema": schema});
    let listing = client.list_tools().into_future();
    let script = async {
        server
            .expect("tools/list")
            .await
            .answer(json!({"tools": [tool]}))
    };
    let _ = tokio::join!(listing, script).0.unwrap();
    let params = || json!({"name": "t"});

    let good = json!({"content": [], "structuredContent": {"n": 1}});
    let reply = client
        .complete_with("tools/call", params(), returns(good))
        .await;
    assert_eq!(
        reply.unwrap().structured::<Value>().unwrap(),
        json!({"n": 1})
    );

    for (bad, expected) in [
        (json!({"content": [], "structuredContent": {}}), "`t`"),
        (
            json!({"resultType": "input_required"}),
            "expected a complete result",
        ),
        (json!(7), "expected a complete result"),
    ] {
        let error = client
            .complete_with("tools/call", params(), returns(bad))
            .await;
        let error = error.unwrap_err();
        assert!(protocol_error(&error).contains(expected), "{error:?}");
    }
    server.expect_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn the_timeouts_and_the_progress_callback_are_those_of_a_call() {
    let (client, _server) = modern().await;
    let waits = |cx: ExtensionCall| -> BoxFuture<'static, Result<Json>> {
        Box::pin(async move {
            for step in 1..=3 {
                sleep(Duration::from_secs(6)).await;
                cx.progress(step);
            }
            std::future::pending().await
        })
    };
    let (progress, reported) = std::sync::mpsc::channel();

    let call = client
        .complete_with("tools/call", (), waits)
        .idle_timeout(Duration::from_secs(10));
    let call = call.on_progress(move |report| {
        let _ = progress.send(report.progress);
    });
    let began = Instant::now();
    let idle = call.await.unwrap_err();
    let total = client
        .complete_with("tools/call", (), waits)
        .timeout(Duration::from_secs(7));
    let total = total.await.unwrap_err();

    assert!(
        matches!(idle, Error::Timeout { after } if after.as_secs() == 10),
        "{idle:?}"
    );
    assert!(
        matches!(total, Error::Timeout { after } if after.as_secs() == 7),
        "{total:?}"
    );
    assert_eq!(began.elapsed().as_secs(), 18 + 10 + 7);
    assert_eq!(reported.iter().collect::<Vec<_>>(), [1.0, 2.0, 3.0]);
}

#[tokio::test(start_paused = true)]
async fn the_host_answers_and_a_cancel_drops_the_future() {
    let host = Host::new().elicitation(async |_| ElicitResult::accept(json!({"n": 3})));
    let (client, mut server) = modern_with(|connect| connect.host(host)).await;
    let form = json!({"method": "elicitation/create", "params": {
        "mode": "form", "message": "How many?", "requestedSchema": {"type": "object", "properties": {}},
    }});
    let asks = move |cx: ExtensionCall| -> BoxFuture<'static, Result<Json>> {
        Box::pin(async move {
            let answers = cx.answer_input(&json!({"k": form})).await?;
            Ok(json!({"content": [{"type": "text", "text": answers["k"].as_str()}]}).into())
        })
    };
    let reply = client.complete_with("tools/call", (), asks).await.unwrap();
    assert!(reply.text().contains(r#""n":3"#), "{}", reply.text());

    let (sender, reason) = std::sync::mpsc::channel();
    let mut call = client
        .complete_with("tools/call", (), move |cx| {
            struct Reports(ExtensionCall, std::sync::mpsc::Sender<Option<String>>);
            impl Drop for Reports {
                fn drop(&mut self) {
                    drop(self.1.send(self.0.cancel_reason()));
                }
            }
            let reports = Reports(cx, sender);
            Box::pin(async move {
                let _reports = reports;
                std::future::pending().await
            })
        })
        .start();
    let pending = tokio::time::timeout(Duration::from_secs(1), &mut call).await;
    assert!(pending.is_err());
    assert_eq!(call.request().method, "tools/call");
    call.cancel("enough");
    assert_eq!(reason.recv().unwrap().as_deref(), Some("enough"));
    server.expect_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn an_extension_is_found_by_its_type() {
    struct Tickets(u32);
    struct Other;
    impl ClientExtension for Tickets {
        fn id(&self) -> &str {
            "com.example/tickets"
        }
    }
    impl ClientExtension for Other {
        fn id(&self) -> &str {
            "com.example/other"
        }
    }
    let (client, _server) = modern_with(|connect| connect.extension(Tickets(3))).await;

    assert_eq!(
        client.extension::<Tickets>().map(|tickets| tickets.0),
        Some(3)
    );
    assert!(client.extension::<Other>().is_none());
}
