//! The checks of a server with the fixture, one function each.
//!
//! No check measures time: it polls until the expected state is reached, and the caller's time limit ends it otherwise.

use std::error::Error as StdError;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::client::{Change, ChangeFilter, Reply};
use bowline::types::{
    ContentBlock, ElicitAction, ElicitResult, LoggingLevel, PromptReference, ResourceContents,
};
use bowline::{Client, Error, ErrorCode};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::scripted_host::{LogMessage, ScriptedHost};

/// The result of a check that did not fail.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    Ok,
    /// It passes because the check works around a failure of the server, in words of `cannot.txt`.
    Helped(&'static str),
    Skipped(&'static str),
}

pub(crate) type Result<T, E = Box<dyn StdError>> = std::result::Result<T, E>;

type Check = fn(Client, ScriptedHost) -> Pin<Box<dyn Future<Output = Result<Outcome>>>>;

/// Every check, with its name in the report.
pub(crate) const CHECKS: [(&str, Check); 14] = [
    ("list", |client, _| Box::pin(list(client))),
    ("call", |client, _| Box::pin(call(client))),
    ("errors", |client, _| Box::pin(errors(client))),
    ("unknown", |client, _| Box::pin(unknown(client))),
    ("read", |client, _| Box::pin(read(client))),
    ("progress", |client, _| Box::pin(progress(client))),
    ("many", |client, _| Box::pin(many(client))),
    ("ask", |client, host| Box::pin(ask(client, host))),
    ("sample", |client, _| Box::pin(sample(client))),
    ("subscribe", |client, _| Box::pin(subscribe(client))),
    ("lists", |client, _| Box::pin(lists(client))),
    ("log", |client, host| Box::pin(log(client, host))),
    ("complete", |client, _| Box::pin(complete(client))),
    ("abandon", |client, _| Box::pin(abandon(client))),
];

async fn list(client: Client) -> Result<Outcome> {
    let tools = client.list_tools().await?;

    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    for tool in ["echo", "add", "slow", "stats", "progress", "ask"] {
        ensure(names.contains(&tool), || {
            format!("no `{tool}` in {names:?}")
        })?;
    }
    Ok(Outcome::Ok)
}

async fn call(client: Client) -> Result<Outcome> {
    let long = "x".repeat(100_000);
    for text_sent in ["plain", "", "zwei\nZeilen", "日本語 🪢 \u{0}\u{7f}", &long] {
        let received = text(&client, "echo", json!({"text": text_sent})).await?;
        ensure(received == text_sent, || {
            format!("expected `{text_sent:.40}`, got `{received:.40}`")
        })?;
    }
    let sum = text(&client, "add", json!({"a": -2, "b": 44})).await?;
    ensure(sum == "42", || format!("expected -2 + 44 = 42, got {sum}"))?;
    Ok(Outcome::Ok)
}

async fn errors(client: Client) -> Result<Outcome> {
    let failed = client
        .call_tool("fail", json!({"message": "as asked"}))
        .await?;
    ensure(
        failed.is_error() && failed.text().contains("as asked"),
        || format!("unexpected result of `fail`: {}", failed.json()),
    )?;

    let boom = peer_error(client.call_tool("boom", ()).await)?;
    let why = boom.data.map(|data| data.decode::<Value>()).transpose()?;
    ensure(
        boom.code == ErrorCode(-32000) && boom.message.contains("boom"),
        || {
            let (code, message) = (boom.code.0, &boom.message);
            format!("unexpected error of `boom`: {code} {message}")
        },
    )?;
    ensure(why == Some(json!({"why": "fixture"})), || {
        format!("unexpected error data of `boom`: {why:?}")
    })?;

    let refused = match client
        .call_tool("add", json!({"a": "one", "b": 2}))
        .skip_capability_check()
        .await
    {
        Ok(reply) => reply.is_error(),
        Err(error) => code(error)? == ErrorCode::INVALID_PARAMS,
    };
    ensure(refused, || "`add` accepts text for a number".to_owned())?;

    Ok(Outcome::Ok)
}

/// Unknown tools, methods and resources must be rejected.
async fn unknown(client: Client) -> Result<Outcome> {
    let tool = match client
        .call_tool("no-such-tool", ())
        .skip_capability_check()
        .await
    {
        Ok(reply) => reply.is_error(),
        Err(error) => matches!(
            code(error)?,
            ErrorCode::INVALID_PARAMS | ErrorCode::METHOD_NOT_FOUND
        ),
    };
    ensure(tool, || "an unknown tool was called".to_owned())?;

    let method = peer_error(
        client
            .request_raw("fixture/no-such-method", json!({}))
            .await,
    )?;
    ensure(method.code == ErrorCode::METHOD_NOT_FOUND, || {
        format!("unexpected code of an unknown method: {}", method.code.0)
    })?;
    let missing = client.read_resource("fixture://no-such-resource").await;
    let Err(missing) = missing else {
        return Err("an unknown resource was read".into());
    };
    let missing = code(missing)?;
    ensure([-32602, -32002].contains(&missing.0), || {
        format!("unexpected code of an unknown resource: {}", missing.0)
    })?;

    Ok(Outcome::Ok)
}

async fn read(client: Client) -> Result<Outcome> {
    let content = client
        .read_resource("fixture://static")
        .bypass_cache()
        .await?
        .contents;
    let is_static = matches!(&content[..], [ResourceContents::Text(it)] if it.text == "static");
    ensure(is_static, || {
        format!("unexpected contents of `fixture://static`: {content:?}")
    })?;

    let greeting = client.get_prompt("greet", json!({"name": "Ada"})).await?;
    let first = greeting.messages.first().map(|message| &message.content);
    let greets = matches!(first, Some(ContentBlock::Text(it)) if it.text == "Hello, Ada!");
    ensure(greets, || {
        format!("unexpected message of `greet`: {first:?}")
    })?;
    Ok(Outcome::Ok)
}

async fn progress(client: Client) -> Result<Outcome> {
    let received = Arc::new(Mutex::new(Vec::new()));
    let recorder = received.clone();

    let reply = client
        .call_tool("progress", json!({"n": 5}))
        .on_progress(move |step| {
            let step = (step.progress, step.total, step.message);
            recorder
                .lock()
                .unwrap_or_else(|poison| poison.into_inner())
                .push(step);
        })
        .await?;

    // All notifications sent before the result have been received by now.
    let received = received
        .lock()
        .unwrap_or_else(|poison| poison.into_inner())
        .clone();
    let steps = |has_messages: bool| {
        let message = |step| has_messages.then(|| format!("step {step}"));
        let steps = (1..=5).map(|step| (f64::from(step), Some(5.0), message(step)));
        steps.collect::<Vec<_>>()
    };
    // 2024-11-05 has no messages; some servers send them nevertheless.
    let is_plain = client
        .dialect()
        .undefined
        .progress_params
        .contains(&"message")
        && received == steps(false);
    ensure(is_plain || received == steps(true), || {
        format!("unexpected progress: {received:?}")
    })?;
    ensure(reply.text().contains('5'), || {
        format!("unexpected result of `progress`: {}", reply.text())
    })?;
    Ok(Outcome::Ok)
}

/// Makes 200 concurrent calls; each must get its own result.
async fn many(client: Client) -> Result<Outcome> {
    let mut calls = JoinSet::new();
    for number in 0..200 {
        let client = client.clone();
        calls.spawn(async move {
            let (tool, arguments, expected) = match number % 2 {
                0 => (
                    "echo",
                    json!({"text": format!("word {number}")}),
                    format!("word {number}"),
                ),
                _ => (
                    "add",
                    json!({"a": number, "b": 1000}),
                    (number + 1000).to_string(),
                ),
            };
            let reply = client.call_tool(tool, arguments).await?;
            Ok::<_, Error>((expected, reply.text()))
        });
    }

    while let Some(call) = calls.join_next().await {
        let (expected, got) = call??;
        ensure(expected == got, || {
            format!("expected `{expected}`, got `{got}`")
        })?;
    }
    Ok(Outcome::Ok)
}

async fn ask(client: Client, host: ScriptedHost) -> Result<Outcome> {
    if !client.dialect().is_modern() && !client.dialect().knows_server_request("elicitation/create")
    {
        let asked = client.call_tool("ask", json!({})).await;
        let failed = asked.as_ref().map_or(true, Reply::is_error);
        ensure(failed, || {
            "the server elicited from a client without elicitation".to_owned()
        })?;
        return Ok(Outcome::Skipped("this version has no elicitation"));
    }
    for (answer, expected) in answers() {
        host.set_answer(answer);
        let got = text(&client, "ask", json!({"prompt": "Who is there?"})).await?;
        ensure(got == expected, || {
            format!("expected `{expected}`, got `{got}`")
        })?;
    }
    Ok(Outcome::Ok)
}

/// Returns the answers of a user to the question for a name, and the result of each.
pub(crate) fn answers() -> [(ElicitResult, &'static str); 3] {
    [
        (ElicitResult::accept(json!({"name": "Ada"})), "accepted:Ada"),
        (ElicitResult::new(ElicitAction::Decline), "declined"),
        (ElicitResult::new(ElicitAction::Cancel), "cancelled"),
    ]
}

/// The model of the client answers, each prompt with a message of its own.
async fn sample(client: Client) -> Result<Outcome> {
    for prompt in ["knots", "ropes"] {
        let got = text(&client, "sample", json!({"prompt": prompt})).await?;
        let expected = format!("sampled:about {prompt}");
        ensure(got == expected, || {
            format!("expected `{expected}`, got `{got}`")
        })?;
    }
    Ok(Outcome::Ok)
}

/// Of two resources that change, only updates of the subscribed one are received.
async fn subscribe(client: Client) -> Result<Outcome> {
    let mut changes = client
        .subscribe(ChangeFilter::new().resource(COUNTER))
        .await?;
    let honoured = changes
        .acknowledged_filter()
        .resource_subscriptions
        .is_some();
    ensure(honoured, || {
        "the subscription was not acknowledged".to_owned()
    })?;
    let before: u64 = text(&client, "touch", json!({"uri": "fixture://static"}))
        .await?
        .parse()?;

    let after: u64 = text(&client, "touch", json!({})).await?.parse()?;
    let change = changes.next().await?;

    ensure(after == before + 1, || {
        format!("expected {before} + 1, got {after}")
    })?;
    ensure(change == Some(Change::Resource(COUNTER.to_owned())), || {
        format!("unexpected change: {change:?}")
    })?;
    drop(changes);
    Ok(Outcome::Ok)
}

/// A tool is added and removed again; each time the client is notified, and the new list is correct.
async fn lists(client: Client) -> Result<Outcome> {
    let mut changes = client.subscribe(ChangeFilter::new().tools()).await?;
    let honoured = changes.acknowledged_filter().tools_list_changed == Some(true);
    ensure(honoured, || {
        "the subscription was not acknowledged".to_owned()
    })?;
    for present in [true, false] {
        text(&client, "set_extra", json!({"present": present})).await?;
        let change = changes.next().await?;

        ensure(change == Some(Change::Tools), || {
            format!("unexpected change: {change:?}")
        })?;
        let tools = client.list_tools().await?;
        let listed = tools.iter().any(|tool| tool.name == "extra");
        ensure(listed == present, || {
            format!("expected `extra` to be listed: {present}, got {listed}")
        })?;
        if present {
            let got = text(&client, "extra", json!({})).await?;
            ensure(got == "extra", || {
                format!("unexpected result of `extra`: {got}")
            })?;
        }
    }
    Ok(Outcome::Ok)
}

/// Exactly the messages at or above the level are received, for two levels.
async fn log(client: Client, host: ScriptedHost) -> Result<Outcome> {
    let mut has_repeated = false;
    for level in [LoggingLevel::Info, LoggingLevel::Error] {
        client.set_log_level(level).await?;
        let expected: Vec<LogMessage> = log_messages().filter(|it| it.level >= level).collect();
        let mut received = log_once(&client, &host, expected.len()).await?;
        for _ in 1..MAX_LOG_CALLS {
            let is_part = received.iter().all(|message| expected.contains(message));
            if received == expected || !is_part {
                break;
            }
            has_repeated = true;
            received = log_once(&client, &host, expected.len()).await?;
        }
        ensure(received == expected, || {
            format!("unexpected log messages at {level:?}: {received:?}")
        })?;
    }
    Ok(match has_repeated {
        true => Outcome::Helped("calls again"),
        false => Outcome::Ok,
    })
}

/// Calls the tool `log` once, and returns the messages.
async fn log_once(client: &Client, host: &ScriptedHost, count: usize) -> Result<Vec<LogMessage>> {
    host.clear_log();
    text(client, "log", json!({})).await?;
    // Over legacy HTTP a server may send them on another stream than the result. The last one is always expected,
    // and those below the level would come before it. Modern ones belong to the call, and come before its result.
    while !client.dialect().is_modern() && host.log().len() < count {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(host.log())
}

/// What the tool `log` sends.
fn log_messages() -> impl Iterator<Item = LogMessage> {
    let levels = [
        (LoggingLevel::Debug, r#""at debug""#),
        (LoggingLevel::Info, r#""at info""#),
        (LoggingLevel::Warning, r#""at warning""#),
        (LoggingLevel::Error, r#""at error""#),
    ];
    levels.into_iter().map(|(level, data)| LogMessage {
        level,
        logger: Some("fixture".to_owned()),
        data: data.to_owned(),
    })
}

/// Two prefixes have different completions.
async fn complete(client: Client) -> Result<Outcome> {
    for (prefix, expected) in [("A", &["Ada", "Alan"][..]), ("Bar", &["Barbara"])] {
        let greet = PromptReference::new("greet");
        let completion = client.complete(greet, "name", prefix).await?;
        ensure(completion.values == expected, || {
            format!(
                "unexpected completion of `{prefix}`: {:?}",
                completion.values
            )
        })?;
    }
    Ok(Outcome::Ok)
}

/// Drops 20 calls while their handlers are running; all handlers must be cancelled.
async fn abandon(client: Client) -> Result<Outcome> {
    let before = stats(&client).await?;
    let mut calls = JoinSet::new();
    for _ in 0..ABANDONED {
        calls.spawn(
            client
                .call_tool("slow", json!({"seconds": 600}))
                .into_future(),
        );
    }
    while stats(&client).await?.started < before.started + ABANDONED {
        tokio::time::sleep(POLL_INTERVAL).await;
    }

    drop(calls);

    loop {
        let now = stats(&client).await?;
        ensure(now.finished == before.finished, || {
            format!("a handler was not cancelled: {now:?}")
        })?;
        if now.cancelled == before.cancelled + ABANDONED {
            break;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    let alive = text(&client, "echo", json!({"text": "still here"})).await?;
    ensure(alive == "still here", || {
        format!("unexpected result of `echo` after the cancels: `{alive}`")
    })?;
    Ok(Outcome::Ok)
}

/// The counters of `slow`.
#[derive(Debug, Deserialize)]
struct Stats {
    started: u64,
    finished: u64,
    cancelled: u64,
}

async fn stats(client: &Client) -> Result<Stats> {
    Ok(serde_json::from_str(
        &text(client, "stats", json!({})).await?,
    )?)
}

/// Calls a tool that must not fail, and returns its text.
pub(crate) async fn text(client: &Client, tool: &str, arguments: Value) -> Result<String> {
    let reply = client.call_tool(tool, arguments).await?;
    ensure(!reply.is_error(), || {
        format!("`{tool}` fails: {}", reply.text())
    })?;
    Ok(reply.text())
}

/// The JSON-RPC error with which the server rejected a request.
fn peer_error(answer: bowline::Result<Reply>) -> Result<bowline::RpcError> {
    match answer {
        Err(Error::Rpc(error)) => Ok(error),
        Err(error) => Err(error.into()),
        Ok(reply) => Err(format!("expected an error, got {}", reply.json()).into()),
    }
}

fn code(error: Error) -> Result<ErrorCode> {
    peer_error(Err(error)).map(|error| error.code)
}

pub(crate) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<()> {
    if holds {
        Ok(())
    } else {
        Err(otherwise().into())
    }
}

const COUNTER: &str = "fixture://counter";
const ABANDONED: u64 = 20;
/// How often the tool `log` is called until all messages arrive before the answer.
const MAX_LOG_CALLS: usize = 20;
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(20);
