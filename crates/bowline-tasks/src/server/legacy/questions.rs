//! [`Questions`]: the questions of a task as server-to-client requests of a client that waits in `tasks/result`.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use bowline::Context;
use bowline::exchange::{
    BoxFuture, Caller, InputError, InputRequestOptions, InputSource, RawInputRequest,
};
use bowline_types::Json;
use serde::Deserialize;

use super::refused_input::to_answer;
use super::task::with_related_task;
use crate::TaskId;
use crate::server::run::shown;
use crate::store::TaskRecord;

/// The questions of a task that one client was asked.
///
/// Dropping it withdraws the requests. The questions stay open for the next client that waits.
pub(super) struct Questions {
    id: TaskId,
    caller: Arc<Caller>,
    /// Sends server-to-client requests.
    source: Option<Arc<dyn InputSource>>,
    /// Keys of questions that this client was asked, or cannot be asked.
    seen: BTreeSet<String>,
    open: BTreeMap<String, BoxFuture<'static, Result<Json, InputError>>>,
}

impl Questions {
    pub(super) fn new(id: TaskId, cx: &Context) -> Self {
        Self {
            id,
            caller: cx.caller().clone(),
            source: cx.input_source(),
            seen: BTreeSet::new(),
            open: BTreeMap::new(),
        }
    }

    /// Asks the questions that are new, and withdraws those that were answered elsewhere or are no longer needed.
    pub(super) fn follow(&mut self, record: &TaskRecord) {
        self.open
            .retain(|key, _| record.questions.contains_key(key));
        for (key, question) in &record.questions {
            if !self.seen.insert(key.clone()) {
                continue;
            }
            if let Some(answer) = self.ask(key, question) {
                self.open.insert(key.clone(), answer);
            }
        }
    }

    /// Waits for the next answer of the client, which belongs to this key.
    ///
    /// # Cancel safety
    ///
    /// Safe: a question is removed only when its answer is returned.
    pub(super) async fn next_answer(&mut self) -> (String, Json) {
        loop {
            let (key, answer) = poll_fn(|cx| {
                let mut open = self.open.iter_mut();
                let answered = open.find_map(|(key, answer)| match answer.as_mut().poll(cx) {
                    Poll::Ready(answer) => Some((key.clone(), answer)),
                    Poll::Pending => None,
                });
                answered.map_or(Poll::Pending, Poll::Ready)
            })
            .await;
            self.open.remove(&key);
            match answer {
                Ok(answer) => return (key, answer),
                Err(InputError::Rpc { error, .. }) => {
                    if let Ok(refused) = to_answer(error) {
                        return (key, refused);
                    }
                }
                // It stays open: the client may wait again, or another one.
                Err(error) => {
                    tracing::debug!(task = %shown(self.id), %error, "failed to ask a question of a task");
                }
            }
        }
    }

    /// Sends a question; `None` if the client cannot answer it.
    fn ask(
        &self,
        key: &str,
        question: &Json,
    ) -> Option<BoxFuture<'static, Result<Json, InputError>>> {
        let source = self.source.clone()?;
        let request = self.to_request(question)?;
        // The client that created the task may have had other capabilities.
        if let Err(error) = request.check_capabilities(&self.caller.capabilities) {
            tracing::debug!(task = %shown(self.id), %error, "a client cannot answer a question of its task");
            return None;
        }
        let key = key.to_owned();
        Some(Box::pin(async move {
            let options = InputRequestOptions::default();
            source.ask(&key, request, options).await
        }))
    }

    fn to_request(&self, question: &Json) -> Option<RawInputRequest> {
        #[derive(Deserialize)]
        struct Question {
            method: String,
            params: Option<Json>,
        }
        let question: Question = question.decode().ok()?;
        let params = question.params.unwrap_or_else(Json::empty_object);
        let params = with_related_task(&params, self.id).ok()?;
        RawInputRequest::from_request(&question.method, Some(params))
    }
}
