//! Calls that are tasks: questions, answers, cancel, expiry, and what is left of them.

use std::collections::BTreeMap;

use bowline::Json;
use bowline::exchange::{Outcome, Principal};
use serde_json::json;
use tokio::time::advance;

use super::fake::*;
use crate::parked::budget::Usage;
use crate::parked::{ParkSettings, ParkedCalls, ParkedTask, TaskState};

/// A task with one question.
struct Scene {
    calls: ParkedCalls<FakeUpstream>,
    events: tokio::sync::mpsc::UnboundedSender<FakeEvent>,
    log: UpstreamLog,
    host: crate::parked::HostSide<FakeUpstream>,
    question: tokio::task::JoinHandle<Outcome>,
    id: String,
}

async fn task() -> Scene {
    let calls = parked_calls(ParkSettings::default());
    let it = open(&calls);
    let question = tokio::spawn(it.host.question(elicitation()));
    it.call.questions_ready().await;
    let id = it.call.into_task(it.upstream).unwrap().id;
    Scene {
        calls,
        events: it.events,
        log: it.log,
        host: it.host,
        question,
        id,
    }
}

impl Scene {
    fn find(&self) -> ParkedTask<FakeUpstream> {
        let found = self.calls.find_task(&self.id, &ada(), "fake");
        found.unwrap().expect("the task is known")
    }

    /// The state of the task: "working", the keys of its questions, its outcome, or "cancelled".
    fn state(&self) -> String {
        match self.find().view().unwrap().state {
            TaskState::Working => "working".to_owned(),
            TaskState::InputRequired(questions) => {
                let keys: Vec<String> = questions.into_iter().map(|(key, _)| key).collect();
                keys.join(" ")
            }
            TaskState::Ended(Ok(result)) => result.as_str().to_owned(),
            TaskState::Ended(Err(error)) => error.message,
            TaskState::Cancelled => "cancelled".to_owned(),
        }
    }
}

fn answers(key: &str, answer: serde_json::Value) -> BTreeMap<String, Json> {
    [(key.to_owned(), answer.into())].into()
}

#[tokio::test(start_paused = true)]
async fn a_task_asks_is_answered_and_keeps_its_result() {
    let it = task().await;
    assert_eq!(it.state(), "q1");

    let wrong = it.find().answer(&answers("q1", json!({"action": 7})));
    assert_eq!(wrong.unwrap_err().code.0, -32602);
    assert_eq!(it.state(), "q1", "a wrong answer changes nothing");
    it.find().answer(&answers("q1", accepted())).unwrap();

    assert!(it.question.await.unwrap().is_ok());
    let found = it.calls.find_task(&it.id, &ada(), "fake").unwrap().unwrap();
    assert!(matches!(found.view().unwrap().state, TaskState::Working));
    it.events.send(FakeEvent::Answer(Ok(result()))).unwrap();
    settle().await;
    assert_eq!(it.calls.open_calls(), 1, "its client does not know yet");
    let view = found.view().unwrap();
    assert!(matches!(view.state, TaskState::Ended(Ok(_))), "{view:?}");
    assert_eq!(it.calls.open_calls(), 0, "a drain does not wait for it");
    assert_eq!(it.log.ends(), ["answered"]);
    found.cancel();
    let view = found.view().unwrap();
    assert!(
        matches!(view.state, TaskState::Ended(Ok(_))),
        "it has ended before"
    );
}

#[tokio::test(start_paused = true)]
async fn keys_of_questions_are_not_used_again() {
    let it = task().await;
    it.find().answer(&answers("q1", accepted())).unwrap();

    let second = tokio::spawn(it.host.question(elicitation()));
    settle().await;

    assert_eq!(it.state(), "q2");
    it.find().answer(&answers("q2", accepted())).unwrap();
    assert!(second.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_task_is_cancelled_upstream_and_stays_known() {
    let it = task().await;

    it.find().cancel();
    it.find().cancel();
    settle().await;

    assert_eq!(it.log.ends(), ["the client cancelled the task"]);
    assert_eq!(it.state(), "cancelled");
    assert_eq!(it.calls.used(), Usage::default());
    assert_eq!(it.calls.open_calls(), 0);
    assert!(it.question.await.unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_not_answered_in_time_ends_the_task() {
    let it = task().await;

    advance(ParkSettings::default().park_timeout).await;
    settle().await;

    assert_eq!(it.log.ends(), ["the client did not answer in time"]);
    assert_eq!(it.calls.open_calls(), 0, "a drain does not wait for it");
    assert_eq!(it.state(), "the client did not answer in time");
    assert!(it.question.await.unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn an_answer_ends_the_deadline_of_the_question_but_not_that_of_the_task() {
    let it = task().await;
    it.find().answer(&answers("q1", accepted())).unwrap();
    let settings = ParkSettings::default();

    advance(settings.park_timeout * 2).await;
    settle().await;
    assert_eq!(it.state(), "working");
    assert_eq!(it.log.ends(), [""; 0]);

    advance(settings.max_parked_time).await;
    settle().await;
    assert_eq!(it.log.ends(), ["the client did not answer in time"]);
    let found = it.calls.find_task(&it.id, &ada(), "fake");
    assert!(refusal(found.map(|_| ())).contains("-32602 the task has expired"));
    assert_eq!(it.calls.used(), Usage::default());
}

#[tokio::test(start_paused = true)]
async fn a_task_is_known_to_its_principal_and_server_only() {
    let it = task().await;

    let bob = Principal::named("bob");
    for (principal, server) in [(&bob, "fake"), (&ada(), "other")] {
        let found = it.calls.find_task(&it.id, principal, server).unwrap();
        assert!(found.is_none());
    }
    assert!(it.calls.find_task("7", &ada(), "fake").unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_task_of_another_process_is_lost() {
    let it = task().await;
    let later = parked_calls(ParkSettings::default());

    let found = later.find_task(&it.id, &ada(), "fake");

    let refused = refusal(found.map(|_| ()));
    assert!(refused.contains("callLost"), "{refused}");
    assert!(refused.contains("-32603"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn tasks_are_charged() {
    let settings = ParkSettings {
        max_calls: 1,
        ..ParkSettings::default()
    };
    let calls = parked_calls(settings);
    let (first, second) = (open(&calls), open(&calls));
    let _asked = [&first, &second].map(|it| tokio::spawn(it.host.question(elicitation())));
    settle().await;

    assert!(first.call.into_task(first.upstream).is_ok());
    let refused = second.call.into_task(second.upstream);

    assert!(refusal(refused).contains("too many parked calls"));
    assert_eq!(second.log.ends(), ["too many parked calls"]);
    assert_eq!(first.log.ends(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn tasks_end_with_the_last_handle_of_the_calls() {
    let it = task().await;

    drop(it.calls);
    settle().await;

    assert_eq!(it.log.ends(), ["dropped"]);
    assert!(it.question.await.unwrap().is_err());
}
