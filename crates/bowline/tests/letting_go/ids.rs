//! Ids: chosen or minted, verbatim on the wire, coerced where our own calls are found.

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::{Error, RequestId};
use serde_json::{Value, json};

use crate::tools::Tools;
use crate::world::{World, call_frame, cancel_text, poll_once, scripted_client, scripted_server};

everywhere!(
    a_chosen_id_reaches_the_wire_and_the_handler_verbatim_and_the_next_call_mints_as_before
);
async fn a_chosen_id_reaches_the_wire_and_the_handler_verbatim_and_the_next_call_mints_as_before(
    world: World,
) {
    let chosen = world.client.call_tool("id", ()).id("7").await.unwrap();
    let number = world.client.call_tool("id", ()).id(-7).await.unwrap();
    let minted = world.client.call_tool("id", ()).await.unwrap();

    assert_eq!(chosen.text(), r#""7""#);
    assert_eq!(number.text(), "-7");
    assert_eq!(minted.text(), world.id(1).to_string());
    let frames = [
        r#"→ "7" tools/call id"#.to_owned(),
        r#"← "7" result"#.to_owned(),
        "→ -7 tools/call id".to_owned(),
        "← -7 result".to_owned(),
        world.request(1, "tools/call id"),
        world.result(1),
    ];
    world.end(&frames).await;
}

everywhere!(choosing_an_id_in_flight_is_an_error_before_anything_is_sent);
async fn choosing_an_id_in_flight_is_an_error_before_anything_is_sent(world: World) {
    let mine = world
        .client
        .call_tool("slow", json!({"name": "mine"}))
        .id(70);
    let mine = world.run_into_handler(mine.start()).await;

    for taken in [RequestId::from(70), RequestId::from("70")] {
        let second = world.client.call_tool("quick", ()).id(taken).await;
        assert!(matches!(second, Err(Error::Misuse { .. })), "{second:?}");
    }
    drop(mine);
    world.tools.dropped(1).await;
    // The reservation ended with the request.
    world.client.call_tool("quick", ()).id("70").await.unwrap();

    let frames = [
        "→ 70 tools/call slow".to_owned(),
        format!("→ {}", cancel_text("70", "caller cancelled")),
        r#"→ "70" tools/call quick"#.to_owned(),
        r#"← "70" result"#.to_owned(),
    ];
    world.end(&frames).await;
}

everywhere!(minting_skips_ids_that_a_supplied_one_occupies);
async fn minting_skips_ids_that_a_supplied_one_occupies(world: World) {
    let supplied = world.id(3).to_string();
    let mine = world.client.call_tool("slow", json!({"name": "mine"}));
    let mine = world
        .run_into_handler(mine.id(supplied.clone()).start())
        .await;

    for minted in [1, 2, 4] {
        let reply = world.client.call_tool("id", ()).await.unwrap();
        assert_eq!(reply.text(), world.id(minted).to_string());
    }

    drop(mine);
    world.tools.dropped(1).await;
    let mut frames = vec![format!("→ \"{supplied}\" tools/call slow")];
    for minted in [1, 2, 4] {
        frames.extend([world.request(minted, "tools/call id"), world.result(minted)]);
    }
    frames.push(format!(
        "→ {}",
        cancel_text(&format!("\"{supplied}\""), "caller cancelled")
    ));
    world.end(&frames).await;
}

in_every_era!(for_our_own_calls_correlation_uses_one_coerced_domain);
async fn for_our_own_calls_correlation_uses_one_coerced_domain(version: &'static str) {
    let (client, mut script) = scripted_server(version).await;
    for (chosen, echoed) in [(RequestId::from(70), json!("70")), ("70".into(), json!(70))] {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let heard = reports.clone();
        let answered = client
            .raw("x/y", ())
            .id(chosen.clone())
            .on_progress(move |report| heard.lock().unwrap().push(report.progress));
        let (answered, ()) = tokio::join!(answered.into_future(), async {
            let request = script.hear().await;
            let token = &request["params"]["_meta"]["progressToken"];
            script.say(
                &json!({"jsonrpc": "2.0", "method": "notifications/progress",
                "params": {"progressToken": token.to_string(), "progress": 1}}),
            );
            script.answer(&json!({"id": echoed}), &json!({"resultType": "complete"}));
        });
        let failed = client.raw("x/y", ()).id(chosen);
        let (failed, ()) = tokio::join!(failed.into_future(), async {
            script.hear().await;
            let error = json!({"code": -32000, "message": "no"});
            script.say(&json!({"jsonrpc": "2.0", "id": echoed, "error": error}));
        });

        assert!(answered.is_ok());
        assert_eq!(*reports.lock().unwrap(), [1.0]);
        assert!(matches!(failed, Err(Error::Peer(error)) if error.message == "no"));
    }
    assert!(client.peer().unwrap().is_idle());
}

in_every_era!(coercion_accepts_canonical_decimals_only);
async fn coercion_accepts_canonical_decimals_only(version: &'static str) {
    let (client, mut script) = scripted_server(version).await;
    let call = client.raw("x/y", ()).id(7).timeout(Duration::from_secs(1));

    let (ended, ()) = tokio::join!(call.into_future(), async {
        script.hear().await;
        for opaque in ["007", "+7", " 7", "1_000", "7.0", ""] {
            script.answer(&json!({"id": opaque}), &json!({"resultType": "complete"}));
        }
    });

    assert!(matches!(ended, Err(Error::Timeout { .. })));
}

in_every_era!(inbound_requests_are_keyed_verbatim);
async fn inbound_requests_are_keyed_verbatim(version: &'static str) {
    let tools = Tools::new();
    let (server_end, mut script) = scripted_client(version, &tools).await;
    script.say_text(&call_frame(version, 7, "slow"));
    script.say_text(&call_frame(version, "7", "slow"));
    tools.started(2).await;

    script.say_text(&cancel_text("\"7\"", "the text one"));
    tools.dropped(1).await;
    tools.release("mine");

    assert_eq!(script.hear_in_short().await, "7 result");
    assert!(server_end.is_idle());
    drop(script);
}

in_every_era!(an_inbound_cancel_matches_by_coercion_if_exactly_one_request_fits);
async fn an_inbound_cancel_matches_by_coercion_if_exactly_one_request_fits(version: &'static str) {
    for (id, named, fits) in [
        (json!(7), r#""7""#, true),
        (json!("7"), "7", true),
        (json!("007"), "7", false),
        (json!(7), r#""+7""#, false),
    ] {
        let tools = Tools::new();
        let (server_end, mut script) = scripted_client(version, &tools).await;
        script.say_text(&call_frame(version, &id, "slow"));
        tools.started(1).await;

        script.say_text(&cancel_text(named, "coerced"));
        script.say_text(&call_frame(version, "next", "quick"));

        assert_eq!(script.hear_in_short().await, "\"next\" result");
        assert_eq!(tools.tally().dropped, usize::from(fits), "{id} {named}");
        assert_eq!(server_end.is_idle(), fits);
    }
}

in_every_era!(a_boolean_is_never_an_id);
async fn a_boolean_is_never_an_id(version: &'static str) {
    let tools = Tools::new();
    let (_server_end, mut script) = scripted_client(version, &tools).await;
    script.say_text(&call_frame(version, 1, "slow"));
    tools.started(1).await;

    for no_id in [json!(true), json!(1.0), Value::Null, json!([1])] {
        script.say_text(&cancel_text(&no_id.to_string(), "nobody's"));
    }
    tools.release("mine");

    assert_eq!(script.hear_in_short().await, "1 result");
    assert_eq!(tools.tally().dropped, 0);
}

everywhere!(an_id_is_free_again_once_its_call_was_let_go_before_it_was_polled);
async fn an_id_is_free_again_once_its_call_was_let_go_before_it_was_polled(world: World) {
    let mut first = world.client.call_tool("quick", ()).id("x").start();
    drop(world.client.call_tool("quick", ()).id("y").start());

    assert!(poll_once(&mut first).await.is_ready() || first.await.is_ok());
    world.client.call_tool("quick", ()).id("y").await.unwrap();

    let frames = [
        r#"→ "x" tools/call quick"#.to_owned(),
        r#"← "x" result"#.to_owned(),
        r#"→ "y" tools/call quick"#.to_owned(),
        r#"← "y" result"#.to_owned(),
    ];
    world.end(&frames).await;
}
