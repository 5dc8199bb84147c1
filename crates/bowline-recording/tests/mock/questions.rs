//! Questions of the recorded server, in every pair of eras.

use bowline::{Error, ErrorCode};
use bowline_recording::EventKind;
use serde_json::json;

use crate::recorded::{Era, PAIRS, Recorded, User, accept, builder, call, content};

fn three_answers(era: Era) -> Recorded {
    let mut recorded = Recorded::new(era);
    recorded.ask(json!({}), "Who?", accept("Ada"), "hello Ada");
    recorded.ask(json!({}), "Who?", json!({"action": "decline"}), "declined");
    recorded.ask(json!({}), "Who?", json!({"action": "cancel"}), "cancelled");
    recorded
}

#[tokio::test]
async fn a_question_is_asked_and_the_call_goes_on_as_recorded() {
    for (recorded_era, era) in PAIRS {
        let user = User::new([accept("Ada"), json!({"action": "decline"})]);
        let mock = three_answers(recorded_era).mock();

        let client = builder(&mock, era).host(user.host()).await.unwrap();
        for expected in ["hello Ada", "declined", "cancelled"] {
            let said = client.call_tool("ask", ()).await.unwrap().text();
            assert_eq!(said, expected, "{recorded_era:?} {era:?}");
        }

        assert_eq!(user.asked(), ["Who?"; 3]);
        assert!(mock.unmatched().is_empty(), "{:?}", mock.unmatched());
    }
}

#[tokio::test]
async fn the_answer_selects_the_continuation_whatever_the_order() {
    for (recorded_era, era) in PAIRS {
        let cancel = json!({"action": "cancel"});
        let user = User::new([
            cancel,
            accept("Grace"),
            accept("Ada"),
            json!({"action": "decline"}),
        ]);
        let mock = three_answers(recorded_era).mock();

        let client = builder(&mock, era).host(user.host()).await.unwrap();
        let mut said = Vec::new();
        for _ in 0..4 {
            said.push(client.call_tool("ask", ()).await.unwrap().text());
        }

        // Grace accepts as well; what the server would say to her is not known.
        assert_eq!(
            said,
            ["cancelled", "hello Ada", "hello Ada", "declined"],
            "{recorded_era:?} {era:?}"
        );
    }
}

#[tokio::test]
async fn an_answer_after_which_the_recording_does_not_go_on_is_an_error() {
    for (recorded_era, era) in PAIRS {
        let mut recorded = Recorded::new(recorded_era);
        recorded.ask(json!({}), "Who?", accept("Ada"), "hello Ada");
        let mock = recorded.mock();
        let user = User::new([json!({"action": "decline"})]);

        let client = builder(&mock, era).host(user.host()).await.unwrap();
        let Err(Error::Rpc(error)) = client.call_tool("ask", ()).await else {
            panic!("expected a JSON-RPC error");
        };

        assert_eq!(
            error.message,
            r#"the recording does not go on after the answer "decline"; recorded answers: "accept" {"name":"Ada"}"#
        );
        assert_eq!(mock.unmatched().len(), 1);
    }
}

#[tokio::test]
async fn a_second_question_depends_on_the_first_answer() {
    for (recorded_era, era) in PAIRS {
        let mut recorded = Recorded::new(recorded_era);
        let question = |message: &str| {
            let name = json!({"name": {"type": "string"}});
            json!({"message": message, "requestedSchema": {"type": "object", "properties": name}})
        };
        for (first, second, said) in [
            ("Ada", "Lovelace", "Ada Lovelace"),
            ("Grace", "Hopper", "Grace Hopper"),
            ("Grace", "Kelly", "Grace Kelly"),
        ] {
            let params = call("ask", json!({}));
            let id = recorded.request("tools/call", params.clone());
            let id = recorded.question(id, params.clone(), question("First?"), accept(first));
            let id = recorded.question(
                id,
                params,
                question(&format!("And then, {first}?")),
                accept(second),
            );
            recorded.answer(id, content(said));
        }
        let answers = ["Grace", "Kelly", "Ada", "Lovelace", "Grace", "Hopper"];
        let user = User::new(answers.map(accept));
        let mock = recorded.mock();

        let client = builder(&mock, era).host(user.host()).await.unwrap();
        for expected in ["Grace Kelly", "Ada Lovelace", "Grace Hopper"] {
            let said = client.call_tool("ask", ()).await.unwrap().text();
            assert_eq!(said, expected, "{recorded_era:?} {era:?}");
        }

        assert_eq!(user.asked()[..2], ["First?", "And then, Grace?"]);
    }
}

#[tokio::test]
async fn a_client_without_the_capability_gets_the_error_of_its_era() {
    for (recorded_era, era) in PAIRS {
        let mock = three_answers(recorded_era).mock();

        let client = builder(&mock, era).await.unwrap();
        let Err(Error::Rpc(error)) = client.call_tool("ask", ()).await else {
            panic!("expected a JSON-RPC error");
        };

        let expected = match era {
            Era::Modern => ErrorCode::MISSING_CLIENT_CAPABILITY,
            Era::Legacy => ErrorCode::INVALID_PARAMS,
        };
        assert_eq!(error.code, expected, "{recorded_era:?} {era:?}");
    }
}

#[tokio::test]
async fn a_question_over_stdio_belongs_to_the_last_call() {
    for era in [Era::Modern, Era::Legacy] {
        let mut recorded = Recorded::new(Era::Legacy);
        let first = recorded.request("tools/call", call("slow", json!({})));
        let second = recorded.request("tools/call", call("ask", json!({})));
        let question =
            json!({"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}});
        recorded.question(second, json!({}), question, accept("Ada"));
        recorded.answer(second, content("hello Ada"));
        recorded.answer(first, content("slept"));
        let user = User::new([json!({"action": "accept", "content": {}})]);

        let client = builder(&recorded.mock(), era)
            .host(user.host())
            .await
            .unwrap();

        assert_eq!(client.call_tool("slow", ()).await.unwrap().text(), "slept");
        assert!(user.asked().is_empty());
        assert_eq!(
            client.call_tool("ask", ()).await.unwrap().text(),
            "hello Ada"
        );
        assert_eq!(user.asked(), ["Who?"]);
    }
}

#[tokio::test]
async fn concurrent_calls_of_one_tool_without_a_state_are_told_apart() {
    for era in [Era::Modern, Era::Legacy] {
        let mut recorded = Recorded::new(Era::Modern);
        let who = |whose: &str| call("ask", json!({"whose": whose}));
        let question = |whose: &str| {
            let params = json!({"message": format!("Whose {whose}?"), "requestedSchema": {"type": "object", "properties": {}}});
            let question = json!({"method": "elicitation/create", "params": params});
            json!({"resultType": "input_required", "inputRequests": {"name": question}})
        };
        let (hat, coat) = (
            recorded.request("tools/call", who("hat")),
            recorded.request("tools/call", who("coat")),
        );
        recorded.answer(hat, question("hat"));
        recorded.answer(coat, question("coat"));
        for whose in ["hat", "coat"] {
            let mut retry = who(whose);
            retry["inputResponses"] = json!({"name": {"action": "accept", "content": {}}});
            let id = recorded.request("tools/call", retry);
            recorded.answer(id, content(&format!("the {whose} is yours")));
        }
        let accepted = json!({"action": "accept", "content": {}});
        let user = User::new([accepted.clone(), accepted]);

        let mock = recorded.mock();
        let client = builder(&mock, era).host(user.host()).await.unwrap();

        for whose in ["coat", "hat"] {
            let said = client
                .call_tool("ask", json!({"whose": whose}))
                .await
                .unwrap();
            assert_eq!(said.text(), format!("the {whose} is yours"), "{era:?}");
        }
        assert_eq!(user.asked(), ["Whose coat?", "Whose hat?"]);
    }
}

#[tokio::test]
async fn a_forged_state_is_refused() {
    let mut recorded = three_answers(Era::Modern);
    recorded.event(1, EventKind::Open);
    let mock = recorded.mock();
    let client = builder(&mock, Era::Modern).await.unwrap();

    for state in ["mock-0-7", "mock-99-0", "mock-0", "other"] {
        let mut params = call("ask", json!({}));
        params["requestState"] = json!(state);
        let Err(Error::Rpc(error)) = client.request_raw("tools/call", params).await else {
            panic!("expected a JSON-RPC error");
        };
        assert_eq!(error.message, "invalid request state");
    }
}
