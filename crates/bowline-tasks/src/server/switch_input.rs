//! [`SwitchInput`]: the input source of a call that may become a task.

use std::collections::BTreeSet;
use std::sync::Arc;

use bowline::exchange::{BoxFuture, InputError, InputRequestOptions, InputSource, RawInputRequest};
use bowline_types::Json;
use tokio::sync::watch;

use super::task_input::TaskInput;
use crate::store::{JournalEntry, JournalKind, RunMode};
use crate::sync::Mutex;

/// An input source that passes everything to the source of the call, and records it, until the call becomes a task.
pub(super) struct SwitchInput {
    mode: watch::Sender<Mode>,
    recorded: Mutex<Recorded>,
    /// The number of questions that the handler waits for, while it is a call.
    questions: watch::Sender<usize>,
}

#[derive(Clone)]
enum Mode {
    /// The source of the request; `None` if it does not support input.
    Call(Option<Arc<dyn InputSource>>),
    /// The record is being created. Spawned parts of the handler wait.
    Converting,
    Task(Arc<TaskInput>),
}

/// What the handler got from and gave to the source of the call.
#[derive(Default)]
struct Recorded {
    entries: Vec<JournalEntry>,
    /// Effects that have begun and not finished.
    open_effects: BTreeSet<String>,
}

impl SwitchInput {
    pub(super) fn new(source: Option<Arc<dyn InputSource>>) -> Self {
        Self {
            mode: watch::Sender::new(Mode::Call(source)),
            recorded: Mutex::default(),
            questions: watch::Sender::new(0),
        }
    }

    /// Returns whether the handler waits for an answer of the client, while it is a call.
    pub(super) fn has_question(&self) -> bool {
        *self.questions.borrow() > 0
    }

    /// Waits until the handler does not wait for an answer of the client.
    pub(super) async fn has_no_question(&self) {
        let mut questions = self.questions.subscribe();
        // Cannot fail: `self` owns the sender.
        drop(questions.wait_for(|questions| *questions == 0).await);
    }

    /// Stops everything that uses the source of the call. It goes on if the conversion is dropped.
    pub(super) async fn begin_conversion(&self) -> Conversion<'_> {
        let source = match self.mode.send_replace(Mode::Converting) {
            Mode::Call(source) => source,
            Mode::Converting | Mode::Task(_) => None,
        };
        let conversion = Conversion {
            input: self,
            source,
            is_done: false,
        };
        if let Some(source) = &conversion.source {
            // An earlier round may have stored a value that this run has not read yet.
            if let Ok(Some(value)) = source.stored(REMEMBERED).await {
                self.record(JournalKind::Remembered, REMEMBERED, value);
            }
        }
        conversion
    }

    /// Returns the current source.
    async fn current(&self) -> Result<Current, InputError> {
        let mut modes = self.mode.subscribe();
        let settled = modes
            .wait_for(|mode| !matches!(mode, Mode::Converting))
            .await;
        match settled.map(|mode| mode.clone()) {
            Ok(Mode::Call(Some(source))) => Ok(Current::Call(source)),
            Ok(Mode::Task(source)) => Ok(Current::Task(source)),
            Ok(Mode::Call(None) | Mode::Converting) | Err(_) => Err(InputError::Unavailable {
                why: "requests of this method do not support input",
            }),
        }
    }

    /// Records an entry, in place of an earlier one of the same name.
    fn record(&self, kind: JournalKind, name: &str, value: Json) {
        let mut recorded = self.recorded.lock();
        recorded
            .entries
            .retain(|entry| (entry.kind, &*entry.name) != (kind, name));
        recorded.entries.push(JournalEntry::new(kind, name, value));
    }

    fn count_question(&self) -> OpenQuestion<'_> {
        self.questions.send_modify(|questions| *questions += 1);
        OpenQuestion(self)
    }
}

enum Current {
    Call(Arc<dyn InputSource>),
    Task(Arc<TaskInput>),
}

/// A question of a call that waits for its answer.
struct OpenQuestion<'a>(&'a SwitchInput);

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        self.0.questions.send_modify(|questions| *questions -= 1);
    }
}

/// A conversion in progress. Dropping it lets the call go on as a call.
pub(super) struct Conversion<'a> {
    input: &'a SwitchInput,
    source: Option<Arc<dyn InputSource>>,
    is_done: bool,
}

impl Conversion<'_> {
    /// Returns the journal of what the handler has done as a call.
    pub(super) fn journal(&self, run_mode: RunMode) -> Vec<JournalEntry> {
        let recorded = self.input.recorded.lock();
        let mut journal = recorded.entries.clone();
        if run_mode == RunMode::AtMostOnce {
            let open = recorded.open_effects.iter();
            journal
                .extend(open.map(|key| JournalEntry::new(JournalKind::Started, key, Json::null())));
        }
        journal
    }

    /// Passes everything to the task from now on.
    pub(super) fn become_task(mut self, input: Arc<TaskInput>) {
        self.is_done = true;
        input.adopt_effects(self.input.recorded.lock().open_effects.len());
        self.input.mode.send_replace(Mode::Task(input));
        *self.input.recorded.lock() = Recorded::default();
    }
}

impl Drop for Conversion<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.input.mode.send_replace(Mode::Call(self.source.take()));
        }
    }
}

impl InputSource for SwitchInput {
    fn ask<'a>(
        &'a self,
        key: &'a str,
        request: RawInputRequest,
        options: InputRequestOptions,
    ) -> BoxFuture<'a, Result<Json, InputError>> {
        Box::pin(async move {
            match self.current().await? {
                Current::Call(source) => {
                    let question = self.count_question();
                    let answer = source.ask(key, request, options).await?;
                    drop(question);
                    self.record(JournalKind::Answer, key, answer.clone());
                    Ok(answer)
                }
                Current::Task(source) => source.ask(key, request, options).await,
            }
        })
    }

    fn store<'a>(&'a self, key: &'a str, value: Json) -> BoxFuture<'a, Result<(), InputError>> {
        Box::pin(async move {
            match self.current().await? {
                Current::Call(source) => {
                    source.store(key, value.clone()).await?;
                    self.record(JournalKind::Remembered, key, value);
                    Ok(())
                }
                Current::Task(source) => source.store(key, value).await,
            }
        })
    }

    fn stored<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Json>, InputError>> {
        Box::pin(async move {
            match self.current().await? {
                Current::Call(source) => source.stored(key).await,
                Current::Task(source) => source.stored(key).await,
            }
        })
    }

    fn begin_effect<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Json>, InputError>> {
        Box::pin(async move {
            match self.current().await? {
                Current::Call(source) => {
                    let output = source.begin_effect(key).await?;
                    match &output {
                        Some(output) => self.record(JournalKind::Step, key, output.clone()),
                        None => drop(self.recorded.lock().open_effects.insert(key.to_owned())),
                    }
                    Ok(output)
                }
                Current::Task(source) => source.begin_effect(key).await,
            }
        })
    }

    fn finish_effect<'a>(
        &'a self,
        key: &'a str,
        output: Json,
    ) -> BoxFuture<'a, Result<(), InputError>> {
        Box::pin(async move {
            match self.current().await? {
                Current::Call(source) => {
                    source.finish_effect(key, output.clone()).await?;
                    self.recorded.lock().open_effects.remove(key);
                    self.record(JournalKind::Step, key, output);
                    Ok(())
                }
                Current::Task(source) => source.finish_effect(key, output).await,
            }
        })
    }

    fn rejected(&self, error: &InputError) {
        match &*self.mode.borrow() {
            Mode::Call(Some(source)) => source.rejected(error),
            Mode::Task(source) => source.rejected(error),
            Mode::Call(None) | Mode::Converting => {}
        }
    }
}

/// The key of `Context::remember`.
const REMEMBERED: &str = "value";
