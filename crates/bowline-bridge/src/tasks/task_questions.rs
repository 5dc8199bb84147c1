//! [`TaskQuestions`]: what a legacy server asks about one task, until its modern client answers with `tasks/update`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline::exchange::{BoxFuture, Dialect, Outcome, RawInputRequest, fit_question};
use bowline::{ErrorCode, Json, RpcError};
use tokio::sync::{Notify, oneshot};

use super::{forms, open_tasks};
use crate::questions::AskClient;

/// The open questions of a task.
pub(super) struct TaskQuestions {
    /// The version of the client.
    dialect: &'static Dialect,
    open: Mutex<BTreeMap<String, OpenQuestion>>,
    asked: Notify,
}

struct OpenQuestion {
    question: RawInputRequest,
    answer: oneshot::Sender<Json>,
}

impl TaskQuestions {
    pub(super) fn new(dialect: &'static Dialect) -> Arc<Self> {
        Arc::new(Self {
            dialect,
            open: Mutex::default(),
            asked: Notify::new(),
        })
    }

    /// Returns the open questions by their keys. Waits for one for a while.
    pub(super) async fn wait(&self, timeout: Duration) -> Vec<(String, Json)> {
        let deadline = tokio::time::Instant::now() + timeout;
        loop {
            let asked = self.asked.notified();
            let open = self.read();
            if !open.is_empty() || tokio::time::timeout_at(deadline, asked).await.is_err() {
                return open;
            }
        }
    }

    /// Passes answers to the server. Those to unknown questions are ignored, since they may have been withdrawn.
    ///
    /// # Errors
    ///
    /// -32602 if an answer has not the shape that its question demands. Then no answer is passed.
    pub(super) fn answer(&self, answers: BTreeMap<String, Json>) -> Result<(), RpcError> {
        let mut open = self.lock();
        for (key, answer) in &answers {
            if let Some(open) = open.get(key) {
                let checked = open.question.kind.check_answer(answer);
                checked.map_err(|expected| {
                    RpcError::invalid_params(format!("invalid answer to `{key}`: {expected}"))
                })?;
            }
        }
        let mut answered = Vec::new();
        for (key, answer) in answers {
            if let Some(open) = open.remove(&key) {
                answered.push((open.answer, answer));
            }
        }
        drop(open);
        for (sender, answer) in answered {
            // Fails if the server has withdrawn the question.
            let _ = sender.send(answer);
        }
        Ok(())
    }

    fn add(&self, question: RawInputRequest) -> Result<Asked<'_>, RpcError> {
        let question = fit_question(self.dialect, question)
            .map_err(|unsupported| RpcError::invalid_params(unsupported.to_string()))?;
        let params = question.params.as_ref().map(forms::without_related_task);
        let question = RawInputRequest::new(question.kind, params);
        // Random, because a key is never used again for the same task, not even by another process.
        let key = open_tasks::random_text()?;
        let (sender, answer) = oneshot::channel();
        let mut open = self.lock();
        if open.len() == MAX_QUESTIONS {
            let why = "too many requests wait for the client";
            return Err(RpcError::new(ErrorCode::INTERNAL_ERROR, why));
        }
        let added = OpenQuestion {
            question,
            answer: sender,
        };
        open.insert(key.clone(), added);
        drop(open);
        self.asked.notify_waiters();
        Ok(Asked {
            questions: self,
            key,
            answer,
        })
    }

    fn read(&self) -> Vec<(String, Json)> {
        let open = self.lock();
        let open = open.iter();
        open.map(|(key, open)| (key.clone(), open.question.to_json()))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, OpenQuestion>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AskClient for TaskQuestions {
    fn ask(&self, question: RawInputRequest) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            let mut asked = self.add(question)?;
            (&mut asked.answer).await.map_err(|_| {
                RpcError::new(ErrorCode::INTERNAL_ERROR, "the client has no such task")
            })
        })
    }
}

/// A question that is withdrawn when this is dropped.
struct Asked<'a> {
    questions: &'a TaskQuestions,
    key: String,
    answer: oneshot::Receiver<Json>,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let withdrawn = self.questions.lock().remove(&self.key);
        drop(withdrawn); // not under the lock
    }
}

/// How many questions of one task are open.
const MAX_QUESTIONS: usize = 16;

#[cfg(test)]
mod tests {
    use bowline::Context;
    use bowline::exchange::{Caller, InputKind, Request, Responder as _};
    use serde_json::json;

    use super::*;
    use crate::parked::KeptNotifications;
    use crate::questions::{ConnectionClients, Questions, UpstreamHost};

    fn roots() -> RawInputRequest {
        let params = json!({"_meta": {"io.modelcontextprotocol/related-task": {"taskId": "7"}}});
        RawInputRequest::new(InputKind::Roots, Some(params.into()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_has_a_key_until_it_is_answered_in_the_right_shape() {
        let questions = TaskQuestions::new(Dialect::of("2026-07-28").unwrap());
        let asked = tokio::spawn({
            let questions = questions.clone();
            async move { questions.ask(roots()).await }
        });
        let open = questions.wait(Duration::from_secs(60)).await;
        let (key, question) = open.first().unwrap().clone();
        let answer = |answer: serde_json::Value| [(key.clone(), Json::from(answer))].into();

        assert!(!question.as_str().contains("related-task"), "{question:?}");
        assert!(questions.answer(answer(json!({"wrong": 1}))).is_err());
        questions
            .answer([("other".to_owned(), Json::null())].into())
            .unwrap();
        assert_eq!(questions.read().len(), 1);
        questions.answer(answer(json!({"roots": []}))).unwrap();

        assert_eq!(asked.await.unwrap().unwrap().as_str(), r#"{"roots":[]}"#);
        assert_eq!(questions.read(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_the_server_withdraws_is_gone() {
        let questions = TaskQuestions::new(Dialect::of("2026-07-28").unwrap());
        let mut asked = questions.ask(roots());
        let early = tokio::time::timeout(Duration::from_millis(1), &mut asked).await;
        assert!(early.is_err());
        assert_eq!(questions.read().len(), 1);

        drop(asked);

        assert_eq!(questions.wait(Duration::from_secs(1)).await, []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_names_a_task_is_put_to_the_client_of_that_task() {
        let all = Questions::new("upstream".into(), 4, ConnectionClients::default());
        let clients = ["6", "7"].map(|id| {
            let client = TaskQuestions::new(Dialect::of("2026-07-28").unwrap());
            (all.register_task(id.into(), client.clone()), client)
        });
        let asked = || {
            let host = UpstreamHost(all.clone());
            let caller = Arc::new(Caller::new(Dialect::of("2025-11-25").unwrap()));
            let params = roots().params.unwrap();
            let request = Request::new("roots/list", params, caller);
            let cx = Context::new(1.into(), &request, Arc::<KeptNotifications>::default());
            tokio::spawn(async move { host.respond(request, cx).await })
        };

        let first = asked();
        let [(_, other), (registered, client)] = clients;
        let open = client.wait(Duration::from_secs(1)).await;
        client
            .answer([(open[0].0.clone(), json!({"roots": []}).into())].into())
            .unwrap();
        assert!(first.await.unwrap().is_ok());
        assert_eq!(other.read(), []);

        drop(registered);
        assert!(asked().await.unwrap().is_err(), "no client has the task");
    }
}
