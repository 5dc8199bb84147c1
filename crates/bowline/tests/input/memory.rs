//! What a handler keeps from one of its runs to the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bowline::exchange::AskError;
use bowline::types::CallToolResult;
use bowline::{RpcError, Server, Tool};
use serde_json::json;

use super::{COLUMNS, Heard, Said, connect, replying};

#[tokio::test(start_paused = true)]
async fn what_must_happen_once_happens_once_whatever_is_asked_afterwards() {
    for column in COLUMNS {
        let charged = Arc::new(AtomicU32::new(0));
        let counter = charged.clone();
        let tool = Tool::raw(
            "pay",
            json!({"type": "object"}),
            move |_, cx: bowline::Context| {
                let counter = counter.clone();
                async move {
                    let _: Said = cx.elicit("card", "Which card?").await?;
                    let receipt: u32 = cx
                        .once("charge", async {
                            counter.fetch_add(1, Ordering::Relaxed) + 100
                        })
                        .await?;
                    let _: Said = cx.elicit("tip", "A tip?").await?;
                    let _: Said = cx.elicit("mail", "A receipt?").await?;
                    Ok(CallToolResult::text(receipt.to_string()))
                }
            },
        );
        let server = Server::new("till", "1.0.0").tool(tool);
        let client = connect(&server, replying(&Heard::default()), column).await;

        let reply = client.call_tool("pay", ()).await.unwrap();

        assert_eq!(reply.text(), "100", "{column:?}");
        assert_eq!(charged.load(Ordering::Relaxed), 1, "{column:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_failed_is_tried_again_and_only_a_success_is_kept() {
    for column in COLUMNS {
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
                            0 => Err(AskError::Over),
                            nth => Ok(nth),
                        }
                    };
                    let first: Result<u32, AskError> = cx.try_once("work", attempt()).await;
                    let second: u32 = cx.try_once("work", attempt()).await?;
                    let third: u32 = cx.try_once("work", attempt()).await?;
                    Ok::<_, RpcError>(CallToolResult::text(format!("{first:?} {second} {third}")))
                }
            },
        );
        let server = Server::new("tries", "1.0.0").tool(tool);
        let client = connect(&server, replying(&Heard::default()), column).await;

        let reply = client.call_tool("try", ()).await.unwrap();

        assert_eq!(reply.text(), "Err(Over) 1 1", "{column:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_is_recalled_in_later_runs() {
    let tool = Tool::raw("count", json!({"type": "object"}), async |_, cx| {
        let mut seen: Vec<String> = cx.recall()?.unwrap_or_default();
        while seen.len() < 3 {
            let said: Said = cx.elicit(format!("nth{}", seen.len()), "What?").await?;
            seen.push(said.said);
            cx.remember(&seen)?;
        }
        Ok(CallToolResult::text(seen.len().to_string()))
    });
    let server = Server::new("count", "1.0.0").tool(tool);
    for column in COLUMNS {
        let heard = Heard::default();
        let client = connect(&server, replying(&heard), column).await;

        let reply = client.call_tool("count", ()).await.unwrap();

        assert_eq!(
            (reply.text().as_str(), heard.all().len()),
            ("3", 3),
            "{column:?}"
        );
    }
}
