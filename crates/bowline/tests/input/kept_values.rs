//! Values that a handler keeps across rounds: `once`, `try_once` and `remember`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bowline::exchange::InputError;
use bowline::types::CallToolResult;
use bowline::{Server, Tool};
use serde_json::json;

use super::{CONFIGURATIONS, HostLog, TextForm, connect, replying_host};

#[tokio::test(start_paused = true)]
async fn an_effect_in_once_runs_once_across_later_rounds() {
    for config in CONFIGURATIONS {
        let charged = Arc::new(AtomicU32::new(0));
        let counter = charged.clone();
        let tool = Tool::raw(
            "pay",
            json!({"type": "object"}),
            move |_, cx: bowline::Context| {
                let counter = counter.clone();
                async move {
                    let _: TextForm = cx.elicit("card", "Which card?").await?;
                    let receipt: u32 = cx
                        .once("charge", async {
                            counter.fetch_add(1, Ordering::Relaxed) + 100
                        })
                        .await?;
                    let _: TextForm = cx.elicit("tip", "A tip?").await?;
                    let _: TextForm = cx.elicit("mail", "A receipt?").await?;
                    Ok(CallToolResult::text(receipt.to_string()))
                }
            },
        );
        let server = Server::new("till", "1.0.0").tool(tool);
        let client = connect(&server, replying_host(&HostLog::default()), config).await;

        let reply = client.call_tool("pay", ()).await.unwrap();

        assert_eq!(reply.text(), "100", "{config:?}");
        assert_eq!(charged.load(Ordering::Relaxed), 1, "{config:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn try_once_runs_again_after_an_error_and_keeps_a_success() {
    for config in CONFIGURATIONS {
        let tries = Arc::new(AtomicU32::new(0));
        let counter = tries.clone();
        let tool = Tool::raw(
            "try",
            json!({"type": "object"}),
            move |_, cx: bowline::Context| {
                let counter = counter.clone();
                async move {
                    let attempt = || async {
                        match counter.fetch_add(1, Ordering::Relaxed) {
                            0 => Err(InputError::RequestEnded),
                            nth => Ok(nth),
                        }
                    };
                    let first: Result<u32, InputError> = cx.try_once("work", attempt()).await;
                    let second: u32 = cx.try_once("work", attempt()).await?;
                    let third: u32 = cx.try_once("work", attempt()).await?;
                    Ok(CallToolResult::text(format!("{first:?} {second} {third}")))
                }
            },
        );
        let server = Server::new("tries", "1.0.0").tool(tool);
        let client = connect(&server, replying_host(&HostLog::default()), config).await;

        let reply = client.call_tool("try", ()).await.unwrap();

        assert_eq!(reply.text(), "Err(RequestEnded) 1 1", "{config:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_remembered_value_is_recalled_in_later_rounds() {
    let tool = Tool::raw("count", json!({"type": "object"}), async |_, cx| {
        let mut seen: Vec<String> = cx.recall().await?.unwrap_or_default();
        while seen.len() < 3 {
            let answer: TextForm = cx.elicit(format!("nth{}", seen.len()), "What?").await?;
            seen.push(answer.text);
            cx.remember(&seen).await?;
        }
        Ok(CallToolResult::text(seen.len().to_string()))
    });
    let server = Server::new("count", "1.0.0").tool(tool);
    for config in CONFIGURATIONS {
        let host_log = HostLog::default();
        let client = connect(&server, replying_host(&host_log), config).await;

        let reply = client.call_tool("count", ()).await.unwrap();

        assert_eq!(
            (reply.text().as_str(), host_log.all().len()),
            ("3", 3),
            "{config:?}"
        );
    }
}
