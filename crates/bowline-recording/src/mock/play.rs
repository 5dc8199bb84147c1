//! Plays a recorded call to a client: notifications, questions, answer.

use std::time::Duration;

use bowline::Context;
use bowline::exchange::{Notification, Outcome, Request, fit_question};
use bowline_core::json::{Object, pick};
use bowline_core::shortened;
use bowline_types::{Json, LoggingLevel, RpcError};
use serde::Deserialize;

use super::MockInner;
use super::continuation::{Position, choose, describe, recorded_answers};
use super::unmatched::Unmatched;
use crate::conversation::{Ask, Ending, RequestKey, Step};

impl MockInner {
    /// Answers a request as the recorded server did.
    pub(super) async fn call(&self, request: Request, cx: &Context) -> Outcome {
        let key = RequestKey::new(&request.method, &request.params);
        let Some(candidates) = self.index.get(&key) else {
            return Err(self.report(Unmatched::request(&key, &self.index)));
        };
        let position = match request_state(&request)? {
            Some(state) => {
                let asked = self.asked_position(&state, candidates)?;
                let answers = self.read_answers(asked, &request);
                self.go_on(&key, candidates, asked, &answers)?
            }
            None => {
                let nth = self.count_use(&key, cx);
                if let Some(error) = self.faults.failure(key.method(), key.params(), nth) {
                    tokio::time::sleep(self.faults.answer_delay(Duration::ZERO)).await;
                    return Err(error);
                }
                Position {
                    script: candidates[nth.min(candidates.len() - 1)],
                    step: 0,
                }
            }
        };
        self.play(&key, candidates, position, &request, cx).await
    }

    async fn play(
        &self,
        key: &RequestKey,
        candidates: &[usize],
        mut position: Position,
        request: &Request,
        cx: &Context,
    ) -> Outcome {
        let scripts = &self.conversation.scripts;
        let mut has_notified = false;
        loop {
            let script = &scripts[position.script];
            match script.steps.get(position.step) {
                None => break,
                Some(Step::Notify {
                    after,
                    notification,
                }) => {
                    sleep(self.faults.delay(*after)).await;
                    has_notified |= notify(notification, request, cx);
                    position.step += 1;
                }
                Some(Step::Ask(ask)) if request.caller.dialect.is_modern() => {
                    sleep(self.answer_delay(ask.after, has_notified)).await;
                    return input_required(ask, position, request);
                }
                Some(Step::Ask(ask)) => {
                    sleep(self.faults.delay(ask.after)).await;
                    let answers = ask_client(ask, cx).await?;
                    position = self.go_on(key, candidates, position, &answers)?;
                }
            }
        }
        match &scripts[position.script].ending {
            Ending::Answer { after, outcome } => {
                sleep(self.answer_delay(*after, has_notified)).await;
                self.tasks.fit(&scripts[position.script], outcome, request)
            }
            // The client cancels it, or gives up.
            Ending::Cancelled | Ending::Silence => std::future::pending().await,
        }
    }

    /// Returns how long to wait before an answer. It does not follow a notification at once: some clients, such as the
    /// TypeScript SDK 2.4.0, drop progress that they read together with the answer, which a real server rarely sends so
    /// fast.
    fn answer_delay(&self, recorded: Duration, has_notified: bool) -> Duration {
        let delay = self.faults.answer_delay(recorded);
        match has_notified {
            true => delay.max(ANSWER_PAUSE),
            false => delay,
        }
    }

    /// Returns the step after the questions at `asked`, in the script that fits the answers.
    fn go_on(
        &self,
        key: &RequestKey,
        candidates: &[usize],
        asked: Position,
        answers: &[Option<Outcome>],
    ) -> Result<Position, RpcError> {
        let scripts = &self.conversation.scripts;
        if let Some(chosen) = choose(scripts, candidates, asked, answers) {
            let step = chosen.step + 1;
            return Ok(Position { step, ..chosen });
        }
        let mut asks = scripts[asked.script].asks();
        let round = asks.position(|(step, _)| step == asked.step);
        let given: Vec<String> = answers.iter().flatten().map(describe).collect();
        let recorded = recorded_answers(scripts, candidates, round.unwrap_or_default());
        let message = format!(
            "the recording does not go on after the answer {}; recorded answers: {}",
            shortened(given.join(" and ")),
            shortened(recorded)
        );
        Err(self.report(Unmatched::answer(key, message)))
    }

    /// Returns the questions that a retry with this state answers.
    fn asked_position(&self, state: &str, candidates: &[usize]) -> Result<Position, RpcError> {
        let position = Position::from_state(state).filter(|position| {
            let script = self.conversation.scripts.get(position.script);
            candidates.contains(&position.script)
                && script.is_some_and(|script| script.ask_at(position.step).is_some())
        });
        position.ok_or_else(|| RpcError::invalid_params("invalid request state"))
    }

    /// Returns the answers of a retry, in the order of the questions.
    fn read_answers(&self, asked: Position, request: &Request) -> Vec<Option<Outcome>> {
        let script = &self.conversation.scripts[asked.script];
        let questions = script.ask_at(asked.step).map(|ask| &ask.questions);
        let responses = request.params.member("inputResponses").ok().flatten();
        let answer = |key: &str| {
            let [answer] = pick(responses.as_ref()?, [key]).ok()?;
            Some(Ok(answer?))
        };
        let questions = questions.into_iter().flatten();
        questions.map(|question| answer(&question.key)).collect()
    }
}

/// Returns the `requestState` of a retry.
fn request_state(request: &Request) -> Result<Option<String>, RpcError> {
    let invalid = |_| RpcError::invalid_params("`requestState` must be one string");
    let state = request.params.member("requestState").map_err(|_| {
        RpcError::invalid_params("params must be an object without duplicate members")
    })?;
    let state = state.filter(|state| !state.is_null());
    state
        .map(|state| state.decode().map_err(invalid))
        .transpose()
}

/// Asks a legacy client, one question after the other: most clients show one dialog at a time.
async fn ask_client(ask: &Ask, cx: &Context) -> Result<Vec<Option<Outcome>>, RpcError> {
    use bowline::exchange::InputError;

    let mut answers = Vec::with_capacity(ask.questions.len());
    for question in &ask.questions {
        let answer = match cx.ask_raw("question", question.request.clone()).await {
            Ok(answer) => Ok(answer),
            // The client's own error is an answer, too.
            Err(InputError::Rpc { error, .. }) => Err(error),
            Err(error) => return Err(error.to_rpc_error()),
        };
        answers.push(Some(answer));
    }
    Ok(answers)
}

/// Returns the result that asks a modern client.
fn input_required(ask: &Ask, position: Position, request: &Request) -> Outcome {
    let mut requests = Vec::with_capacity(ask.questions.len());
    for question in &ask.questions {
        let caller = &request.caller;
        let fitted = fit_question(caller.dialect, question.request.clone());
        let fitted = fitted.map_err(|unsupported| RpcError::internal(unsupported.to_string()))?;
        let supported = fitted.check_capabilities(&caller.capabilities);
        supported.map_err(|missing| missing.to_rpc_error())?;
        requests.push((question.key.as_str(), fitted.to_json()));
    }
    let mut result = Object::default();
    result.set("resultType", text("input_required"));
    if !requests.is_empty() {
        let requests = requests.iter().map(|(key, request)| (*key, request));
        result.set("inputRequests", Json::object(requests));
    }
    result.set("requestState", text(&position.to_state()));
    Ok(result.to_json())
}

/// Sends a notification to the client, if it wants it; returns whether it was sent.
fn notify(notification: &Notification, request: &Request, cx: &Context) -> bool {
    let params = notification.params.as_ref();
    let notification = match &*notification.method {
        "notifications/progress" => {
            let (Some(token), Some(params)) = (&request.progress_token, params) else {
                return false;
            };
            let Ok(mut params) = Object::read(params) else {
                return false;
            };
            let Ok(token) = Json::encode(token) else {
                return false;
            };
            params.set("progressToken", token);
            Notification::new(notification.method.clone(), Some(params.to_json()))
        }
        "notifications/message" => {
            let least = cx.caller().least_log_level();
            let level = params.and_then(level_of);
            if least.is_none_or(|least| level.is_some_and(|level| level < least)) {
                return false;
            }
            notification.clone()
        }
        _ => notification.clone(),
    };
    cx.send(notification);
    true
}

fn level_of(params: &Json) -> Option<LoggingLevel> {
    #[derive(Deserialize)]
    struct Level {
        level: LoggingLevel,
    }
    Some(params.decode::<Level>().ok()?.level)
}

/// Waits. Without a delay it does not yield, so that a mock without faults needs no timer.
pub(super) async fn sleep(delay: Duration) {
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
}

fn text(text: &str) -> Json {
    Json::from(serde_json::Value::from(text))
}

/// The least time between a notification and the answer after it.
const ANSWER_PAUSE: Duration = Duration::from_millis(5);
