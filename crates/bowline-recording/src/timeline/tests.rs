//! Tests of the matching of messages to exchanges.

use std::time::Duration;

use super::*;
use crate::Side;
use crate::script::{http, stdio};

fn kinds(timeline: &Timeline) -> Vec<(Option<usize>, EntryKind)> {
    let entries = timeline.entries().iter();
    entries.map(|it| (it.exchange, it.kind.clone())).collect()
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

#[test]
fn a_request_and_its_answer_are_one_exchange() {
    let timeline = Timeline::of(&stdio(
        r#"
        0 > {"id":1,"method":"tools/call","params":{"name":"add",$M}}
        1 > {"id":2,"method":"tools/call","params":{"name":"sub",$M}}
        5 < {"id":2,"result":{$S,"isError":true}}
        9 < {"id":1,"error":{"code":-32602,"message":"no"}}
        "#,
    ));

    let add = timeline.exchange(1).unwrap();
    assert_eq!(
        (add.name.as_deref(), add.state),
        (Some("add"), ExchangeState::Failed(-32602))
    );
    assert_eq!(add.duration(), Some(millis(9)));
    assert!(add.is_modern());
    assert_eq!(
        timeline.exchange(2).unwrap().state,
        ExchangeState::ToolError
    );
    let numbers: Vec<_> = timeline.entries().iter().map(|it| it.exchange).collect();
    assert_eq!(numbers, [Some(1), Some(2), Some(2), Some(1)]);
}

#[test]
fn the_version_of_a_legacy_request_is_the_negotiated_one() {
    let timeline = Timeline::of(&stdio(
        r#"
        0 > {"id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}
        1 < {"id":0,"result":{"protocolVersion":"2025-06-18"}}
        2 > {"method":"notifications/initialized"}
        3 > {"id":1,"method":"tools/list"}
        4 c2 > {"id":1,"method":"tools/list"}
        "#,
    ));

    let versions = timeline
        .exchanges()
        .map(|it| it.version.as_ref().map(|it| it.as_str().to_owned()));
    let versions: Vec<_> = versions.collect();
    let negotiated = Some("2025-06-18".to_owned());
    assert_eq!(versions, [negotiated.clone(), negotiated, None]);
}

#[test]
fn a_cancel_is_matched_by_its_id_and_has_a_latency_if_something_follows() {
    let timeline = Timeline::of(&stdio(
        r#"
        0 > {"id":1,"method":"tools/call","params":{"name":"slow",$M}}
        0 > {"id":"1","method":"tools/call","params":{"name":"other",$M}}
        10 > {"method":"notifications/cancelled","params":{"requestId":1,"reason":"enough"}}
        12 < {"id":1,"result":{$S}}
        13 > {"method":"notifications/cancelled","params":{"requestId":9}}
        14 > {"method":"notifications/cancelled","params":{"requestId":1}}
        "#,
    ));

    let slow = timeline.exchange(1).unwrap();
    let cancel = slow.cancel.as_ref().unwrap();
    assert_eq!(slow.state, ExchangeState::Cancelled);
    assert_eq!((cancel.form, cancel.by), (CancelForm::Frame, Side::Client));
    assert_eq!(cancel.reason.as_deref(), Some("enough"));
    assert_eq!(cancel.latency(), Some(millis(2)));
    assert_eq!(slow.late_answers.len(), 1);
    assert_eq!(timeline.exchange(2).unwrap().state, ExchangeState::Hung);
    assert_eq!(
        kinds(&timeline)[2..],
        [
            (Some(1), EntryKind::Cancel),
            (Some(1), EntryKind::LateAnswer),
            (None, EntryKind::Cancel),
            (Some(1), EntryKind::LateCancel),
        ]
    );
}

#[test]
fn a_closed_response_cancels_a_modern_request_and_not_a_legacy_one() {
    let timeline = Timeline::of(&http(
        r#"
        0 #1 POST /mcp
        0 #1 > {"id":1,"method":"tools/call","params":{"name":"slow",$M}}
        1 #1 200 content-type=text/event-stream
        8 #1 cut client
        9 #2 POST /mcp mcp-protocol-version=2025-11-25; mcp-session-id=s
        9 #2 > {"id":2,"method":"tools/call","params":{"name":"slow"}}
        12 #2 cut client
        13 #3 POST /mcp mcp-protocol-version=2025-11-25; mcp-session-id=s
        13 #3 > {"method":"notifications/cancelled","params":{"requestId":2}}
        14 #3 202
        14 #3 end server
        "#,
    ));

    let modern = timeline.exchange(1).unwrap().cancel.clone().unwrap();
    assert_eq!(
        (modern.form, modern.at),
        (CancelForm::ClosedStream, millis(8))
    );
    let legacy = timeline.exchange(2).unwrap().cancel.clone().unwrap();
    assert_eq!(
        (legacy.form, legacy.at),
        (CancelForm::PostedFrame, millis(13))
    );
}

#[test]
fn an_answered_request_is_not_cancelled_when_its_response_is_cut() {
    let timeline = Timeline::of(&http(
        r#"
        0 #1 POST /mcp
        0 #1 > {"id":1,"method":"tools/call","params":{"name":"slow",$M}}
        1 #1 200 content-type=text/event-stream
        2 #1 < {"id":1,"result":{$S}}
        3 #1 cut client
        "#,
    ));

    let exchange = timeline.exchange(1).unwrap();
    assert_eq!(
        (exchange.state, exchange.cancel.is_none()),
        (ExchangeState::Answered, true)
    );
}

#[test]
fn modern_answers_belong_to_their_http_request_even_if_ids_are_equal() {
    let timeline = Timeline::of(&http(
        r#"
        0 #1 POST /mcp
        0 #1 > {"id":1,"method":"tools/call","params":{"name":"a",$M}}
        0 c2 #2 POST /mcp
        0 c2 #2 > {"id":1,"method":"tools/call","params":{"name":"b",$M}}
        1 #1 200
        1 #1 < {"id":1,"error":{"code":1,"message":""}}
        2 c2 #2 200
        2 c2 #2 < {"id":1,"result":{$S}}
        3 c2 #2 < {"id":7,"result":{$S}}
        "#,
    ));

    let states: Vec<_> = timeline.exchanges().map(|it| it.state).collect();
    assert_eq!(states, [ExchangeState::Failed(1), ExchangeState::Answered]);
    assert_eq!(
        kinds(&timeline).last(),
        Some(&(None, EntryKind::UnmatchedAnswer))
    );
}

#[test]
fn questions_of_a_legacy_server_belong_to_the_request_they_are_about() {
    let timeline = Timeline::of(&http(
        r#"
        0 #1 POST /mcp mcp-session-id=s; mcp-protocol-version=2025-11-25
        0 #1 > {"id":1,"method":"tools/call","params":{"name":"ask"}}
        1 #1 200 content-type=text/event-stream
        2 #1 < {"id":1,"method":"elicitation/create","params":{}}
        5 #2 POST /mcp mcp-session-id=s; mcp-protocol-version=2025-11-25
        5 #2 > {"id":1,"result":{"action":"accept"}}
        6 #2 202
        8 #1 < {"id":1,"result":{}}
        "#,
    ));

    let (call, question) = (timeline.exchange(1).unwrap(), timeline.exchange(2).unwrap());
    assert_eq!(call.questions, [2]);
    assert_eq!(
        (question.question_of, question.from),
        (Some(1), Side::Server)
    );
    assert_eq!(
        (question.state, question.duration()),
        (ExchangeState::Answered, Some(millis(3)))
    );
    assert_eq!(call.duration(), Some(millis(8)));
}

#[test]
fn legs_of_a_call_are_linked_by_their_state_or_their_questions() {
    let timeline = Timeline::of(&stdio(
        r#"
        0 > {"id":1,"method":"tools/call","params":{"name":"ask",$M}}
        1 < {"id":1,"result":{"resultType":"input_required","inputRequests":{"a":{}},"requestState":"s1"}}
        2 > {"id":2,"method":"tools/call","params":{"name":"ask","requestState":"s1","inputResponses":{"a":{}},$M}}
        3 < {"id":2,"result":{"resultType":"input_required","inputRequests":{"b":{}}}}
        4 > {"id":3,"method":"tools/call","params":{"name":"other",$M}}
        5 > {"id":4,"method":"tools/call","params":{"name":"ask","inputResponses":{"b":{}},$M}}
        6 < {"id":4,"result":{$S}}
        "#,
    ));

    let legs: Vec<usize> = timeline.legs(2).iter().map(|it| it.number).collect();
    assert_eq!(legs, [1, 2, 4]);
    assert_eq!(
        timeline.exchange(1).unwrap().state,
        ExchangeState::InputRequired
    );
    assert_eq!(timeline.exchange(3).unwrap().previous_leg, None);
}

#[test]
fn notifications_belong_to_the_request_of_their_token_or_subscription() {
    let timeline = Timeline::of(&stdio(
        r#"
        0 > {"id":1,"method":"tools/call","params":{"name":"a","_meta":{"progressToken":"p"}}}
        0 > {"id":"L","method":"subscriptions/listen","params":{"notifications":{},$M}}
        1 < {"method":"notifications/progress","params":{"progressToken":"p","progress":1}}
        2 < {"method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"L"}}}
        3 < {"method":"notifications/message","params":{}}
        4 < {"method":"notifications/progress","params":{"progressToken":"q","progress":1}}
        5 > {"method":"notifications/cancelled","params":{"requestId":"L"}}
        "#,
    ));

    let call = timeline.exchange(1).unwrap();
    let listen = timeline.exchange(2).unwrap();
    assert_eq!(
        call.notification_count, 2,
        "the log message too, as no other call is in flight"
    );
    assert_eq!(
        (listen.acknowledged, listen.state),
        (Some(millis(2)), ExchangeState::Cancelled)
    );
    assert_eq!(timeline.entries()[5].exchange, None);
}

#[test]
fn an_http_error_without_an_answer_refuses_the_request() {
    let timeline = Timeline::of(&http(
        r#"
        0 #1 POST /mcp
        0 #1 > {"id":1,"method":"tools/list","params":{$M}}
        1 #1 401 www-authenticate=Bearer
        1 #1 end server
        "#,
    ));

    let exchange = timeline.exchange(1).unwrap();
    assert_eq!(exchange.state, ExchangeState::Refused(401));
    assert_eq!(exchange.duration(), Some(millis(1)));
}

#[test]
fn messages_of_a_batch_are_separate_entries() {
    let timeline = Timeline::of(&stdio(
        r#"
        0 > [{"id":1,"method":"ping"},{"id":2,"method":"ping"}]
        1 < [{"id":2,"result":{}},{"id":1,"result":{}}]
        "#,
    ));

    let numbers: Vec<_> = timeline
        .entries()
        .iter()
        .map(|it| (it.exchange, it.is_batched))
        .collect();
    assert_eq!(
        numbers,
        [
            (Some(1), true),
            (Some(2), true),
            (Some(2), true),
            (Some(1), true)
        ]
    );
}

#[test]
fn a_live_timeline_keeps_a_bounded_number_of_exchanges() {
    let mut timeline = Timeline::live();
    let recording = |id: usize| {
        stdio(&format!(
            r#"
            0 > {{"id":{id},"method":"tools/call","params":{{"name":"x","_meta":{{"progressToken":{id}}}}}}}
            1 < {{"id":{id},"result":{{}}}}
            "#
        ))
    };
    for id in 0..5000 {
        for event in &recording(id).events {
            let entries = timeline.observe(event);
            assert_eq!(entries[0].exchange, Some(id + 1));
        }
    }
    assert_eq!(timeline.exchanges().count(), MAX_ENDED);
    assert!(timeline.in_flight.is_empty());

    for id in 0..MAX_IN_FLIGHT + 2 * MAX_ENDED {
        timeline.observe(&recording(id).events[0]);
    }
    assert!(timeline.exchanges().count() <= MAX_ENDED + MAX_IN_FLIGHT);
}
