//! Merged subscriptions: one acknowledgement, before everything else, and no change that is lost.

use bowline::Json;
use bowline::exchange::Notification;
use bowline_types::SubscriptionFilter;
use serde_json::{Value, json};

use super::{ListenEvent, ListenMerger};
use crate::test_random::SplitMix64;

fn filter(value: Value) -> SubscriptionFilter {
    serde_json::from_value(value).unwrap()
}

fn notification(method: &'static str, params: Option<Value>) -> Notification {
    Notification {
        method: format!("notifications/{method}").into(),
        params: params.map(Json::from),
    }
}

fn acknowledged(filter: &Value) -> Notification {
    notification(
        "subscriptions/acknowledged",
        Some(json!({"notifications": filter})),
    )
}

fn all() -> SubscriptionFilter {
    filter(json!({
        "toolsListChanged": true, "promptsListChanged": false, "resourcesListChanged": true,
        "resourceSubscriptions": ["a:1", "b:1", "?:1"], "taskIds": ["t"],
    }))
}

fn merger() -> ListenMerger {
    ListenMerger::new(&all(), ["a", "b"], |uri| match &uri[..1] {
        "a" => Some("a"),
        "b" => Some("b"),
        _ => None,
    })
}

fn methods(events: &[ListenEvent]) -> Vec<String> {
    let method = |event: &ListenEvent| match event {
        ListenEvent::Acknowledged(_) => "ack".to_owned(),
        ListenEvent::Notification(it) => it.method.trim_start_matches("notifications/").to_owned(),
        ListenEvent::Ended => "ended".to_owned(),
    };
    events.iter().map(method).collect()
}

#[test]
fn each_server_is_asked_for_its_own_resources() {
    let merger = merger();

    let filters: Vec<_> = merger.filters().map(|(server, _)| server).collect();
    assert_eq!(filters, ["a", "b"]);
    let a = merger.filter("a").unwrap();
    assert_eq!(
        a.resource_subscriptions.as_deref(),
        Some(&["a:1".to_owned()][..])
    );
    assert_eq!((a.tools_list_changed, a.other.len()), (Some(true), 1));
    let only_b = ListenMerger::new(
        &filter(json!({"resourceSubscriptions": ["b:1"]})),
        ["a", "b"],
        |_| Some("b"),
    );
    assert!(only_b.filter("a").is_none(), "nothing is wanted from it");
}

#[test]
fn one_acknowledgement_comes_first() {
    let mut merger = merger();

    assert_eq!(merger.start(), []);
    let change = notification("tools/list_changed", Some(json!({"_meta": {"x": 1}})));
    assert_eq!(merger.handle_notification("b", change.clone()), []);
    assert_eq!(merger.handle_notification("b", change.clone()), []);
    let a = acknowledged(
        &json!({"toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["a:1", "x:1"]}),
    );
    assert_eq!(merger.handle_notification("a", a), []);
    let events = merger.handle_notification(
        "b",
        acknowledged(&json!({"resourceSubscriptions": ["b:1"], "taskIds": ["t"]})),
    );

    let expected = filter(
        json!({"toolsListChanged": true, "resourceSubscriptions": ["a:1", "b:1"], "taskIds": ["t"]}),
    );
    let expected = [
        ListenEvent::Acknowledged(expected),
        ListenEvent::Notification(change),
    ];
    assert_eq!(
        events, expected,
        "without what was not requested, and one notification of two"
    );
    assert!(merger.is_acknowledged());
}

#[test]
fn a_server_that_hangs_is_acknowledged_for_and_reported_later() {
    let mut merger = merger();
    let _ = merger.handle_notification("a", acknowledged(&json!({})));

    let events = merger.handle_timeout();

    let expected = filter(json!({
        "toolsListChanged": true, "resourcesListChanged": true, "resourceSubscriptions": ["b:1"], "taskIds": ["t"],
    }));
    assert_eq!(events, [ListenEvent::Acknowledged(expected)]);
    assert_eq!(merger.handle_timeout(), []);
    let late = acknowledged(&json!({"toolsListChanged": true, "resourceSubscriptions": ["b:1"]}));
    let events = merger.handle_notification("b", late.clone());
    assert_eq!(
        methods(&events),
        ["tools/list_changed", "resources/updated"]
    );
    assert_eq!(
        events[1],
        ListenEvent::Notification(notification(
            "resources/updated",
            Some(json!({"uri": "b:1"}))
        ))
    );
    assert_eq!(
        merger.handle_notification("b", late),
        [],
        "a second acknowledgement is nothing new"
    );
}

#[test]
fn after_a_lost_connection_everything_may_have_changed() {
    let mut merger = merger();
    let open = || acknowledged(&json!({"toolsListChanged": true}));
    let _ = merger.handle_notification("a", open());
    assert_eq!(methods(&merger.handle_lost("b")), ["ack"]);

    assert_eq!(merger.handle_lost("a"), []);

    assert_eq!(
        methods(&merger.handle_notification("a", open())),
        ["tools/list_changed"]
    );
    assert_eq!(
        methods(&merger.handle_notification("b", open())),
        ["tools/list_changed"]
    );
}

#[test]
fn the_subscription_ends_with_the_last_server() {
    let mut merger = merger();
    let _ = merger.handle_notification("a", acknowledged(&json!({"toolsListChanged": true})));

    assert_eq!(methods(&merger.handle_ended("b")), ["ack"]);
    assert_eq!(
        merger.handle_notification("b", notification("tools/list_changed", None)),
        []
    );
    assert_eq!(merger.handle_lost("a"), []);
    assert_eq!(methods(&merger.handle_ended("a")), ["ended"]);
    assert_eq!(merger.handle_ended("a"), []);
}

#[test]
fn a_subscription_to_nothing_is_acknowledged_and_stays() {
    let mut merger = ListenMerger::new(&SubscriptionFilter::default(), ["a"], |_| None);

    assert_eq!(
        merger.start(),
        [ListenEvent::Acknowledged(SubscriptionFilter::default())]
    );
    assert_eq!(merger.handle_ended("a"), []);
}

#[test]
fn what_was_not_requested_is_dropped_and_what_waits_is_bounded() {
    let mut merger = merger();

    let _ = merger.handle_notification("a", notification("prompts/list_changed", None));
    let _ = merger.handle_notification("unknown", notification("tools/list_changed", None));
    for number in 0..300 {
        let uri = json!({"uri": format!("a:1/{number}")});
        let _ = merger.handle_notification("a", notification("resources/updated", Some(uri)));
    }

    assert_eq!(merger.dropped(), 300 - 256);
    let events = merger.handle_timeout();
    assert_eq!(events.len(), 1 + 256);
    assert!(
        methods(&events)[1..]
            .iter()
            .all(|method| method == "resources/updated")
    );
}

#[test]
fn large_notifications_that_wait_are_bounded_by_their_size() {
    let wanted = filter(json!({"x": true}));
    let mut merger = ListenMerger::new(&wanted, ["a", "b"], |_| None);

    for _ in 0..5 {
        let large = json!({"x": "x".repeat(300 * 1024)});
        let _ = merger.handle_notification("a", notification("x", Some(large)));
    }

    assert_eq!(merger.dropped(), 2);
    assert_eq!(merger.handle_timeout().len(), 1 + 3);
}

#[test]
fn whatever_happens_the_client_sees_every_change_after_one_acknowledgement() {
    let mut random = SplitMix64::new(23);
    for _ in 0..5000 {
        let servers = ["a", "b", "c"];
        let wanted = filter(json!({"toolsListChanged": true}));
        let mut merger = ListenMerger::new(&wanted, servers, |_| None);
        let mut seen = merger.start();
        // A client reads the lists after the acknowledgement and after each notification. A server is dirty if its list
        // has changed since, and open from its acknowledgement to its loss.
        let (mut is_dirty, mut is_open, mut has_ended) = ([false; 3], [false; 3], [false; 3]);
        for _ in 0..random.below(30) {
            let at = random.below(3);
            let server = servers[at];
            let events = match random.below(10) {
                0 => merger.handle_timeout(),
                1 => {
                    is_open[at] = false;
                    merger.handle_lost(server)
                }
                2 if random.chance(20) => {
                    (is_open[at], has_ended[at]) = (false, true);
                    merger.handle_ended(server)
                }
                2..=5 => {
                    is_open[at] = !has_ended[at];
                    let opened = acknowledged(&json!({"toolsListChanged": true}));
                    merger.handle_notification(server, opened)
                }
                _ => {
                    is_dirty[at] = true;
                    let change = notification("tools/list_changed", None);
                    // While the connection is down, no notification reports a change.
                    match is_open[at] {
                        true => merger.handle_notification(server, change),
                        false => Vec::new(),
                    }
                }
            };
            let reads = |method: &String| method == "ack" || method == "tools/list_changed";
            if methods(&events).iter().any(reads) {
                is_dirty = std::array::from_fn(|at| is_dirty[at] && !is_open[at]);
            }
            seen.extend(events);
            let missed = (0..3).find(|at| is_open[*at] && is_dirty[*at]);
            assert!(
                !merger.is_acknowledged() || missed.is_none(),
                "{missed:?} {seen:?}"
            );
        }
        seen.extend(merger.handle_timeout());
        let acknowledgements = methods(&seen).iter().filter(|it| *it == "ack").count();
        assert_eq!(acknowledgements, 1);
        assert_eq!(methods(&seen)[0], "ack");
        let ends = methods(&seen).iter().filter(|it| *it == "ended").count();
        assert_eq!(ends, usize::from(has_ended == [true; 3]));
    }
}
