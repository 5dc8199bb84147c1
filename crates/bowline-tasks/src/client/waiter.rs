//! `Waiter`, which waits for the end of a task inside a call.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bowline::client::ExtensionCall;
use bowline::{Progress, Result};
use bowline_types::Json;
use tokio::time::sleep;

use super::extension::Settings;
use super::info::TaskInfo;
use super::listener::{Listener, ListenerEvent};
use super::poller::{Poller, PollerEvent};
use super::questions::{Questions, QuestionsEvent};
use super::task::Task;
use super::wait::OnStatus;
use crate::store::TaskStatus;

pub(super) struct Waiter<'a> {
    task: &'a Arc<Task>,
    cx: &'a ExtensionCall,
    settings: Settings,
    on_status: Option<OnStatus>,
    listener: Listener,
    poller: Poller,
    /// `None` as long as a short task has no input requests.
    questions: Option<Box<Questions>>,
    manual_input: bool,
    /// Of one request.
    timeout: Duration,
    /// The status that the callbacks have got.
    reported: Option<(TaskStatus, Option<String>)>,
    messages: u64,
}

impl<'a> Waiter<'a> {
    /// Creates a waiter that requests the status immediately.
    pub(super) fn new(task: &'a Arc<Task>, cx: &'a ExtensionCall, settings: Settings) -> Self {
        // Less than the idle timeout: with a total timeout, a request is repeated before the idle timeout elapses.
        let timeout = cx.idle_timeout().map(|idle| idle.mul_f64(0.75));
        let timeout = timeout.unwrap_or(REQUEST_TIMEOUT).min(REQUEST_TIMEOUT);
        Self {
            listener: Listener::new(task.clone(), settings.clone()),
            poller: Poller::new(task.clone(), timeout),
            questions: None,
            manual_input: false,
            timeout,
            task,
            cx,
            settings,
            on_status: None,
            reported: None,
            messages: 0,
        }
    }

    pub(super) fn on_status(mut self, on_status: Option<OnStatus>) -> Self {
        self.on_status = on_status;
        self
    }

    pub(super) fn manual_input(mut self, is_manual: bool) -> Self {
        self.manual_input = is_manual;
        self
    }

    /// Waits for the end of a task that was just created in this state.
    pub(super) async fn run_from(&mut self, created: &TaskInfo) -> Result<Json> {
        self.observed(created);
        // A short task has ended already.
        self.poller.hasten();
        self.run().await
    }

    /// Waits for the end of the task, and returns the result of the call.
    ///
    /// # Errors
    ///
    /// The error of the task, or one of the connection that is not worth waiting for.
    ///
    /// # Cancel safety
    ///
    /// Safe: answers that were not sent are kept in the task.
    pub(super) async fn run(&mut self) -> Result<Json> {
        // Another wait may have received the end.
        if self.task.outcome().is_none() {
            self.first_state().await?;
        }
        match self.task.outcome() {
            Some(outcome) => outcome,
            // Boxed: most of what it needs is not needed for a short task.
            None => Box::pin(self.run_on()).await,
        }
    }

    /// Requests the state, and waits a while for it, before all else is started that only a longer task needs.
    async fn first_state(&mut self) -> Result<()> {
        let idle_timeout = self.cx.idle_timeout();
        let limit = idle_timeout.map_or(MAX_HOLD, |idle| MAX_HOLD.min(idle / 2));
        let mut limit = pin!(sleep(limit));
        loop {
            tokio::select! {
                // The state first, so that the timer is not even started if it is there at once.
                biased;
                event = self.poller.next() => {
                    let event = event?;
                    let is_state = matches!(event, PollerEvent::Task(_));
                    self.polled(event)?;
                    if is_state {
                        return Ok(());
                    }
                }
                () = &mut limit => {
                    self.listener.begin();
                    return Ok(());
                }
            }
        }
    }

    async fn run_on(&mut self) -> Result<Json> {
        let mut over = pin!(self.task.client.closed());
        // Also without input requests: another wait for the same task may have left answers to send.
        self.questions();
        loop {
            if let Some(outcome) = self.task.outcome() {
                return outcome;
            }
            let heartbeat = self.heartbeat();
            tokio::select! {
                // States first: the end of the task counts even if the connection is lost after it. One that was received
                // counts even if a request has failed since.
                biased;
                event = self.listener.next() => self.listened(event).await,
                event = self.poller.next() => self.polled(event?)?,
                event = next_answer(self.questions.as_deref_mut()) => self.answered(&event?),
                error = &mut over => return Err(error),
                () = sleep(heartbeat.unwrap_or_default()), if heartbeat.is_some() => {}
            }
        }
    }

    /// Restarts the idle timeout unless the server owes an answer, and returns when to do it again.
    ///
    /// The idle timeout limits how long the server may be silent, and a server is not silent while it is not asked. With
    /// a total timeout, which limits that too, a server may be away for longer.
    fn heartbeat(&self) -> Option<Duration> {
        let is_calm = !self.poller.is_in_flight() && self.may_be_away();
        let idle_timeout = self.cx.idle_timeout().filter(|_| is_calm)?;
        self.cx.active();
        Some(idle_timeout / 2)
    }

    /// Returns whether the idle timeout is restarted even though the server has shown no life.
    fn may_be_away(&self) -> bool {
        !self.poller.is_failing() || self.cx.remaining_time().is_some()
    }

    async fn listened(&mut self, event: ListenerEvent) {
        match event {
            ListenerEvent::Opened => self.poller.set_listening(true),
            ListenerEvent::Task(info) => self.received(*info),
            ListenerEvent::Missed => self.poller.hasten(),
            ListenerEvent::Ended => self.poller.set_listening(false),
            ListenerEvent::Ignored => {}
        }
        // A server that sends notifications without end must not keep the timeouts from being checked.
        tokio::task::yield_now().await;
    }

    fn polled(&mut self, event: PollerEvent) -> Result<()> {
        match event {
            PollerEvent::Task(info) => {
                if let Some(questions) = &mut self.questions {
                    questions.check_refused(&info)?;
                }
                if !info.is_finished() {
                    self.listener.begin();
                }
                self.received(*info);
            }
            // The server has the whole idle timeout to answer.
            PollerEvent::Sent if self.may_be_away() => self.cx.active(),
            PollerEvent::Sent | PollerEvent::Failed => {}
        }
        Ok(())
    }

    fn answered(&mut self, event: &QuestionsEvent) {
        match event {
            QuestionsEvent::Refused => self.poller.hasten(),
            QuestionsEvent::Answered | QuestionsEvent::Sent | QuestionsEvent::Failed => {}
        }
    }

    fn received(&mut self, info: TaskInfo) {
        let info = self.task.observe(info);
        self.observed(&info);
    }

    /// Handles the current state.
    fn observed(&mut self, info: &TaskInfo) {
        self.cx.active();
        if !info.is_settled() {
            self.poller.received(info.poll_interval);
            if info.is_finished() {
                self.poller.hasten(); // the result comes with `tasks/get`
            }
        }
        self.report(info);
        if self.questions.is_some() || !info.input_requests.is_empty() {
            self.questions().received(info);
        }
    }

    fn questions(&mut self) -> &mut Questions {
        let (task, cx, timeout) = (self.task, self.cx, self.timeout);
        let is_manual = self.manual_input;
        self.questions.get_or_insert_with(|| {
            let questions = Questions::new(task.clone(), cx.clone(), timeout);
            Box::new(questions.manual(is_manual))
        })
    }

    /// Calls the callbacks if the status or its message has changed.
    fn report(&mut self, info: &TaskInfo) {
        let status = Some((info.status, info.status_message.clone()));
        if self.reported == status {
            return;
        }
        let is_new_message = self
            .reported
            .as_ref()
            .is_none_or(|(_, message)| *message != info.status_message);
        self.reported = status;
        self.settings.report(info);
        if let Some(on_status) = &mut self.on_status {
            on_status(info);
        }
        if let Some(message) = info.status_message.as_ref().filter(|_| is_new_message) {
            self.messages += 1;
            self.cx
                .progress(Progress::new(self.messages).message(message));
        }
    }
}

async fn next_answer(questions: Option<&mut Questions>) -> Result<QuestionsEvent> {
    match questions {
        Some(questions) => questions.next().await,
        None => pending().await,
    }
}

/// The longest time that one request about a task may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the first answer may take before the client subscribes without it.
const MAX_HOLD: Duration = Duration::from_millis(500);
