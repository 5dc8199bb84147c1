//! What is over leaves nothing behind, and what cannot be let in takes no room.

use super::*;

#[test]
fn a_call_that_is_over_leaves_no_deadline() {
    let limited = || CallOptions {
        idle_timeout: Some(Duration::from_secs(1)),
        total_timeout: Some(Duration::from_secs(9)),
        ..CallOptions::default()
    };
    let mut pair = Pair::new();
    pair.call_with("answered", limited());
    pair.deliver();
    let id = pair.serve_one();
    let abandoned = pair.call_with("abandoned", limited());
    assert!(pair.client.poll_timeout().is_some());

    pair.server.respond(&id, ok());
    pair.client.abandon(abandoned, &Reason::Dropped);
    pair.deliver();

    assert_eq!(pair.client.poll_timeout(), None);
}

#[test]
fn an_answer_to_a_call_that_was_not_sent_is_nobodys() {
    let mut pair = Pair::new();
    let call = pair.call("tools/call");
    let guess = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;

    pair.server_says(guess);

    assert!(matches!(pair.client.poll_event(), Some(Event::Oddity(_))));
    assert!(text(pair.client.poll_transmit()).contains("tools/call"));
    pair.server_says(guess);
    assert_eq!(settled(pair.client.poll_event()).0, call);
}

#[test]
fn after_the_end_nothing_is_let_in_or_out() {
    let mut pair = Pair::new();
    pair.server.handle_end(End::Closed);

    pair.client_says(r#"{"jsonrpc":"2.0","id":1,"method":"late"}"#);
    pair.client_says(r#"{"jsonrpc":"2.0","method":"late"}"#);
    let told = pair.server.notify(Notification::new("late", None));

    assert_eq!(told, Err(NotSent::Ended));
    assert_eq!(pair.server.poll_event(), None);
    pair.assert_empty();
}
