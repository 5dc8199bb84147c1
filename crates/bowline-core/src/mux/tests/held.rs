//! Calls that are held up on our side.

use super::*;

#[test]
fn the_time_in_which_a_call_is_held_does_not_count() {
    let mut pair = Pair::new();
    let second = Duration::from_secs(1);
    let limits = |idle, total| CallOptions {
        idle_timeout: Some(idle * second),
        total_timeout: Some(total * second),
        ..CallOptions::default()
    };
    let held = pair.call_with("a", limits(2, 3));
    let other = pair.call_with("b", limits(2, 10));
    let id = RequestId::Number(1);
    pair.deliver();
    pair.advance(second);

    pair.client.hold(pair.now, &id);
    pair.client.pause_idle();
    pair.client.resume_idle(pair.now);
    pair.advance(50 * second);

    let idle = Err(Failure::Timeout(Overdue::Idle(2 * second)));
    assert_eq!(settled(pair.client.poll_event()), (other, idle));
    assert_eq!(pair.client.poll_event(), None);
    pair.client.release(pair.now, &id);
    pair.advance(second);
    assert_eq!(pair.client.poll_event(), None);
    pair.advance(second);
    let total = Err(Failure::Timeout(Overdue::Total(3 * second)));
    assert_eq!(settled(pair.client.poll_event()), (held, total));
    assert_eq!(pair.client.poll_timeout(), None);
}

#[test]
fn a_call_that_has_not_left_is_not_held_by_news_of_a_predecessor_with_its_id() {
    let mut pair = Pair::new();
    let second = Duration::from_secs(1);
    let limited = CallOptions {
        total_timeout: Some(second),
        ..with_id(7)
    };
    let call = pair.call_with("a", limited);

    pair.client.hold(pair.now, &RequestId::Number(7));
    pair.advance(second);

    let total = Err(Failure::Timeout(Overdue::Total(second)));
    assert_eq!(settled(pair.client.poll_event()), (call, total));
}

#[test]
fn a_call_that_has_to_be_over_before_anything_will_be_heard_of_it_fails_at_once() {
    let seconds = Duration::from_secs;
    let both = CallOptions {
        idle_timeout: Some(seconds(60)),
        total_timeout: Some(seconds(90)),
        ..CallOptions::default()
    };
    for (wait, fails_by) in [
        (Some(59), None),
        (Some(61), Some(Overdue::Idle(seconds(60)))),
        (None, Some(Overdue::Idle(seconds(60)))),
    ] {
        let mut pair = Pair::new();
        let call = pair.call_with("tools/call", both.clone());
        pair.deliver();
        let id = pair.client.request_id(call).unwrap().clone();

        let until = wait.map(|wait| pair.now + seconds(wait));
        pair.client.handle_wait(until, &id);

        match fails_by {
            None => assert_eq!(pair.client.poll_event(), None),
            Some(overdue) => {
                // The cancel is on its way already.
                assert!(text(pair.client.poll_transmit()).contains("notifications/cancelled"));
                let failure = Err(Failure::Timeout(overdue));
                assert_eq!(settled(pair.client.poll_event()), (call, failure));
            }
        }
    }
}

#[test]
fn a_call_without_deadlines_waits_for_as_long_as_its_server_says() {
    let mut pair = Pair::new();
    let call = pair.call("tools/call");
    pair.deliver();
    let id = pair.client.request_id(call).unwrap().clone();

    pair.client.handle_wait(None, &id);

    assert_eq!(pair.client.poll_event(), None);
}
