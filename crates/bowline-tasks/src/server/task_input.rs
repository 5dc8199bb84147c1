//! [`TaskInput`]: how the handler of a task asks its client, and keeps values and effects for a later run.
//!
//! Questions are in the record, so that every process can show and answer them. Values and effects are in the journal.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bowline::exchange::{BoxFuture, InputError, InputRequestOptions, InputSource, RawInputRequest};
use bowline_types::{ErrorCode, Json, RpcError};

use super::legacy::read_answer;
use super::retry::Backoff;
use super::run::{Stop, TaskRun, Written, is_passing, log_failed};
use crate::store::{Appended, Fence, JournalEntry, JournalKind, RunMode, StoreError, TaskChange};
use crate::sync::Mutex;

/// The input source of a task's handler.
pub(super) struct TaskInput {
    run: Arc<TaskRun>,
    journal: Mutex<Journal>,
    /// How many effects have begun in this run.
    begun: AtomicU64,
}

/// What earlier runs and this one have journalled.
#[derive(Debug, Default)]
struct Journal {
    effects: BTreeMap<String, Json>,
    answers: BTreeMap<String, Json>,
    remembered: BTreeMap<String, Remembered>,
}

/// A value that was stored under a key, and how often one was. The journal keeps the first entry of each name, so a
/// replaced value has a name of its own: `value`, `value#2`.
#[derive(Debug)]
struct Remembered {
    value: Json,
    times: u32,
}

impl TaskInput {
    pub(super) fn new(run: Arc<TaskRun>, entries: Vec<JournalEntry>) -> Self {
        let mut journal = Journal::default();
        for entry in entries {
            journal.add(entry);
        }
        Self {
            run,
            journal: Mutex::new(journal),
            begun: AtomicU64::new(0),
        }
    }

    /// Counts effects that began before the call became the task: they are finished here.
    pub(super) fn adopt_effects(&self, count: usize) {
        self.run.adopt_effects(count);
    }

    /// Returns the error for what is left of a handler after its run has stopped. Never returns for the others: they
    /// are dropped.
    async fn ended(&self) -> InputError {
        self.run.unheard().await;
        InputError::RequestEnded
    }

    /// Appends an entry, and tries again while the store fails in a way that may pass. [Ends](Self::ended) after the
    /// lease was lost.
    async fn append(&self, entry: JournalEntry) -> Result<Appended, InputError> {
        let run = &self.run;
        let mut backoff = Backoff::new(MAX_APPEND_DELAY);
        loop {
            match run.store.append(run.id, run.fence, entry.clone()).await {
                Ok(Appended::LeaseLost) => {
                    run.stop(Stop::Lost);
                    return Err(self.ended().await);
                }
                Ok(appended) => return Ok(appended),
                Err(error) if is_passing(&error) => {
                    log_failed(run.id, &error);
                    backoff.wait().await;
                }
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Returns whether the journal survives this process for another run.
    fn is_journalled(&self) -> bool {
        self.run.run_mode != RunMode::NotResumable
    }

    /// Returns the answer to a question that was answered before.
    fn known_answer(&self, key: &str) -> Option<Json> {
        let before = self.journal.lock().answers.get(key).cloned();
        before.or_else(|| {
            self.run
                .with_record(|record| record.answers.get(key).cloned())
        })
    }

    async fn ask_client(&self, key: &str, question: Json) -> Result<Json, InputError> {
        if let Some(answer) = self.known_answer(key) {
            return read_answer(key, answer);
        }
        let open = self
            .run
            .with_record(|record| record.questions.get(key).cloned());
        if open.is_some_and(|open| open != question) {
            // Only after a restart. The client may have shown the first question to its user already.
            let what = format!(
                "the handler asked another question under the key `{key}` when it was run again"
            );
            return Err(InputError::Misuse { what });
        }
        let withdrawal = Withdrawal {
            run: &self.run,
            key,
            is_answered: false,
        };
        let change = TaskChange::new().ask(key, question);
        match self.run.write_with_retries(&change).await {
            Ok(Written::Done) => {}
            // The handler is dropped.
            Ok(Written::Lost) => pending().await,
            Err(error) => return Err(failed(error)),
        }
        let answered = self
            .run
            .wait_for(|view| view.record.answers.get(key).cloned());
        let answer = answered.await;
        withdrawal.answered();
        read_answer(key, answer)
    }

    async fn begin(&self, key: &str) -> Result<Option<Json>, InputError> {
        let known = self.journal.lock().effects.get(key).cloned();
        if known.is_some() {
            return Ok(known);
        }
        // Another process may run the handler meanwhile.
        let is_lost = self.is_journalled() && self.run.has_given_up();
        if is_lost || !self.run.begin_effect() {
            return Err(self.ended().await);
        }
        if self.run.run_mode == RunMode::AtMostOnce {
            let token = self.start_token();
            let entry = JournalEntry::new(JournalKind::Started, key, token.clone());
            let appended = self.append(entry).await;
            let appended = appended.inspect_err(|_| self.run.finish_effect())?;
            if matches!(appended, Appended::Existing(stored) if stored != token) {
                self.run.stop(Stop::Fail(interrupted(key)));
                return Err(self.ended().await);
            }
        }
        Ok(None)
    }

    /// Returns a value that no other start of an effect has. A store that fails after it has stored the entry returns it
    /// when it is appended again, and then the effect has not started before.
    fn start_token(&self) -> Json {
        let Fence { owner, attempt } = self.run.fence;
        let nth = self.begun.fetch_add(1, Ordering::Relaxed);
        Json::from(serde_json::Value::from(format!(
            "{owner} {} {nth}",
            attempt.number()
        )))
    }

    async fn finish(&self, key: &str, output: Json) -> Result<(), InputError> {
        let output = output.to_unshared();
        if self.is_journalled() {
            let entry = JournalEntry::new(JournalKind::Step, key, output.clone());
            self.append(entry).await?;
        }
        self.journal.lock().effects.insert(key.to_owned(), output);
        self.run.finish_effect();
        Ok(())
    }

    async fn remember(&self, key: &str, value: Json) -> Result<(), InputError> {
        let value = value.to_unshared();
        let times = match self.journal.lock().remembered.get(key) {
            // A handler that runs again stores the same again.
            Some(known) if known.value == value => return Ok(()),
            Some(known) => known.times.saturating_add(1),
            None => 1,
        };
        if self.is_journalled() {
            let name = match times {
                1 => key.to_owned(),
                nth => format!("{key}#{nth}"),
            };
            let entry = JournalEntry::new(JournalKind::Remembered, name, value.clone());
            self.append(entry).await?;
        }
        let remembered = Remembered { value, times };
        self.journal
            .lock()
            .remembered
            .insert(key.to_owned(), remembered);
        Ok(())
    }
}

impl Journal {
    fn add(&mut self, entry: JournalEntry) {
        match entry.kind {
            JournalKind::Step => drop(self.effects.insert(entry.name, entry.value)),
            JournalKind::Answer => drop(self.answers.insert(entry.name, entry.value)),
            JournalKind::Remembered => {
                let numbered = entry.name.rsplit_once('#');
                let numbered = numbered.and_then(|(key, nth)| Some((key, nth.parse().ok()?)));
                let (key, times) = numbered.unwrap_or((&entry.name, 1));
                let value = entry.value;
                let remembered = Remembered { value, times };
                self.remembered.insert(key.to_owned(), remembered);
            }
            // Read from the store when the effect begins.
            JournalKind::Started => {}
        }
    }
}

impl InputSource for TaskInput {
    fn ask<'a>(
        &'a self,
        key: &'a str,
        request: RawInputRequest,
        // The timeout is that of a server-to-client request, which a task does not send.
        _options: InputRequestOptions,
    ) -> BoxFuture<'a, Result<Json, InputError>> {
        Box::pin(self.ask_client(key, request.to_json()))
    }

    fn store<'a>(&'a self, key: &'a str, value: Json) -> BoxFuture<'a, Result<(), InputError>> {
        Box::pin(self.remember(key, value))
    }

    fn stored<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Json>, InputError>> {
        let journal = self.journal.lock();
        let stored = journal.remembered.get(key).map(|it| it.value.clone());
        Box::pin(std::future::ready(Ok(stored)))
    }

    fn begin_effect<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Json>, InputError>> {
        Box::pin(self.begin(key))
    }

    fn finish_effect<'a>(
        &'a self,
        key: &'a str,
        output: Json,
    ) -> BoxFuture<'a, Result<(), InputError>> {
        Box::pin(self.finish(key, output))
    }

    fn rejected(&self, error: &InputError) {
        self.run.reject(error);
    }
}

/// Withdraws a question when the handler no longer waits for its answer.
struct Withdrawal<'a> {
    run: &'a TaskRun,
    key: &'a str,
    is_answered: bool,
}

impl Withdrawal<'_> {
    fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.run.withdraw(self.key.to_owned());
        }
    }
}

/// The error of a task whose step was interrupted and must not run again.
fn interrupted(key: &str) -> RpcError {
    let name = key.split_once(':').map_or(key, |(_, name)| name);
    let message = format!(
        "step `{name}` was interrupted; it may have run, and it must run at most once, so the task \
         cannot continue"
    );
    RpcError::new(ErrorCode::INTERNAL_ERROR, message)
}

fn failed(error: StoreError) -> InputError {
    InputError::Source(Box::new(error))
}

const MAX_APPEND_DELAY: std::time::Duration = std::time::Duration::from_secs(2);
