//! The checks of a server with the tasks fixture, one function each.

use std::task::Poll;

use bowline::{Client, Error, ErrorCode};
use bowline_tasks::store::TaskStatus;
use bowline_tasks::{TaskCall as _, TaskHandle};
use serde_json::{Value, json};

use crate::checks::{Outcome, POLL_INTERVAL, Result, answers, ensure, text};
use crate::scripted_host::ScriptedHost;

/// A check of tasks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TaskCheck {
    Call,
    Attach,
    Ask,
    Errors,
    Cancel,
    Unknown,
}

impl TaskCheck {
    /// All checks, in order.
    pub(crate) const ALL: [Self; 6] = [
        Self::Call,
        Self::Attach,
        Self::Ask,
        Self::Errors,
        Self::Cancel,
        Self::Unknown,
    ];

    /// Returns the name in the report.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Attach => "attach",
            Self::Ask => "ask",
            Self::Errors => "errors",
            Self::Cancel => "cancel",
            Self::Unknown => "unknown",
        }
    }

    pub(crate) async fn run(self, client: &Client, host: &ScriptedHost) -> Result<Outcome> {
        match self {
            Self::Call => call(client).await?,
            Self::Attach => attach(client).await?,
            Self::Ask => ask(client, host).await?,
            Self::Errors => errors(client).await?,
            Self::Cancel => {
                cancel_by_handle(client).await?;
                cancel_by_drop(client).await?;
            }
            Self::Unknown => unknown(client).await?,
        }
        Ok(Outcome::Ok)
    }
}

/// A call waits for its task, and one without a task is answered directly.
async fn call(client: &Client) -> Result<()> {
    for sent in ["plain", "", "日本語 🪢"] {
        let received = text(client, "task_echo", json!({"text": sent})).await?;
        ensure(received == sent, || {
            format!("expected `{sent}`, got `{received}`")
        })?;
    }
    let direct = client.call_tool("task_stats", json!({})).as_task().await?;
    ensure(direct.id().is_none(), || {
        "`task_stats` became a task".to_owned()
    })
}

async fn attach(client: &Client) -> Result<()> {
    let task = start(client, "task_echo", json!({"text": "taken up"})).await?;
    let id = task.id().unwrap_or_default().to_owned();
    drop(task);

    for _ in 0..2 {
        let again = TaskHandle::attach(client, id.clone());
        let reply = again.wait().await?;
        ensure(reply.text() == "taken up", || {
            format!("unexpected result: {}", reply.json())
        })?;
        let status = again.status().await?.status;
        ensure(status == TaskStatus::Completed, || {
            format!("expected a completed task, got {status:?}")
        })?;
    }
    Ok(())
}

async fn ask(client: &Client, host: &ScriptedHost) -> Result<()> {
    for (answer, expected) in answers() {
        host.set_answer(answer);
        let got = text(client, "task_ask", json!({})).await?;
        ensure(got == expected, || {
            format!("expected `{expected}`, got `{got}`")
        })?;
    }
    Ok(())
}

async fn errors(client: &Client) -> Result<()> {
    let arguments = json!({"message": "as asked"});
    let task = start(client, "task_fail", arguments).await?;
    let failed = task.wait().await?;
    ensure(
        failed.is_error() && failed.text().contains("as asked"),
        || format!("unexpected result of `task_fail`: {}", failed.json()),
    )?;
    let status = task.status().await?.status;
    ensure(status == TaskStatus::Completed, || {
        format!("expected a completed task, got {status:?}")
    })?;

    let task = start(client, "task_boom", json!({})).await?;
    let boom = match task.wait().await {
        Err(Error::Rpc(error)) => error,
        other => return Err(format!("expected an error of `task_boom`, got {other:?}").into()),
    };
    ensure(
        boom.code == ErrorCode(-32000) && boom.message.contains("boom"),
        || format!("unexpected error of `task_boom`: {boom:?}"),
    )?;
    let status = task.status().await?.status;
    ensure(status == TaskStatus::Failed, || {
        format!("expected a failed task, got {status:?}")
    })
}

async fn cancel_by_handle(client: &Client) -> Result<()> {
    let before = stats(client).await?;
    let task = start(client, "task_slow", json!({"seconds": 600})).await?;
    until_changed(client, &before, "started").await?;
    let status = task.status().await?.status;
    ensure(status == TaskStatus::Working, || {
        format!("expected a working task, got {status:?}")
    })?;

    task.cancel().await?;

    match task.wait().await {
        Err(Error::Cancelled { .. }) => {}
        other => return Err(format!("expected a cancelled task, got {other:?}").into()),
    }
    until_changed(client, &before, "cancelled").await?;
    // A task that has ended acknowledges it too.
    task.cancel().await?;
    let status = task.status().await?.status;
    ensure(status == TaskStatus::Cancelled, || {
        format!("expected a cancelled task, got {status:?}")
    })
}

/// Drops a call that waits for its task.
async fn cancel_by_drop(client: &Client) -> Result<()> {
    let before = stats(client).await?;
    let call = client.call_tool("task_slow", json!({"seconds": 600}));
    let mut call = Box::pin(call.into_future());
    let mut started = Box::pin(until_changed(client, &before, "started"));
    // Polls both, and keeps the call.
    std::future::poll_fn(|cx| match call.as_mut().poll(cx) {
        Poll::Ready(reply) => Poll::Ready(Err(format!("`task_slow` has ended: {reply:?}").into())),
        Poll::Pending => started.as_mut().poll(cx),
    })
    .await?;
    // The answer with the task may still be on its way; a cancelled request would stop the handler as well, but that
    // is another check.
    settle(&mut call).await;

    drop(call);

    until_changed(client, &before, "cancelled").await
}

async fn unknown(client: &Client) -> Result<()> {
    match TaskHandle::attach(client, "no-such-task").status().await {
        Err(Error::Rpc(error)) if error.code == ErrorCode::INVALID_PARAMS => Ok(()),
        other => Err(format!("expected -32602, got {other:?}").into()),
    }
}

/// Makes a call that must become a task.
async fn start(client: &Client, tool: &str, arguments: Value) -> Result<TaskHandle> {
    let task = client.call_tool(tool, arguments).as_task().await?;
    ensure(task.id().is_some_and(|id| !id.is_empty()), || {
        format!("`{tool}` did not become a task")
    })?;
    Ok(task)
}

/// Polls a call for a while, in which it does not end.
async fn settle(call: &mut (impl Future + Unpin)) {
    let _ = tokio::time::timeout(50 * POLL_INTERVAL, call).await;
}

/// Waits until this counter of `task_slow` is another one. No handler may finish meanwhile.
async fn until_changed(client: &Client, before: &Value, counter: &str) -> Result<()> {
    loop {
        let now = stats(client).await?;
        ensure(now["finished"] == before["finished"], || {
            format!("a handler was not cancelled: {now}")
        })?;
        if now[counter] != before[counter] {
            return Ok(());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn stats(client: &Client) -> Result<Value> {
    let stats = text(client, "task_stats", json!({})).await?;
    Ok(serde_json::from_str(&stats)?)
}
