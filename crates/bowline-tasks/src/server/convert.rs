//! Calls that become tasks when they take long.
//!
//! ```text
//! call ──▶ handler runs as usual ──has an outcome──▶ answer
//!                │
//!                └─takes long─▶ create the record ─▶ switch sink and input ─▶ answer: the task
//!                                                                      └────▶ the same future runs on in the runner
//! ```

use std::sync::Arc;
use std::time::Duration;

use bowline::Context;
use bowline::exchange::Outcome;
use bowline::server::{RunningTool, ToolCall};
use bowline_types::{ErrorCode, RpcError};
use tokio::time::sleep;

use super::Env;
use super::intercept::{create, deadline, spawn, task_context};
use super::run_task::{TaskToRun, signal_or_drop};
use super::runner::Job;
use super::saved_call::CallDetails;
use super::store_errors::chain;
use super::switch_input::SwitchInput;
use super::task_input::TaskInput;
use super::task_sink::TaskSink;
use crate::encode::create_result;
use crate::store::{RunMode, StoreError};

/// Runs a call, which becomes a task if it has no outcome after the duration.
///
/// # Cancel safety
///
/// Dropping it stops the handler. After a conversion, [`Context::on_discarded`] does.
pub(super) async fn run_as_call(
    env: &Env,
    call: ToolCall,
    cx: Context,
    after: Duration,
) -> Outcome {
    let details = CallDetails::new(&call, &cx);
    let has_progress_token = call.request().progress_token.is_some();
    let sink = Arc::new(TaskSink::of_call(cx.clone(), has_progress_token));
    let input = Arc::new(SwitchInput::new(cx.input_source()));
    let of_call = task_context(&cx, call.request(), sink.clone(), input.clone());
    let mut handler = Handler {
        tool: Some(call.run(of_call)),
        input: input.clone(),
        env,
    };
    if let Some(outcome) = handler.run_for(after).await {
        return outcome;
    }
    let convertible = Convertible {
        details,
        sink,
        input,
    };
    match convertible.convert(&mut handler, &cx).await {
        Ok(outcome) => outcome,
        Err(error) => {
            tracing::warn!(error = %chain(&error), "failed to make a call a task; it stays a call");
            handler.run().await
        }
    }
}

/// What is needed to make a running call a task.
struct Convertible {
    details: CallDetails,
    sink: Arc<TaskSink>,
    input: Arc<SwitchInput>,
}

impl Convertible {
    /// Makes the call a task. The handler is not polled meanwhile.
    ///
    /// # Errors
    ///
    /// If the task cannot be stored. The call can go on.
    async fn convert(self, handler: &mut Handler<'_>, cx: &Context) -> Result<Outcome, StoreError> {
        let env = handler.env;
        let is_resumable = self.details.run_mode != RunMode::NotResumable;
        let conversion = self.input.begin_conversion().await;
        let journal = conversion.journal(self.details.run_mode);
        // A task that is not resumed needs the journal in this process only.
        let stored = if is_resumable {
            journal.clone()
        } else {
            Vec::new()
        };
        let run = create(env, self.details, stored, cx).await?;
        let Some(tool) = handler.tool.take() else {
            return Ok(Err(shutting_down())); // cannot happen: the handler has no outcome
        };
        let (created, deadline) =
            run.with_record(|record| (create_result(record), deadline(env, record)));
        self.sink.become_task(&run);
        conversion.become_task(Arc::new(TaskInput::new(Arc::clone(&run), journal)));
        let task = TaskToRun {
            run,
            tool,
            deadline,
        };
        Ok(spawn(env, task.start()).await.map(|()| created))
    }
}

/// The running handler of a call.
struct Handler<'a> {
    tool: Option<RunningTool>,
    input: Arc<SwitchInput>,
    env: &'a Env,
}

impl Handler<'_> {
    /// Runs the handler until it has an outcome, or the duration has passed and it does not wait for the client.
    async fn run_for(&mut self, duration: Duration) -> Option<Outcome> {
        let input = self.input.clone();
        let is_long = async {
            sleep(duration).await;
            // A question of a call ends the round, and with it this future.
            input.has_no_question().await;
        };
        tokio::select! {
            biased;
            outcome = self.run() => Some(outcome),
            () = is_long => None,
        }
    }

    async fn run(&mut self) -> Outcome {
        match &mut self.tool {
            Some(tool) => {
                let outcome = tool.await;
                self.tool = None;
                outcome
            }
            None => Err(shutting_down()),
        }
    }
}

impl Drop for Handler<'_> {
    fn drop(&mut self) {
        // At the end of a round the handler is dropped, whatever its mode: it runs again with the answer.
        let Some(tool) = self.tool.take().filter(|_| !self.input.has_question()) else {
            return;
        };
        if let Some(tool) = signal_or_drop(tool) {
            drop(self.env.send(Job::Finish(tool)));
        }
    }
}

fn shutting_down() -> RpcError {
    RpcError::new(ErrorCode::INTERNAL_ERROR, "the server is shutting down")
}
